"""Every newest receipt of a mirror, by record and by file, in little memory however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from mirror.private_index import PrivateIndex
from mirror.receipts.receipt import Receipt, decode_line, encode_line, newest

_BATCH = 500  # receipts taken in at once
_FILE = "name, id, size, xxh3_128, etag, version_id"


class ExpectedFile(NamedTuple):  # a dataclass costs five times as much to make, for each file of a mirror
    """One file as the newest receipt of its record says that the store has it."""

    name: str
    record_id: str
    size_bytes: int
    xxh3_128: str
    etag: str | None
    version_id: str | None


class Manifest:
    """Filled once or again and again; the newest receipt of an id wins, whatever the order."""

    def __init__(self) -> None:
        """Begin empty."""
        self._index = PrivateIndex(
            "CREATE TABLE record (id TEXT PRIMARY KEY, at REAL, line BLOB) WITHOUT ROWID",
            "CREATE TABLE file (name TEXT PRIMARY KEY, id TEXT, size INTEGER, xxh3_128 TEXT, etag TEXT, "
            "version_id TEXT) WITHOUT ROWID",
        )

    async def read(self, receipts: AsyncIterator[Receipt]) -> set[str]:
        """Take receipts in any order as they arrive, and return the ids that they speak of."""
        ids: set[str] = set()
        batch: list[Receipt] = []
        try:
            async for receipt in receipts:
                ids.add(receipt.id)
                batch.append(receipt)
                if len(batch) == _BATCH:
                    self._add(batch)
                    batch = []
        finally:  # what has arrived is kept, whatever comes of the rest
            self._add(batch)
        return ids

    def get(self, record_id: str) -> Receipt | None:
        """Return the newest receipt of a record."""
        rows = self._index.execute("SELECT line FROM record WHERE id = ?", (record_id,))
        return decode_line(rows[0][0]) if rows else None

    def file(self, name: str) -> ExpectedFile | None:
        """Return what is expected under a file name."""
        rows = self._index.execute(f"SELECT {_FILE} FROM file WHERE name = ?", (name,))  # noqa: S608 - a constant
        return ExpectedFile(*rows[0]) if rows else None

    def files(self, after: str = "", until: str | None = None) -> Iterator[ExpectedFile]:
        """Yield the expected files behind ``after`` up to ``until`` (None: all), by the UTF-8 bytes of their names."""
        end = "" if until is None else "AND name <= ?"
        query = f"SELECT {_FILE} FROM file WHERE name > ? {end} ORDER BY name"  # noqa: S608 - constants
        rows = self._index.iterate(query, (after,) if until is None else (after, until))
        return map(ExpectedFile._make, rows)

    def count_files(self) -> int:
        """Return the number of files."""
        return int(self._index.execute("SELECT COUNT(*) FROM file")[0][0])

    def every(self, files: int, *, first: int = 0) -> list[str]:
        """Return the names of the ``first`` file and of every ``files``-th behind it, ascending as ``files`` does."""
        names: list[str] = []
        steps = first or files
        query = "SELECT name FROM file WHERE name > ? ORDER BY name LIMIT 1 OFFSET ?"
        while rows := self._index.execute(query, (names[-1] if names else "", steps - 1)):
            names.append(rows[0][0])
            steps = files
        return names

    def records(self) -> Iterator[Receipt]:
        """Yield the newest receipt of every record, in the order of ids."""
        return (decode_line(row[0]) for row in self._index.iterate("SELECT line FROM record ORDER BY id"))

    def __len__(self) -> int:
        """Return the number of records."""
        return int(self._index.execute("SELECT COUNT(*) FROM record")[0][0])

    def close(self) -> None:
        """Let the file go."""
        self._index.close()

    def _add(self, batch: list[Receipt]) -> None:
        best = newest(batch)
        known: dict[str, float] = dict(self._index.select_in("SELECT id, at FROM record WHERE id IN", best))
        newer = [receipt for receipt in best.values() if receipt.at >= known.get(receipt.id, float("-inf"))]
        self._index.execute_many(
            "DELETE FROM file WHERE name = ?", self._names_of([r.id for r in newer if r.id in known])
        )
        self._index.execute_many(
            "INSERT OR REPLACE INTO record VALUES (?, ?, ?)", [(r.id, r.at, encode_line(r)) for r in newer]
        )
        self._index.execute_many(
            "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?)",
            [(f.name, r.id, f.size, f.xxh3_128, f.etag, f.version_id) for r in newer for f in r.files],
        )

    def _names_of(self, ids: list[str]) -> list[tuple[str]]:
        rows = self._index.select_in("SELECT line FROM record WHERE id IN", ids)
        return [(file.name,) for row in rows for file in decode_line(row[0]).files]
