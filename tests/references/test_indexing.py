"""What ``references/indexing.py`` makes of a training run's steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from references.errors import BatchError, ConfigError, StepError
from references.indexing import StepIndexer
from references.record_log import RecordLog
from tests.references.index_builders import KeepingPublisher, TrajectoryID, finished

if TYPE_CHECKING:
    from collections.abc import Iterable

RUN = SimpleNamespace(id="run-1")


class _Training:
    """A log, an indexer over it, and what it published."""

    def __init__(self, phases: Iterable[str] = ("train",), **settings: Any) -> None:  # noqa: ANN401 - any setting
        self.log = RecordLog()
        self.publisher = KeepingPublisher()
        self.indexer = StepIndexer(self.log, phases, publisher=self.publisher, **settings)

    def rollout(self, *names: str, phase: str = "train") -> list[TrajectoryID]:
        """Log one finished sample per name, and return their trajectory ids."""
        ids = [TrajectoryID(name, 0) for name in names]
        for name, trajectory_id in zip(names, ids, strict=True):
            self.log.add(phase, trajectory_id, 0, finished(f"tr_{name}"))
        return ids


def test_a_step_is_one_index_however_many_generate_calls_it_took() -> None:
    """All that was generated for a step is in its one index, with what trained."""
    training = _Training()
    ids = training.rollout("a", "b") + training.rollout("c")
    training.indexer.step_end(3, trajectory_ids=ids, loss_masks=[[1], [0], [1], [1]], run=RUN)
    ((index, run),) = training.publisher.published
    assert (index.run, index.phase, index.step, run) == ("run-1", "train", 3, RUN)
    assert training.publisher.rows == [{"tr_a": True, "tr_b": False, "tr_c": True}]
    assert training.log.take("train") == []


def test_without_ids_nobody_knows_what_trained() -> None:
    """A trainer that does not name its rows leaves ``trained`` open."""
    training = _Training()
    training.rollout("a")
    training.indexer.step_end(1)
    assert training.publisher.rows == [{"tr_a": None}]


def test_a_dropped_batch_is_in_no_step_and_counted() -> None:
    """What is still in the log when a step begins was generated for a batch that never trained."""
    training = _Training()
    training.rollout("dropped", "too")
    training.indexer.step_start()
    ids = training.rollout("kept")
    training.indexer.step_end(1, trajectory_ids=ids, loss_masks=[[1]])
    assert training.publisher.rows == [{"tr_kept": True}]
    assert training.indexer.stats() == {"logged": 1, "discarded": 2, "expired": 0, "unlogged": 0}


@pytest.mark.parametrize(
    ("phases", "expected"),
    [(["train"], ["train"]), (["eval"], ["eval"]), (["train", "eval"], ["train", "eval"]), ([], [])],
)
def test_only_enabled_phases_are_indexed_and_the_log_never_grows(phases: list[str], expected: list[str]) -> None:
    """The entries of a phase that is not enabled are consumed all the same."""
    training = _Training(phases)
    training.rollout("a")
    training.rollout("b", phase="eval")
    training.indexer.step_end(1)
    training.indexer.eval_end(1)
    assert [index.phase for index, _ in training.publisher.published] == expected
    assert training.log.take("train") == training.log.take("eval") == []


def test_an_evaluation_before_the_first_step_is_step_0() -> None:
    """Step 0 is a step."""
    training = _Training(["eval"])
    training.rollout("a", phase="eval")
    training.indexer.eval_end(0, run=RUN)
    ((index, _),) = training.publisher.published
    assert (index.step, [row.trained for row in index.rows]) == (0, [False])


@pytest.mark.parametrize("step", [None, -1, 1.5, "3", 10**18])
def test_a_step_without_a_number_is_refused(step: Any) -> None:  # noqa: ANN401 - any mistake
    """There is no alias for it; its entries are not left for the next step either."""
    training = _Training(["train", "eval"])
    for phase, end in (("train", training.indexer.step_end), ("eval", training.indexer.eval_end)):
        training.rollout("a", phase=phase)
        with pytest.raises(StepError, match=f"the {phase} step is .*give the global step"):
            end(step)
        assert training.log.take(phase) == []
    assert training.publisher.published == []


def test_a_disabled_phase_needs_no_step() -> None:
    """What is not indexed may be named in any way."""
    training = _Training(["train"])
    training.rollout("a", phase="eval")
    training.indexer.eval_end(None)
    assert training.log.take("eval") == []


def test_numpy_steps_are_numbers() -> None:
    """A step that a framework counts with its own integers is a step."""
    training = _Training()
    training.rollout("a")
    training.indexer.step_end(np.int64(4))  # type: ignore[arg-type] # an int by its __index__
    assert training.publisher.published[0][0].step == 4


def test_a_step_that_generated_nothing_is_not_indexed() -> None:
    """There is nothing to say about it."""
    training = _Training()
    training.indexer.step_end(1)
    assert training.publisher.published == []


def test_what_the_batch_has_and_the_log_has_not_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """A trainer whose ids are not the generator's is noticed, since nothing of its batch is found."""
    training = _Training()
    training.rollout("a")
    training.indexer.step_end(7, trajectory_ids=[("a", 0), ("b", 0), ("b", 0), "tr_c"], loss_masks=[[1]] * 4)
    assert training.indexer.stats()["unlogged"] == 2
    assert "step 7 names 2 samples that no generator logged: they are in no step index" in caplog.text
    assert "here rows are named by" not in caplog.text


