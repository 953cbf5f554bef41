"""A run's mirror as the publisher sees it: where the receipts of records are read and the step indexes are kept.

Each call opens the store on an event loop of its own and lets go of it again: between steps nothing runs, nothing is
connected, and a fork inherits no more than what was read. What was read is kept: a call reads the segments of receipts
that are new or have grown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import xxhash

from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.errors import DeadlineError, NotFoundError
from mirror.location import Location, parse_location
from mirror.loop import run_in_loop
from mirror.receipts.receipt import Receipt
from mirror.receipts.segments import PREFIX as RECEIPTS
from mirror.receipts.segments import Seen, SegmentReader
from mirror.reliable import ReliableStore
from mirror.store import PART_BYTES, WHOLE_BYTES
from mirror.stores.opening import check_settings
from references.mirror_source import index_key
from references.receipt_book import ReceiptBook
from references.run_index import Phase

TIMEOUT_S = 25.0  # below what the publisher gives a call, so that the sentence is ours


@dataclass(slots=True)
class _Known:
    """What one process has read of the receipts; used under its lock."""

    book: ReceiptBook = field(default_factory=ReceiptBook)
    seen: dict[str, Seen] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MirrorAccess:
    """The ``Receipts`` and the ``IndexStore`` of one mirror. Any thread may call; no call outlasts its time limit."""

    def __init__(
        self, url: str | os.PathLike[str], config: MirrorConfig | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Check the settings; nothing is contacted.

        Args:
            url: the mirror.
            config: settings, of which the storage options, workers, timeout and attempts matter.
            timeout_s: what one call may take, in seconds.

        Raises:
            ConfigError: a setting is wrong, or nothing installed can open the URL.
        """
        self._location = parse_location(url)
        self._config = config or MirrorConfig()
        check_settings(self._location, self._config)
        self._timeout_s = timeout_s
        self._known: dict[int, _Known] = {}  # by process: a child neither uses nor closes what its parent had

    def covers(self, mirror: Location) -> bool:
        """Say whether that is this mirror; see ``references.landing.Receipts``."""
        return mirror == self._location

    def find(self, record_ids: Collection[str]) -> Mapping[str, Receipt]:
        """Read what is new, and return the newest receipt of each of these records that has one.

        Raises:
            StoreError: the receipts cannot be read; what was read of them is kept.
        """
        with self._known_here() as known:
            self._run("read", RECEIPTS, lambda store: _read(store, known))
            return known.book.find(record_ids)

    def write(self, phase: Phase, step: int, data: bytes) -> None:
        """Write a step's index, in place of what was there; see ``references.landing.IndexStore``.

        Raises:
            StoreError: the mirror did not take it.
        """
        key = index_key(phase, step)
        self._run("put", key, lambda store: _put(store, key, data))

    def _run(self, operation: str, key: str, work: Callable[[ReliableStore], Awaitable[None]]) -> None:
        async def bounded() -> None:
            store = connect(self._location, self._config)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await work(store)
            except TimeoutError:
                raise DeadlineError(operation, key, f"the mirror took longer than {self._timeout_s:g} s") from None
            finally:
                await store.aclose()

        run_in_loop(bounded())

    @contextlib.contextmanager
    def _known_here(self) -> Iterator[_Known]:
        process = os.getpid()
        known = self._known.get(process) or self._known.setdefault(process, _Known())
        if not known.lock.acquire(timeout=self._timeout_s):
            raise DeadlineError("read", RECEIPTS, "an earlier call still reads the receipts")
        try:
            yield known
        finally:
            known.lock.release()


async def _read(store: ReliableStore, known: _Known) -> None:
    with contextlib.suppress(NotFoundError):  # a directory that no server has made yet
        await known.book.read(SegmentReader(store, known.seen).read())


async def _put(store: ReliableStore, key: str, data: bytes) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(data), PART_BYTES):
            yield data[start : start + PART_BYTES]

    if len(data) <= WHOLE_BYTES:
        await store.put(key, data, xxhash.xxh3_128_hexdigest(data))
    else:
        await store.put_parts(key, parts, len(data))
