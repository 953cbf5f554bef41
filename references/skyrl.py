"""What SkyRL's released trainers lack to be indexed, as mixins for them: nothing in SkyRL is changed or imported.

    class Trainer(TrajectoryIds, RayPPOTrainer): ...
    class AsyncTrainer(FullyAsyncTrajectoryIds, FullyAsyncRayPPOTrainer): ...

Both are made and used as the trainers they extend, with a ``SkycapRecordIndex`` among their callbacks. They are written
for ``skyrl`` 0.3; a trainer that hands over the trajectory ids itself needs none of this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    class _Trainer:
        """The parts of SkyRL's trainers that are extended here."""

        tracker: Any
        _callback_handler: Any

        def __init__(self, *args: object, **kwargs: object) -> None: ...
        async def train(self) -> None: ...
        async def generate(self, input_batch: dict[str, Any]) -> dict[str, Any]: ...
        async def eval(self, **kwargs: object) -> dict[str, float]: ...
        async def _run_training(self, training_input: object) -> object: ...
        def _fire(self, event_name: str, **fields: object) -> None: ...
        def _build_callback_input(self, **fields: object) -> Any: ...  # noqa: ANN401 - SkyRL's CallbackInput
        def convert_to_training_input(self, generator_output: dict[str, Any], uids: list[str]) -> object: ...
        def convert_generation_group_mini_batch_to_training_input(
            self, groups: list[Any], dropped_groups: list[Any] | None = None
        ) -> object: ...
        def handle_dynamic_sampling(
            self, generator_output: dict[str, Any], uids: list[str]
        ) -> tuple[dict[str, Any], list[str], bool]: ...

else:
    _Trainer = object

_IDS = "trajectory_ids"
_CARRIER = "stop_reasons"


class TrajectoryIds(_Trainer):
    """Hands each step's trajectory ids to ``on_step_end``, as ``callback_input.trajectory_ids``.

    One for each row of the batch that is not padding: the very objects that the generator was given, so that a prompt
    that is drawn again in the same step is told apart.
    """

    _batch_ids: list[Any] | None = None

    async def generate(self, input_batch: dict[str, Any]) -> dict[str, Any]:
        """Generate, and name the rows of a generator that does not: they are in the order of the input."""
        output = await super().generate(input_batch)
        given = input_batch.get(_IDS)
        if output.get(_IDS) is None and given is not None and len(given) == len(output["response_ids"]):
            output[_IDS] = list(given)
        return output

    def handle_dynamic_sampling(
        self, generator_output: dict[str, Any], uids: list[str]
    ) -> tuple[dict[str, Any], list[str], bool]:
        """Sample dynamically without losing the ids.

        The released strategies move the rows of the fields that they know, and the ids are none of these: filtering
        drops them, replacing leaves them where the replaced rows were. So they travel in the one field whose values
        both move without looking at them.
        """
        ids = generator_output.get(_IDS)
        if ids is None:
            return super().handle_dynamic_sampling(generator_output, uids)
        reasons = generator_output.get(_CARRIER)
        generator_output[_CARRIER] = list(zip(reasons or [None] * len(ids), ids, strict=True))
        output, kept_uids, keep_sampling = super().handle_dynamic_sampling(generator_output, uids)
        if keep_sampling:  # what is collected stays as it is until the last call; this output is done with
            return output, kept_uids, keep_sampling
        carried = output[_CARRIER]
        output[_CARRIER] = None if reasons is None else [reason for reason, _ in carried]
        output[_IDS] = [trajectory_id for _, trajectory_id in carried]
        return output, kept_uids, keep_sampling

    def convert_to_training_input(self, generator_output: dict[str, Any], uids: list[str]) -> object:
        """Make the batch, and remember what its rows are: they keep their order, padding comes after them."""
        self._batch_ids = generator_output.get(_IDS)
        return super().convert_to_training_input(generator_output, uids)

    def _build_callback_input(self, **fields: object) -> Any:  # noqa: ANN401 - SkyRL's CallbackInput
        callback_input = super()._build_callback_input(**fields)
        if fields.get("batch") is not None and getattr(callback_input, _IDS, None) is None:
            callback_input.trajectory_ids = self._batch_ids
        return callback_input


class FullyAsyncTrajectoryIds(TrajectoryIds):
    """The same for the fully asynchronous trainer, with the events that it does not fire itself.

    It refuses callbacks; here they are called at the end of each step, of each evaluation and of the training. Give the
    index ``keep_steps``: the trainer's ``max_staleness_steps``.
    """

    def __init__(self, *args: object, callbacks: Iterable[object] | None = None, **kwargs: object) -> None:
        """Make the trainer without callbacks, then add them."""
        super().__init__(*args, **kwargs)
        for callback in callbacks or ():
            self.add_callback(callback)

    def add_callback(self, callback: object) -> None:
        """Register a callback."""
        self._callback_handler.add(callback)

    async def train(self) -> None:
        """Train, and end the callbacks before the tracker finishes its run."""
        tracker = self.tracker
        self.tracker = _LastWord(tracker, lambda: self._fire("on_train_end"))
        try:
            await super().train()
        finally:
            self.tracker = tracker

    async def eval(self, **kwargs: object) -> dict[str, float]:
        """Evaluate, and say so."""
        metrics = await super().eval(**kwargs)
        self._fire("on_eval_end", metrics=metrics)
        return metrics

    def convert_generation_group_mini_batch_to_training_input(
        self, groups: list[Any], dropped_groups: list[Any] | None = None
    ) -> object:
        """Make the batch, and name the rows of a generator that does not: a group is the samples of one prompt."""
        for group in [*groups, *(dropped_groups or ())]:
            output = group.generator_output
            if output.get(_IDS) is None and output.get("is_last_step") is None:
                output[_IDS] = [(group.uid, repetition_id) for repetition_id in range(len(output["response_ids"]))]
        return super().convert_generation_group_mini_batch_to_training_input(groups, dropped_groups)

    async def _run_training(self, training_input: object) -> object:
        status = await super()._run_training(training_input)
        self._fire("on_step_end", batch=training_input, metrics=status)
        return status


class _LastWord:
    """A tracker that lets somebody speak before it finishes."""

    def __init__(self, tracker: Any, before_finish: Callable[[], None]) -> None:  # noqa: ANN401 - SkyRL's Tracking
        self._tracker = tracker
        self._before_finish = before_finish

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the tracker has
        return getattr(self._tracker, name)

    def finish(self) -> None:
        """Finish the tracker's run."""
        self._before_finish()
        self._tracker.finish()
