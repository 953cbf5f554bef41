"""The mirror as the publisher sees it: every call ends in time, whatever the store does.

While a call hangs, the next ones fail at once, so that threads do not pile up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import cast

from mirror.location import Location
from mirror.receipts.receipt import Receipt
from references.calls import run_on_a_thread
from references.landing import IndexStore, Receipts
from references.run_index import Phase


class BoundedReceipts:
    """Receipts that are found within a time, or not at all. Used by any thread."""

    def __init__(self, receipts: Receipts, timeout_s: float) -> None:
        """Give each look ``timeout_s``."""
        self._receipts = receipts
        self._bound = _Bound("the mirror's receipts", timeout_s)

    def covers(self, mirror: Location) -> bool:
        """Say whether that mirror's receipts are here; see ``Receipts``."""
        return self._receipts.covers(mirror)

    def find(self, record_ids: Collection[str]) -> Mapping[str, Receipt]:
        """Find them; see ``Receipts``.

        Raises:
            TimeoutError: not in time, or an earlier look still hangs.
        """
        return cast("Mapping[str, Receipt]", self._bound.call(partial(self._receipts.find, record_ids)))


class BoundedIndexStore:
    """An index store that takes an index within a time, or not at all. Used by any thread."""

    def __init__(self, index_store: IndexStore, timeout_s: float) -> None:
        """Give each write ``timeout_s``."""
        self._index_store = index_store
        self._bound = _Bound("the mirror's index store", timeout_s)

    def write(self, phase: Phase, step: int, data: bytes) -> None:
        """Write it; see ``IndexStore``.

        Raises:
            TimeoutError: not in time, or an earlier write still hangs.
        """
        self._bound.call(partial(self._index_store.write, phase, step, data))


class _Bound:
    """At most one call at a time, each on a thread of its own."""

    def __init__(self, what: str, timeout_s: float) -> None:
        self._what = what
        self._timeout_s = timeout_s
        self._free = threading.Semaphore()

    def call(self, function: Callable[[], object]) -> object:
        if not self._free.acquire(blocking=False):
            raise TimeoutError(f"{self._what} did not answer an earlier call yet")
        answers: SimpleQueue[object] = SimpleQueue()

        def answered(answer: object) -> None:
            self._free.release()
            answers.put(answer)

        run_on_a_thread(function, answered)
        try:
            answer = answers.get(timeout=self._timeout_s)
        except Empty:
            raise TimeoutError(f"{self._what} did not answer within {self._timeout_s:.0f} s") from None
        if isinstance(answer, BaseException):
            raise answer
        return answer
