"""SkyRL 0.3's trainers, reduced to what their callbacks and generators see of them.

Which fields each stage keeps, which objects it passes on, when events fire and what they carry is as in the release;
models, metrics and everything distributed is left out. ``batch["loss_mask"]`` is an array instead of a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tests.references.index_builders import TrajectoryID

Output = dict[str, Any]


class Generator(Protocol):
    """Makes trajectories."""

    async def generate(self, input_batch: dict[str, Any]) -> Output:
        """Return one row per trajectory, or per turn of one, in the order of the input."""
        ...


@dataclass(kw_only=True)
class Plan:
    """What a training is configured with."""

    batches: list[list[str]]  # the prompts of each batch of the data loader
    epochs: int = 1
    samples: int = 2  # per prompt
    batch_size: int = 1  # prompts that a dynamically sampled, or asynchronous, step needs
    dynamic_sampling: str | None = None  # "filter" or "replace"
    zero_variance_filter: bool = False
    step_wise: bool = False
    rows_multiple_of: int = 1  # the data-parallel size that a batch is padded to
    eval_prompts: list[str] = field(default_factory=list)


@dataclass
class CallbackInput:
    """As SkyRL has it, without what no test looks at."""

    global_step: int
    batch: Any = None
    metrics: dict[str, Any] | None = None


@dataclass
class Tracker:
    """SkyRL's tracker over W&B; notes in which order it and others were ended."""

    logger: Any
    ended: list[str] = field(default_factory=list)
    backend: str = "wandb"

    def finish(self) -> None:
        """Finish the run."""
        self.ended.append("tracker")


class Callbacks:
    """Calls each event of each callback."""

    def __init__(self) -> None:
        """Begin without any."""
        self.callbacks: list[Any] = []

    def add(self, callback: object) -> None:
        """Register one."""
        self.callbacks.append(callback)


class Trainer:
    """The synchronous trainer."""

    def __init__(
        self, plan: Plan, generator: Generator, tracker: Tracker, callbacks: list[object] | None = None
    ) -> None:
        """Take what it trains with."""
        self.plan, self.generator, self.tracker = plan, generator, tracker
        self.global_step = 0
        self.dynamic_sampling_state: dict[str, Any] | None = None
        self._callback_handler = Callbacks()
        for callback in callbacks or []:
            self._callback_handler.add(callback)

    def add_callback(self, callback: object) -> None:
        """Register a callback."""
        self._callback_handler.add(callback)

    def _build_callback_input(self, **fields: Any) -> CallbackInput:  # noqa: ANN401 - fields of the event
        return CallbackInput(global_step=self.global_step, **fields)

    def _fire(self, event_name: str, **fields: Any) -> None:  # noqa: ANN401 - fields of the event
        callback_input = self._build_callback_input(**fields)
        for callback in self._callback_handler.callbacks:
            getattr(callback, event_name)(self, callback_input, None)

    async def train(self) -> None:
        """Evaluate, train on every batch of every epoch, evaluate after each step."""
        self._fire("on_train_start")
        await self._evaluate()
        self.global_step += 1
        for _ in range(self.plan.epochs):
            self._fire("on_epoch_start")
            step_started = False
            for prompts in self.plan.batches:
                if not step_started:
                    self._fire("on_step_start")
                    step_started = True
                uids = [uid for uid in prompts for _ in range(self.plan.samples)]
                output = await self.generate(self._input(prompts))
                if self.plan.step_wise:
                    uids = [trajectory_id.instance_id for trajectory_id in output["trajectory_ids"]]
                if self.plan.dynamic_sampling:
                    output, uids, keep_sampling = self.handle_dynamic_sampling(output, uids)
                    if keep_sampling:
                        continue
                output = self._postprocess(output, uids)
                batch = self.convert_to_training_input(output, uids)
                self._fire("on_step_end", batch=batch, metrics={})
                step_started = False
                await self._evaluate()
                self._fire("on_log")
                self.global_step += 1
            self._fire("on_epoch_end")
        self.global_step -= 1
        self._fire("on_train_end")
        self.tracker.finish()

    def _input(self, prompts: list[str], phase: str = "train") -> dict[str, Any]:
        ids = [TrajectoryID(uid, repetition) for uid in prompts for repetition in range(self.plan.samples)]
        return {"prompts": [each.instance_id for each in ids], "trajectory_ids": ids, "phase": phase}

    async def generate(self, input_batch: dict[str, Any]) -> Output:
        """Generate one batch."""
        output = await self.generator.generate(input_batch)
        assert self.plan.step_wise or len(output["response_ids"]) == len(input_batch["prompts"])
        return output

    async def eval(self) -> dict[str, float]:
        """Generate for the evaluation."""
        await self.generator.generate(self._input(self.plan.eval_prompts, "eval"))
        return {}

    async def _evaluate(self) -> None:
        if self.plan.eval_prompts:
            self._fire("on_eval_start")
            self._fire("on_eval_end", metrics=await self.eval())

    def handle_dynamic_sampling(self, output: Output, uids: list[str]) -> tuple[Output, list[str], bool]:
        """Replace, or filter and collect, groups whose rewards do not differ."""
        self.dynamic_sampling_state = self.dynamic_sampling_state or {}
        sample = _replace if self.plan.dynamic_sampling == "replace" else _collect
        output, uids, keep_sampling = sample(output, uids, self.dynamic_sampling_state, self.plan)
        if not keep_sampling:
            self.dynamic_sampling_state = None
        return output, uids, keep_sampling

    def _postprocess(self, output: Output, uids: list[str]) -> Output:
        if self.plan.zero_variance_filter:
            good = _varied(output, uids)
            output["loss_masks"] = [
                mask if uid in good else [0] * len(mask) for mask, uid in zip(output["loss_masks"], uids, strict=True)
            ]
        return output

    def convert_to_training_input(self, output: Output, uids: list[str]) -> Any:  # noqa: ANN401 - a batch
        """Make the batch: rows in their order, then padding that trains nothing."""
        assert len(uids) == len(output["loss_masks"])
        width = max(map(len, output["loss_masks"]))
        rows = [[*mask, *[0] * (width - len(mask))] for mask in output["loss_masks"]]
        rows += [[0] * width] * (-len(rows) % self.plan.rows_multiple_of)
        return {"loss_mask": np.array(rows)}


