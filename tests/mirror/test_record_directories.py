"""A record directory is opened once for all who want it; what keeps one from opening it is told to each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mirror.breaker import Breaker
from mirror.errors import RecordError
from mirror.limiter import Limiter
from mirror.receipts.ledger import Ledger
from mirror.receipts.segments import SegmentWriter
from mirror.record_directories import RecordDirectories
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.stores.threads import DaemonThreads
from mirror.testing.stores import MemoryStore


class Disk:
    """Opens ledgers, or fails to."""

    def __init__(self) -> None:
        self.opened = 0
        self.errors: list[Exception] = []  # of the next openings

    def open(self, path: Path) -> Ledger:
        self.opened += 1
        return LedgerOnDisk(path, self)


class LedgerOnDisk(Ledger):
    """A ledger whose disk may fail."""

    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path, "place", "writer")
        self._disk = disk

    def can_keep(self) -> bool:
        if self._disk.errors:
            raise self._disk.errors.pop()
        return super().can_keep()


@pytest.fixture
def threads() -> Iterator[DaemonThreads]:
    """Threads to read on."""
    made = DaemonThreads(2, "test")
    yield made
    made.close()


Make = Callable[..., RecordDirectories]


@pytest.fixture
def disk() -> Disk:
    """A disk that is well."""
    return Disk()


@pytest.fixture
def make(threads: DaemonThreads, disk: Disk) -> Make:
    """Make the directories of a mirror in memory, on the loop that calls."""

    def make_on_loop(mirror_directory: Path | None = None) -> RecordDirectories:
        store = ReliableStore(
            MemoryStore(),
            RetryPolicy(attempts=1, backoff_s=0.01, timeout_s=10.0),
            limiter=Limiter(8),
            breaker=Breaker("the store"),
        )
        return RecordDirectories(
            store=store,
            segments=SegmentWriter(store, "writer"),
            threads=threads,
            open_ledger=disk.open,
            mirror_directory=mirror_directory,
        )

    return make_on_loop


def test_a_directory_is_opened_once_for_all_who_want_it(make: Make, disk: Disk, tmp_path: Path) -> None:
    """However many come while it is being opened, or later."""

    async def work() -> None:
        directories = make()
        assert directories.opened(tmp_path) is None
        first, *others = await asyncio.gather(*(directories.get(tmp_path) for _ in range(20)))
        assert all(other is first for other in [*others, await directories.get(tmp_path)])
        assert directories.opened(tmp_path) is first
        directories.close()

    asyncio.run(work())
    assert disk.opened == 1


def test_what_keeps_it_closed_is_told_to_each_and_the_next_tries_again(make: Make, disk: Disk, tmp_path: Path) -> None:
    """A failing disk is an error for all who wait, and no reason to cancel them."""

    async def work() -> None:
        directories = make()
        disk.errors = [OSError(5, "Input/output error")]
        failures = await asyncio.gather(*(directories.get(tmp_path) for _ in range(3)), return_exceptions=True)
        assert [type(failure) for failure in failures] == [OSError] * 3
        assert directories.opened(tmp_path) is None
        assert (await directories.get(tmp_path)).path == tmp_path
        directories.close()

    asyncio.run(work())
    assert disk.opened == 2


def test_the_mirror_is_no_record_directory(make: Make, tmp_path: Path) -> None:
    """By whatever name."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)

    async def work() -> None:
        directories = make(tmp_path)
        for path in (tmp_path, link):
            with pytest.raises(RecordError, match="cannot be its own mirror"):
                await directories.get(path)
        directories.close()

    asyncio.run(work())
