"""How a mirror and a record directory stand, by receipts alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirror import MirrorConfig, RecordMirror
from mirror.cli import commands
from mirror.errors import EmptyMirrorError
from mirror.status import DirectoryStatus, MirrorStatus, is_record_directory, read_directory, read_mirror
from mirror.terminal.commands import run
from mirror.testing.stores import MemoryStore
from tests.mirror.command_line import Line
from tests.mirror.local_records import write_files


def copy(directory: Path, mirror: Path, config: MirrorConfig | None = None) -> None:
    """Copy all records of a directory."""
    with RecordMirror(mirror, config) as copier:
        copier.scan(directory)
        assert copier.flush(60)


def test_a_mirror_is_described_by_its_newest_receipts(tmp_path: Path) -> None:
    """A record that was written again counts once, with the size that it has now; every process is a writer."""
    write_files(tmp_path / "one", "tr_a", b"123", tokens=b"12345")
    copy(tmp_path / "one", tmp_path / "m", MirrorConfig(host="10.0.0.1"))
    write_files(tmp_path / "one", "tr_a", b"1234567", tokens=b"12345")
    write_files(tmp_path / "two", "tr_b", b"12")
    copy(tmp_path / "one", tmp_path / "m", MirrorConfig(host="10.0.0.1"))
    copy(tmp_path / "two", tmp_path / "m", MirrorConfig(host="10.0.0.2"))
    status = read_mirror(tmp_path / "m", MirrorConfig())
    assert (status.records, status.files, status.size_bytes) == (2, 3, 14)
    assert (len(status.writers), status.hosts) == (3, {"10.0.0.1", "10.0.0.2"})
    assert status.newest_at is not None


def test_where_there_is_no_mirror_there_is_no_status(tmp_path: Path) -> None:
    """A wrong URL is no mirror with nothing in it; record files without receipts are one."""
    with pytest.raises(EmptyMirrorError, match=r"no mirror at file://.*/m: it has no receipts and no record files"):
        read_mirror(tmp_path / "m", MirrorConfig())
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "tr_a.json.zst").write_bytes(b"document")
    assert read_mirror(tmp_path / "m", MirrorConfig()) == MirrorStatus()


def test_a_directory_is_described_place_by_place(tmp_path: Path) -> None:
    """Each mirror that it was ever copied to: what is receipted, and what is not there as it is now."""
    records = tmp_path / "records"
    for record_id in ("tr_a", "tr_b", "tr_c"):
        write_files(records, record_id, tokens=b"t", experts=b"e")
    copy(records, tmp_path / "one", MirrorConfig(exclude=("experts",)))
    write_files(records, "tr_d")
    copy(records, tmp_path / "two")
    write_files(records, "tr_a", b"other")
    (records / "tr_b.json.zst").unlink()
    status = read_directory(records)
    assert status.records == 3
    assert all(place.place.startswith("file-") for place in status.places)
    assert {place.url for place in status.places} == {f"file://{tmp_path / name}" for name in ("one", "two")}
    assert sorted((place.receipted, place.uncopied) for place in status.places) == [(3, 2), (4, 1)]


def test_a_directory_that_was_never_copied(tmp_path: Path) -> None:
    """Its records are counted, and nothing is written there."""
    write_files(tmp_path, "tr_a")
    assert read_directory(tmp_path) == DirectoryStatus(directory=tmp_path, records=1, can_keep=True, places=())
    assert not (tmp_path / ".mirror").exists()


def test_where_no_receipts_can_be_kept_nobody_knows_what_was_copied(tmp_path: Path, line: Line) -> None:
    """Such as on a read-only disk: it is not said that nothing was, but who can tell."""
    records = tmp_path / "records"
    write_files(records, "tr_a")
    assert line("status", records).err == "it was never copied to a mirror\n"
    (records / ".mirror").touch()  # nobody can write below a file, not even root
    copy(records, tmp_path / "m")
    said = line("status", records)
    assert (said.code, said.out) == (0, f"{records}: 1 finished record\n")
    assert said.err.startswith("no receipts are there, and none can be kept there: ")
    assert said.err.endswith(f"`record-mirror verify URL {records}` tells\n")


def test_one_bucket_on_two_endpoints_is_two_places(tmp_path: Path, line: Line) -> None:
    """Each line says which it is; by the place's name where an older release kept the URL alone."""
    write_files(tmp_path / "records", "tr_a")
    for port in (1, 2):
        options = {"endpoint_url": f"http://me:canary@10.0.0.5:{port}", "key": "k", "secret": "canary"}
        store = MemoryStore()
        with RecordMirror("s3://bucket/run", open_store=store.opened, storage_options=options) as mirror:
            mirror.scan(tmp_path / "records")
            assert mirror.flush(60)
    said = line("status", tmp_path / "records")
    counts = "1 record receipted, 0 uncopied"
    assert sorted(said.out.splitlines()[1:]) == [
        f"s3://bucket/run at http://***@10.0.0.5:{port}: {counts}" for port in (1, 2)
    ]
    places = line("status", "--json", tmp_path / "records").of_type("place")
    assert [place["url"] for place in places] == ["s3://bucket/run"] * 2
    assert {place["where"] for place in places} == {f"http://***@10.0.0.5:{port}" for port in (1, 2)}
    for kept in (tmp_path / "records" / ".mirror").glob("*/url"):
        kept.write_text("s3://bucket/run\n")
    said = line("status", tmp_path / "records")
    assert sorted(said.out.splitlines()[1:]) == sorted(
        f"s3://bucket/run ({place['place']}): {counts}" for place in places
    )


