"""Record directories, and mirrors in directories, that others can write to: nothing is followed, or waited for."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from mirror import MirrorError, RecordMirror, verify
from mirror.location import parse_location
from mirror.place import place_id
from mirror.receipts.ledger import DIRECTORY, read_url
from mirror.receipts.receipt import FileReceipt, Receipt, encode_line
from mirror.samples import write_corpus
from mirror.status import read_directory
from tests.hostile.anything import EVIL_NAMES

END_S = 60.0


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory that nobody may touch."""
    directory = tmp_path / "outside"
    directory.mkdir()
    (directory / "precious").write_bytes(b"mine")
    (directory / "tr_o.json.zst").write_bytes(b"secret")
    return directory


def assert_untouched(outside: Path) -> None:
    """Fail if anything in it is new or changed."""
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {
        "precious": b"mine",
        "tr_o.json.zst": b"secret",
    }


def mirrored(records: Path, mirror: Path) -> set[str]:
    """Copy all that is a record, in bounded time, and return the names of the record files in the mirror."""
    with RecordMirror(str(mirror), fsync=False, rescan_s=0.2) as copying:
        copying.scan(records)
        copying.flush(END_S)
    return {path.name for path in mirror.iterdir() if path.is_file()}


@contextlib.contextmanager
def socket_at(path: Path) -> Iterator[None]:
    """Have a listening socket there."""
    with socket.socket(socket.AF_UNIX) as listening, contextlib.chdir(path.parent):  # its path may be 100 bytes long
        listening.bind(path.name)
        yield


