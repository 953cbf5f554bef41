"""What a record directory's own receipts say is in one mirror, so that a restart need not ask the store.

The lines lie in ``<record_dir>/.mirror/<place>/<writer>.jsonl``, one file a writer, only ever appended to; beside each,
``<writer>.sent`` holds how many of its bytes are also in the mirror. ``url`` in the same folder is the mirror's, for
people. What has to be known of each at once is indexed; the line itself stays where it is.

Whoever can write to the record directory can put anything there: no link is followed, no pipe waited for, and no more
read than a line, a number or a URL can take.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mirror.errors import ReceiptError
from mirror.receipts.receipt import MAX_LINE_BYTES, Receipt, decode_line, encode_line, glance_at
from mirror.receipts.receipt_index import ReceiptIndex, Row, row_of
from mirror.record import FileState

logger = logging.getLogger(__name__)

DIRECTORY = ".mirror"
URL_FILE = "url"
MAX_URL_BYTES = 8_192
_MAX_SENT_BYTES = 32
_BATCH = 5_000  # receipts indexed in one go
# What changed so recently may change again within its time stamp's grain: a file system keeps whole seconds, or takes
# its clock's last tick, a hundredth of a second at most.
COARSE_NS, FINE_NS = 2_000_000_000, 100_000_000
_SECOND_NS = 1_000_000_000
_NOT_ELSEWHERE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a line in a journal: what is sent of it when that line is in the mirror."""

    journal: Path
    end: int  # bytes

    def note_sent(self) -> None:
        """Remember beside the journal that it is in the mirror up to here."""
        with contextlib.suppress(OSError):  # costs a receipt sent twice
            _write_in_place(_sent_file(self.journal), str(self.end).encode(), os.O_TRUNC)


