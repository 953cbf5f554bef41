"""May a record go from the local disk? Pure decisions, which let nothing go that was not proved to be in the mirror."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirror.judging import Finding
from mirror.receipts.receipt import FileReceipt, Receipt
from mirror.record import FileState

OLDER_THAN_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRules:
    """Which records of a directory may go once they are proved to be in the mirror."""

    older_than_s: float = OLDER_THAN_S  # seconds since the document was last written or renamed; younger ones stay
    keep_newest: int = 0  # records of each directory that stay, by the same time
    include: tuple[str, ...] = ()  # shell patterns of record ids; none: every record
    discard: tuple[str, ...] = ()  # kinds of sidecars that may go although the mirror leaves them out


class Keep(enum.StrEnum):
    """Why a record stays."""

    YOUNG = "young"
    NEWEST = "newest"
    NO_RECEIPT = "no_receipt"  # the mirror has none for it
    UNCOVERED = "uncovered"  # a file of it is not in its receipt
    EXCLUDED = "excluded"  # a sidecar that the mirror leaves out exists nowhere else
    WITHDRAWN = "withdrawn"  # a mirror is replacing it, or was cut short while it did
    LINKED = "linked"  # a file of it has a second name, or is none
    ELSEWHERE = "elsewhere"  # another mirror of the same directory does not have it yet
    HIDDEN = "hidden"  # a prune was killed while it deleted it: what that hid may be newer
    CHANGED = "changed"  # it was written again since it was copied
    DAMAGED = "damaged"  # the mirror's copy is not as its receipt says
    UNCHECKED = "unchecked"  # the mirror's copy could not be checked
    FAILED = "failed"  # it cannot be read or deleted here


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """What lies on disk under a name of a record."""

    state: FileState
    kind: str | None  # of the sidecar; None: the document
    is_regular: bool
    links: int  # names that the file has


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneStep:
    """One record: it goes, or it stays and why."""

    directory: Path
    record_id: str
    files: tuple[FileState, ...] = ()  # sidecars, then the document; empty where it was not looked at
    keep: Keep | None  # None: it goes
    detail: str = ""
    findings: tuple[Finding, ...] = ()  # what is wrong with the mirror's copy

    @property
    def size_bytes(self) -> int:
        """How many bytes of disk the record takes."""
        return sum(state.size_bytes for state in self.files)


Reason = tuple[Keep, str]


def judge_age(document: FileState, rules: PruneRules, *, now_s: float, newest: Collection[str]) -> Keep | None:
    """Say if the options keep a record; ``newest``: the names of the documents that stay for being the newest."""
    if document.name in newest:
        return Keep.NEWEST
    return Keep.YOUNG if document.ctime_ns / 1e9 > now_s - rules.older_than_s else None


def judge_coverage(files: Iterable[LocalFile], receipt: Receipt | None, discard: Collection[str]) -> Reason | None:
    """Say if something on disk is not in the receipt: each file must be, but for excluded kinds that may go."""
    if receipt is None:
        return Keep.NO_RECEIPT, "the mirror has no receipt for it"
    return next((reason for file in files if (reason := _judge_file(file, receipt, discard))), None)


def _judge_file(file: LocalFile, receipt: Receipt, discard: Collection[str]) -> Reason | None:
    name, known = file.state.name, receipt.file(file.state.name)
    if not file.is_regular or file.links > 1:
        return Keep.LINKED, f"{name} is a link, or a file that has other names too"
    if known is None and file.kind in receipt.excluded:
        if file.kind in discard:
            return None
        return Keep.EXCLUDED, f"the mirror leaves {name} out, which exists nowhere else (--discard {file.kind})"
    if known is None:
        return Keep.UNCOVERED, f"{name} is not in its receipt"
    if known.size != file.state.size_bytes:
        return Keep.CHANGED, f"{name} was written again since it was copied"
    return None


def judge_last_line(last: Receipt | None) -> Reason | None:
    """Say if the last line beside the records withdraws the receipt: other bytes may be on their way to the mirror."""
    if last is None or last.files:
        return None
    return Keep.WITHDRAWN, "its receipt beside the records is withdrawn until it was copied again"


def to_verify(files: Iterable[LocalFile], receipt: Receipt) -> list[FileReceipt]:
    """Return the receipts of the files on disk, those which both sides must match."""
    return [known for file in files if (known := receipt.file(file.state.name))]


def judge_hashes(known: Iterable[FileReceipt], digests: Iterable[str]) -> Reason | None:
    """Say if a file on disk is not the one that was copied."""
    for file, digest in zip(known, digests, strict=True):
        if digest != file.xxh3_128:
            return Keep.CHANGED, f"{file.name} was written again since it was copied"
    return None


def judge_copies(findings: Sequence[Finding]) -> Reason | None:
    """Say what is wrong with the mirror's copy; damage weighs more than what could not be checked."""
    for finding in sorted(findings, key=lambda finding: not finding.is_damage):
        keep = Keep.DAMAGED if finding.is_damage else Keep.UNCHECKED
        return keep, f"{finding.name}: {finding.detail}"
    return None
