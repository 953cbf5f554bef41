"""What facts say of listed records and of references: the decisions alone."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from mirror.judging import Finding, FindingKind
from references.landing import land
from references.listed import ListedRecord
from references.reference import Reference
from references.run_index import RecordLocation, StepIndex
from references.run_judging import judge_receipted, judge_references, judge_unreceipted
from tests.references.publishing import receipt_of, row

URL = "s3://bucket/run"


def listed(mirror: str | None = f"{URL}/tr.json.zst", files: tuple[str, ...] | None = None) -> ListedRecord:
    location = RecordLocation(host="10.0.0.5", path="/data/tr.json.zst", mirror=mirror, files=files)
    return ListedRecord(record_id="tr", phase="train", step=7, location=location)


def found(kind: FindingKind) -> Finding:
    return Finding(kind=kind, name="tr.json.zst", record_id="tr", detail="as it is")


def test_what_was_found_of_a_record_is_told_with_its_step() -> None:
    """The kind stays; the step is named."""
    (finding,) = judge_receipted(listed(), receipt_of("tr"), [found(FindingKind.WRONG_SIZE)])
    assert (finding.kind, finding.detail) == (FindingKind.WRONG_SIZE, "as it is (train step 7)")


def test_a_whole_record_has_no_findings() -> None:
    """With its files listed or not."""
    files = ("tr.tokens.zst", "tr.json.zst")
    assert judge_receipted(listed(files=files), receipt_of("tr"), ()) == []
    assert judge_receipted(listed(), receipt_of("tr"), ()) == []


def test_a_listed_sidecar_without_a_receipt_is_missing_unless_it_was_left_out() -> None:
    """What the mirror excludes is absent on purpose; names of other records mean nothing."""
    record = listed(files=("tr.experts.zst", "other.tokens.zst", "tr.json.zst"))
    (finding,) = judge_receipted(record, receipt_of("tr"), ())
    assert (finding.kind, finding.name) == (FindingKind.MISSING_SIDECAR, "tr.experts.zst")
    left_out = dataclasses.replace(receipt_of("tr"), excluded=("experts",))
    assert judge_receipted(record, left_out, ()) == []


def test_a_record_that_is_nowhere_is_lost() -> None:
    """Its step is named, and where it may still be."""
    (finding,) = judge_unreceipted(listed(), (), on_disk=None)
    assert (finding.kind, finding.name, finding.record_id) == (FindingKind.LOST, "tr.json.zst", "tr")
    assert "train step 7" in finding.detail
    assert "10.0.0.5:/data/tr.json.zst" in finding.detail


def test_a_record_that_is_still_on_disk_is_missing_not_lost() -> None:
    """Somebody only has to copy it; a local-only one too, if it is here."""
    for mirror in (f"{URL}/tr.json.zst", None):
        (finding,) = judge_unreceipted(listed(mirror), (), on_disk="/data")
        assert (finding.kind, "/data" in finding.detail) == (FindingKind.MISSING, True)


def test_a_record_that_no_mirror_was_to_have_is_not_lost() -> None:
    """It is where its row says, as far as anybody can tell from here."""
    assert judge_unreceipted(listed(None), (), on_disk=None) == []


@pytest.mark.parametrize("kind", [FindingKind.NO_RECEIPT, FindingKind.NO_DOCUMENT])
def test_files_without_a_receipt_are_told_as_they_are(kind: FindingKind) -> None:
    """Something of the record is there: it is not lost."""
    assert [finding.kind for finding in judge_unreceipted(listed(), [found(kind)], on_disk=None)] == [kind]


def step() -> StepIndex:
    rows = (row("tr_a", "task", f"{URL}/tr_a.json.zst"), row("tr_b", "task", f"{URL}/tr_b.json.zst"))
    return StepIndex(run="r", phase="train", step=7, rows=rows)


RECEIPTS = {name: receipt_of(name) for name in ("tr_a", "tr_b")}
REFERENCES = list(land(step(), RECEIPTS).references)


def judged(references: list[Reference], receipts: tuple[str, ...] = ("tr_a", "tr_b")) -> tuple[list[Finding], int]:
    return judge_references(step(), references, {name: RECEIPTS[name] for name in receipts})


def test_references_as_they_should_be_have_no_findings() -> None:
    """In whatever order."""
    assert judged(REFERENCES[::-1]) == ([], 0)


@pytest.mark.parametrize(
    "change", [{"digest": "other"}, {"size_bytes": 8}, {"extra": {"versionID": "7"}}], ids=["digest", "size", "version"]
)
def test_a_reference_to_an_earlier_copy_is_told(change: dict[str, object]) -> None:
    """W&B's download would refuse what is there now."""
    (finding,), _ = judged([msgspec.structs.replace(REFERENCES[0], **change), *REFERENCES[1:]])
    assert (finding.kind, finding.name) == (FindingKind.CHANGED, REFERENCES[0].path.removeprefix("records/"))
    assert "train step 7" in finding.detail


def test_files_that_are_not_referred_to_are_counted() -> None:
    """What landed after the version was logged."""
    assert judged(REFERENCES[:1]) == ([], 3)


def test_a_reference_that_no_receipt_proves_is_told() -> None:
    """It leads somewhere that nobody vouches for; a record without a receipt is told of as a record."""
    stray = msgspec.structs.replace(REFERENCES[0], uri="s3://elsewhere/x", path="records/x\n.json.zst")
    (finding,), _ = judged([stray, *REFERENCES])
    assert finding.kind is FindingKind.NO_RECEIPT
    assert "\n" not in finding.name + finding.detail
    assert judged(REFERENCES, receipts=("tr_a",)) == ([], 0)
