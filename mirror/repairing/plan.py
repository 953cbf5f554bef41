"""What a repair would do, and what it did: from findings to what is sent from where."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from mirror.judging import Finding, FindingKind
from mirror.names import document_name
from mirror.receipts.manifest import Manifest
from mirror.verify import Verification

_REPAIRABLE = frozenset(FindingKind) - {FindingKind.UNCHECKED, FindingKind.LOST}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """One record to mend."""

    record_id: str
    findings: tuple[Finding, ...]  # one for each file that is sent
    directory: Path | None  # where the record lies; None: the second mirror has it

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the damaged files."""
        return tuple(finding.name for finding in self.findings)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What a repair would do."""

    steps: tuple[RepairStep, ...]
    hopeless: tuple[Finding, ...]  # no source has them
    verification: Verification


@dataclass(slots=True, kw_only=True)
class RepairResult:
    """What a repair did."""

    plan: RepairPlan
    restored_files: int = 0
    restored_bytes: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # record id -> why


def plan_repair(
    verification: Verification,
    directories: Iterable[Path],
    has_file: Callable[[Path, str], bool],
    elsewhere: Manifest | None,
) -> RepairPlan:
    """Decide from findings what to send from where.

    A record's source is the one that has the most of its damaged files, of several the first directory; a directory
    is none without the document. What the source has not is hopeless.
    """
    places = list(directories)
    damaged: dict[str, list[Finding]] = {}
    for finding in verification.findings:
        if finding.kind in _REPAIRABLE:
            damaged.setdefault(finding.record_id, []).append(finding)
    steps: list[RepairStep] = []
    hopeless: list[Finding] = []
    for record_id, findings in sorted(damaged.items()):
        names = [finding.name for finding in findings]
        sources: list[tuple[Path | None, tuple[str, ...]]] = [
            (place, tuple(name for name in names if has_file(place, name)))
            for place in places
            if has_file(place, document_name(record_id))
        ]
        second = elsewhere.get(record_id) if elsewhere else None
        if second is not None:
            sources.append((None, tuple(name for name in names if second.file(name))))
        directory, found = max(sources, key=lambda source: len(source[1]), default=(None, ()))
        if found:
            sent = tuple(finding for finding in findings if finding.name in found)
            steps.append(RepairStep(record_id=record_id, findings=sent, directory=directory))
        hopeless += [finding for finding in findings if finding.name not in found]
    return RepairPlan(steps=tuple(steps), hopeless=tuple(hopeless), verification=verification)
