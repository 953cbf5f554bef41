"""What ``references/codec.py`` writes, and what it refuses to read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from references import codec
from references.codec import decode, encode
from references.errors import IndexFormatError, UnknownVersionError
from references.run_index import RecordLocation, Row, StepIndex
from tests.references.index_builders import indexes

RECORD = RecordLocation(path="/data/tr.json.zst", mirror="s3://b/tr.json.zst", files=("tr.json.zst",))
ROW = Row(id="tr", instance_id="task", repetition_id=0, attempt=0, superseded=False, trained=True, record=RECORD)
INDEX = StepIndex(run="run", phase="train", step=3, rows=(ROW,))


def changed(path: str, value: object) -> bytes:
    """Encode ``INDEX`` with one field set to another value, or left out with ``...``."""
    document = json.loads(encode(INDEX))
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    inner: Any = document
    for part in parents:
        inner = inner[part]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return json.dumps(document).encode()


@given(indexes())
def test_what_is_written_is_read_back(index: StepIndex) -> None:
    """Every index survives its bytes."""
    assert decode(encode(index)) == index


@given(indexes())
def test_any_json_reader_reads_it(index: StepIndex) -> None:
    """The bytes are standard JSON: no NaN, no infinity, valid UTF-8."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    document = json.loads(encode(index).decode(), parse_constant=refuse)
    assert [row["id"] for row in document["rows"]] == [row.id for row in index.rows]


def test_equal_indexes_have_equal_bytes() -> None:
    """The order in which a generator filled its annotations does not show."""
    first = Row(id="a", instance_id="", repetition_id=0, attempt=0, superseded=False, annotations={"x": 1, "y": 2})
    second = Row(id="a", instance_id="", repetition_id=0, attempt=0, superseded=False, annotations={"y": 2, "x": 1})
    made = [encode(StepIndex(run="r", phase="train", step=1, rows=(row,))) for row in (first, second)]
    assert made[0] == made[1]


def test_a_document_has_the_documented_form() -> None:
    """All fields are written, in their order, null where nothing is known; an unknown host or file list is left out."""
    assert encode(INDEX) == (
        b'{"format_version":1,"run":"run","phase":"train","step":3,"rows":[{"id":"tr","instance_id":"task",'
        b'"repetition_id":0,"attempt":0,"status":null,"annotations":null,"superseded":false,"trained":true,'
        b'"record":{"path":"/data/tr.json.zst","mirror":"s3://b/tr.json.zst","files":["tr.json.zst"]}}]}'
    )
    local = RecordLocation(path="/data/tr.json.zst")
    assert b'"record":{"path":"/data/tr.json.zst","mirror":null}' in encode(
        StepIndex(run="r", phase="eval", step=0, rows=(Row(**{**_fields(ROW), "record": local}),))
    )


def _fields(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("extra", {"deep": [1]}),
        ("rows.0.extra", "x"),
        ("rows.0.record.extra", "x"),
        ("rows.0.status", ...),
        ("rows.0.annotations", ...),
        ("rows.0.trained", ...),
        ("rows.0.record", ...),
        ("rows.0.record", None),
        ("rows.0.record.files", ...),
        ("rows.0.record.files", None),
        ("rows.0.record.host", None),
        ("rows.0.record.path", ...),
        ("rows.0.record.mirror", ...),
        ("rows.0.record", {}),
    ],
)
def test_unknown_fields_are_ignored_and_absent_ones_are_null(path: str, value: object) -> None:
    """A reader copes with what newer writers add and older ones leave out."""
    assert decode(changed(path, value)).rows[0].id == "tr"


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_version_is_refused_by_its_number(version: int) -> None:
    """Whatever else a newer version changed, the error says that it is one and what to do."""
    with pytest.raises(UnknownVersionError, match=f"format_version {version}.*install") as refusal:
        decode(json.dumps({"format_version": version, "rows": "elsewhere"}).encode())
    assert refusal.value.version == version


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format_version", ...),
        ("format_version", "1"),
        ("format_version", True),
        ("run", None),
        ("phase", "test"),
        ("step", None),
        ("step", -1),
        ("step", "3"),
        ("step", 1.5),
        ("rows", None),
        ("rows", {}),
        ("rows.0", None),
        ("rows.0.id", ...),
        ("rows.0.id", 7),
        ("rows.0.instance_id", None),
        ("rows.0.attempt", -1),
        ("rows.0.superseded", ...),
        ("rows.0.superseded", None),
        ("rows.0.trained", "yes"),
        ("rows.0.annotations", []),
        ("rows.0.record", "s3://b/tr.json.zst"),
        ("rows.0.record.files", "tr.json.zst"),
        ("rows.0.record.files", [None]),
        ("rows.0.record.files", ["../../etc/passwd"]),
        ("rows.0.record.files", ["/etc/passwd"]),
        ("rows.0.record.files", ["a/b.zst"]),
        ("rows.0.record.files", ["a\\b.zst"]),
        ("rows.0.record.files", [".hidden.zst"]),
        ("rows.0.record.files", [".."]),
        ("rows.0.record.files", [""]),
        ("rows.0.record.files", ["a\x00.zst"]),
        ("rows.0.record.files", ["a\n.zst"]),
        ("rows.0.record.files", ["x" * 256]),
        ("rows.0.record.files", ["x"] * 257),
    ],
)
def test_a_broken_or_hostile_document_is_refused(path: str, value: object) -> None:
    """A missing field, a wrong type, a path for a name, too many files: one clear error, nothing half read."""
    with pytest.raises(IndexFormatError, match="not a step index"):
        decode(changed(path, value))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": ' * 100_000, b'"\xed\xa0\x80"'])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    """Truncated, deeply nested or other bytes are refused as such."""
    with pytest.raises(IndexFormatError, match="not a step index"):
        decode(data)


def test_a_document_that_is_too_large_is_not_parsed() -> None:
    """Size is looked at before anything else."""
    with pytest.raises(IndexFormatError, match="bytes, more than"):
        decode(bytes(codec.MAX_BYTES + 1))


@given(
    st.binary(max_size=200)
    | indexes().map(encode).flatmap(lambda data: st.integers(0, len(data) - 1).map(lambda i: data[:i]))
)
def test_no_bytes_do_anything_but_be_refused(data: bytes) -> None:
    """Whatever comes, wherever it is cut off: there is no other error than ours."""
    with pytest.raises(IndexFormatError):
        decode(data)
