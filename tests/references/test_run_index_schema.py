"""Whether ``run_index.schema.json`` and ``run_index.md`` are true of what is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped] # ships no types; its answers are checked here
import pytest
from hypothesis import given

import references
from references.codec import decode, encode
from references.run_index import RecordLocation, Row, StepIndex
from tests.references.index_builders import indexes

FOLDER = Path(references.__file__).parent
SCHEMA = json.loads((FOLDER / "run_index.schema.json").read_text())
SPECIFICATION = (FOLDER / "run_index.md").read_text()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
EXAMPLE = json.loads(re.findall(r"```json\n(.*?)```", SPECIFICATION, re.DOTALL)[0])


def without(document: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    """Copy a document and leave one field out."""
    return replaced(document, path, ...)


def replaced(document: Any, path: str, value: object) -> Any:  # noqa: ANN401 - JSON
    """Copy a document and set one field."""
    copy = json.loads(json.dumps(document))
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("."))
    inner = copy
    for part in parents:
        inner = inner[part]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return copy


def test_the_schema_is_one() -> None:
    """The schema itself is valid under draft 2020-12."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@given(indexes())
def test_whatever_is_written_fits_the_schema(index: StepIndex) -> None:
    """No index is written that the schema refuses."""
    VALIDATOR.validate(json.loads(encode(index)))


def test_the_example_is_a_step_index() -> None:
    """The specification's example fits the schema and is read."""
    VALIDATOR.validate(EXAMPLE)
    assert [row.trained for row in decode(json.dumps(EXAMPLE).encode()).rows] == [False, True]


@pytest.mark.parametrize(
    ("struct", "schema"),
    [(StepIndex, SCHEMA), (Row, SCHEMA["$defs"]["row"]), (RecordLocation, SCHEMA["$defs"]["record"])],
)
def test_code_schema_and_specification_name_the_same_fields(struct: type[Any], schema: dict[str, Any]) -> None:
    """A field cannot be added to one of the three alone; ``pending`` is added when a version is logged."""
    assert [name for name in schema["properties"] if name != "pending"] == list(struct.__struct_fields__)
    for name in schema["properties"]:
        assert f"\n| `{name}` |" in SPECIFICATION


@pytest.mark.parametrize("field", ["format_version", "run", "phase", "step", "rows"])
def test_the_schema_requires_every_field_of_the_object(field: str) -> None:
    """A document that lacks one is broken."""
    assert not VALIDATOR.is_valid(without(EXAMPLE, field))


@pytest.mark.parametrize("field", SCHEMA["$defs"]["row"]["required"])
def test_the_schema_requires_every_field_of_a_row(field: str) -> None:
    """A row that lacks one is broken."""
    assert not VALIDATOR.is_valid(without(EXAMPLE, f"rows.1.{field}"))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format_version", 2),
        ("phase", "test"),
        ("step", None),
        ("step", -1),
        ("rows", {}),
        ("phase", "eval"),  # where a row trained
        ("rows.0.trained", True),  # though superseded
        ("rows.1.attempt", -1),
        ("rows.1.annotations", []),
        ("rows.1.superseded", None),
        ("rows.1.record", "s3://bucket/run-7/tr.json.zst"),
        ("rows.1.record.path", ...),
        ("rows.1.record.mirror", ...),
        ("rows.1.record.files", None),
        ("rows.1.record.files", ["../tr.json.zst"]),
        ("rows.1.record.files", [".tr.json.zst"]),
        ("rows.1.record.files", ["a\\b"]),
        ("rows.1.record.files", ["a\nb"]),
        ("rows.1.record.files", [""]),
        ("rows.1.record.files", ["x"] * 257),
        ("rows.1.pending", False),
    ],
)
def test_the_schema_refuses_what_is_broken(path: str, value: object) -> None:
    """A wrong value, a contradiction or a hostile name does not pass."""
    assert not VALIDATOR.is_valid(replaced(EXAMPLE, path, value))
