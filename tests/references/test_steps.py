"""What the steps of a run hold, from the mirror's receipts or from the indexes alone."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.artifact_name import artifact_name
from references.errors import SourceError
from references.run_index import RecordLocation, StepIndex
from references.selection import Selection
from references.steps import Rewards, find_gaps, list_steps
from tests.mirror.places import DirectoryPlace
from tests.references.whole_runs import SampleRun, artifact_path, log_step, put_object

if TYPE_CHECKING:
    import wandb


@pytest.fixture
def run(tmp_path: Path) -> SampleRun:
    """A run whose mirror is a directory, with a name that no other test logs to."""
    return SampleRun(DirectoryPlace(tmp_path / "mirror"), tmp_path / "records", name=uuid.uuid4().hex[:12])


def mixed_step(run: SampleRun, step: int) -> StepIndex:
    """Index a step with a retry, an untrained attempt, one on its node, one lost and one without a record."""
    run.step(step, ["tr_retried"], superseded=True, trained=False, annotations={"reward": -9.0})
    run.step(step, ["tr_a", "tr_b"])  # rewards 0 and 1
    run.step(step, ["tr_local"], mirrored=False, trained=None, annotations={"reward": 5.0})
    index = run.steps["train", step]
    lost = run.row("tr_lost", run.promised("tr_lost"), trained=False, annotations={"reward": "none"})
    nothing = run.row("tr_nothing", None, trained=False, annotations=None)
    index = StepIndex(run=run.name, phase="train", step=step, rows=(*index.rows, lost, nothing))
    run.index(index)
    return index


def test_a_step_in_numbers(run: SampleRun) -> None:
    """Attempts, what trained and was retried, records and where they are, rewards of the final attempts."""
    mixed_step(run, 1)
    (facts,) = list_steps(run.place.url).steps
    assert (facts.known.phase, facts.known.step, facts.rows) == ("train", 1, 6)
    assert (facts.trained, facts.superseded) == (2, 1)
    assert (facts.recorded, facts.mirrored, facts.missing, facts.local_only) == (5, 3, 1, 1)
    assert facts.rewards == Rewards(count=3, mean=2.0, lowest=0.0, highest=5.0)


def test_rewards_of_any_size_have_a_mean(run: SampleRun) -> None:
    """It lies between the lowest and the highest, even where their sum is no number any more."""
    rows = [run.row(f"tr_{n}", None, annotations={"reward": reward}) for n, reward in enumerate((1.5e308, 1.7e308))]
    run.index(StepIndex(run=run.name, phase="train", step=1, rows=tuple(rows)))
    (facts,) = list_steps(run.place.url).steps
    assert facts.rewards is not None
    assert facts.rewards.mean == pytest.approx(1.6e308)


def test_without_receipts_nothing_is_said_of_the_mirror(run: SampleRun) -> None:
    """The indexes alone do not know what arrived."""
    mixed_step(run, 1)
    (facts,) = list_steps(run.place.url, read_receipts=False).steps
    assert (facts.recorded, facts.mirrored, facts.missing, facts.local_only) == (5, None, None, 1)


def test_a_record_that_was_copied_later_is_mirrored(run: SampleRun) -> None:
    """Whatever its row said at the time."""
    run.step(1, ["tr_a"], mirrored=False)
    run.step(2, ["tr_a"], seed=1)
    facts = list_steps(run.place.url).steps[0]
    assert (facts.mirrored, facts.local_only) == (1, 0)


def test_rows_and_steps_can_be_selected(run: SampleRun) -> None:
    """Only these are counted; a step without any of them is a line of zeros."""
    mixed_step(run, 1)
    run.step(2, ["tr_c"])
    found = list_steps(run.place.url, selection=Selection(only_trained=True, ids=["tr_a"])).steps
    assert [(facts.rows, facts.mirrored, facts.rewards is None) for facts in found] == [(1, 1, False), (0, 0, True)]
    (second,) = list_steps(run.place.url, selection=Selection(steps=[2])).steps
    assert second.known.step == 2


def test_gaps_and_bad_steps_are_told(run: SampleRun) -> None:
    """A step that is not there, and one that is no index."""
    for step in (1, 2, 5):
        run.step(step, [f"tr_{step}"])
    put_object(run.place, "index/train/step-6.json", b"nonsense")
    progress: list[tuple[int, int]] = []
    facts = list_steps(run.place.url, progress=lambda done, of: progress.append((done, of)))
    assert facts.gaps == {"train": (range(3, 5),)}
    assert [bad.known.step for bad in facts.bad_steps] == [6]
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_source_without_steps_is_an_error(run: SampleRun) -> None:
    """An empty list would look like an empty run."""
    with pytest.raises(SourceError, match="no step index"):
        list_steps(run.place.url)


@pytest.mark.integration
def test_a_resumed_run_shows_what_was_run_again_and_what_was_left_behind(wandb_run: wandb.Run, run: SampleRun) -> None:
    """Resumed at step 3 after step 5: 3 has two contents, and 4 and 5 are of the former course."""
    name = artifact_name("train", run.name)
    for step in (3, 4, 5):
        log_step(wandb_run, run.step(step, [f"tr_{step}"]), run.receipts(), name=name)
    log_step(wandb_run, run.step(3, ["tr_3_again"]), run.receipts(), name=name)
    found = list_steps(artifact_path(wandb_run, name), allow_protocols=["file"]).steps
    assert [(step.known.step, step.known.contents, step.known.is_left_behind) for step in found] == [
        (3, 2, False),
        (4, 1, True),
        (5, 1, True),
    ]


@pytest.mark.integration
def test_a_step_that_was_completed_was_not_run_again(wandb_run: wandb.Run, run: SampleRun) -> None:
    """A newer version with the references that the first one lacked is the same step."""
    name = artifact_name("train", run.name)
    index = run.step(1, ["tr_a"])
    versions = [log_step(wandb_run, index, receipts, name=name) for receipts in ({}, run.receipts())]
    (facts,) = list_steps(artifact_path(wandb_run, name), allow_protocols=["file"]).steps
    assert versions == ["v0", "v1"]
    assert (facts.known.origin, facts.known.contents) == ("v1", 1)


@pytest.mark.integration
def test_mirrors_that_may_not_be_read_are_told(wandb_run: wandb.Run, run: SampleRun) -> None:
    """The step is listed all the same; how much of it is mirrored is not known."""
    name = artifact_name("train", run.name)
    log_step(wandb_run, run.step(1, ["tr_a"]), run.receipts(), name=name)
    facts = list_steps(artifact_path(wandb_run, name))
    assert (facts.steps[0].rows, facts.steps[0].mirrored, facts.steps[0].missing) == (1, None, None)
    assert ["allow its protocol" in reason for reason in facts.unread_mirrors] == [True]


@given(st.sets(st.integers(0, 60), min_size=1))
def test_every_training_step_in_between_is_there_or_in_a_gap(steps: set[int]) -> None:
    """And none is in both."""
    gaps = find_gaps(("train", step) for step in steps).get("train", ())
    missing = {step for gap in gaps for step in gap}
    assert not missing & steps
    assert missing | steps == set(range(min(steps), max(steps) + 1))


@given(st.integers(1, 20), st.integers(0, 50), st.integers(4, 10), st.data())
def test_evaluation_is_missed_where_its_rhythm_breaks(stride: int, first: int, count: int, data: st.DataObject) -> None:
    """One that was left out between others shows, whatever the rhythm; a regular one shows nothing."""
    steps = [first + number * stride for number in range(count)]
    assert find_gaps(("eval", step) for step in steps) == {}
    left_out = data.draw(st.sampled_from(steps[1:-1]))
    gaps = find_gaps(("eval", step) for step in steps if step != left_out)
    assert [step for gap in gaps["eval"] for step in gap] == [left_out]


def test_steps_of_any_size_cost_nothing() -> None:
    """A gap is a range, however wide."""
    assert find_gaps([("train", 0), ("train", 10**17)]) == {"train": (range(1, 10**17),)}


def test_the_phases_have_gaps_of_their_own() -> None:
    """Evaluation at step 5 does not fill training's gap there."""
    steps = [("train", 4), ("eval", 5), ("train", 6)]
    assert find_gaps(steps) == {"train": (range(5, 6),)}  # type: ignore[arg-type] # literals are phases


def test_a_location_without_anything_is_no_trouble(run: SampleRun) -> None:
    """Older writers leave fields out."""
    run.index(StepIndex(run="r", phase="train", step=1, rows=(run.row("tr_a", RecordLocation()),)))
    (facts,) = list_steps(run.place.url).steps
    assert (facts.recorded, facts.local_only) == (1, 1)
