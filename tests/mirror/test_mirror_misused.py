"""A mirror that is asked for what it must not or cannot do: it says so, and its books balance."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from mirror import MirrorError, RecordMirror, verify
from tests.mirror.forks import in_child
from tests.mirror.local_records import write_files


@pytest.fixture
def records(tmp_path: Path) -> Path:
    write_files(tmp_path / "records", "tr_a", tokens=b"123")
    return tmp_path / "records"


def assert_balanced(mirror: RecordMirror) -> None:
    stats = mirror.stats()
    assert stats["submitted"] == stats["mirrored"] + stats["failed"] + stats["late"] + stats["pending"]


ODD_IDS = ["", "../outside", "a/b", ".hidden", "a\nb", "a\0b", "\ud800", "x" * 247, "x" * 5_000]


@pytest.mark.parametrize("queue_size", [100, 5])
def test_ids_that_are_no_plain_names_are_refused_and_others_go_on(
    tmp_path: Path, records: Path, queue_size: int
) -> None:
    """Each ends as a failure with its reason, also when it has to be looked for on disk; nothing else is held up."""
    write_files(tmp_path, "outside", b"not to be copied")
    with RecordMirror(tmp_path / "mirror", queue_size=queue_size, rescan_s=0.05) as mirror:
        for record_id in [*ODD_IDS, "tr_a"]:
            mirror.submit(records, record_id)
        assert mirror.flush(30)
        assert (mirror.stats()["mirrored"], mirror.stats()["failed"]) == (1, len(ODD_IDS))
        assert_balanced(mirror)
    assert sorted(path.name for path in (tmp_path / "mirror").glob("*.zst")) == ["tr_a.json.zst", "tr_a.tokens.zst"]


def test_a_document_whose_name_is_as_long_as_any_arrives(tmp_path: Path) -> None:
    """No sidecar fits beside it, and that is no reason to leave it behind."""
    record_id = "x" * (255 - len(".json.zst"))
    write_files(tmp_path / "records", record_id)
    with RecordMirror(tmp_path / "mirror") as mirror:
        assert mirror.submit(tmp_path / "records", record_id)
        assert mirror.flush(30)
    assert verify(tmp_path / "mirror", [tmp_path / "records"], grace_s=0).findings == []


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_record_directory_is_never_its_own_mirror(tmp_path: Path, records: Path, *, through_a_link: bool) -> None:
    """No receipt may say that a second copy exists where there is only one."""
    place = tmp_path / "link" if through_a_link else records
    if through_a_link:
        place.symlink_to(records)
    with RecordMirror(place) as mirror:
        mirror.submit(records, "tr_a")
        assert mirror.flush(30)
        assert (mirror.stats()["failed"], mirror.stats()["files"]) == (1, 0)
        assert [left.record_id for left in mirror.left()] == ["tr_a"]
        with pytest.raises(MirrorError, match="its own mirror"):
            mirror.scan(records)


def test_a_record_directory_that_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    """Its disk may be away: what is written below the mount point would be hidden, or fill another disk."""
    with RecordMirror(tmp_path / "mirror", rescan_s=0.05) as mirror:
        mirror.submit(tmp_path / "records", "tr_a")
        assert not mirror.flush(0.2)
        assert not (tmp_path / "records").exists()
        write_files(tmp_path / "records", "tr_a")
        assert mirror.flush(30)


def test_a_pipe_among_the_receipts_is_not_waited_for(tmp_path: Path, records: Path) -> None:
    """What is no regular file holds no receipts."""
    with RecordMirror(tmp_path / "mirror") as mirror:
        mirror.submit(records, "tr_a")
        assert mirror.flush(30)
    (journal,) = records.glob(".mirror/*/*.jsonl")
    os.mkfifo(journal.with_name("pipe.jsonl"))
    journal.with_name("link.jsonl").symlink_to(journal.with_name("pipe.jsonl"))
    with RecordMirror(tmp_path / "mirror") as mirror:
        assert mirror.scan(records).records == 1


def test_a_forked_child_copies_however_busy_the_parent_is(tmp_path: Path) -> None:
    """Nothing that the parent's threads hold at that moment keeps the child's own mirror from working."""

    def copy_one(mirror: RecordMirror) -> bool:
        mirror.submit(tmp_path / "records", "tr_1")
        return mirror.flush(20) and mirror.close(20)

    for number in range(30):
        write_files(tmp_path / "records", f"tr_{number}")
    for number in range(12):
        mirror = RecordMirror(tmp_path / f"mirror-{number}", fsync=False)
        for record in range(30):
            mirror.submit(tmp_path / "records", f"tr_{record}")
        assert in_child(partial(copy_one, mirror))
        assert mirror.close(30)
