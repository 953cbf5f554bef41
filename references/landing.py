"""What of a step's records has landed in the mirror: a reference for every file with a receipt, a mark on the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from mirror.errors import ConfigError
from mirror.location import Location, parse_location
from mirror.receipts.receipt import Receipt
from references.codec import encode
from references.reference import FOLDER, Reference, reference_to
from references.run_index import Phase, Row, StepIndex


class Receipts(Protocol):
    """Where the receipts of a mirror are read. Called on a background thread, one call at a time; may block."""

    def covers(self, mirror: Location) -> bool:
        """Say whether the records of that mirror have their receipts here; asks nobody."""
        ...

    def find(self, record_ids: Collection[str]) -> Mapping[str, Receipt]:
        """Return the newest receipt of each of these records that has one; may raise anything."""
        ...


class IndexStore(Protocol):
    """Where the mirror keeps the step indexes. Called on a background thread, one call at a time; may block."""

    def write(self, phase: Phase, step: int, data: bytes) -> None:
        """Write ``index/<phase>/step-<step>.json``, in place of what was there; may raise anything."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """What a version of a step refers to, and what it still lacks.

    Attributes:
        references: no two with the same path, in the order of the rows.
        pending: the records that a mirror was promised for and that have no receipt yet.
        unlinked: how many mirrored files W&B could not follow a reference to.
        elsewhere: how many records are in another mirror than the one whose receipts are read.
    """

    references: tuple[Reference, ...]
    pending: frozenset[str]
    unlinked: int
    elsewhere: int


def anywhere(_mirror: Location) -> bool:
    """Cover every mirror."""
    return True


class PendingRow(Row, frozen=True, kw_only=True, gc=False):
    """A row whose record had no receipt yet when the step was logged."""

    pending: bool = True


def mirrored_ids(index: StepIndex, covers: Callable[[Location], bool] = anywhere) -> list[str]:
    """Return the ids of the records that are, or will be, in a mirror that is covered."""
    return [row.id for row, mirror in _mirrored(index, covers) if mirror is not None]


def land(index: StepIndex, receipts: Mapping[str, Receipt], covers: Callable[[Location], bool] = anywhere) -> Landing:
    """Make the references of a step from the receipts that are there.

    Args:
        index: the step.
        receipts: by record.
        covers: says whose receipts they are: an id in another mirror names another record.
    """
    pending: set[str] = set()
    references: dict[str, Reference] = {}
    unlinked = elsewhere = 0
    for row, mirror in _mirrored(index, covers):
        if mirror is None:
            elsewhere += 1
            continue
        receipt = receipts.get(row.id)
        if receipt is None:
            pending.add(row.id)
            continue
        for file in receipt.files:
            reference = reference_to(file, mirror)
            if reference is None:
                unlinked += 1
            else:
                _add(references, reference)
    return Landing(
        references=tuple(references.values()), pending=frozenset(pending), unlinked=unlinked, elsewhere=elsewhere
    )


def main_mirror(index: StepIndex) -> Location | None:
    """Return the mirror that most rows name; None where no row names any."""
    counts = Counter(mirror for _, mirror in _mirrored(index) if mirror is not None)
    return counts.most_common(1)[0][0] if counts else None


def step_json(index: StepIndex, pending: Collection[str]) -> bytes:
    """Return the bytes of ``step.json`` as they are logged: with ``"pending": true`` in the rows of these records."""
    if not pending:
        return encode(index)
    rows = tuple(_marked(row) if row.id in pending and row.record is not None else row for row in index.rows)
    return encode(msgspec.structs.replace(index, rows=rows))


def _marked(row: Row) -> PendingRow:
    return PendingRow(**{name: getattr(row, name) for name in Row.__struct_fields__})


def _mirrored(index: StepIndex, covers: Callable[[Location], bool] = anywhere) -> Iterator[tuple[Row, Location | None]]:
    """Yield the rows whose record is, or will be, in a mirror, with that mirror.

    None where it is no URL of one, or of one that is not covered.
    """
    folders: dict[str, Location | None] = {}
    for row in index.rows:
        if row.record is not None and row.record.mirror is not None:
            folder = row.record.mirror.rpartition("/")[0]
            if folder not in folders:
                location = _location(folder)
                folders[folder] = location if location is not None and covers(location) else None
            yield row, folders[folder]


def _location(folder: str) -> Location | None:
    try:
        return parse_location(folder)
    except ConfigError:
        return None  # a row may say anything


def _add(references: dict[str, Reference], reference: Reference) -> None:
    """Add one; another file of the same name goes into a numbered folder, the same file again is left out."""
    path, number = reference.path, 1
    while (known := references.get(path)) is not None:
        if known.uri == reference.uri:
            return
        number += 1
        path = f"{FOLDER}/{number}/{reference.path.removeprefix(FOLDER + '/')}"
    references[path] = reference if number == 1 else msgspec.structs.replace(reference, path=path)
