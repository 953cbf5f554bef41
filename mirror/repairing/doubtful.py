"""Receipts beside a record as a repair reads them: nothing is believed that its plan did not find intact."""

from __future__ import annotations

import dataclasses

from mirror.receipts.receipt import FileReceipt, Receipt
from mirror.record_directory import RecordReceipts


class DoubtfulReceipts:
    """The receipts of a record on disk, of which a copy is to believe only what the plan knew and found intact.

    A file that is not believed has a size that none has: it is sent, and its receipt is withdrawn before.
    """

    def __init__(self, receipts: RecordReceipts, writer: str, planned: Receipt | None, damaged: frozenset[str]) -> None:
        """Read nothing yet.

        Args:
            receipts: those beside the record.
            writer: whose lines are the repair's own.
            planned: the record's receipt as the plan knew it.
            damaged: the names of the files that the plan found damaged.
        """
        self._receipts = receipts
        self._writer = writer
        self._planned = planned
        self._damaged = damaged
        self.agreed = planned  # as far as the newest line of others says the same, damaged files included

    async def latest(self) -> Receipt | None:
        """Return the newest line of any mirror when this is called, with its doubtful files marked."""
        line = await self._receipts.latest()
        if line is None:
            return None
        if self._planned is not None and line.writer != self._writer:
            files = tuple(file for file in self._planned.files if _says(line, file))
            self.agreed = dataclasses.replace(self._planned, files=files)
        files = tuple(file if self._is_intact(file) else _marked(file) for file in line.files)
        return dataclasses.replace(line, files=files)

    def withdraw(self, line: Receipt) -> Receipt:
        """Let no receipt that is known speak for the record any more."""
        return self._receipts.withdraw(line)

    def without_doubt(self, receipt: Receipt) -> Receipt:
        """Return a copy's receipt without the marked files: they were not sent."""
        return dataclasses.replace(receipt, files=tuple(file for file in receipt.files if file.size >= 0))

    def _is_intact(self, file: FileReceipt) -> bool:
        return file.name not in self._damaged and self._planned is not None and _says(self._planned, file)


def _says(receipt: Receipt, file: FileReceipt) -> bool:
    same = receipt.file(file.name)
    return same is not None and same.xxh3_128 == file.xxh3_128


def _marked(file: FileReceipt) -> FileReceipt:
    return dataclasses.replace(file, size=-1)
