"""A private SQLite file without a name, which the operating system drops with the process; a fork leaves it usable.

SQLite has locks of the whole process. A fork while another thread holds one would leave it locked in the child for
ever, and whatever uses SQLite there would hang. So SQLite works under a lock of ours, for which a fork waits: never
long, for nothing but SQLite happens under it. What nobody has any more is closed under it too, later.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_PAGE = 500  # rows fetched at once
_PARAMETERS = 500  # of a statement; SQLite takes 999 everywhere
CACHE = "PRAGMA cache_size=-8192"  # KiB, of some 50,000 rows

_working = threading.Lock()
# What is collected, at any moment and under any lock, waits here for somebody who may wait for ours.
_dropped: list[sqlite3.Connection | sqlite3.Cursor] = []


class PrivateIndex:
    """Tables on disk, as far as they do not fit into a small cache. Any thread may call.

    Nothing is ever committed: it goes with the process, and each insert is the cheaper.
    """

    def __init__(self, *statements: str) -> None:
        """Make the tables by these statements."""
        with _working:
            _close_dropped()
            self._connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
            for statement in ("PRAGMA synchronous=OFF", "PRAGMA journal_mode=OFF", CACHE, *statements, "BEGIN"):
                self._connection.execute(statement).close()
        self._dropping = weakref.finalize(self, _dropped.append, self._connection)
        self._dropping.atexit = False  # the file goes with the process

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return all its rows."""
        with _working:
            return self._connection.execute(statement, values).fetchall()

    def select_in(self, query: str, values: Iterable[object]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query that ends in ``IN`` and is to be asked of these values, however many they are."""
        left = iter(values)
        while some := list(itertools.islice(left, _PARAMETERS)):
            yield from self.execute(f"{query} ({','.join('?' * len(some))})", some)

    def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement for each of these rows of values."""
        values = list(rows)  # made before the lock is taken: making them may take other locks
        with _working:
            self._connection.executemany(statement, values).close()

    def iterate(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield a query's rows without holding them all."""
        with _working:
            cursor = self._connection.execute(query, values)
        try:
            while True:
                with _working:
                    page = cursor.fetchmany(_PAGE)
                if not page:
                    return
                yield from page
        finally:
            _dropped.append(cursor)

    def close(self) -> None:
        """Let the file go."""
        self._dropping.detach()
        with _working:
            _close_dropped()
            self._connection.close()


def _close_dropped() -> None:
    """Close what nobody has any more, under the lock."""
    while _dropped:
        with contextlib.suppress(sqlite3.ProgrammingError):  # a cursor whose index was closed before it
            _dropped.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_working.acquire, after_in_parent=_working.release, after_in_child=_working.release)
