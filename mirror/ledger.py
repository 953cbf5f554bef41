"""What a record directory's own receipts say is in one mirror, so that a restart need not ask the store.

The lines lie in ``<record_dir>/.mirror/<place>/<writer>.jsonl``, one file a writer, only ever appended to; beside each,
``<writer>.sent`` holds how many of its bytes are also in the mirror. ``url`` in the same folder is the mirror's, for
people. To know millions of records in little memory they are indexed in a private SQLite file without a name, which the
operating system drops with the process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirror.errors import ReceiptError
from mirror.names import document_name
from mirror.private_index import PrivateIndex
from mirror.receipt import Receipt, decode_line, encode_line
from mirror.record import FileState

logger = logging.getLogger(__name__)

DIRECTORY = ".mirror"
URL_FILE = "url"
_BATCH = 500  # rows a statement; SQLite takes 999 parameters everywhere


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a line in a journal: what is sent of it when that line is in the mirror."""

    journal: Path
    end: int  # bytes

    def note_sent(self) -> None:
        """Remember beside the journal that it is in the mirror up to here."""
        with contextlib.suppress(OSError):  # costs a receipt sent twice
            _sent_file(self.journal).write_text(str(self.end))


class Ledger:
    """The receipts of one record directory for one mirror. Its methods may be called from any thread."""

    def __init__(self, directory: Path, place: str, writer: str, *, url: str | None = None) -> None:
        """Read nothing yet; ``place`` names the mirror (``location.place_id``), ``url`` is kept for who reads it."""
        self._url = url
        self._folder = directory / DIRECTORY / place
        self._own = self._folder / f"{writer}.jsonl"
        self._lock = threading.Lock()
        self._read: dict[Path, int] = {}  # bytes of each journal that are indexed
        self._adopted: dict[Path, int] = {}  # bytes of each journal whose unsent lines were given out
        self._sizes: dict[Path, int] = {}  # of each journal when it was last read
        self._descriptor: int | None = None
        self._broken = False
        self._index = PrivateIndex(
            "CREATE TABLE receipt (id BLOB PRIMARY KEY, at REAL, state TEXT, excluded TEXT, files INTEGER, line BLOB) "
            "WITHOUT ROWID",
            "BEGIN",  # never committed: it goes with the process, and each insert is the cheaper
        )

    def load(self) -> list[tuple[bytes, Mark]]:
        """Read what every writer has appended since the last time.

        Returns:
            The lines of other writers that their journals do not say are in the mirror, each with its mark.
        """
        with self._lock:
            return [item for journal, size in self._journals() for item in self._load(journal, size, adopt=True)]

    def refresh(self) -> None:
        """Learn what every writer has appended since the last time; quick where that is nothing."""
        with self._lock:
            for journal, size in self._journals():
                if size != self._sizes.get(journal):
                    self._load(journal, size, adopt=False)

    def get(self, record_id: str) -> Receipt | None:
        """Return the newest receipt of a record."""
        with self._lock:
            rows = self._index.execute("SELECT line FROM receipt WHERE id = ?", (_key(record_id),))
        return decode_line(rows[0][0]) if rows else None

    def uncovered(self, documents: Sequence[tuple[str, FileState]], exclude: Collection[str]) -> list[str]:
        """Return the ids of which no receipt covers this very document without leaving out more than ``exclude``."""
        known: dict[bytes, tuple[str | None, str]] = {}
        with self._lock:
            for start in range(0, len(documents), _BATCH):
                ids = [_key(record_id) for record_id, _ in documents[start : start + _BATCH]]
                query = f"SELECT id, state, excluded FROM receipt WHERE id IN ({','.join('?' * len(ids))})"  # noqa: S608 - question marks only
                known.update((row[0], (row[1], row[2])) for row in self._index.execute(query, ids))
        return [
            record_id
            for record_id, document in documents
            if (receipt := known.get(_key(record_id))) is None
            or receipt[0] != _state_of(document)
            or not set(receipt[1].split("/")) <= {"", *exclude}
        ]

    def count_files(self, ids: Sequence[str]) -> int:
        """Return how many files the receipts of these records list."""
        total = 0
        with self._lock:
            for start in range(0, len(ids), _BATCH):
                batch = [_key(record_id) for record_id in ids[start : start + _BATCH]]
                query = f"SELECT SUM(files) FROM receipt WHERE id IN ({','.join('?' * len(batch))})"  # noqa: S608 - question marks only
                total += self._index.execute(query, batch)[0][0] or 0
        return total

    def append(self, receipt: Receipt) -> tuple[bytes, Mark | None]:
        """Keep a new receipt.

        A disk that takes no line costs only speed after a restart: it is said once, and the mirror has the receipt.

        Returns:
            The line, and its mark if it is on disk.
        """
        line = encode_line(receipt)
        with self._lock:
            self._insert([(receipt, line)])
            return line, self._write(line)

    def can_keep(self) -> bool:
        """Whether receipts can be kept beside the records: not on a read-only disk, nor in another's directory."""
        places = (self._folder, self._folder.parent, self._folder.parent.parent)
        nearest = next((place for place in places if place.exists()), places[-1])
        return os.access(nearest, os.W_OK | os.X_OK)

    def learn(self, receipts: Iterable[Receipt]) -> None:
        """Know receipts from elsewhere, for as long as this process lives."""
        with self._lock:
            self._insert([(receipt, encode_line(receipt)) for receipt in receipts])

    def count(self) -> int:
        """Return how many records are known to be in the mirror."""
        with self._lock:
            return int(self._index.execute("SELECT COUNT(*) FROM receipt")[0][0])

    def close(self) -> None:
        """Let the files go."""
        with self._lock:
            self._index.close()
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _journals(self) -> list[tuple[Path, int]]:
        """Return the journals of the other writers, with their sizes."""
        try:
            with os.scandir(self._folder) as entries:
                found = [(self._folder / entry.name, entry.stat().st_size) for entry in entries if _is_journal(entry)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            logger.warning("cannot read the receipts in %s: %s", self._folder, error)
            return []
        return sorted(item for item in found if item[0] != self._own)

    def _load(self, journal: Path, size: int, *, adopt: bool) -> list[tuple[bytes, Mark]]:
        """Index what is new in a journal and, to ``adopt`` them, return the lines that nobody has sent yet."""
        indexed = self._read.get(journal, 0)
        sent = _read_sent(journal) if adopt else 0
        done = max(self._adopted.get(journal, 0), min(sent, indexed)) if adopt else indexed
        unsent: list[tuple[bytes, Mark]] = []
        found: list[tuple[Receipt, bytes]] = []
        try:
            with journal.open("rb") as file:
                file.seek(done)
                for line in file:
                    if not line.endswith(b"\n"):
                        if size != self._sizes.get(journal):
                            logger.warning("%s ends in a torn line, which is skipped", journal)
                        break
                    done += len(line)
                    receipt = _decode(journal, line, say=done > indexed)
                    if receipt is None:
                        continue
                    if done > indexed:
                        found.append((receipt, line))
                    if adopt and done > sent:
                        unsent.append((line, Mark(journal, done)))
                    if len(found) >= _BATCH:
                        self._insert(found)
                        found.clear()
        except OSError as error:
            logger.warning("cannot read the receipts in %s: %s", journal, error)
        self._insert(found)
        self._sizes[journal] = size
        self._read[journal] = max(indexed, done)
        if adopt:
            self._adopted[journal] = done
        return unsent

    def _insert(self, receipts: Iterable[tuple[Receipt, bytes]]) -> None:
        rows = [
            (_key(receipt.id), receipt.at, _state_in(receipt), "/".join(receipt.excluded), len(receipt.files), line)
            for receipt, line in receipts
        ]
        self._index.execute_many(
            "INSERT INTO receipt VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at, "
            "state = excluded.state, excluded = excluded.excluded, files = excluded.files, line = excluded.line "
            "WHERE excluded.at >= receipt.at",
            rows,
        )

    def _keep_url(self) -> None:
        file = self._folder / URL_FILE
        if self._url is not None and not file.exists():
            with contextlib.suppress(OSError):  # costs a name that people can read
                file.write_text(f"{self._url}\n", encoding="utf-8", errors="surrogateescape")

    def _write(self, line: bytes) -> Mark | None:
        try:
            if self._descriptor is None:
                self._folder.parent.mkdir(exist_ok=True)  # never the record directory: it may not be mounted now
                self._folder.mkdir(exist_ok=True)
                self._descriptor = os.open(self._own, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                self._keep_url()
            start = os.lseek(self._descriptor, 0, os.SEEK_END)
            if os.write(self._descriptor, line) != len(line):
                os.ftruncate(self._descriptor, start)  # the half of a line would spoil the next
                raise OSError("the disk is full")  # noqa: TRY301 - as the file system says it when nothing fits
            return Mark(self._own, start + len(line))
        except OSError as error:
            if not self._broken:
                self._broken = True
                logger.warning(
                    "cannot keep receipts beside the records in %s (%s): a restart will look at them again",
                    self._folder,
                    error,
                )
            return None


def _decode(journal: Path, line: bytes, *, say: bool) -> Receipt | None:
    try:
        return decode_line(line)
    except ReceiptError as error:
        if say:
            logger.warning("skipped a line of %s: %s", journal, error)
        return None


@contextlib.contextmanager
def reading(directory: Path, place: str) -> Iterator[Ledger]:
    """Know a directory's receipts for the length of the block, as somebody who writes none."""
    ledger = Ledger(directory, place, "reader")  # a name under which nothing is ever written
    try:
        ledger.refresh()
        yield ledger
    finally:
        ledger.close()


def read_url(directory: Path, place: str) -> str | None:
    """Return the URL of a mirror by its name beside the records; None where no writer has kept it yet."""
    try:
        text = (directory / DIRECTORY / place / URL_FILE).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return text.strip() or None


def _is_journal(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)  # a pipe would be waited for


def _sent_file(journal: Path) -> Path:
    return journal.with_suffix(".sent")


def _read_sent(journal: Path) -> int:
    try:
        sent = int(_sent_file(journal).read_text())
        return sent if sent <= journal.stat().st_size else 0
    except (OSError, ValueError):
        return 0


def _key(record_id: str) -> bytes:
    return record_id.encode(errors="surrogatepass")  # a name on disk need not be valid UTF-8


def _state_of(state: FileState) -> str:
    return f"{state.size_bytes}:{state.ctime_ns}:{state.inode}"


def _state_in(receipt: Receipt) -> str | None:
    document = receipt.file(document_name(receipt.id))
    return None if document is None else f"{document.size}:{document.ctime_ns}:{document.inode}"
