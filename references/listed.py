"""A record as a step lists it, and what that promises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mirror.address import host_path
from mirror.names import parse_name
from mirror.receipts.receipt import Receipt
from references.run_index import Phase, RecordLocation, StepIndex
from references.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRecord:
    """One record, and the step that lists it."""

    record_id: str
    phase: Phase
    step: int
    location: RecordLocation

    @property
    def where(self) -> str:
        """The document on the node that wrote it, ``host:path`` as scp takes it; "" when that is not known.

        A place that scp would take for an option is none.
        """
        place = host_path(self.location.host, self.location.path) if self.location.path else ""
        return "" if place.startswith("-") else place

    def lacking(self, receipt: Receipt) -> list[str]:
        """Return the files that the step promises, and that were neither copied nor left out on purpose."""
        return [
            name
            for name in self.location.files or ()
            if (parsed := parse_name(name)) is not None
            and parsed.record_id == receipt.id
            and parsed.kind not in receipt.excluded
            and receipt.file(name) is None
        ]


def listed_records(index: StepIndex, selection: Selection) -> Iterator[ListedRecord]:
    """Yield the records of the rows that are wanted; attempts of which no record was written have none."""
    for row in index.rows:
        if row.record is not None and selection.wants_row(row):
            yield ListedRecord(record_id=row.id, phase=index.phase, step=index.step, location=row.record)
