"""Whether SkyRL's trainers, with ``references/skyrl.py`` and nothing else changed, get their steps indexed right."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from references.callback import SkycapRecordIndex
from references.record_log import RecordLog
from references.skyrl import FullyAsyncTrajectoryIds, TrajectoryIds
from tests.references.index_builders import KeepingPublisher, finished
from tests.references.skyrl_standin import AsyncTrainer, Plan, Tracker, Trainer


class IndexedTrainer(TrajectoryIds, Trainer):
    """The synchronous trainer, extended."""


class IndexedAsyncTrainer(FullyAsyncTrajectoryIds, AsyncTrainer):
    """The asynchronous trainer, extended."""


class _Rollouts:
    """A generator that logs every attempt, with the rewards that a test wants.

    Args:
        rewards: per prompt, for each time that it is drawn, the rewards of its samples; 0 and 1 where it says nothing.
        masked: prompts without a trainable token.
        retried: prompts whose first attempt fails.
        names_rows: whether it gives the trajectory ids back.
        turns: rows per trajectory; only the last one has trainable tokens.
    """

    def __init__(
        self,
        rewards: dict[str, list[list[float]]] | None = None,
        *,
        masked: str = "",
        retried: str = "",
        names_rows: bool = False,
        turns: int = 1,
    ) -> None:
        self.log = RecordLog()
        self._rewards = rewards or {}
        self._masked, self._retried = masked, retried
        self._names_rows, self._turns = names_rows, turns
        self._draws: dict[str, int] = {}

    async def generate(self, input_batch: dict[str, Any], disable_tqdm: bool = False) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002 - as SkyRL's generators have it
        phase = input_batch.get("phase") or input_batch["batch_metadata"].training_phase
        rows = [row for each in input_batch["trajectory_ids"] for row in self._sample(each, phase)]
        output: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        output |= {"rollout_metrics": {}, "rollout_logprobs": None}
        if not self._names_rows:
            output["trajectory_ids"] = None
        if self._turns == 1:
            output["is_last_step"] = None
        return output

    def _sample(self, trajectory_id: Any, phase: str) -> list[dict[str, Any]]:  # noqa: ANN401 - SkyRL's TrajectoryID
        uid, repetition = trajectory_id.instance_id, trajectory_id.repetition_id
        if repetition == 0:
            self._draws[uid] = self._draws.get(uid, 0) + 1
        draw = self._draws[uid]
        rewards = self._rewards.get(uid, [])
        reward = rewards[draw - 1][repetition] if draw <= len(rewards) else float(repetition)
        attempts = 2 if uid in self._retried else 1
        for attempt in range(attempts):
            self.log.add(phase, trajectory_id, attempt, finished(f"{uid}{draw}.{repetition}.{attempt}", reward=reward))
        last = self._turns - 1
        return [
            {
                "prompt_token_ids": [1, 2],
                "response_ids": [3, 4],
                "rewards": reward,
                "loss_masks": [0, int(uid not in self._masked and turn == last)],
                "stop_reasons": f"stop-{uid}{draw}.{repetition}",
                "trajectory_ids": trajectory_id,
                "is_last_step": turn == last,
            }
            for turn in range(self._turns)
        ]


class _Training:
    """A training run and the index of each of its steps."""

    def __init__(self, plan: Plan, rollouts: _Rollouts, trainer_class: Any, *phases: str, **settings: Any) -> None:  # noqa: ANN401 - a trainer's class, any setting
        self.publisher = KeepingPublisher()
        self.callback = SkycapRecordIndex(rollouts.log, phases or ("train",), publisher=self.publisher, **settings)
        self.tracker = Tracker(SimpleNamespace(run=SimpleNamespace(id="run-1")))
        self.trainer = trainer_class(plan, rollouts, self.tracker, callbacks=[self.callback])
        self.rollouts = rollouts

    def run(self) -> _Training:
        """Train to the end."""
        asyncio.run(self.trainer.train())
        return self

    @property
    def steps(self) -> list[tuple[str, int]]:
        """What was indexed."""
        return [(index.phase, index.step) for index, _ in self.publisher.published]

    def trained(self, position: int = 0) -> dict[str, bool | None]:
        """Say of each final attempt of an index whether it trained."""
        index, _ = self.publisher.published[position]
        return {row.id: row.trained for row in index.rows if not row.superseded}


def draws(*, trained: str = "", untrained: str = "", unknown: str = "") -> dict[str, bool | None]:
    """Expect the same of both samples of each draw; ``b2`` is the second draw of the prompt ``b``."""
    said: list[tuple[str, bool | None]] = [(trained, True), (untrained, False), (unknown, None)]
    return {f"{draw}.{repetition}.0": flag for names, flag in said for draw in names.split() for repetition in range(2)}


@pytest.mark.parametrize("names_rows", [True, False])
def test_each_step_knows_what_trained(*, names_rows: bool) -> None:
    """Whether or not the generator names its rows: the batch's rows are told by their order, padding trains nobody."""
    plan = Plan(batches=[["a", "b"], ["c"]], rows_multiple_of=8)
    training = _Training(plan, _Rollouts(masked="b", names_rows=names_rows), IndexedTrainer).run()
    assert training.steps == [("train", 1), ("train", 2)]
    assert training.trained(0) == draws(trained="a1", untrained="b1")
    assert training.trained(1) == draws(trained="c1")
    assert training.tracker.ended == ["tracker"]
    assert training.publisher.closed_within_s == [120.0]


