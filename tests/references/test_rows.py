"""Which rows ``references/rows.py`` makes of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from references.rows import build_index
from tests.references.index_builders import TrajectoryID, entry, logs, masks, read_batch

if TYPE_CHECKING:
    from random import Random

    from references.batch import Batch
    from references.entry import Entry
    from references.run_index import Row

Log = tuple[list["Entry"], list[tuple[TrajectoryID, int]]]


def train(entries: list[Entry], batch: Batch | None) -> dict[str, Row]:
    """Build the rows of a training step, by trajectory id."""
    return {row.id: row for row in build_index(entries, run="run", phase="train", step=3, batch=batch).rows}


def finals(entries: list[Entry], drawn: list[tuple[TrajectoryID, int]]) -> list[Entry]:
    """Return the last attempt of each sample, in the order of ``drawn``."""
    return [max((e for e in entries if e.source is source), key=lambda attempt: attempt.attempt) for source, _ in drawn]


def test_a_row_says_what_the_entry_says() -> None:
    """Every column of an entry is in its row."""
    logged = entry("tr", status="finished", annotations={"reward": 1.0}, key=("task", 2))
    row = train([logged], None)["tr"]
    assert (row.instance_id, row.repetition_id, row.attempt) == ("task", 2, 0)
    assert (row.status, row.annotations, row.record) == ("finished", {"reward": 1.0}, None)


def test_filtered_trajectories_are_rows_and_did_not_train() -> None:
    """What dynamic sampling left out of the batch was still opened in the step."""
    rows = train(
        [entry("kept", key=("a", 0)), entry("filtered", key=("b", 0), order=1)],
        read_batch([TrajectoryID("a", 0)], [[1]]),
    )
    assert {name: row.trained for name, row in rows.items()} == {"kept": True, "filtered": False}


def test_rows_past_the_ids_are_padding() -> None:
    """A padding row trains nobody, whatever its mask says."""
    rows = train([entry("tr", key=("a", 0))], read_batch([TrajectoryID("a", 0)], [[0], [1], [1]]))
    assert rows["tr"].trained is False


def test_attempts_of_one_sample_stand_together() -> None:
    """Rows follow the log, a retry right behind what it supersedes."""
    index = build_index(
        [entry("a0", key=("a", 0)), entry("b0", key=("b", 0), order=1), entry("a1", key=("a", 0), attempt=1, order=2)],
        run="run",
        phase="train",
        step=3,
        batch=None,
    )
    assert [row.id for row in index.rows] == ["a0", "a1", "b0"]


@given(logs(), st.data())
def test_flags_are_right_for_every_draw(log: Log, data: st.DataObject) -> None:
    """Retries, refills and filtered samples: each sample has one final attempt, and it trained if its row did."""
    entries, drawn = log
    in_batch = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    trained = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    rows = train(
        entries,
        read_batch(
            [source for (source, _), inside in zip(drawn, in_batch, strict=True) if inside],
            [*masks([flag for flag, inside in zip(trained, in_batch, strict=True) if inside]), [1]],
        ),
    )
    last = finals(entries, drawn)
    assert {name for name, row in rows.items() if not row.superseded} == {final.id for final in last}
    expected = {final.id: a and b for final, a, b in zip(last, in_batch, trained, strict=True)}
    assert {name: row.trained for name, row in rows.items()} == {e.id: expected.get(e.id, False) for e in entries}


@given(logs(), st.data())
def test_trained_is_never_wrong(log: Log, data: st.DataObject) -> None:
    """Where the batch only repeats prompt and repetition, a refill may be unknown; nothing else is, or is wrong."""
    entries, drawn = log
    trained = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    copies = [TrajectoryID(source.instance_id, source.repetition_id) for source, _ in drawn]
    rows = train(entries, read_batch(copies, masks(trained)))
    for final, truth, copy in zip(finals(entries, drawn), trained, copies, strict=True):
        assert rows[final.id].trained in ([truth] if copies.count(copy) == 1 else [truth, None])


@given(logs())
def test_trajectory_ids_of_our_own_say_the_same(log: Log) -> None:
    """A batch that names its rows by the trajectories' own ids gives the same rows as one that holds their objects."""
    entries, drawn = log
    by_object = read_batch([source for source, _ in drawn], masks([i % 2 == 0 for i in range(len(drawn))]))
    by_name = read_batch([e.id for e in finals(entries, drawn)], masks([i % 2 == 0 for i in range(len(drawn))]))
    assert train(entries, by_name) == train(entries, by_object)


@given(logs(), st.randoms(use_true_random=False))
def test_the_order_of_the_entries_does_not_matter(log: Log, random: Random) -> None:
    """The same entries give the same index, however they are handed over."""
    entries, drawn = log
    batch = read_batch([source for source, _ in drawn][::2], masks([True] * len(drawn)))
    expected = build_index(entries, run="run", phase="train", step=3, batch=batch)
    random.shuffle(entries)
    assert build_index(entries, run="run", phase="train", step=3, batch=batch) == expected


@given(logs())
def test_unknown_is_null_and_eval_is_false(log: Log) -> None:
    """Without ids a final attempt is unknown, without masks those in the batch are; in eval nothing trains."""
    entries, drawn = log
    unsaid = train(entries, None)
    assert all(row.trained is (False if row.superseded else None) for row in unsaid.values())
    no_masks = train(entries, read_batch([source for source, _ in drawn]))
    assert no_masks == unsaid
    everything = read_batch([source for source, _ in drawn], [[1]] * len(drawn))
    evaluated = build_index(entries, run="run", phase="eval", step=3, batch=everything)
    assert not any(row.trained is not False for row in evaluated.rows)
    assert [row.superseded for row in evaluated.rows] == [row.superseded for row in unsaid.values()]
