"""How ``references/artifact_name.py`` names a step in W&B."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from references.artifact_name import aliases, artifact_name, metadata
from references.run_index import PHASES, RecordLocation, Row, StepIndex
from tests.references.index_builders import indexes

ALLOWED = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
run_ids = st.text(max_size=150) | st.from_regex(r"[A-Za-z0-9_.\-]{1,130}", fullmatch=True)


def row(name: str, *, superseded: bool = False, trained: bool | None = None, mirror: str | None = None) -> Row:
    """Return a row with a record."""
    record = RecordLocation(path=f"/data/{name}", mirror=mirror)
    return Row(
        id=name,
        instance_id=name,
        repetition_id=0,
        attempt=0,
        superseded=superseded,
        trained=trained,
        record=record if name != "unrecorded" else None,
    )


def test_a_run_id_that_is_allowed_stays_as_it_is() -> None:
    """The plain form is the documented one."""
    assert artifact_name("train", "8xk2p1qd") == "skycap-records-train-8xk2p1qd"
    assert artifact_name("eval", "run_7.b-2") == "skycap-records-eval-run_7.b-2"


@pytest.mark.parametrize("other", ["run 1", "run:1", "run-1"])
def test_runs_that_look_alike_without_their_characters_stay_apart(other: str) -> None:
    """Where a character becomes a dash, a hash of the run id keeps the name its own."""
    assert artifact_name("train", "run/1").startswith("skycap-records-train-run-1-")
    assert artifact_name("train", "run/1") != artifact_name("train", other)


def test_long_run_ids_stay_apart() -> None:
    """A name that had to be cut keeps a hash of the whole run id."""
    first, second = (artifact_name("train", "r" * 120 + end) for end in "ab")
    assert len(first) == len(second) == 128
    assert first != second


@given(run_ids, run_ids)
@example("run/1", "run-1")
@example("", "/")
def test_distinct_runs_have_distinct_names_that_wandb_takes(first: str, second: str) -> None:
    """For any two run ids: allowed characters, at most 128, and equal only if the runs are."""
    names = {(run, phase): artifact_name(phase, run) for run in (first, second) for phase in PHASES}
    assert all(ALLOWED.fullmatch(name) for name in names.values())
    assert len(set(names.values())) == len(names)


def test_a_version_is_found_by_its_step_and_as_the_latest() -> None:
    """A step's version takes two aliases."""
    assert aliases(StepIndex(run="r", phase="eval", step=0, rows=())) == ["eval-step-0", "latest"]


def test_metadata_counts_the_rows() -> None:
    """The counts are those of the rows, and of the references that were made."""
    index = StepIndex(
        run="r",
        phase="train",
        step=7,
        rows=(
            row("a", trained=True, mirror="s3://b/a.json.zst"),
            row("b", superseded=True, trained=False, mirror="s3://b/b.json.zst"),
            row("c", trained=False),
            row("unrecorded"),
        ),
    )
    assert metadata(index, num_referenced=2) == {
        "global_step": 7,
        "training_phase": "train",
        "run_id": "r",
        "num_trajectories": 4,
        "num_trained": 1,
        "num_superseded": 1,
        "num_recorded": 3,
        "num_mirrored": 2,
        "num_referenced": 2,
    }


@given(indexes())
def test_metadata_and_aliases_are_within_the_limits_of_wandb(index: StepIndex) -> None:
    """Few keys, plain values, aliases of allowed characters."""
    assert len(metadata(index, num_referenced=0)) < 100
    assert all(isinstance(value, str | int) for value in metadata(index, num_referenced=0).values())
    assert all(re.fullmatch(r"[a-z]+(-step-\d+)?", alias) for alias in aliases(index))
