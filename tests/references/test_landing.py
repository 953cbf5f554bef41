"""What of a step has landed: ``references/landing.py``."""

from __future__ import annotations

import json

from mirror.location import Location
from mirror.receipts.receipt import FileReceipt, Receipt
from references.codec import decode, encode
from references.landing import land, mirrored_ids, step_json
from references.run_index import RecordLocation, Row, StepIndex

MIRROR = "s3://bucket/run"


def row(name: str, *, mirror: str | None = MIRROR, file: str | None = None) -> Row:
    record = RecordLocation(mirror=None if mirror is None else f"{mirror}/{file or name}.json.zst")
    return Row(id=name, instance_id="task", repetition_id=0, attempt=0, superseded=False, record=record)


def step(*rows: Row) -> StepIndex:
    return StepIndex(run="r", phase="train", step=3, rows=rows)


def receipt(name: str, *files: str, etag: str | None = "e") -> Receipt:
    names = files or (f"{name}.tokens.zst", f"{name}.json.zst")
    listed = tuple(FileReceipt(name=file, size=1, xxh3_128="0" * 32, etag=etag) for file in names)
    return Receipt(id=name, at=1.0, writer="w", host="h", path="/d", files=listed)


def test_every_receipted_file_becomes_a_reference() -> None:
    """The receipt names the files, whatever the row lists."""
    landing = land(step(row("a"), row("b")), {"a": receipt("a"), "b": receipt("b", "b.json.zst")})

    assert [(reference.path, reference.uri) for reference in landing.references] == [
        ("records/a.tokens.zst", f"{MIRROR}/a.tokens.zst"),
        ("records/a.json.zst", f"{MIRROR}/a.json.zst"),
        ("records/b.json.zst", f"{MIRROR}/b.json.zst"),
    ]
    assert not landing.pending


def test_what_has_no_receipt_is_pending() -> None:
    """A mirrored record without a receipt has no reference and is named; a local-only one is neither."""
    index = step(row("a"), row("b"), row("local", mirror=None))

    landing = land(index, {"a": receipt("a")})

    assert landing.pending == {"b"}
    assert mirrored_ids(index) == ["a", "b"]


def test_files_that_wandb_cannot_follow_are_counted() -> None:
    """They have landed, so they are not pending, and they have no reference."""
    landing = land(step(row("a")), {"a": receipt("a", etag=None)})

    assert (landing.references, landing.pending, landing.unlinked) == ((), frozenset(), 2)


def test_two_files_of_one_name_are_both_referenced() -> None:
    """Two mirrors, one file name: the second goes into a numbered folder, the same file again is left out."""
    one = receipt("a", "same.json.zst")
    index = step(row("a"), row("b", mirror="s3://other"), row("a"))

    landing = land(index, {"a": one, "b": receipt("b", "same.json.zst")})

    assert {reference.path: reference.uri for reference in landing.references} == {
        "records/same.json.zst": f"{MIRROR}/same.json.zst",
        "records/2/same.json.zst": "s3://other/same.json.zst",
    }


def test_a_row_may_say_nonsense_about_its_mirror() -> None:
    """A mirror that is no URL of any store costs its references, nothing else."""
    landing = land(step(row("a", mirror="s3://"), row("b")), {"a": receipt("a"), "b": receipt("b")})

    assert (len(landing.references), landing.pending, landing.elsewhere) == (2, frozenset(), 1)


def test_records_in_another_mirror_are_not_waited_for() -> None:
    """A receipt says nothing of a record that another mirror has under the same id."""
    index = step(row("a"), row("b", mirror="s3://bucket/other"), row("c"))

    def covers(mirror: Location) -> bool:
        return mirror.base == MIRROR

    landing = land(index, {"a": receipt("a"), "b": receipt("b")}, covers)

    assert {reference.uri.rpartition("/")[0] for reference in landing.references} == {MIRROR}
    assert landing.pending == {"c"}
    assert landing.elsewhere == 1
    assert mirrored_ids(index, covers) == ["a", "c"]


def test_step_json_names_what_is_pending() -> None:
    """The rows of pending records say so; nothing else differs from the index, and readers cope."""
    index = step(row("a"), row("b"), row("local", mirror=None))

    data = step_json(index, {"b", "local"})

    rows = json.loads(data)["rows"]
    assert [one.get("pending") for one in rows] == [None, True, True]
    assert rows[1] == {**json.loads(encode(index))["rows"][1], "pending": True}
    assert decode(data) == index
    assert step_json(index, ()) == encode(index)
