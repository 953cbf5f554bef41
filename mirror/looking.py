"""A look at a record directory: which finished records on disk are not in the mirror, by receipts alone.

What has to be copied is always *records on disk minus receipts*. The directory is streamed, so that a look at millions
of records costs no memory, and no file is opened: the document's size, change time and inode say if it is the one that
was receipted.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from mirror.names import KNOWN_KINDS, document_name
from mirror.receipts.ledger import Ledger
from mirror.record import Entry, FileState, iter_batches, read_state

CHUNK = 2_000  # directory entries looked at in one go


@dataclass(frozen=True, slots=True)
class Uncopied:
    """A finished record that is not in the mirror as it is now."""

    record_id: str
    document: FileState

    @property
    def since(self) -> float:
        """When its document was written, in Unix seconds."""
        return self.document.ctime_ns / 1e9


@dataclass(frozen=True, slots=True)
class Chunk:
    """What some entries of a directory say."""

    uncopied: tuple[Uncopied, ...]
    documents: int  # finished records among them
    covered_files: int  # of those finished records that are in the mirror
    kinds: frozenset[str]  # of the sidecars among them, but for those that are known or excluded


@dataclass(frozen=True, slots=True)
class Looked:
    """How much of a directory a look found to be in the mirror already."""

    records: int
    files: int


def every_id(_record_id: str) -> bool:
    """Want every record."""
    return True


def matcher(include: Collection[str]) -> Callable[[str], bool]:
    """Return what says if a record's id matches one of these shell patterns; no patterns: every id does."""
    if not include:
        return every_id
    matches = re.compile("|".join(fnmatch.translate(pattern) for pattern in include)).match
    return lambda record_id: matches(record_id) is not None


def look(
    directory: Path, ledger: Ledger, exclude: Collection[str], wanted: Callable[[str], bool] = every_id
) -> Iterator[Chunk]:
    """Look at a directory in chunks, at the records whose id is ``wanted``; blocks, so call it off the event loop.

    Raises:
        OSError: the directory cannot be read.
    """
    # A known kind was looked for when its record was copied; another may have been seen for the first time since.
    for documents, sidecars in iter_batches(directory, CHUNK, but=KNOWN_KINDS.union(exclude)):
        if wanted is not every_id:
            chosen = {record_id: state for record_id, state in documents.items() if wanted(record_id)}
            yield _judge(directory, chosen, [entry for entry in sidecars if wanted(entry.record_id)], ledger, exclude)
        else:
            yield _judge(directory, documents, sidecars, ledger, exclude)


def _judge(
    directory: Path,
    documents: dict[str, FileState],
    sidecars: list[Entry],
    ledger: Ledger,
    exclude: Collection[str],
) -> Chunk:
    count = len(documents)
    covered = ledger.covered(documents, exclude)
    for entry in sidecars:
        receipt = ledger.get(entry.record_id)
        if receipt is not None and receipt.file(entry.state.name) is None:
            state = documents.get(entry.record_id) or read_state(directory, document_name(entry.record_id))
            if state is not None:
                documents.setdefault(entry.record_id, state)
                covered.pop(entry.record_id, None)
    return Chunk(
        uncopied=tuple(Uncopied(record_id, documents[record_id]) for record_id in sorted(documents.keys() - covered)),
        documents=count,
        covered_files=sum(covered.values()),
        kinds=frozenset(entry.kind for entry in sidecars if entry.kind is not None),
    )