@pytest.mark.parametrize("settings", [{}, {"keep_steps": 1}], ids=["synchronous", "asynchronous"])
def test_a_batch_of_which_nothing_was_logged_is_told_how_to_name_its_rows(
    caplog: pytest.LogCaptureFixture, settings: dict[str, Any]
) -> None:
    """With two examples of what came and of what is logged; the training goes on."""
    training = _Training(**settings)
    training.rollout("a", "b", "c")
    training.indexer.step_end(7, trajectory_ids=["tr_x", ("y", 0), "tr_z"], loss_masks=[[1]] * 3)
    assert training.indexer.stats()["unlogged"] == 3
    assert "named by its trajectory's id, or by the (instance_id, repetition_id) that it was logged with" in caplog.text
    assert "rows are named by 'tr_x' and 'tr_z', and logged is 'tr_a' of ('a', 0) and 'tr_b' of ('b', 0)" in caplog.text


def test_a_batch_without_any_log_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """Then it is the generator that logs nothing, or elsewhere."""
    training = _Training()
    training.indexer.step_end(7, trajectory_ids=[("y", 0)])
    assert "rows are named by ('y', 0), and logged is nothing" in caplog.text


def test_a_mistake_in_the_batch_raises_into_the_step() -> None:
    """Ids that do not fit the loss masks are no reason to write a wrong index."""
    training = _Training()
    ids = training.rollout("a", "b")
    with pytest.raises(BatchError, match="2 trajectory ids but 1 rows"):
        training.indexer.step_end(1, trajectory_ids=ids, loss_masks=[[1]])
    assert training.publisher.published == []


def test_a_run_that_is_gone_is_remembered_by_its_id() -> None:
    """Between two runs of the client a step is still of the run that it belongs to."""
    training = _Training()
    training.rollout("a")
    training.indexer.step_end(1, run=RUN)
    training.rollout("b")
    training.indexer.step_end(2)
    assert [(index.run, run) for index, run in training.publisher.published] == [("run-1", RUN), ("run-1", None)]


def test_the_same_step_again_is_published_again() -> None:
    """After a resume the newer index of a step goes out as the older one did."""
    training = _Training()
    for name in ("before", "after"):
        training.rollout(name)
        training.indexer.step_end(3)
    assert [index.step for index, _ in training.publisher.published] == [3, 3]


def test_an_asynchronous_trainer_gets_each_entry_into_the_step_that_trained_it() -> None:
    """Entries wait over steps for their batch; beginning a step drops nothing."""
    training = _Training(keep_steps=2)
    early, late = training.rollout("early", "late")
    training.indexer.step_end(1, trajectory_ids=[early], loss_masks=[[1]])
    training.indexer.step_start()
    (next_one,) = training.rollout("next")
    training.indexer.step_end(2, trajectory_ids=[late, next_one], loss_masks=[[0], [1]])
    assert training.publisher.rows == [{"tr_early": True}, {"tr_late": False, "tr_next": True}]
    assert training.indexer.stats()["discarded"] == 0


def test_what_no_batch_of_an_asynchronous_trainer_has_expires_and_is_counted() -> None:
    """An entry that waited its steps in vain is in no index."""
    training = _Training(keep_steps=1)
    training.rollout("filtered")
    for step in (1, 2):
        ids = training.rollout(f"step-{step}")
        training.indexer.step_end(step, trajectory_ids=ids, loss_masks=[[1]])
    assert training.publisher.rows == [{"tr_step-1": True}, {"tr_step-2": True}]
    assert training.indexer.stats()["expired"] == 1
    assert training.log.take("train") == []


def test_an_asynchronous_trainer_must_name_its_rows() -> None:
    """Without ids nobody can tell which of the waiting entries a step had."""
    training = _Training(keep_steps=1)
    training.rollout("a")
    with pytest.raises(BatchError, match="must hand over its batch's trajectory ids"):
        training.indexer.step_end(1)


@pytest.mark.parametrize("finishes", [True, False])
def test_the_end_of_training_waits_for_the_publisher_as_long_as_the_settings_say(*, finishes: bool) -> None:
    """What is left in the log is counted, the publisher gets its deadline, and its answer is passed on."""
    log = RecordLog()
    publisher = KeepingPublisher(finishes=finishes)
    indexer = StepIndexer(log, publisher=publisher, shutdown_timeout=7)
    log.add("train", TrajectoryID("a", 0), 0, finished("tr"))
    assert indexer.train_end() is finishes
    assert indexer.close(timeout=1) is finishes
    assert publisher.closed_within_s == [7, 1]
    assert indexer.stats()["discarded"] == 1


@pytest.mark.parametrize("phases", [["train", "test"], "train", [None]])
def test_unknown_phases_are_refused_at_construction(phases: Any) -> None:  # noqa: ANN401 - any mistake
    """A phase that is misspelt is not silently left out."""
    with pytest.raises(ConfigError, match=r"to index.*'train' and 'eval'"):
        _Training(phases)


@pytest.mark.parametrize(("name", "value"), [("queue_size", 0), ("timeout", -1), ("attempts", 0), ("keep_steps", -1)])
def test_settings_that_make_no_sense_are_refused_at_construction(name: str, value: Any) -> None:  # noqa: ANN401 - any
    """The sentence names the setting."""
    with pytest.raises(ConfigError, match=name):
        _Training(**{name: value})
