"""How ``references/batch.py`` reads what a trainer says about its batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from references.batch import Part, part_of_lone, parts_of
from references.errors import BatchError
from references.samples import split_samples
from tests.references.index_builders import TrajectoryID, entry, read_batch


@pytest.mark.parametrize(
    "named",
    [
        TrajectoryID("task", 3),
        SimpleNamespace(instance_id="task", repetition_id=np.int64(3)),
        {"instance_id": "task", "repetition_id": 3},
        ("task", 3),
        "tr_1",
    ],
)
def test_a_row_is_named_in_several_ways(named: object) -> None:
    """An object, a mapping or a pair of prompt and repetition, or the trajectory's own id, name the same sample."""
    lone = entry("tr_1", key=("task", 3))
    assert part_of_lone(lone, read_batch([named], [[1]])) is Part.TRAINED
    assert part_of_lone(lone, read_batch([named], [[0]])) is Part.UNTRAINED
    assert part_of_lone(lone, read_batch([named])) is Part.UNKNOWN
    assert part_of_lone(entry("tr_2", key=("task", 4)), read_batch([named], [[1]])) is Part.ABSENT


def test_numbers_as_instance_ids_are_the_text_that_is_logged() -> None:
    """A prompt that is named by a number is found under its text, as in the log."""
    assert part_of_lone(entry("tr_1", key=("7", 0)), read_batch([(7, 0)], [[1]])) is Part.TRAINED


def test_a_row_that_names_nothing_is_passed_over() -> None:
    """None and an empty id belong to nobody, and to no attempt without an id either."""
    batch = read_batch([None, "", ("task", 0)], [[1], [1], [0]])
    assert part_of_lone(entry("", key=("task", 0)), batch) is Part.UNTRAINED


@pytest.mark.parametrize("named", [TrajectoryID("task", 0), "tr"])
def test_one_trainable_turn_trains_the_trajectory(named: object) -> None:
    """A trajectory may have a row per turn: one with a trainable token is enough, wherever it stands."""
    turns = [named] * 3
    assert part_of_lone(entry("tr"), read_batch(turns, [[0], [1], [0]])) is Part.TRAINED
    assert part_of_lone(entry("tr"), read_batch(turns, [[0], [0], [0]])) is Part.UNTRAINED


def test_the_batch_has_an_attempt_that_was_superseded() -> None:
    """Where the batch names an earlier attempt, the sample is in it, and its final attempt did not train."""
    samples = split_samples([entry("first"), entry("second", attempt=1)])
    assert parts_of(samples, read_batch(["first"], [[1]])) == [Part.UNTRAINED]
    assert parts_of(samples, read_batch(["second"], [[1]])) == [Part.TRAINED]


def test_a_refill_is_told_apart_by_the_object_that_named_it() -> None:
    """Of two draws of a prompt the one counts whose trajectory id the batch holds, or whose own id it names."""
    a, b = TrajectoryID("task", 0), TrajectoryID("task", 0)
    samples = split_samples([entry("a", source=a), entry("b", source=b)])
    assert parts_of(samples, read_batch([b], [[1]])) == [Part.ABSENT, Part.TRAINED]
    assert parts_of(samples, read_batch([b, a], [[0], [1]])) == [Part.TRAINED, Part.UNTRAINED]
    assert parts_of(samples, read_batch(["a"], [[1]])) == [Part.TRAINED, Part.ABSENT]


def test_what_cannot_be_told_apart_is_unknown() -> None:
    """A row that may belong to either of two draws says nothing certain about them."""
    samples = split_samples([entry("a", source=TrajectoryID("task", 0)), entry("b", source=TrajectoryID("task", 0))])
    assert parts_of(samples, read_batch([TrajectoryID("task", 0)], [[1]])) == [Part.UNKNOWN, Part.UNKNOWN]
    assert parts_of(samples, read_batch([TrajectoryID("other", 0)], [[1]])) == [Part.ABSENT, Part.ABSENT]


@pytest.mark.parametrize("named", [7, SimpleNamespace(instance_id="task"), ("a", 1, 2), {"instance_id": "task"}])
def test_a_row_named_by_something_else_is_refused(named: object) -> None:
    """What names no trajectory is a mistake of the trainer's and says so."""
    with pytest.raises(BatchError, match="give the trajectory's id"):
        read_batch([named])


@pytest.mark.parametrize("is_known", [True, False])
def test_a_prompt_may_be_drawn_any_number_of_times(is_known: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    """The work grows with the draws of one prompt, as where a generator names none, and not with their square."""
    drawn = [TrajectoryID("", 0) for _ in range(30_000)]
    named = drawn if is_known else [TrajectoryID("", 0) for _ in drawn]
    samples = split_samples([entry(f"tr_{n}", key=("", 0), source=source) for n, source in enumerate(drawn)])
    batch = read_batch(named, [[1]] * len(named))
    assert set(parts_of(samples, batch)) == {Part.TRAINED if is_known else Part.UNKNOWN}
