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


def read_state(directory: Path, name: str) -> FileState | None:
    """Return a regular file's state, or None if there is none of that name (links are not followed)."""
    try:
        status = os.lstat(f"{directory}/{name}")
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: no file can have such a name
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # a sidecar of a document whose name just fits
            return None
        raise
    return FileState.of(name, status) if stat.S_ISREG(status.st_mode) else None


def read_record(directory: Path, record_id: str, kinds: Collection[str]) -> Record:
    """Look up a record's document and its sidecars of these kinds.

    Raises:
        RecordGoneError: there is no document.
        OSError: the directory cannot be read.
    """
    document = read_state(directory, document_name(record_id))
    if document is None:
        raise RecordGoneError(f"{document_name(record_id)} is not in {directory}: nothing is left to copy")
    states = [read_state(directory, sidecar_name(record_id, kind)) for kind in sorted(kinds)]
    return Record(directory, record_id, tuple([state for state in states if state is not None]), document)


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


def iter_entries(directory: Path, *, but: Collection[str] = ()) -> Iterator[Entry]:
    """Yield the record files of a directory, in no order, without holding them all.

    Args:
        directory: the record directory.
        but: kinds of sidecars that are passed over; asking the file system about a file is most of its cost.

    Raises:
        OSError: the directory cannot be read.
    """
    passed_over = tuple(f".{kind}{SUFFIX}" for kind in but)
    with os.scandir(directory) as entries:
        for entry in entries:
            name = entry.name
            if name.endswith(DOCUMENT_SUFFIX) and len(name) > len(DOCUMENT_SUFFIX) and name[0] != ".":
                record_id, kind = name[: -len(DOCUMENT_SUFFIX)], None
            elif not name.endswith(passed_over) and (parsed := parse_name(name)) is not None:
                record_id, kind = parsed.record_id, parsed.kind
            else:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted while we looked
            if stat.S_ISREG(status.st_mode):
                yield Entry(record_id, kind, FileState.of(name, status))
