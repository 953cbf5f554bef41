"""How ``references/callback.py`` answers SkyRL's events."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

from references.callback import SkycapRecordIndex
from references.codec import decode
from references.errors import StepError
from references.record_log import RecordLog
from tests.references.index_builders import KeepingPublisher, TrajectoryID, finished

if TYPE_CHECKING:
    from pathlib import Path

RUN = SimpleNamespace(id="run-1")


def trainer(backend: str = "wandb", run: object = RUN, **rest: Any) -> SimpleNamespace:  # noqa: ANN401 - attributes
    """Return what the callback looks at of a trainer."""
    return SimpleNamespace(tracker=SimpleNamespace(backend=backend, logger=SimpleNamespace(run=run)), **rest)


def event(step: int | None, **fields: Any) -> SimpleNamespace:  # noqa: ANN401 - fields of the event
    """Return an event's input as SkyRL fills it."""
    return SimpleNamespace(**{"global_step": step, "batch": None, "metrics": None, **fields})


class _Run:
    """A log, a callback over it, and what it published."""

    def __init__(self, *phases: str) -> None:
        self.log = RecordLog()
        self.publisher = KeepingPublisher()
        self.callback = SkycapRecordIndex(self.log, phases, publisher=self.publisher)

    def rollout(self, name: str, phase: str = "train") -> TrajectoryID:
        """Log a finished sample."""
        trajectory_id = TrajectoryID(name, 0)
        self.log.add(phase, trajectory_id, 0, finished(f"tr_{name}"))
        return trajectory_id


def test_a_step_is_indexed_with_the_ids_and_masks_of_its_batch() -> None:
    """Ids come with the event, masks with the batch, the run from the tracker."""
    run = _Run("train")
    ids = [run.rollout("a"), run.rollout("b")]
    batch = {"loss_mask": np.array([[0, 1], [0, 0], [1, 1]])}
    run.callback.on_step_end(trainer(), event(3, batch=batch, trajectory_ids=ids), None)
    ((index, logged_to),) = run.publisher.published
    assert (index.step, index.run, logged_to) == (3, "run-1", RUN)
    assert run.publisher.rows == [{"tr_a": True, "tr_b": False}]


def test_a_trainer_that_hands_over_no_ids_is_still_indexed() -> None:
    """The released trainer's event has no ids: then nothing is said about what trained."""
    run = _Run("train")
    run.rollout("a")
    run.callback.on_step_end(trainer(), event(3, batch={"loss_mask": np.ones((1, 2))}), None)
    assert run.publisher.rows == [{"tr_a": None}]


def test_an_evaluation_is_indexed_apart() -> None:
    """Eval has its own index, and only its own entries."""
    run = _Run("train", "eval")
    run.rollout("a")
    run.rollout("b", phase="eval")
    run.callback.on_eval_end(trainer(), event(3, metrics={}), None)
    ((index, _),) = run.publisher.published
    assert (index.phase, [row.id for row in index.rows]) == ("eval", ["tr_b"])


@pytest.mark.parametrize("other", [trainer("tensorboard"), trainer("console"), SimpleNamespace()])
def test_with_another_tracker_nothing_is_published_and_the_log_does_not_grow(other: SimpleNamespace) -> None:
    """A trainer without W&B, or without a tracker, only has its entries forgotten."""
    run = _Run("train", "eval")
    run.rollout("a")
    run.rollout("b", phase="eval")
    run.callback.on_step_end(other, event(3), None)
    run.callback.on_eval_end(other, event(None), None)
    assert run.publisher.published == []
    assert run.log.take("train") == run.log.take("eval") == []


def test_without_an_active_run_the_step_is_published_all_the_same() -> None:
    """It is the publisher that knows what to do until there is a run again."""
    run = _Run("train")
    run.rollout("a")
    run.callback.on_step_end(trainer(run=None), event(3), None)
    ((index, logged_to),) = run.publisher.published
    assert (index.run, logged_to) == ("", None)


def test_a_batch_that_the_trainer_dropped_is_discarded_when_the_step_begins_again() -> None:
    """The entries of an unfinished step are in no later one."""
    run = _Run("train")
    run.callback.on_step_start(trainer(), event(4), None)
    run.rollout("dropped")
    run.callback.on_step_start(trainer(dynamic_sampling_state=None), event(4), None)
    run.rollout("kept")
    run.callback.on_step_end(trainer(), event(4), None)
    assert run.publisher.rows == [{"tr_kept": None}]
    assert run.callback.stats()["discarded"] == 1


def test_dynamic_sampling_that_goes_on_in_the_next_epoch_keeps_its_entries() -> None:
    """The trainer says that a step has begun, but collects for the same batch."""
    run = _Run("train")
    ids = [run.rollout("before")]
    run.callback.on_step_start(trainer(dynamic_sampling_state={"sample_batch_count": 1}), event(4), None)
    ids.append(run.rollout("after"))
    batch = {"loss_mask": np.ones((2, 3))}
    run.callback.on_step_end(trainer(), event(4, batch=batch, trajectory_ids=ids), None)
    assert run.publisher.rows == [{"tr_before": True, "tr_after": True}]


def test_an_evaluation_without_a_step_is_refused() -> None:
    """An evaluation outside of training has no step to be indexed under."""
    run = _Run("eval")
    run.rollout("a", phase="eval")
    with pytest.raises(StepError, match="eval step is None"):
        run.callback.on_eval_end(trainer(), event(None), None)


def test_the_end_of_training_closes_the_publisher() -> None:
    """The tracker finishes the run right afterwards."""
    run = _Run("train")
    run.callback.on_train_end(trainer(), event(9), None)
    assert run.publisher.closed_within_s == [120.0]


def test_every_event_of_a_trainer_is_answered() -> None:
    """SkyRL calls all events of all callbacks; those of no interest do nothing."""
    run = _Run("train")
    run.rollout("a")
    for name in ("train_start", "epoch_start", "eval_start", "save", "log", "epoch_end"):
        getattr(run.callback, f"on_{name}")(trainer(), event(1), None)
    assert run.publisher.published == []
    assert len(run.log.take("train")) == 1


def test_without_a_publisher_of_its_own_it_is_wandb_and_nothing_is_lost_without_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As existing trainers make it: the step is in the spool once the callback is closed, though no run was active."""
    monkeypatch.setenv("RECORD_MIRROR_SPOOL", str(tmp_path))
    log = RecordLog()
    log.add("train", TrajectoryID("a", 0), 0, finished("tr_a"))
    with mock.patch.dict(os.environ):  # the publisher sets limits for W&B's client
        callback = SkycapRecordIndex(
            log, ["train"], queue_size=4, timeout=1.0, attempts=1, backoff=0, shutdown_timeout=5
        )
        callback.on_step_end(trainer(run=None), event(3), None)
        callback.close()
    (spooled,) = tmp_path.rglob("step-3.json")
    assert [row.id for row in decode(spooled.read_bytes()).rows] == ["tr_a"]
    assert callback.stats()["logged"] == 0
