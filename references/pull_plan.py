"""What becomes of each record of a step in a pull, and the sum of it: facts and decisions without any I/O."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from mirror.names import document_name, parse_name, sidecar_name
from mirror.receipts.receipt import FileReceipt, Receipt
from references.listed import ListedRecord
from references.run_index import Phase
from references.selection import Selection
from references.source import BadStep


class Why(enum.StrEnum):
    """Why a record did not come."""

    MISSING = "missing"  # the mirror does not have it, or no receipt says what it should be
    DAMAGED = "damaged"  # the mirror has other bytes than its receipt says
    UNREADABLE = "unreadable"  # the mirror could not be read
    REFUSED = "refused"  # the mirror that the step names is not trusted
    UNWRITABLE = "unwritable"  # its place here is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPulled:
    """A record that was wanted and did not come."""

    record_id: str
    phase: Phase
    step: int
    why: Why
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A record to be pulled.

    Attributes:
        receipt: what the mirror has of it.
        files: those that are wanted, the document last.
    """

    receipt: Receipt
    files: tuple[FileReceipt, ...]


@dataclass(slots=True, kw_only=True)
class PullSummary:
    """What a pull did, or in a dry run would do.

    Attributes:
        is_dry_run: nothing was written.
        steps: whose index was read.
        records: that were wanted; one that several steps list counts once.
        copied_records: that came, or of which something came.
        copied_files: of those records.
        copied_bytes: of those files.
        unchanged_records: that were here already.
        unchanged_files: of all wanted records, that were here already.
        kinds: sidecar kinds that the wanted records have, and those that their mirror leaves out.
        left_out: sidecar kinds that were wanted, and that the mirror leaves out on purpose.
        not_pulled: records that did not come.
        local_only: records that no mirror was to have, and none has; they can be fetched from where they are.
        unlisted: ids that were chosen, and of which no step that was read lists a record.
        bad_steps: steps whose index could not be read; of their records nothing is known.
    """

    is_dry_run: bool = False
    steps: int = 0
    records: int = 0
    copied_records: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    unchanged_records: int = 0
    unchanged_files: int = 0
    kinds: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    not_pulled: list[NotPulled] = field(default_factory=list)
    local_only: list[ListedRecord] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    bad_steps: list[BadStep] = field(default_factory=list)

    @property
    def left(self) -> int:
        """How many records and steps did not come, also of what no mirror was to have."""
        return len(self.not_pulled) + len(self.local_only) + len(self.unlisted) + len(self.bad_steps)

    @property
    def is_complete(self) -> bool:
        """Whether everything came that was wanted."""
        return not self.left


def plan_record(listed: ListedRecord, receipt: Receipt | None, selection: Selection) -> Wanted | NotPulled | None:
    """Decide what becomes of a record; None for one that no mirror was to have, and none has.

    A record without a receipt is not pulled, even if the mirror has files of its name: nothing says what they should
    be, nor that they are all there.
    """
    if receipt is None and listed.location.mirror is None:
        return None
    if receipt is None:
        where = f", see {listed.where}" if listed.where else ""
        return not_pulled(listed, Why.MISSING, f"no receipt proves that the mirror has it: it is late or lost{where}")
    lacking = [name for name in listed.lacking(receipt) if selection.wants_file(name)]
    if lacking:
        return not_pulled(listed, Why.MISSING, f"the step lists {', '.join(lacking)}, and its receipt does not")
    document = document_name(receipt.id)
    files = sorted(
        (file for file in receipt.files if selection.wants_file(file.name)), key=lambda file: file.name == document
    )
    return Wanted(receipt=receipt, files=tuple(files))


def kinds_of(receipt: Receipt) -> set[str]:
    """Return the kinds of sidecars that a record has, and those that the mirror leaves out."""
    parsed = [parse_name(file.name) for file in receipt.files]
    return {file.kind for file in parsed if file is not None and file.kind is not None}.union(receipt.excluded)


def left_out(receipt: Receipt, selection: Selection) -> set[str]:
    """Return the kinds of sidecars that are wanted, and that the mirror leaves out on purpose and does not have."""
    names = {kind: sidecar_name(receipt.id, kind) for kind in receipt.excluded}
    return {kind for kind, name in names.items() if selection.wants_file(name) and receipt.file(name) is None}


def not_pulled(listed: ListedRecord, why: Why, detail: str) -> NotPulled:
    """Say that a record did not come."""
    return NotPulled(record_id=listed.record_id, phase=listed.phase, step=listed.step, why=why, detail=detail)