def test_without_the_adapter_nothing_is_said_about_training() -> None:
    """The released trainer hands over no ids; its steps are indexed all the same."""
    training = _Training(Plan(batches=[["a"]]), _Rollouts(), Trainer).run()
    assert training.trained() == draws(unknown="a1")


def test_retries_are_superseded() -> None:
    """Of a sample that was tried twice the second attempt trained."""
    training = _Training(Plan(batches=[["a"]]), _Rollouts(retried="a"), IndexedTrainer).run()
    ((index, _),) = training.publisher.published
    assert [(row.id, row.superseded, row.trained) for row in index.rows] == [
        ("a1.0.0", True, False),
        ("a1.0.1", False, True),
        ("a1.1.0", True, False),
        ("a1.1.1", False, True),
    ]


def test_a_trajectory_with_a_row_per_turn_trained_by_any_of_them() -> None:
    """Step-wise training has several rows per trajectory."""
    plan = Plan(batches=[["a", "b"]], step_wise=True, rows_multiple_of=5)
    training = _Training(plan, _Rollouts(masked="b", names_rows=True, turns=3), IndexedTrainer).run()
    assert training.trained() == draws(trained="a1", untrained="b1")


def test_a_group_without_variance_is_masked_and_did_not_train() -> None:
    """The trainer's own filter shows in the batch's loss masks."""
    plan = Plan(batches=[["a", "b"]], zero_variance_filter=True)
    training = _Training(plan, _Rollouts({"b": [[1, 1]]}), IndexedTrainer).run()
    assert training.trained() == draws(trained="a1", untrained="b1")


@pytest.mark.parametrize("names_rows", [True, False])
def test_filtered_groups_are_rows_and_a_refill_is_told_apart(*, names_rows: bool) -> None:
    """A prompt that was filtered out and drawn again in the same step trained with its second draw only."""
    plan = Plan(batches=[["a", "b"], ["b", "c"]], batch_size=2, dynamic_sampling="filter")
    rollouts = _Rollouts({"b": [[1, 1], [0, 1]]}, names_rows=names_rows)
    training = _Training(plan, rollouts, IndexedTrainer).run()
    assert training.steps == [("train", 1)]
    assert training.trained() == draws(
        trained="a1 b2", untrained="b1 c1"
    )  # c1 varied, but was beyond the size of a batch


def test_replaced_rows_train_what_replaced_them() -> None:
    """Where a group without variance is replaced by another one's rows, the other one trained."""
    plan = Plan(batches=[["a", "b"]], dynamic_sampling="replace")
    training = _Training(plan, _Rollouts({"b": [[1, 1]]}, names_rows=True), IndexedTrainer).run()
    assert training.trained() == draws(trained="a1", untrained="b1")