def test_a_link_beside_the_records_is_no_mirror(tmp_path: Path) -> None:
    """Whoever can write there can put one anywhere; a file in the place of the receipts is none either."""
    write_files(tmp_path / "records", "tr_a")
    write_files(tmp_path / "others", "tr_b")
    copy(tmp_path / "others", tmp_path / "m")
    (tmp_path / "records" / ".mirror").mkdir()
    (tmp_path / "records" / ".mirror" / "a-file").write_bytes(b"")
    (tmp_path / "records" / ".mirror" / "a-link").symlink_to(next((tmp_path / "others" / ".mirror").iterdir()))
    assert read_directory(tmp_path / "records").places == ()


def test_a_path_may_be_either(tmp_path: Path) -> None:
    """A directory with receipts is a mirror, any other a directory of records."""
    write_files(tmp_path / "records", "tr_a")
    copy(tmp_path / "records", tmp_path / "m")
    assert is_record_directory(str(tmp_path / "records"))
    assert not is_record_directory(str(tmp_path / "m"))
    assert not is_record_directory(str(tmp_path / "nowhere"))
    assert not is_record_directory("s3://bucket/run")


def test_the_command_says_it_for_people_and_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON lines."""
    write_files(tmp_path / "records", "tr_a", b"123", tokens=b"12345")
    copy(tmp_path / "records", tmp_path / "m", MirrorConfig(host="10.0.0.1"))
    assert run(commands, ["status", str(tmp_path / "m")]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        f"mirror   file://{tmp_path}/m\nrecords  1\nfiles    2\nbytes    8 B\nwriters  1\nhosts    10.0.0.1\n"
    )
    assert run(commands, ["status", "--json", str(tmp_path / "records")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == ["directory", "place", "summary"]
    assert (lines[1]["receipted"], lines[1]["uncopied"], lines[2]["records"]) == (1, 0, 1)
    assert lines[1]["url"] == f"file://{tmp_path}/m"
    assert run(commands, ["status", str(tmp_path / "records")]) == 0
    assert f"file://{tmp_path}/m: 1 record receipted, 0 uncopied" in capsys.readouterr().out
    for url in (tmp_path / "records" / ".mirror").glob("*/url"):
        url.unlink()  # as an older release left it
    assert read_directory(tmp_path / "records").places[0].url is None


def test_a_time_that_cannot_be_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever can write receipts can claim any time."""
    write_files(tmp_path / "records", "tr_a")
    copy(tmp_path / "records", tmp_path / "m")
    segment = max((tmp_path / "m" / "_receipts").rglob("*.jsonl"), key=lambda path: path.stat().st_size)
    receipt = json.loads(segment.read_text()) | {"at": -1e300}
    segment.write_text(json.dumps(receipt) + "\n")
    assert run(commands, ["status", str(tmp_path / "m")]) == 0
    assert "newest   -1e+300" in capsys.readouterr().out
