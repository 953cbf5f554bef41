"""A finished record on a local disk: its files as they are now, and the ids that a directory holds.

Layout of a record directory: flat; sidecars are renamed into place before their document, so a visible document is
finished. Dot-files, subdirectories, symbolic links and whatever is not a regular file are never part of a record.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from mirror.errors import RecordGoneError
from mirror.names import DOCUMENT_SUFFIX, SUFFIX, document_name, parse_name, sidecar_name

_BATCH = 1_000  # entries


class FileState(NamedTuple):  # a dataclass costs several times as much to make, for each file of a directory
    """One file as it is now; two equal states are the same bytes.

    A file that is renamed over another gets another inode, one that is written in place another change time.
    """

    name: str
    size_bytes: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, name: str, status: os.stat_result) -> FileState:
        """Take what the file system says of a file."""
        return cls(name, status.st_size, status.st_ctime_ns, status.st_ino)


@dataclass(frozen=True, slots=True)
class Record:
    """The files that a record has on disk now."""

    directory: Path
    record_id: str
    sidecars: tuple[FileState, ...]  # sorted by name
    document: FileState

    @property
    def files(self) -> tuple[FileState, ...]:
        """All files in the order in which they may become visible: sidecars, then the document."""
        return (*self.sidecars, self.document)


def read_status(directory: Path, name: str) -> os.stat_result | None:
    """Return what the file system says of whatever has a name, or None if nothing has it (links are not followed)."""
    try:
        return os.lstat(f"{directory}/{name}")
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no file can have such a name
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # a sidecar of a document whose name just fits
            return None
        raise


def read_state(directory: Path, name: str) -> FileState | None:
    """Return a regular file's state, or None if there is none of that name (links are not followed)."""
    status = read_status(directory, name)
    return FileState.of(name, status) if status is not None and stat.S_ISREG(status.st_mode) else None


def require_directory(directory: Path) -> None:
    """Make sure that a directory is there: what was not found in it may else come back with it.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    try:
        os.lstat(f"{directory}/.")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(directory)) from None


def read_record(directory: Path, record_id: str, kinds: Collection[str]) -> Record:
    """Look up a record's document and its sidecars of these kinds.

    Raises:
        RecordGoneError: there is no document.
        OSError: the directory cannot be read.
    """
    document = read_state(directory, document_name(record_id))
    if document is None:
        raise RecordGoneError(f"{document_name(record_id)} is not in {directory}: nothing is left to copy")
    found = [read_state(directory, sidecar_name(record_id, kind)) for kind in kinds]
    return Record(directory, record_id, tuple(sorted([state for state in found if state is not None])), document)


def find_kinds(directory: Path) -> set[str]:
    """Return every kind of sidecar that any file of the directory has (one pass over its names)."""
    kinds: set[str] = set()
    for name in os.listdir(directory):  # noqa: PTH208 - names alone; a Path for each would double the cost
        if name.endswith(DOCUMENT_SUFFIX) or name.removesuffix(".zst").rpartition(".")[2] in kinds:
            continue  # nothing new, and taking a name apart is most of the cost
        parsed = parse_name(name)
        if parsed is not None and parsed.kind is not None:
            kinds.add(parsed.kind)
    return kinds


def is_larger_than(directory: Path, entries: int) -> bool:
    """Whether a directory has more than so many entries; they are counted no further."""
    with os.scandir(directory) as found:
        return next(islice(found, entries, None), None) is not None


class Entry(NamedTuple):  # likewise
    """A directory entry that is part of a record."""

    record_id: str
    kind: str | None  # None: the document
    state: FileState


class Batch(NamedTuple):
    """Some entries of a directory that are parts of records."""

    documents: dict[str, FileState]  # by record id
    sidecars: list[Entry]


def iter_batches(directory: Path, size: int, *, but: Collection[str] = ()) -> Iterator[Batch]:
    """Yield the record files of a directory, in no order, so many at once.

    Args:
        directory: the record directory.
        size: how many entries make a batch.
        but: kinds of sidecars that are passed over; asking the file system about a file is most of its cost.

    Raises:
        OSError: the directory cannot be read.
    """
    passed_over = tuple(f".{kind}{SUFFIX}" for kind in but)
    batch = Batch({}, [])
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            is_document = name.endswith(DOCUMENT_SUFFIX) and len(name) > len(DOCUMENT_SUFFIX) and name[0] != "."
            parsed = None if is_document or name.endswith(passed_over) else parse_name(name)
            if not is_document and parsed is None:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # deleted while we looked
                require_directory(directory)
                continue
            if not stat.S_ISREG(status.st_mode):
                continue
            state = FileState(name, status.st_size, status.st_ctime_ns, status.st_ino)
            if parsed is None:
                batch.documents[name[: -len(DOCUMENT_SUFFIX)]] = state
            else:
                batch.sidecars.append(Entry(parsed.record_id, parsed.kind, state))
            if len(batch.documents) + len(batch.sidecars) >= size:
                yield batch
                batch = Batch({}, [])
    if batch.documents or batch.sidecars:
        yield batch


def iter_entries(directory: Path, *, but: Collection[str] = ()) -> Iterator[Entry]:
    """Yield the record files of a directory one by one, as ``iter_batches`` does.

    Raises:
        OSError: the directory cannot be read.
    """
    for batch in iter_batches(directory, _BATCH, but=but):
        for record_id, state in batch.documents.items():
            yield Entry(record_id, None, state)
        yield from batch.sidecars
