"""Mirrors over a store in memory, for tests of what a server sees."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mirror import RecordMirror
from mirror.config import MirrorOptions
from mirror.errors import StoreError
from mirror.receipts.receipt import Receipt, decode_lines, following, newest
from mirror.store import Data, Parts, Store, Stored
from mirror.testing.stores import WAIT_S, FaultyStore, MemoryStore, Raise, Stall, StoreFault

URL = "s3://bucket/run-7"


def mirror_on(store: MemoryStore | FaultyStore, **options: Any) -> RecordMirror:  # noqa: ANN401 - mirror options
    """Make a mirror that is as quick to retry and to look again as a test wants."""
    settings: MirrorOptions = {"workers": 8, "attempts": 3, "backoff_s": 0.001, "rescan_s": 0.05, "host": "10.0.0.5"}
    return RecordMirror(URL, open_store=store.opened, **{**settings, **options})


class AtOnce:
    """A store as a copy sees it that makes each request at once, and once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, key: str, data: Data, xxh3_128: str, *, before: Callable[[], None] = lambda: None) -> Stored:
        before()
        return await self._store.put(key, data, xxh3_128)

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        return await self._store.put_parts(key, parts, size_bytes)


class NobodyElses:
    """The receipts of one record, to which no other mirror adds."""

    def __init__(self, last: Receipt | None = None) -> None:
        self.last = last

    async def latest(self) -> Receipt | None:
        return self.last

    def withdraw(self, line: Receipt) -> Receipt:
        self.last = following(self.last, line)
        return self.last


def eventually(holds: Callable[[], object], what: str = "it") -> None:
    """Wait until something holds, however long a busy machine takes.

    Raises:
        AssertionError: it never did.
    """
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.002)


def is_record(operation: str, key: str) -> bool:
    """Match writes of record files."""
    return operation.startswith("put") and not key.startswith("_receipts/")


def is_receipt(operation: str, key: str) -> bool:
    """Match writes of receipts, probes included."""
    return operation.startswith("put") and key.startswith("_receipts/")


def is_put(operation: str, _key: str) -> bool:
    """Match every write."""
    return operation.startswith("put")


def failing(error: StoreError, match: Callable[[str, str], bool] = is_put) -> StoreFault:
    """Return a fault that lasts until the store is healed."""
    return StoreFault(action=Raise(error=error), match=match, times=1_000_000)


def stalling(match: Callable[[str, str], bool] = is_record) -> tuple[Stall, StoreFault]:
    """Return a fault that holds every matching call until it is released, and what releases them."""
    stall = Stall()
    return stall, StoreFault(action=stall, match=match, times=1_000_000)


def on_disk(records: Path) -> dict[str, bytes]:
    """Return every record file of a directory."""
    return {path.name: path.read_bytes() for path in records.iterdir() if path.suffix == ".zst" and path.is_file()}


def receipts_in(memory: MemoryStore) -> dict[str, Receipt]:
    """Return the newest receipt of each record, as a reader of the mirror finds them."""
    segments = [memory.objects[key] for key in sorted(memory.objects) if key.startswith("_receipts/")]
    return newest(item for data in segments for item in decode_lines(data) if isinstance(item, Receipt))


def assert_books_balance(mirror: RecordMirror) -> None:
    """Every hand-over is in exactly one of four places."""
    stats = mirror.stats()
    assert stats["submitted"] == stats["mirrored"] + stats["failed"] + stats["late"] + stats["pending"]
