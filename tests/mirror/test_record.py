"""What a record has on disk: its finished files, and nothing else that lies beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mirror.errors import RecordGoneError
from mirror.names import KNOWN_KINDS
from mirror.record import FileState, find_kinds, iter_batches, iter_entries, read_record, read_state
from mirror.samples import write_litter
from tests.mirror.local_records import replace_file, state_of, write_files


def test_a_record_is_its_document_and_the_sidecars_that_are_there(tmp_path: Path) -> None:
    """Of the kinds asked for those on disk are found, by name, and the document comes last."""
    write_files(tmp_path, "tr_a", b"doc", tokens=b"12", experts=b"345")
    write_files(tmp_path, "tr_b", b"other", tokens=b"x")
    record = read_record(tmp_path, "tr_a", KNOWN_KINDS)
    assert [(state.name, state.size_bytes) for state in record.files] == [
        ("tr_a.experts.zst", 3),
        ("tr_a.tokens.zst", 2),
        ("tr_a.json.zst", 3),
    ]


def test_a_record_without_a_document_is_gone(tmp_path: Path) -> None:
    """Sidecars alone are leftovers of a crash; the error says which document is missing."""
    (tmp_path / "tr_a.tokens.zst").write_bytes(b"x")
    with pytest.raises(RecordGoneError, match=r"tr_a\.json\.zst is not in"):
        read_record(tmp_path, "tr_a", KNOWN_KINDS)


def test_only_regular_files_have_a_state(tmp_path: Path) -> None:
    """Links, pipes, directories and absent files are no part of a record, wherever a link leads."""
    target = tmp_path / "target"
    target.write_bytes(b"secret")
    (tmp_path / "tr_link.json.zst").symlink_to(target)
    (tmp_path / "tr_dir.json.zst").mkdir()
    os.mkfifo(tmp_path / "tr_pipe.json.zst")
    for name in ("tr_link.json.zst", "tr_dir.json.zst", "tr_pipe.json.zst", "absent", "target/below"):
        assert read_state(tmp_path, name) is None
    assert [entry.state.name for entry in iter_entries(tmp_path)] == []


def test_replacing_a_file_changes_its_state_even_by_the_same_bytes(tmp_path: Path) -> None:
    """A file that is renamed over another is told apart from it."""
    path = tmp_path / "tr_a.json.zst"
    replace_file(path, b"same")
    before = state_of(path)
    replace_file(path, b"same")
    assert state_of(path) != before


def test_writing_in_place_changes_a_files_state(tmp_path: Path) -> None:
    """Other bytes of the same length in the same file are told apart, whatever its modification time says."""
    path = tmp_path / "tr_a.json.zst"
    replace_file(path, b"one")
    os.utime(path, ns=(1, 1))
    before = state_of(path)
    while state_of(path).ctime_ns == before.ctime_ns:  # until the file system's clock has moved on
        path.write_bytes(b"two")
        os.utime(path, ns=(1, 1))
    assert state_of(path) != before


def test_a_directory_holds_the_files_of_its_records(tmp_path: Path) -> None:
    """Every record file is found with its kind and state; dot-files, subdirectories and other files are not."""
    write_files(tmp_path, "tr_a", tokens=b"1", brand_new=b"2")
    write_files(tmp_path / "sub", "tr_b")
    write_files(tmp_path / ".mirror", "tr_c")
    (tmp_path / "readme.txt").touch()
    for name in (".tr_d.json.zst.tmp", ".tr_e.json.zst", ".tr_a.experts.zst"):
        (tmp_path / name).touch()
    entries = {(entry.record_id, entry.kind): entry.state for entry in iter_entries(tmp_path)}
    assert entries == {
        ("tr_a", None): state_of(tmp_path / "tr_a.json.zst"),
        ("tr_a", "tokens"): state_of(tmp_path / "tr_a.tokens.zst"),
        ("tr_a", "brand_new"): state_of(tmp_path / "tr_a.brand_new.zst"),
    }
    assert find_kinds(tmp_path) == {"tokens", "brand_new"}


def test_kinds_may_be_passed_over(tmp_path: Path) -> None:
    """Whoever looks for documents need not ask about every sidecar; a document is never taken for one."""
    write_files(tmp_path, "tr_a", tokens=b"1", brand_new=b"2")
    found = {(entry.record_id, entry.kind) for entry in iter_entries(tmp_path, but={"tokens", "json"})}
    assert found == {("tr_a", None), ("tr_a", "brand_new")}


def test_litter_holds_no_document(tmp_path: Path) -> None:
    """Nothing that a crash or another program leaves behind passes for a finished record."""
    write_litter(tmp_path)
    assert [entry for entry in iter_entries(tmp_path) if entry.kind is None] == []


@pytest.mark.parametrize("name", ["x" * 256, "a\0b", "\ud800", "a" * 5_000])
def test_a_name_that_no_file_can_have_is_no_file(tmp_path: Path, name: str) -> None:
    """It is not there, and no error of the file system."""
    assert read_state(tmp_path, name) is None


def test_a_documents_name_may_be_as_long_as_any(tmp_path: Path) -> None:
    """Where no sidecar's name would fit beside it, it has none."""
    record_id = "x" * (255 - len(".json.zst"))
    write_files(tmp_path, record_id)
    assert [state.name for state in read_record(tmp_path, record_id, KNOWN_KINDS).files] == [f"{record_id}.json.zst"]


def test_a_directory_that_goes_away_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """A file that was deleted meanwhile is none; all of them, with their directory, may come back."""
    records = tmp_path / "records"
    for number in range(3):
        write_files(records, f"tr_{number}", b"doc")
    batches = iter_batches(records, 1)
    (seen,) = next(batches).documents
    for number in range(3):
        if f"tr_{number}" != seen:
            (records / f"tr_{number}.json.zst").unlink()
            break
    assert len(list(batches)) == 1
    batches = iter_batches(records, 1)
    next(batches)
    records.rename(tmp_path / "aside")
    with pytest.raises(FileNotFoundError):
        next(batches)


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    """A directory that cannot be read is never taken for an empty one."""
    with pytest.raises(FileNotFoundError):
        list(iter_entries(tmp_path / "absent"))
    with pytest.raises(FileNotFoundError):
        find_kinds(tmp_path / "absent")


def test_a_state_is_a_plain_fact() -> None:
    """Two looks at one file give equal states."""
    status = Path(__file__).stat()
    assert FileState.of("x", status) == FileState.of("x", status)
