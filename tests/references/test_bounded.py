"""A mirror that hangs costs a step its references for now, nothing else: ``references/bounded.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from references.bounded import BoundedIndexStore, BoundedReceipts
from tests.references.publishing import MirrorIndexes, MirrorReceipts, SleepingMirror, publisher_threads, wait_until


@pytest.fixture
def hanging() -> Iterator[SleepingMirror]:
    """A mirror that hangs until the test is over."""
    mirror = SleepingMirror()
    yield mirror
    mirror.awake.set()


def test_answers_and_errors_pass_through() -> None:
    """What the mirror answers in time, an error too, is what the caller gets."""
    receipts = MirrorReceipts()
    indexes = MirrorIndexes()
    assert list(BoundedReceipts(receipts, 30).find(["a"])) == ["a"]
    BoundedIndexStore(indexes, 30).write("train", 1, b"x")
    assert indexes.written == {("train", 1): b"x"}

    receipts.error = PermissionError("no")
    with pytest.raises(PermissionError, match="no"):
        BoundedReceipts(receipts, 30).find(["a"])


def test_a_hang_ends_in_time_and_threads_do_not_pile_up(hanging: SleepingMirror) -> None:
    """The first call ends at its deadline; while it hangs, the next ones fail at once."""
    receipts, indexes = BoundedReceipts(hanging, 0.05), BoundedIndexStore(hanging, 0.05)
    with pytest.raises(TimeoutError, match="within"):
        receipts.find(["a"])
    with pytest.raises(TimeoutError, match="within"):
        indexes.write("train", 1, b"x")
    for _ in range(5):
        with pytest.raises(TimeoutError, match="earlier call"):
            receipts.find(["a"])
    assert len(publisher_threads()) == 2

    hanging.awake.set()

    assert wait_until(lambda: not publisher_threads())
    assert list(receipts.find(["a"])) == ["a"]
