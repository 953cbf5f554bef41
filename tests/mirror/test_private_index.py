"""A private table, and what a fork leaves of it."""

from __future__ import annotations

import threading

import pytest

from mirror.private_index import PrivateIndex
from tests.mirror.forks import in_child


def test_rows_come_back() -> None:
    """One statement, many rows, and a query that is followed page by page while others are asked."""
    index = PrivateIndex("CREATE TABLE number (value INTEGER)")
    index.execute_many("INSERT INTO number VALUES (?)", ([value] for value in range(1_200)))
    assert index.execute("SELECT COUNT(*) FROM number WHERE value >= ?", (1_000,)) == [(200,)]
    seen = []
    for (value,) in index.iterate("SELECT value FROM number ORDER BY value"):
        assert index.execute("SELECT value FROM number WHERE value = ?", (value,)) == [(value,)]
        seen.append(value)
    assert seen == list(range(1_200))
    index.close()


def test_a_query_may_be_left_in_the_middle() -> None:
    """Also by somebody who closes the index first."""
    index = PrivateIndex("CREATE TABLE number (value INTEGER)")
    index.execute_many("INSERT INTO number VALUES (?)", ([value] for value in range(1_200)))
    numbers = index.iterate("SELECT value FROM number ORDER BY value")
    assert next(numbers) == (0,)
    index.close()
    del numbers


@pytest.mark.parametrize("closes", [True, False])
def test_a_child_forked_while_others_work_can_work_too(*, closes: bool) -> None:
    """However busy the parent's threads are at that moment, no lock is left behind in the child.

    Nor is one by an index that nobody closes, and that goes with the last who had it.
    """
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            index = PrivateIndex("CREATE TABLE number (value INTEGER)")
            index.execute_many("INSERT INTO number VALUES (?)", [[value] for value in range(50)])
            if closes:
                index.close()

    def work_once() -> bool:
        PrivateIndex("CREATE TABLE number (value INTEGER)").close()
        return True

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            assert in_child(work_once)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