class Ledger:
    """The receipts of one record directory for one mirror. Its methods may be called from any thread."""

    def __init__(self, directory: Path, place: str, writer: str, *, url: str | None = None) -> None:
        """Read nothing yet; ``place`` names the mirror (``place.place_id``), ``url`` is kept for who reads it."""
        self._url = url
        self._folder = directory / DIRECTORY / place
        self._own = self._folder / f"{writer}.jsonl"
        self._lock = threading.Lock()
        self._read: dict[Path, int] = {}  # bytes of each journal that are indexed
        self._adopted: dict[Path, int] = {}  # bytes of each journal whose unsent lines were given out
        self._sizes: dict[Path, int] = {}  # of each journal when it was last read
        self._descriptor: int | None = None
        self._broken = False
        self._alone_ns: int | None = None  # when the folder last changed, where no other journal is in it
        self._numbers: dict[Path, int] = {}  # what the index calls each journal
        self._index = ReceiptIndex()

    def load(self) -> list[tuple[bytes, Mark]]:
        """Read what every writer has appended since the last time.

        Returns:
            The lines of other writers that their journals do not say are in the mirror, each with its mark; none of a
            record whose receipt was withdrawn since.
        """
        with self._lock:
            unsent = [item for journal, size in self._journals() for item in self._load(journal, size, adopt=True)]
            withdrawn = self._index.withdrawn(record_id for record_id, _, _ in unsent)
            return [(line, mark) for record_id, line, mark in unsent if record_id not in withdrawn]

    def refresh(self) -> None:
        """Learn what every writer has appended since the last time; quick where that is nothing."""
        with self._lock:
            for journal, size in self._journals():
                if size != self._sizes.get(journal):
                    self._load(journal, size, adopt=False)

    def is_alone(self) -> bool:
        """Whether there was no other writer's journal at the last reading, and none can have come since; quick."""
        return self._alone_ns is not None and self._alone_ns == _changed_ns(self._folder)

    def get(self, record_id: str) -> Receipt | None:
        """Return the newest receipt of a record, unless it was withdrawn or its line was taken away meanwhile."""
        receipt = self.last(record_id)
        return receipt if receipt is not None and receipt.files else None

    def last(self, record_id: str) -> Receipt | None:
        """Return the newest line of a record: its receipt, or what withdraws that."""
        with self._lock:
            line = self._index.find(record_id)
        if line is None:
            return None
        if line.text is not None:
            receipt: Receipt | None = decode_line(line.text, may_withdraw=True)
        else:
            receipt = _read_line(list(self._numbers)[line.journal or 0], line.start or 0)
        return receipt if receipt is not None and receipt.id == record_id else None

    def covered(self, documents: Mapping[str, FileState], exclude: Collection[str] | None) -> dict[str, int]:
        """Return which of these very documents a receipt covers; it may leave out ``exclude`` (None: anything).

        Returns:
            Their ids, each with the number of files that its receipt lists.
        """
        with self._lock:
            return self._index.covered(documents, exclude)

    def append(self, receipt: Receipt) -> tuple[bytes, Mark | None]:
        """Keep a new receipt.

        A disk that takes no line costs only speed after a restart: it is said once, and the mirror has the receipt.

        Returns:
            The line, and its mark if it is on disk.
        """
        line = encode_line(receipt)
        with self._lock:
            mark = self._write(line)
            if mark is None:
                row = row_of(receipt, None, None, line)
            else:
                row = row_of(receipt, self._number(mark.journal), mark.end - len(line))
            self._index.add(row)
            return line, mark

    def can_keep(self) -> bool:
        """Whether receipts can be kept beside the records: not on a read-only disk, nor in another's directory."""
        places = (self._folder, self._folder.parent, self._folder.parent.parent)
        nearest = next((place for place in places if place.exists()), places[-1])
        return os.access(nearest, os.W_OK | os.X_OK)

    def learn(self, receipts: Iterable[Receipt]) -> None:
        """Know receipts from elsewhere, for as long as this process lives."""
        with self._lock:
            self._index.add_all([row_of(receipt, None, None, encode_line(receipt)) for receipt in receipts])

    def count(self) -> int:
        """Return how many records are known to be in the mirror."""
        with self._lock:
            return self._index.count()

    def close(self) -> None:
        """Let the files go."""
        with self._lock:
            self._index.close()
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _journals(self) -> list[tuple[Path, int]]:
        """Return the journals of the other writers, with their sizes."""
        changed_ns = _changed_ns(self._folder)
        self._alone_ns = None
        try:
            with os.scandir(self._folder) as entries:
                found = [(self._folder / entry.name, entry.stat().st_size) for entry in entries if _is_journal(entry)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            logger.warning("cannot read the receipts in %s: %s", self._folder, error)
            return []
        others = sorted(item for item in found if item[0] != self._own)
        if not others and changed_ns is not None and _is_settled(changed_ns):
            self._alone_ns = changed_ns
        return others

    def _load(self, journal: Path, size: int, *, adopt: bool) -> list[tuple[str, bytes, Mark]]:
        """Index what is new in a journal and, to ``adopt`` them, return the ids and lines that nobody has sent yet."""
        indexed = self._read.get(journal, 0)
        sent = _read_sent(journal) if adopt else 0
        done = start = max(self._adopted.get(journal, 0), min(sent, indexed)) if adopt else indexed
        unsent: list[tuple[str, bytes, Mark]] = []
        found: list[Row] = []
        number = self._number(journal)
        try:
            for done, line in self._lines(journal, start, size):
                is_unsent = adopt and done > sent
                try:
                    receipt = (  # what goes on from here is checked
                        decode_line(line, may_withdraw=True) if is_unsent else glance_at(line)
                    )
                    row = row_of(receipt, number, done - len(line))
                except ReceiptError as error:
                    if done > indexed:
                        logger.warning("skipped a line of %s: %s", journal, error)
                    continue
                if done > indexed:
                    found.append(row)
                if is_unsent and receipt.files:
                    unsent.append((receipt.id, line, Mark(journal, done)))
                if len(found) >= _BATCH:
                    self._index.add_all(found)
                    found.clear()
        except OSError as error:
            logger.warning("cannot read the receipts in %s: %s", journal, error)
        self._index.add_all(found)
        self._sizes[journal] = size
        self._read[journal] = max(indexed, done)
        if adopt:
            self._adopted[journal] = done
        return unsent

    def _lines(self, journal: Path, start: int, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield each whole line behind ``start``, and where it ends."""
        end = start
        with _opened(journal) as file:
            file.seek(start)
            while line := file.readline(MAX_LINE_BYTES + 1):
                if not line.endswith(b"\n"):
                    if size != self._sizes.get(journal):
                        logger.warning("%s ends in a torn line (or an endless one), which is skipped", journal)
                    return
                end += len(line)
                yield end, line

    def _number(self, journal: Path) -> int:
        return self._numbers.setdefault(journal, len(self._numbers))

    def _keep_url(self) -> None:
        if self._url is not None:
            text = f"{self._url}\n".encode(errors="surrogateescape")
            with contextlib.suppress(OSError):  # it is there, or else costs a name that people can read
                _write_in_place(self._folder / URL_FILE, text, os.O_EXCL)

    def _write(self, line: bytes) -> Mark | None:
        try:
            if self._descriptor is None:
                for folder in (self._folder.parent, self._folder):  # the record directory may not be mounted now
                    folder.mkdir(exist_ok=True)
                    if folder.is_symlink():
                        raise OSError(f"{folder} is a link, which is not followed")  # noqa: TRY301 - told like others
                self._descriptor = os.open(self._own, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOT_ELSEWHERE, 0o644)
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


def _read_line(journal: Path, start: int) -> Receipt | None:
    try:
        with _opened(journal) as file:
            file.seek(start)
            return decode_line(file.readline(MAX_LINE_BYTES + 1), may_withdraw=True)
    except (OSError, ReceiptError):
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


def places(directory: Path) -> list[str]:
    """Return the names of the mirrors that a directory has receipts of, sorted; a link is none.

    Raises:
        OSError: they cannot be read.
    """
    try:
        with os.scandir(directory / DIRECTORY) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def read_url(directory: Path, place: str) -> str | None:
    """Return the URL of a mirror by its name beside the records; None where no writer has kept it yet."""
    try:
        with _opened(directory / DIRECTORY / place / URL_FILE) as file:
            text = file.readline(MAX_URL_BYTES).decode(errors="surrogateescape")
    except OSError:
        return None
    return text.strip() or None


def _is_settled(changed_ns: int) -> bool:
    """Whether a change after this one, of what it is the last change of, would show."""
    return time.time_ns() - changed_ns > (FINE_NS if changed_ns % _SECOND_NS else COARSE_NS)


def _changed_ns(folder: Path) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - Path.stat costs twice as much, for each record
    except OSError:
        return None


def _is_journal(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)  # a pipe would be waited for


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | _NOT_ELSEWHERE), "rb")


def _write_in_place(path: Path, content: bytes, how: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | _NOT_ELSEWHERE | how, 0o644)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)


def _sent_file(journal: Path) -> Path:
    return journal.with_suffix(".sent")


def _read_sent(journal: Path) -> int:
    try:
        with _opened(_sent_file(journal)) as file:
            sent = int(file.read(_MAX_SENT_BYTES))
        return sent if sent <= journal.stat().st_size else 0
    except (OSError, ValueError):
        return 0