def test_what_is_no_regular_file_is_no_record(tmp_path: Path, outside: Path) -> None:
    """Links, pipes, sockets, devices and directories under records' names are passed over, and nothing waits."""
    records = tmp_path / "records"
    ids = write_corpus(records, profile="tiny", count=3, seed=1)
    right = {path.name for path in records.iterdir()}
    (records / "tr_o.json.zst").symlink_to(outside / "tr_o.json.zst")
    (records / f"{ids[0]}.evil.zst").symlink_to("/dev/zero")
    (records / "tr_z.json.zst").symlink_to("/dev/zero")
    (records / "tr_loop.json.zst").symlink_to(records / "tr_loop.json.zst")
    os.mkfifo(records / "tr_p.json.zst")
    os.mkfifo(records / f"{ids[1]}.pipe.zst")
    (records / "tr_d.json.zst").mkdir()
    with contextlib.suppress(PermissionError):  # of making devices nobody but root has any
        os.mknod(records / "tr_n.json.zst", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with socket_at(records / "tr_s.json.zst"):
        assert mirrored(records, tmp_path / "mirror") == right
        assert read_directory(records).records == len(ids)
        assert not verify(tmp_path / "mirror", [records], grace_s=0).findings
    assert_untouched(outside)


@pytest.mark.parametrize(
    "name", [name for name in EVIL_NAMES if "/" not in name and "\0" not in name and len(name) < 200]
)
def test_any_name_is_copied_as_it_is_or_refused(tmp_path: Path, name: str) -> None:
    """Under the mirror's directory or not at all, and others get through; names that differ in case are two."""
    records = tmp_path / "records"
    right = {f"{one}.json.zst" for one in write_corpus(records, profile="tiny", count=1, seed=1)}
    for odd in (f"{name}.json.zst", "TR_A.json.zst", "tr_a.json.zst"):
        (records / odd).write_bytes(odd.encode())
    copied = mirrored(records, tmp_path / "mirror")
    assert right | {"TR_A.json.zst", "tr_a.json.zst"} <= copied
    assert copied <= {path.name for path in records.iterdir()}
    assert (tmp_path / "mirror" / "TR_A.json.zst").read_bytes() == b"TR_A.json.zst"
    assert {path.name for path in tmp_path.iterdir()} == {"records", "mirror"}


def test_bytes_that_are_no_text_are_no_name(tmp_path: Path) -> None:
    """A file name that is not UTF-8 is refused, and others get through."""
    records = tmp_path / "records"
    write_corpus(records, profile="tiny", count=1, seed=1)
    right = {path.name for path in records.iterdir()}
    (records / os.fsdecode(b"tr_\xff.json.zst")).write_bytes(b"x")
    assert mirrored(records, tmp_path / "mirror") == right


def test_a_bomb_is_bytes_like_any_other(tmp_path: Path) -> None:
    """A document that unpacks to gigabytes is copied, checked and pulled packed: nothing here unpacks anything."""
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    records = tmp_path / "records"
    records.mkdir()
    (records / "tr_b.json.zst").write_bytes(bomb * 16)
    assert mirrored(records, tmp_path / "mirror") == {"tr_b.json.zst"}
    assert (tmp_path / "mirror" / "tr_b.json.zst").read_bytes() == bomb * 16
    assert not verify(tmp_path / "mirror", [records], grace_s=0).findings


def receipts_of_another(directory: Path, mirror: Path) -> Path:
    """Write the journal of another writer that has not sent its receipt yet, and return its path."""
    folder = directory / DIRECTORY / place_id(parse_location(mirror), {})
    folder.mkdir(parents=True)
    file = FileReceipt(name="tr_x.json.zst", size=1, xxh3_128="0" * 32)
    receipt = Receipt(id="tr_x", at=1.0, writer="evil", host="h", path="/p", files=(file,))
    (folder / "evil.jsonl").write_bytes(encode_line(receipt))
    return folder / "evil.jsonl"


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "directory", "endless"])
@pytest.mark.parametrize("name", ["evil.sent", "url", "other.jsonl"])
def test_nothing_beside_the_records_leads_elsewhere(tmp_path: Path, outside: Path, kind: str, name: str) -> None:
    """Whatever stands where the mirror keeps its notes, records are copied; nothing else is touched or waited for."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_corpus(records, profile="tiny", count=2, seed=1)
    right = {path.name for path in records.iterdir()}
    place = receipts_of_another(records, mirror).with_name(name)
    match kind:
        case "link":
            place.symlink_to(outside / "precious")
        case "dangling link":
            place.symlink_to(outside / "new")
        case "pipe":
            os.mkfifo(place)
        case "directory":
            place.mkdir()
        case _:
            with place.open("wb") as file:
                file.truncate(1 << 32)  # sparse
    assert mirrored(records, mirror) == right
    assert_untouched(outside)
    assert read_directory(records).records == 2
    assert len(read_url(records, place.parent.name) or "") < 10_000
    assert_untouched(outside)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_link_in_place_of_the_notes_is_not_followed(
    tmp_path: Path, outside: Path, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The mirror does without them, and says so."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_corpus(records, profile="tiny", count=2, seed=1)
    right = {path.name for path in records.iterdir()}
    folder = records / DIRECTORY
    if depth:
        folder.mkdir()
        folder /= place_id(parse_location(mirror), {})
    folder.symlink_to(outside)
    assert mirrored(records, mirror) == right
    assert_untouched(outside)
    assert "is a link, which is not followed" in caplog.text


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
def test_what_stands_in_a_records_place_in_the_mirror_gives_way(tmp_path: Path, outside: Path, kind: str) -> None:
    """A link in a mirror in a shared directory is replaced by the file; what it led to stays as it is."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    (one,) = write_corpus(records, profile="tiny", count=1, seed=1)
    mirror.mkdir()
    place = mirror / f"{one}.json.zst"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(outside / ("precious" if kind == "link" else "new"))
    mirrored(records, mirror)
    assert not place.is_symlink()
    assert place.read_bytes() == (records / place.name).read_bytes()
    assert_untouched(outside)


@pytest.mark.parametrize("folder", ["_receipts", "index"])
def test_a_link_in_place_of_a_mirrors_folder_is_not_followed(tmp_path: Path, outside: Path, folder: str) -> None:
    """No receipt and no index is written to where it leads; a mirror without receipts is not complete, and says so."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_corpus(records, profile="tiny", count=1, seed=1)
    mirror.mkdir()
    (mirror / folder).symlink_to(outside)
    with contextlib.suppress(MirrorError):
        copying = RecordMirror(str(mirror), fsync=False, rescan_s=0.2, attempts=2, backoff_s=0.01)
        copying.scan(records)
        assert copying.close(2.0) == (folder == "index")
    assert_untouched(outside)
