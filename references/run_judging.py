"""What receipts, listings and W&B's references say of the records that a step lists: pure decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from mirror.errors import BadNameError
from mirror.judging import Finding, FindingKind
from mirror.names import check_name, document_name, parse_name
from mirror.receipts.receipt import Receipt
from references.landing import land
from references.listed import ListedRecord
from references.reference import Reference
from references.run_index import StepIndex


def judge_receipted(listed: ListedRecord, receipt: Receipt, found: Iterable[Finding]) -> list[Finding]:
    """Say what is wrong with a record that has a receipt: what was found of its files, and what the receipt lacks."""
    findings = list(found)
    for name in listed.lacking(receipt):
        kind = FindingKind.MISSING_SIDECAR
        detail = "it is listed, and its record was copied without it"
        findings.append(Finding(kind=kind, name=name, record_id=listed.record_id, detail=detail))
    return [of_step(finding, listed.phase, listed.step) for finding in findings]


def judge_unreceipted(listed: ListedRecord, found: Collection[Finding], *, on_disk: str | None) -> list[Finding]:
    """Say what is wrong with a record that has no receipt.

    - Files of it in the mirror are what was found of them: nothing proves what they should be.
    - A record that is in one of the given directories is missing in the mirror.
    - One that no mirror was to have is where its row says: nothing is wrong with it.
    - One that was to be in a mirror, and is in none of these places, is lost; at best it is late, and waits on the disk
      of its node still.

    Args:
        listed: the record.
        found: what was found in the mirror under its id.
        on_disk: the directory that has it, or None.
    """
    if found:
        return [of_step(finding, listed.phase, listed.step) for finding in found]
    if on_disk is not None:
        kind, detail = FindingKind.MISSING, f"it is in {on_disk} and was never copied"
    elif listed.location.mirror is None:
        return []
    else:
        kind = FindingKind.LOST
        detail = "no receipt and no file of it is in the mirror: it is lost, or late"
        detail += f" and still on {listed.where}" if listed.where else ""
    name = shown_name(document_name(listed.record_id))
    finding = Finding(kind=kind, name=name, record_id=listed.record_id, detail=detail)
    return [of_step(finding, listed.phase, listed.step)]


def judge_references(
    index: StepIndex, references: Iterable[Reference], receipts: Mapping[str, Receipt]
) -> tuple[list[Finding], int]:
    """Compare what W&B refers to with what the receipts say that it should.

    Args:
        index: the step.
        references: W&B's, of the step's version.
        receipts: of the step's records, as far as there are.

    Returns:
        Findings for the references that lead to other bytes, or to what no receipt proves; and how many files W&B
        could refer to and does not. A record without a receipt is told of as such, not here.
    """
    wanted = {reference.uri: reference for reference in land(index, receipts).references}
    without_receipt = {row.id for row in index.rows if row.record is not None} - set(receipts)
    findings: list[Finding] = []
    for reference in references:
        expected = wanted.pop(reference.uri, None)
        name = shown_name(reference.path.rpartition("/")[2])
        parsed = parse_name(name)
        record_id = parsed.record_id if parsed else ""
        if expected is None and record_id not in without_receipt:
            kind, detail = FindingKind.NO_RECEIPT, f"W&B refers to {reference.uri!r}, which no receipt proves"
        elif expected is not None and _identity(expected) != _identity(reference):
            kind, detail = FindingKind.CHANGED, "W&B refers to an earlier copy of it: log the step again"
        else:
            continue
        finding = Finding(kind=kind, name=name, record_id=record_id, detail=detail)
        findings.append(of_step(finding, index.phase, index.step))
    return findings, len(wanted)


def of_step(finding: Finding, phase: str, step: int) -> Finding:
    """Add to a finding which step lists the record."""
    return dataclasses.replace(finding, detail=f"{finding.detail} ({phase} step {step})")


def _identity(reference: Reference) -> tuple[str, int, str | None]:
    return reference.digest, reference.size_bytes, reference.extra.get("versionID")


def shown_name(name: str) -> str:
    """Return a plain file name as it is, and what is none in quotes and escaped: it may come from anybody."""
    try:
        return check_name(name)
    except BadNameError:
        return repr(name)
