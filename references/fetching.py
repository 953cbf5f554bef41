"""One record from the mirror to its place: every file hashed against its receipt first, all of them or none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ParamSpec, TypeVar

import xxhash

from mirror.allowance import Allowance
from mirror.errors import NotFoundError, StoreError
from mirror.receipts.receipt import FileReceipt
from mirror.reliable import ReliableStore
from mirror.store import PART_BYTES
from mirror.stores.threads import DaemonThreads
from references.errors import ReferencesError
from references.out_directory import PhaseDirectory
from references.pull_plan import Wanted, Why

P = ParamSpec("P")
T = TypeVar("T")

TRIES = 2  # a file of other bytes may have been damaged on the wire


class FetchError(ReferencesError):
    """A record did not come; nothing of it is left here, and what was here before still is."""

    def __init__(self, why: Why, detail: str) -> None:
        """Say why."""
        super().__init__(detail)
        self.why = why


class Fetcher:
    """Fetches records, any number at a time. Used on one event loop."""

    def __init__(self, *, in_flight: Allowance, threads: DaemonThreads) -> None:
        """``in_flight``: bytes of file contents that may be held; ``threads``: for the local disk."""
        self._in_flight = in_flight
        self._threads = threads

    async def lacking(self, wanted: Wanted, place: PhaseDirectory) -> list[FileReceipt]:
        """Return the files of a record that are not here yet as they should be."""
        return await self._on_disk(place.lacking, wanted.files)

    async def fetch(self, wanted: Wanted, store: ReliableStore, place: PhaseDirectory) -> list[FileReceipt]:
        """Bring what is lacking of a record, and return it.

        Raises:
            FetchError: the record did not come.
            OSError: the local disk is full, or cannot be written.
        """
        lacking = await self.lacking(wanted, place)
        if not lacking:
            return []
        parts = {file.name: place.scratch.reserve() for file in lacking}
        try:
            await _all_or_none(self._download(store, file, place, parts[file.name]) for file in lacking)
            await self._on_disk(place.commit, wanted.receipt, parts)
        except BaseException as error:
            await self._on_disk(place.scratch.discard, parts.values())
            if isinstance(error, IsADirectoryError):
                raise FetchError(Why.UNWRITABLE, f"{error.filename2} is a directory here: move it away") from error
            raise
        return lacking

    async def _download(self, store: ReliableStore, file: FileReceipt, place: PhaseDirectory, part: str) -> None:
        """Write one file into the scratch folder.

        Raises:
            FetchError: the mirror does not have it as its receipt says, or cannot be read.
        """
        async with self._in_flight.take(min(file.size, PART_BYTES)):
            for _ in range(TRIES):
                try:
                    is_right = await store.repeat(lambda: self._read_once(store, file, place, part))
                except NotFoundError as error:
                    detail = f"its receipt says that {file.name} was copied, and it is not there"
                    raise FetchError(Why.MISSING, detail) from error
                except StoreError as error:
                    raise FetchError(Why.UNREADABLE, str(error)) from error
                if is_right:
                    return
        raise FetchError(Why.DAMAGED, f"{file.name} is not what its receipt says: repair the mirror, then pull again")

    async def _read_once(self, store: ReliableStore, file: FileReceipt, place: PhaseDirectory, part: str) -> bool:
        """Write a file as the mirror gives it, and say whether it is what its receipt says."""
        hasher = xxhash.xxh3_128()
        size_bytes = 0
        async with contextlib.aclosing(store.read(file.name)) as chunks:
            async for chunk in chunks:
                size_bytes += len(chunk)
                if size_bytes > file.size:
                    detail = f"{file.name} is larger than the {file.size} bytes that its receipt says"
                    raise FetchError(Why.DAMAGED, detail)
                hasher.update(chunk)
                await self._on_disk(place.scratch.write, part, chunk, begin=size_bytes == len(chunk))
        if not size_bytes:
            await self._on_disk(place.scratch.write, part, b"", begin=True)
        return (size_bytes, hasher.hexdigest()) == (file.size, file.xxh3_128)

    async def _on_disk(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call on a thread, and end after it even when cancelled: it must not write to what was closed meanwhile."""
        work = asyncio.ensure_future(self._threads.run(call, *args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise


async def _all_or_none(downloads: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Await all; the first failure ends the others before it is raised."""
    tasks = [asyncio.create_task(download) for download in downloads]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