@pytest.mark.parametrize("reasons", [True, False])
def test_dynamic_sampling_gives_the_stop_reasons_back(*, reasons: bool) -> None:
    """The field that carries the ids is as it was afterwards."""
    rollouts = _Rollouts({"b": [[1, 1]]})
    plan = Plan(batches=[["a", "b"]], dynamic_sampling="filter")
    training = _Training(plan, rollouts, IndexedTrainer)
    trainer = training.trainer

    async def sample() -> dict[str, Any]:
        output = await trainer.generate(trainer._input(["a", "b"]))
        if not reasons:
            output["stop_reasons"] = None
        kept, _, keep_sampling = trainer.handle_dynamic_sampling(output, ["a", "a", "b", "b"])
        assert not keep_sampling
        return dict(kept)

    kept = asyncio.run(sample())
    assert kept["stop_reasons"] == (["stop-a1.0", "stop-a1.1"] if reasons else None)
    assert [(each.instance_id, each.repetition_id) for each in kept["trajectory_ids"]] == [("a", 0), ("a", 1)]


def test_a_step_that_spans_two_epochs_keeps_what_it_collected() -> None:
    """Dynamic sampling goes on where the epoch before ended: nothing of the step is lost."""
    plan = Plan(batches=[["a", "b"]], epochs=2, batch_size=2, dynamic_sampling="filter")
    rollouts = _Rollouts({"a": [[0, 1], [1, 1]], "b": [[1, 1], [0, 1]]})
    training = _Training(plan, rollouts, IndexedTrainer).run()
    assert training.steps == [("train", 1)]
    assert training.trained() == draws(trained="a1 b2", untrained="b1 a2")
    assert training.callback.stats()["discarded"] == 0


def test_evaluations_have_their_own_indexes_from_step_0_on() -> None:
    """The evaluation before the first step is step 0, those after a step are that step's."""
    plan = Plan(batches=[["a"]], eval_prompts=["e"])
    training = _Training(plan, _Rollouts(), IndexedTrainer, "train", "eval").run()
    assert training.steps == [("eval", 0), ("train", 1), ("eval", 1)]
    assert training.trained(0) == draws(untrained="e1")


def test_the_asynchronous_trainer_refuses_callbacks_by_itself() -> None:
    """Why it needs the adapter."""
    with pytest.raises(NotImplementedError):
        _Training(Plan(batches=[["a"]]), _Rollouts(), AsyncTrainer, keep_steps=1)


@pytest.mark.parametrize("names_rows", [True, False])
def test_asynchronous_steps_have_what_they_trained_on(*, names_rows: bool) -> None:
    """Generated ahead, each group is in the step that trained it; dropped groups expire."""
    plan = Plan(batches=[["a", "b", "c", "d"]])
    rollouts = _Rollouts({"b": [[1, 1]]}, retried="c", names_rows=names_rows)
    training = _Training(plan, rollouts, IndexedAsyncTrainer, keep_steps=2).run()
    assert training.steps == [("train", 1), ("train", 2), ("train", 3)]
    assert [training.trained(position) for position in range(3)] == [
        draws(trained="a1"),
        {"c1.0.1": True, "c1.1.1": True},
        draws(trained="d1"),
    ]
    assert training.callback.stats()["expired"] == 2


def test_the_asynchronous_trainer_ends_its_callbacks_before_the_run() -> None:
    """The publisher's last chance comes while the run is still open."""
    training = _Training(Plan(batches=[["a"]]), _Rollouts(), IndexedAsyncTrainer, keep_steps=1)
    ended = training.tracker.ended

    class _Note(SkycapRecordIndex):
        def train_end(self) -> bool:
            ended.append("callback")
            return super().train_end()

    training.trainer.add_callback(_Note(RecordLog(), publisher=KeepingPublisher(), keep_steps=1))
    training.run()
    assert ended == ["callback", "tracker"]
    assert training.publisher.closed_within_s == [120.0]
    assert training.trainer.tracker is training.tracker


def test_the_asynchronous_trainer_evaluates_with_events() -> None:
    """An evaluation is indexed though the trainer itself says nothing of it."""
    plan = Plan(batches=[["a"]], eval_prompts=["e"])
    training = _Training(plan, _Rollouts(), IndexedAsyncTrainer, "train", "eval", keep_steps=1).run()
    assert training.steps == [("eval", 0), ("train", 1), ("eval", 1)]
