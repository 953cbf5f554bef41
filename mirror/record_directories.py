"""The record directories that a mirror works on, each opened once: its receipts are read before anybody uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from mirror.receipts.ledger import Ledger
from mirror.receipts.segments import SegmentReader, SegmentWriter
from mirror.record_directory import RecordDirectory, learn_from_mirror, refuse_the_mirror
from mirror.reliable import ReliableStore
from mirror.sharing import Shared
from mirror.stores.threads import DaemonThreads


class RecordDirectories:
    """Those of one mirror. Used on one event loop."""

    def __init__(
        self,
        *,
        store: ReliableStore,
        segments: SegmentWriter,
        threads: DaemonThreads,
        open_ledger: Callable[[Path], Ledger],
        mirror_directory: Path | None,
    ) -> None:
        """Open none yet; ``segments`` takes receipts beside the records that the mirror lacks."""
        self._store = store
        self._segments = segments
        self._threads = threads
        self._open_ledger = open_ledger
        self._mirror_directory = mirror_directory
        self._opened: dict[Path, RecordDirectory] = {}

    def opened(self, path: Path) -> RecordDirectory | None:
        """Return a directory that is open, or about to be."""
        return self._opened.get(path)

    async def get(self, path: Path) -> RecordDirectory:
        """Return a directory whose receipts were read.

        Raises:
            RecordError: it is the mirror itself.
            StoreError: its receipts are in the mirror alone, and could not be read.
            OSError: it cannot be read.
        """
        directory = self._opened.get(path) or await self._open(path)
        await asyncio.shield(directory.ready)
        return directory

    async def read_receipts(self, directory: RecordDirectory) -> None:
        """Read new receipts beside the records, and pass on those of other writers that may not be in the mirror."""
        for line, mark in await self._threads.run(directory.ledger.load):
            self._segments.add(line, mark)

    def close(self) -> None:
        """Let their files go."""
        for directory in self._opened.values():
            directory.ledger.close()

    async def _open(self, path: Path) -> RecordDirectory:
        ledger = self._open_ledger(path)
        others = Shared(lambda: self._threads.run(ledger.refresh))
        reader = SegmentReader(self._store)
        in_mirror = Shared(lambda: learn_from_mirror(ledger, reader))
        directory = RecordDirectory(path, ledger, others, in_mirror, asyncio.get_running_loop().create_future())
        self._opened[path] = directory
        try:
            await self._threads.run(refuse_the_mirror, path, self._mirror_directory)
            await self.read_receipts(directory)
            if not await self._threads.run(ledger.can_keep):
                await directory.in_mirror.anew()
        except BaseException as error:
            del self._opened[path]
            ledger.close()
            if isinstance(error, Exception):
                directory.ready.set_exception(error)
                directory.ready.exception()  # seen, should nobody wait
            else:
                directory.ready.cancel()  # the mirror ends, and with it all who wait
            raise
        directory.ready.set_result(None)
        return directory
