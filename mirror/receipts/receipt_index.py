"""What a ledger knows of each receipt without its line: which document it covers, and where the line lies.

Some forty bytes a record, so that millions take little room, and a restart little time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from mirror.errors import ReceiptError
from mirror.names import document_name
from mirror.private_index import PrivateIndex
from mirror.receipts.receipt import Glance, Receipt
from mirror.record import FileState

CACHE = "PRAGMA cache_size=-16384"  # KiB, of some 200,000 receipts
PAGES = "PRAGMA page_size=16384"  # a flatter tree
_SIGN = 1 << 63
_AT_ONCE = 500  # rows

Row = tuple[int, float, str, str | None, int, int | None, int | None, bytes | None]


class Line(NamedTuple):  # a dataclass costs several times as much to make, for each receipt
    """Where a receipt's line is: in a journal, or else here."""

    journal: int | None = None  # its number
    start: int | None = None  # bytes before it there
    text: bytes | None = None


class ReceiptIndex:
    """The newest receipt of each record. Calls must not overlap.

    Records are told apart by 64 bits of hash: of two that share them only the newer is known, and the other is copied
    again. What is covered is decided by the very state of the document. One receipt costs a tenth of what it would if
    SQLite took it alone: the newest few wait until they are many, or are asked for.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._index = PrivateIndex(
            PAGES,
            CACHE,
            "CREATE TABLE receipt (id INTEGER PRIMARY KEY, at REAL, state TEXT, excluded TEXT, files INTEGER, "
            "journal INTEGER, start INTEGER, line BLOB)",
        )
        self._new: list[Row] = []
        self._new_ids: set[int] = set()

    def add(self, row: Row) -> None:
        """Take in a receipt, as ``row_of`` describes it; an older one changes nothing."""
        self._new.append(row)
        self._new_ids.add(row[0])
        if len(self._new) >= _AT_ONCE:
            self._take_in()

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take in many receipts, as ``add`` does."""
        self._take_in()
        self._insert(rows)

    def find(self, record_id: str) -> Line | None:
        """Say where the line of a record's receipt should be; it may turn out to be another's."""
        key = _key(record_id)
        self._take_in_any([key])
        rows = self._index.execute("SELECT journal, start, line FROM receipt WHERE id = ?", (key,))
        return Line(*rows[0]) if rows else None

    def covered(self, documents: Mapping[str, FileState], exclude: Collection[str] | None) -> dict[str, int]:
        """Return which of these documents a receipt covers that leaves out no more than ``exclude`` (None: anything).

        Returns:
            Their ids, each with the number of files that its receipt lists.
        """
        ids = {_key(record_id): record_id for record_id in documents}
        may_be_left_out = None if exclude is None else set(exclude)
        self._take_in_any(ids)
        found: dict[str, int] = {}
        rows = self._index.select_in("SELECT id, state, excluded, files FROM receipt WHERE id IN", ids)
        for key, state, excluded, files in rows:
            record_id = ids[key]
            if state == _state_of(documents[record_id]) and (
                not excluded or may_be_left_out is None or may_be_left_out.issuperset(excluded.split("/"))
            ):
                found[record_id] = files
        return found

    def withdrawn(self, record_ids: Iterable[str]) -> set[str]:
        """Return which of these records have a newest line that withdraws what was receipted before."""
        ids = {_key(record_id): record_id for record_id in record_ids}
        self._take_in_any(ids)
        rows = self._index.select_in("SELECT id FROM receipt WHERE files = 0 AND id IN", ids)
        return {ids[key] for (key,) in rows}

    def count(self) -> int:
        """Return how many records have a receipt."""
        self._take_in()
        return int(self._index.execute("SELECT COUNT(*) FROM receipt WHERE files > 0")[0][0])

    def close(self) -> None:
        """Let the file go."""
        self._index.close()

    def _take_in_any(self, ids: Iterable[int]) -> None:
        if not self._new_ids.isdisjoint(ids):
            self._take_in()

    def _take_in(self) -> None:
        self._insert(self._new)
        self._new.clear()
        self._new_ids.clear()

    def _insert(self, rows: Iterable[Row]) -> None:
        self._index.execute_many(
            "INSERT INTO receipt VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at, "
            "state = excluded.state, excluded = excluded.excluded, files = excluded.files, "
            "journal = excluded.journal, start = excluded.start, line = excluded.line WHERE excluded.at >= receipt.at",
            rows,
        )


def row_of(receipt: Receipt | Glance, journal: int | None, start: int | None, text: bytes | None = None) -> Row:
    """Describe a receipt, and as ``Line`` does where its line is.

    Raises:
        ReceiptError: it lists files, but no document.
    """
    name = document_name(receipt.id)
    state = ""  # of no document: it withdraws what was receipted before
    for file in receipt.files:
        if file.name == name:
            state = f"{file.size}:{file.ctime_ns}:{file.inode}"
            break
    if receipt.files and not state:
        raise ReceiptError(f"a receipt of {receipt.id!r} does not list its document")
    excluded = "/".join(receipt.excluded) if receipt.excluded else None
    return _key(receipt.id), receipt.at, state, excluded, len(receipt.files), journal, start, text


def _key(record_id: str) -> int:
    # A name on disk need not be valid UTF-8; SQLite's integers have a sign.
    return xxh3_64_intdigest(record_id.encode(errors="surrogatepass")) - _SIGN


def _state_of(state: FileState) -> str:
    return f"{state.size_bytes}:{state.ctime_ns}:{state.inode}"
