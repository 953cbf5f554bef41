"""Every newest receipt of a mirror, by record and by file, in little memory however many there are.

One row a record, whose files are in its line: to take a line apart costs less than a row for each file.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from heapq import heappop, heappush

import msgspec

from mirror.names import SUFFIX
from mirror.private_index import PrivateIndex
from mirror.receipts.receipt import Receipt, decode_line, encode_line

_BATCH = 500  # receipts taken in at once


class ExpectedFile(msgspec.Struct, frozen=True, order=True, gc=False):
    """One file as the newest receipt of its record says that the store has it."""

    name: str
    size_bytes: int = msgspec.field(name="size")
    xxh3_128: str
    etag: str | None = None
    version_id: str | None = None

    @property
    def record_id(self) -> str:
        """Whose file it is."""
        return self.name.removesuffix(SUFFIX).rpartition(".")[0]


class _Files(msgspec.Struct, gc=False):
    files: list[ExpectedFile]


_files_in = msgspec.json.Decoder(_Files).decode  # lines that were checked when they were read


class Manifest:
    """Filled once or again and again; the newest receipt of an id wins, whatever the order."""

    def __init__(self) -> None:
        """Begin empty."""
        self._index = PrivateIndex(
            "CREATE TABLE record (stem TEXT PRIMARY KEY, at REAL, files INTEGER, line BLOB) WITHOUT ROWID"
        )

    async def read(self, receipts: AsyncIterator[Receipt], ids: set[str] | None = None) -> None:
        """Take receipts in any order as they arrive; ``ids`` gets those that they speak of."""
        batch: list[Receipt] = []
        try:
            async for receipt in receipts:
                if ids is not None:
                    ids.add(receipt.id)
                batch.append(receipt)
                if len(batch) == _BATCH:
                    self._add(batch)
                    batch = []
        finally:  # what has arrived is kept, whatever comes of the rest
            self._add(batch)

    def get(self, record_id: str) -> Receipt | None:
        """Return the newest receipt of a record."""
        rows = self._index.execute("SELECT line FROM record WHERE stem = ?", (_stem(record_id),))
        return decode_line(rows[0][0]) if rows else None

    def file(self, name: str) -> ExpectedFile | None:
        """Return what is expected under a file name."""
        stem, _, _ = name.removesuffix(SUFFIX).rpartition(".")
        return next((file for file in self._files_of([_stem(stem)]) if file.name == name), None)

    def files(self, after: str = "", until: str | None = None) -> Iterator[ExpectedFile]:
        """Yield the expected files behind ``after`` up to ``until`` (None: all), by the UTF-8 bytes of their names."""
        end = "" if until is None else "AND stem <= ?"
        begun = self._index.select_in("SELECT stem, line FROM record WHERE stem IN", _stems_in(after))
        others = self._index.iterate(
            f"SELECT stem, line FROM record WHERE stem > ? {end} ORDER BY stem",  # noqa: S608 - constants
            (after,) if until is None else (after, until),
        )
        # By name: where an id goes on behind another with a dot, the files of both may alternate.
        waiting: list[ExpectedFile] = []
        for stem, line in itertools.chain(sorted(begun), others):
            while waiting and waiting[0].name < stem:
                yield heappop(waiting)
            for file in _files_in(line).files:
                if file.name > after and (until is None or file.name <= until):
                    heappush(waiting, file)
        while waiting:
            yield heappop(waiting)

    def count_files(self) -> int:
        """Return the number of files."""
        return int(self._index.execute("SELECT COALESCE(SUM(files), 0) FROM record")[0][0])

    def every(self, files: int, *, first: int = 0) -> list[str]:
        """Return the names of the ``first`` file and of every ``files``-th behind it, ascending as ``files`` does."""
        names: list[str] = []
        missing = first or files  # up to the next, from the first file of the record
        for stem, count in self._index.iterate("SELECT stem, files FROM record ORDER BY stem"):
            while missing <= count:
                name = sorted(file.name for file in self._files_of([stem]))[missing - 1]
                if not names or name > names[-1]:  # see ``files``
                    names.append(name)
                missing += files
            missing -= count
        return names

    def __len__(self) -> int:
        """Return the number of records."""
        return int(self._index.execute("SELECT COUNT(*) FROM record")[0][0])

    def close(self) -> None:
        """Let the file go."""
        self._index.close()

    def _files_of(self, stems: Iterable[str]) -> Iterator[ExpectedFile]:
        rows = self._index.select_in("SELECT line FROM record WHERE stem IN", stems)
        return (file for (line,) in rows for file in _files_in(line).files)

    def _add(self, batch: list[Receipt]) -> None:
        self._index.execute_many(
            "INSERT INTO record VALUES (?, ?, ?, ?) ON CONFLICT (stem) DO UPDATE SET at = excluded.at, "
            "files = excluded.files, line = excluded.line WHERE excluded.at >= record.at",
            [(_stem(receipt.id), receipt.at, len(receipt.files), encode_line(receipt)) for receipt in batch],
        )


def _stem(record_id: str) -> str:
    """Return what the names of a record's files begin with: in the order of stems they nearly always ascend."""
    return f"{record_id}."


def _stems_in(name: str) -> Iterator[str]:
    """Yield the stems of all records whose files may lie on both sides of a name."""
    return (name[: at + 1] for at, letter in enumerate(name) if letter == ".")
