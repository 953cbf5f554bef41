"""What becomes of each record, by its receipt and its row alone."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from mirror.receipts.receipt import FileReceipt, Receipt
from references.listed import ListedRecord
from references.pull_plan import NotPulled, Wanted, Why, left_out, plan_record
from references.run_index import RecordLocation
from references.selection import Selection

KINDS = ("tokens", "experts", "sampling_mask", "novel")
EVERYTHING = Selection()


def receipt(*kinds: str, excluded: tuple[str, ...] = ()) -> Receipt:
    files = tuple(FileReceipt(name=f"tr.{kind}.zst", size=1, xxh3_128="0" * 32) for kind in kinds)
    return Receipt(id="tr", at=1.0, writer="w", host="h", path="/p", files=files, excluded=excluded)


def listed(mirror: str | None = "s3://bucket/tr.json.zst", files: tuple[str, ...] | None = None) -> ListedRecord:
    location = RecordLocation(host="10.0.0.5", path="/data/tr.json.zst", mirror=mirror, files=files)
    return ListedRecord(record_id="tr", phase="train", step=7, location=location)


@given(st.permutations(["json", *KINDS]), st.none() | st.sets(st.sampled_from(KINDS)))
def test_the_wanted_files_come_with_the_document_last(order: list[str], kinds: set[str] | None) -> None:
    """Whatever order the receipt has them in."""
    plan = plan_record(listed(), receipt(*order), Selection(kinds=kinds))
    assert isinstance(plan, Wanted)
    names = [file.name for file in plan.files]
    assert names[-1] == "tr.json.zst"
    assert set(names[:-1]) == {f"tr.{kind}.zst" for kind in (KINDS if kinds is None else kinds)}


def test_without_a_receipt_a_promised_record_is_missing() -> None:
    """And one that was never to be mirrored is on its node only."""
    plan = plan_record(listed(), None, EVERYTHING)
    assert isinstance(plan, NotPulled)
    assert (plan.why, plan.record_id, plan.phase, plan.step) == (Why.MISSING, "tr", "train", 7)
    assert plan_record(listed(mirror=None), None, EVERYTHING) is None
    assert isinstance(plan_record(listed(mirror=None), receipt("json"), EVERYTHING), Wanted)


def test_what_is_left_out_is_told_if_it_is_wanted_and_not_there_all_the_same() -> None:
    """An earlier copy may have had what is excluded by now."""
    record = receipt("tokens", "json", excluded=("experts", "tokens"))
    assert left_out(record, EVERYTHING) == {"experts"}
    assert left_out(record, Selection(kinds=["tokens"])) == set()
    assert left_out(dataclasses.replace(record, excluded=()), EVERYTHING) == set()
