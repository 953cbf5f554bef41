"""How ``references/samples.py`` tells samples apart."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from references.samples import Sample, by_key, split_samples
from tests.references.index_builders import TrajectoryID, entry, logs

if TYPE_CHECKING:
    from references.entry import Entry


def ids(samples: list[Sample]) -> list[list[str]]:
    """Name the attempts of each sample."""
    return [[attempt.id for attempt in sample.attempts] for sample in samples]


def test_retries_are_one_sample() -> None:
    """The attempts of one sample belong together, the one with the highest number is final, in whatever order."""
    (sample,) = split_samples([entry("second", attempt=1), entry("first"), entry("third", attempt=2)])
    assert sample.final.id == "third"


def test_a_refill_is_a_sample_of_its_own() -> None:
    """A number that comes again begins a new sample."""
    samples = split_samples([entry("a0"), entry("a1", attempt=1), entry("b0"), entry("b1", attempt=1)])
    assert ids(samples) == [["a0", "a1"], ["b0", "b1"]]


def test_two_draws_at_the_same_time_are_told_apart_by_their_trajectory_ids() -> None:
    """Interleaved attempts go to the sample that was logged with the same object."""
    a, b = TrajectoryID("task", 0), TrajectoryID("task", 0)
    samples = split_samples(
        [
            entry("a0", source=a),
            entry("b0", source=b),
            entry("a1", attempt=1, source=a),
            entry("b1", attempt=1, source=b),
        ]
    )
    assert ids(samples) == [["a0", "a1"], ["b0", "b1"]]


def test_a_fresh_trajectory_id_for_each_attempt_does_not_split_a_sample() -> None:
    """A generator that copies its trajectory ids still has one sample."""
    attempts = [entry(f"a{n}", attempt=n, source=TrajectoryID("task", 0)) for n in range(3)]
    assert ids(split_samples(attempts)) == [["a0", "a1", "a2"]]


def test_one_trajectory_id_for_two_draws_is_two_samples() -> None:
    """A trainer that draws with the same object again gets two samples, the retries in the newer one."""
    same = TrajectoryID("task", 0)
    samples = split_samples([entry("a0", source=same), entry("b0", source=same), entry("b1", attempt=1, source=same)])
    assert ids(samples) == [["a0"], ["b0", "b1"]]


@given(logs(), st.randoms(use_true_random=False))
def test_every_sample_is_found_whatever_the_order(
    log: tuple[list[Entry], list[tuple[TrajectoryID, int]]], random: st.DataObject
) -> None:
    """The samples are those that were drawn, each with all its attempts, however the entries arrive."""
    entries, drawn = log
    random.shuffle(entries)  # type: ignore[attr-defined] # Hypothesis gives a random.Random
    found = [sample for attempts in by_key(entries).values() for sample in split_samples(attempts)]
    assert Counter((id(sample.final.source), len(sample.attempts)) for sample in found) == Counter(
        (id(source), attempts) for source, attempts in drawn
    )
    for sample in found:
        assert [attempt.attempt for attempt in sample.attempts] == list(range(len(sample.attempts)))
        assert sample.final is sample.attempts[-1]
