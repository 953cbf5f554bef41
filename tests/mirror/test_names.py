"""Names say which record a file belongs to, and what could leave a directory or a key is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import BadNameError
from mirror.names import RecordFile, check_name, document_name, parse_name, sidecar_name
from tests.mirror.local_records import KINDS, RECORD_IDS


@given(RECORD_IDS)
def test_a_document_name_is_read_back(record_id: str) -> None:
    """Whatever the id, its document's name says whose it is."""
    assert parse_name(document_name(record_id)) == RecordFile(record_id, None)


@given(RECORD_IDS, KINDS)
def test_a_sidecar_name_is_read_back(record_id: str, kind: str) -> None:
    """Whatever the id and the kind, a sidecar's name says both."""
    assert parse_name(sidecar_name(record_id, kind)) == RecordFile(record_id, kind)


@given(RECORD_IDS, st.none() | KINDS)
def test_a_record_file_knows_its_name(record_id: str, kind: str | None) -> None:
    """Name and parts are two forms of one fact."""
    name = RecordFile(record_id, kind).name
    assert parse_name(name) == RecordFile(record_id, kind)


@pytest.mark.parametrize(
    "name",
    [
        ".tr_a.json.zst",
        ".tr_a.json.zst.tmp",
        ".mirror",
        ".json.zst",
        "tr_a.json",
        "tr_a.zst",
        "tr_a..zst",
        "tr_a",
        ".zst",
        "",
        "tr_a.json.zst.tmp",
        "readme.txt",
    ],
)
def test_other_names_are_no_part_of_a_record(name: str) -> None:
    """Dot-files, temporary files, other suffixes and names without an id or a kind belong to no record."""
    assert parse_name(name) is None


def test_an_id_may_hold_dots() -> None:
    """Only the last part before the suffix is a kind."""
    assert parse_name("tr.v2.1.json.zst") == RecordFile("tr.v2.1", None)
    assert parse_name("tr.v2.1.tokens.zst") == RecordFile("tr.v2.1", "tokens")


@pytest.mark.parametrize("name", ["tr #?%+ space ü [x] a:b **.json.zst", "a" * 246 + ".json.zst", "~$@!&=.tokens.zst"])
def test_odd_but_plain_names_are_kept_as_they_are(name: str) -> None:
    """Signs that URLs, shells and globs treat in their own way are no reason to refuse a file."""
    assert check_name(name) == name


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty"),
        (".", "dot"),
        ("..", "dot"),
        (".hidden.json.zst", "dot"),
        ("a/b.json.zst", "separator"),
        ("../a.json.zst", "separator"),
        ("/etc/passwd", "separator"),
        ("a\\b.json.zst", "separator"),
        ("a\0b.json.zst", "control"),
        ("a\nb.json.zst", "control"),
        ("a\x1b[31m.json.zst", "control"),
        ("a\x85.json.zst", "control"),
        ("a\u2028.json.zst", "control"),
        ("a\x7f.json.zst", "control"),
        ("a\udcff.json.zst", "UTF-8"),
        ("a" * 247 + ".json.zst", "longer"),
        ("中" * 85 + ".json.zst", "longer"),
    ],
)
def test_a_refused_name_is_named_in_one_line(name: str, reason: str) -> None:
    """What could leave a directory, hide, break a line or not be stored is refused, with the name made printable."""
    with pytest.raises(BadNameError, match=reason) as caught:
        check_name(name)
    said = str(caught.value)
    assert said.isprintable()
    assert repr(name) in said


@given(st.text(max_size=300))
def test_a_name_that_passes_is_one_path_component(name: str) -> None:
    """Whatever is let through can neither be a path nor hide nor be more than a directory entry holds."""
    try:
        check_name(name)
    except BadNameError:
        return
    assert name not in {"", ".", ".."}
    assert not set(name) & set("/\\\0\n\r")
    assert len(name.encode()) <= 255