@dataclass
class Group:
    """The finished samples of one prompt."""

    generator_output: Output
    uid: str


class AsyncTrainer(Trainer):
    """The fully asynchronous trainer: it generates ahead of its steps, and drops groups whose rewards do not differ."""

    def __init__(
        self, plan: Plan, generator: Generator, tracker: Tracker, callbacks: list[object] | None = None
    ) -> None:
        """Take what it trains with, but no callbacks."""
        super().__init__(plan, generator, tracker, callbacks)
        if self._callback_handler.callbacks:
            raise NotImplementedError("Callbacks are not yet supported")

    def add_callback(self, callback: object) -> None:
        """Refuse a callback."""
        raise NotImplementedError("Callbacks are not yet supported")

    async def train(self) -> None:
        """Generate everything, then train step by step on what varied; a partial batch is discarded."""
        if self.plan.eval_prompts:
            await self.eval()
        self.global_step += 1
        for prompts in self.plan.batches:
            groups = [Group(await self.generator.generate(self._input([uid])), uid) for uid in prompts]
            kept: list[Group] = []
            dropped: list[Group] = []
            for group in groups:
                varied = _varied(group.generator_output, [group.uid] * len(group.generator_output["rewards"]))
                (kept if varied else dropped).append(group)
                if len(kept) == self.plan.batch_size:
                    batch = self.convert_generation_group_mini_batch_to_training_input(kept, dropped)
                    await self._run_training(batch)
                    kept, dropped = [], []
                    if self.plan.eval_prompts:
                        await self.eval()
                    self.global_step += 1
        self.tracker.finish()

    def convert_generation_group_mini_batch_to_training_input(
        self, groups: list[Group], dropped_groups: list[Group] | None = None
    ) -> Any:  # noqa: ANN401 - a batch
        """Concatenate the groups, the fields that are lists in the first one, and make the batch."""
        _concatenate([group.generator_output for group in [*groups, *(dropped_groups or [])]])  # for its metrics
        output = _concatenate([group.generator_output for group in groups])
        uids = [group.uid for group in groups for _ in group.generator_output["response_ids"]]
        return self.convert_to_training_input(self._postprocess(output, uids), uids)

    async def _run_training(self, batch: object) -> object:
        assert batch is not None
        return {}


def _varied(output: Output, uids: list[str]) -> set[str]:
    rewards: dict[str, set[float]] = {}
    for uid, reward in zip(uids, output["rewards"], strict=True):
        rewards.setdefault(uid, set()).add(reward)
    return {uid for uid, seen in rewards.items() if len(seen) > 1}


def _concatenate(outputs: list[Output]) -> Output:
    return {
        name: [value for output in outputs for value in output[name]]
        for name, first in outputs[0].items()
        if isinstance(first, list)
    }


def _pick(output: Output, rows: list[int]) -> Output:
    picked = {name: [output[name][row] for row in rows] for name in ("response_ids", "rewards", "loss_masks")}
    reasons = output.get("stop_reasons")
    return {**picked, "stop_reasons": [reasons[row] for row in rows] if reasons else None}


def _collect(output: Output, uids: list[str], state: dict[str, Any], plan: Plan) -> tuple[Output, list[str], bool]:
    good = _varied(output, uids)
    rows = [row for row, uid in enumerate(uids) if uid in good]
    fresh = _pick(output, rows)
    state["output"] = _concatenate([state["output"], fresh]) if "output" in state else fresh
    state["uids"] = [*state.get("uids", []), *(uids[row] for row in rows)]
    state["prompts"] = state.get("prompts", 0) + len(good)
    if state["prompts"] < plan.batch_size:
        return output, uids, True
    wanted = list(range(plan.batch_size * plan.samples))
    return _pick(state["output"], wanted), state["uids"][: len(wanted)], False


def _replace(output: Output, uids: list[str], state: dict[str, Any], plan: Plan) -> tuple[Output, list[str], bool]:
    state["sample_batch_count"] = state.get("sample_batch_count", 0) + 1
    good = _varied(output, uids)
    if not good:
        return output, uids, True
    source = [row for row, uid in enumerate(uids) if uid == min(good)]
    bad = [row for row, uid in enumerate(uids) if uid not in good]
    replaced = list(uids)
    for row, other in zip(bad, source * len(uids), strict=False):
        for name in ("response_ids", "loss_masks"):
            output[name][row] = output[name][other].copy()
        output["rewards"][row] = output["rewards"][other]
        if output["stop_reasons"]:
            output["stop_reasons"][row] = output["stop_reasons"][other]
        replaced[row] = uids[other]
    assert plan.dynamic_sampling == "replace"
    return output, replaced, False
