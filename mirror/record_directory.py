"""A record directory that a mirror works on: its receipts, and what other mirrors add to them meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from mirror.errors import RecordError
from mirror.looking import every_id
from mirror.receipts.ledger import Ledger
from mirror.receipts.receipt import Receipt, following
from mirror.receipts.segments import SegmentReader
from mirror.record import read_record
from mirror.sharing import Shared

FRESH_S = 0.05  # for so long the receipts of others count as just read
PAUSE = 2  # times as long as reading them took
BATCH = 500  # receipts


@dataclass(slots=True)
class RecordDirectory:
    """Used on one event loop."""

    path: Path
    ledger: Ledger
    others: Shared  # reads what other mirrors have added to the ledger
    in_mirror: Shared  # reads the mirror's own receipts into it
    ready: asyncio.Future[None]  # done when the receipts were read for the first time, or cannot be
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    wanted: Callable[[str], bool] = every_id  # the ids that looks are for
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _read_at: float = float("-inf")  # monotonic; not read again before

    def holds(self, record_id: str, kinds: Collection[str], exclude: Collection[str]) -> bool:
        """Whether the mirror has a record as it is on disk now, with all its sidecars of these kinds but ``exclude``.

        Raises:
            RecordGoneError: there is no document.
            OSError: the directory cannot be read.
        """
        receipt = self.ledger.get(record_id)
        if receipt is None:
            return False
        record = read_record(self.path, record_id, set(kinds) - set(exclude))
        names = {file.name for file in receipt.files}
        is_covered = bool(self.ledger.covered({record_id: record.document}, exclude))
        return is_covered and all(state.name in names for state in record.sidecars)

    async def read_others(self) -> None:
        """Learn what other mirrors have copied, unless that was asked just now."""
        async with self._reading:
            began = time.monotonic()
            if began >= self._read_at:
                await self.others.anew()
                ended = time.monotonic()
                self._read_at = ended + max(FRESH_S, PAUSE * (ended - began))


@dataclass(frozen=True, slots=True)
class RecordReceipts:
    """The receipts of one record, to which other mirrors on its directory may add at any time."""

    ledger: Ledger
    others: Shared  # reads what other mirrors have added to it
    record_id: str

    async def latest(self) -> Receipt | None:
        """Return the newest line of any mirror when this is called."""
        if not self.ledger.is_alone():
            await self.others.anew()
        return self.ledger.last(self.record_id)

    def withdraw(self, line: Receipt) -> Receipt:
        """Let no receipt that is known speak for the record any more, in this process and after a restart."""
        withdrawal = following(self.ledger.last(self.record_id), line)
        self.ledger.append(withdrawal)
        return withdrawal


async def learn_from_mirror(ledger: Ledger, reader: SegmentReader) -> None:
    """Learn from the mirror's own receipts what is there: the disk keeps none, or could not.

    Raises:
        StoreError: they could not be read.
    """
    batch: list[Receipt] = []
    async for receipt in reader.read():
        batch.append(receipt)
        if len(batch) >= BATCH:
            ledger.learn(batch)
            batch = []
    ledger.learn(batch)


def refuse_the_mirror(directory: Path, mirror_directory: Path | None) -> None:
    """Let no receipt say that there is a second copy where there is only one.

    Raises:
        RecordError: the directory is the mirror itself, perhaps by another name.
    """
    with contextlib.suppress(OSError):  # one of them is not there
        if mirror_directory is not None and directory.samefile(mirror_directory):
            raise RecordError(f"{directory} cannot be its own mirror: nothing would be copied; name another directory")
