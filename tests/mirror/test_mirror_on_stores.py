"""A record directory, a mirror, and what arrives: on a directory, a real S3 server and a real GCS server."""

from __future__ import annotations

import os
import random
import uuid
from pathlib import Path

import pytest
import xxhash

from mirror import RecordMirror
from mirror.receipts.receipt import newest
from mirror.samples import write_record
from mirror.store import WHOLE_BYTES
from mirror.testing import FakeGcs, FaultProxy, SeaweedS3
from tests.mirror.places import (
    GcsPlace,
    Place,
    S3Place,
    mirror_to,
    mirrored_files,
    puts,
    receipts_in,
    record_files,
)
from tests.mirror.store_kinds import shared_bucket

pytestmark = pytest.mark.integration

FLUSH_S = 60.0  # far more than any flush here takes


def rewrite(directory: Path, record_id: str, seed: int) -> None:
    write_record(directory, record_id, profile="tiny", rng=random.Random(seed))  # noqa: S311 - sample data


def assert_books_balance(mirror: RecordMirror) -> None:
    stats = mirror.stats()
    assert stats["submitted"] == sum(int(str(stats[name])) for name in ("mirrored", "failed", "late", "pending"))


def test_every_finished_record_arrives_byte_for_byte(place: Place, records: Path) -> None:
    """Documents and sidecars of all sizes arrive as they are, nothing else does, and all is receipted by its hash."""
    expected = record_files(records)
    with mirror_to(place) as mirror:
        for name in expected:
            if name.endswith(".json.zst"):
                assert mirror.submit(records, name.removesuffix(".json.zst"))
        assert mirror.flush(FLUSH_S)
        stats = mirror.stats()
        assert_books_balance(mirror)
    assert mirrored_files(place) == expected
    assert (stats["mirrored"], stats["failed"], stats["late"], stats["pending"]) == (46, 0, 0, 0)
    assert (stats["files"], stats["bytes"]) == (len(expected), sum(map(len, expected.values())))
    receipts = receipts_in(place)
    assert {file.name: file.xxh3_128 for receipt in receipts for file in receipt.files} == {
        name: xxhash.xxh3_128_hexdigest(content) for name, content in expected.items()
    }
    for receipt in receipts:
        assert receipt.path == str(records / f"{receipt.id}.json.zst")
        assert [file.size for file in receipt.files] == [len(expected[file.name]) for file in receipt.files]
        assert receipt.files[-1].name == f"{receipt.id}.json.zst"


def test_a_scan_finds_what_nobody_submitted(place: Place, records: Path) -> None:
    """A directory that was filled before the mirror began is copied too; a second mirror finds nothing to do."""
    with mirror_to(place) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
    assert mirrored_files(place) == record_files(records)
    with mirror_to(place) as again:
        again.scan(records)
        assert again.flush(FLUSH_S)
        stats = again.stats()
    assert (stats["submitted"], stats["unchanged"], stats["files"]) == (0, 46, 0)


def test_excluded_kinds_stay_behind_and_unknown_ones_do_not(place: Place, records: Path) -> None:
    """``exclude`` leaves whole kinds out, the document is unchanged, and a kind that nobody knows is copied."""
    write_record(records, "tr_new", profile="tiny", rng=random.Random(5))  # noqa: S311 - sample data
    (records / "tr_new.thoughts.zst").write_bytes(b"a kind of tomorrow")
    with mirror_to(place, exclude=["experts", "sampling_mask"]) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        assert mirror.names(records, "tr_new") == ["tr_new.thoughts.zst", "tr_new.tokens.zst", "tr_new.json.zst"]
    expected = record_files(records)
    left_out = {name for name in expected if name.endswith((".experts.zst", ".sampling_mask.zst"))}
    assert left_out
    assert mirrored_files(place) == {name: content for name, content in expected.items() if name not in left_out}
    assert {receipt.excluded for receipt in receipts_in(place)} == {("experts", "sampling_mask")}


def test_a_mirror_that_leaves_out_less_brings_the_rest(place: Place, records: Path) -> None:
    """Once a kind is no longer excluded, the next look brings what an earlier mirror left behind."""
    for exclude in (["experts"], []):
        with mirror_to(place, exclude=exclude) as mirror:
            mirror.scan(records)
            assert mirror.flush(FLUSH_S)
    assert mirrored_files(place) == record_files(records)


@pytest.mark.parametrize("how", ["submitted", "found"])
def test_a_record_written_again_is_copied_again(place: Place, records: Path, how: str) -> None:
    """The newer bytes replace the older ones, in the mirror and as the newest receipt."""
    rewrite(records, "tr_again", 1)
    with mirror_to(place) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        rewrite(records, "tr_again", 2)
        if how == "submitted":
            mirror.submit(records, "tr_again")
        else:
            mirror.scan(records)
        assert mirror.flush(FLUSH_S)
    assert mirrored_files(place) == record_files(records)
    newest = max((receipt for receipt in receipts_in(place) if receipt.id == "tr_again"), key=lambda it: it.at)
    assert newest.files[-1].xxh3_128 == xxhash.xxh3_128_hexdigest((records / "tr_again.json.zst").read_bytes())


def test_odd_names_arrive(place: Place, tmp_path: Path) -> None:
    """Ids with characters that URLs, globs and shells give a meaning to are just ids."""
    records = tmp_path / "records"
    ids = [
        "tr #1",
        "tr?a=b&c",
        "tr%41%",
        "tr+a b",
        "trü\N{GRINNING FACE}",
        "tr[1]",
        "tr::x",
        "tr*",
        "tr.a.b",
        "-rf",
        "~",
    ]
    for number, record_id in enumerate(ids):
        rewrite(records, record_id, number)
    (records / "tr_empty.json.zst").touch()
    (records / "tr_empty.tokens.zst").touch()
    with mirror_to(place) as mirror:
        for record_id in [*ids, "tr_empty"]:
            mirror.submit(records, record_id)
        assert mirror.flush(FLUSH_S)
        assert mirror.stats()["failed"] == 0
        for record_id in ids:
            located = mirror.locate(records, record_id)
            assert located["files"] == [f"{record_id}.tokens.zst", f"{record_id}.json.zst"]
            assert located["mirror"] == f"{mirror.url}/{record_id}.json.zst"
    assert mirrored_files(place) == record_files(records)


def test_refused_names_are_named_and_others_go_on(
    place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A name that no store keeps as it is fails with one line that names it; it holds up nothing else."""
    records = tmp_path / "records"
    for number, record_id in enumerate(["tr_1", "tr_\n2", "tr_back\\slash", "tr_3"]):
        rewrite(records, record_id, number)
    with open(os.fsencode(records) + b"/tr_\xff.json.zst", "wb"):  # noqa: PTH123 - not valid UTF-8
        pass
    with mirror_to(place) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        stats = mirror.stats()
        assert_books_balance(mirror)
    assert (stats["mirrored"], stats["failed"]) == (2, 3)
    assert set(mirrored_files(place)) == {name for name in record_files(records) if "tr_1." in name or "tr_3." in name}
    said = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(said) == 3
    assert not any("\n" in line for line in said)


@pytest.mark.parametrize("form", ["/", "//", "/a/b/c/d/", ""])
def test_any_form_of_url_will_do(place: Place, tmp_path: Path, form: str) -> None:
    """A trailing slash, several, a deep new prefix and none at all lead to the same kind of place."""
    records = tmp_path / "records"
    rewrite(records, "tr_1", 1)
    with RecordMirror(place.url + form, storage_options=place.options()) as mirror:
        mirror.submit(records, "tr_1")
        assert mirror.flush(FLUSH_S)
        assert mirror.uri("x") == f"{mirror.url}/x"
    below = f"{form.strip('/')}/" if form.strip("/") else ""
    assert mirrored_files(place) == {below + name: content for name, content in record_files(records).items()}


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_buckets_root_will_do(
    s3_bucket: str, gcs_bucket: str, seaweed: SeaweedS3, fake_gcs: FakeGcs, tmp_path: Path, slash: str
) -> None:
    """A mirror may have a bucket for itself."""
    records = tmp_path / "records"
    rewrite(records, "tr_1", 1)
    places: list[Place] = [S3Place(seaweed, s3_bucket, ""), GcsPlace(fake_gcs, gcs_bucket, "")]
    for place in places:
        with RecordMirror(place.url.rstrip("/") + slash, storage_options=place.options()) as mirror:
            mirror.submit(records, "tr_1")
            assert mirror.flush(FLUSH_S)
        assert mirrored_files(place) == record_files(records)
        assert len(receipts_in(place)) == 1


def test_a_touch_copies_nothing(s3_place: S3Place, s3_proxy: FaultProxy, records: Path) -> None:
    """New times on old bytes are looked at and send no file, whether the files were touched or copied over."""
    with mirror_to(s3_place, via=s3_proxy.url) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        s3_proxy.clear()
        for index, path in enumerate(sorted(records.glob("*.zst"))):
            if index % 2:
                path.touch()
            else:
                content = path.read_bytes()
                temporary = path.with_name(f".{path.name}.tmp")
                temporary.write_bytes(content)
                temporary.rename(path)
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        assert puts(s3_proxy) == {}
        s3_proxy.clear()
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        assert s3_proxy.requests == []


@pytest.mark.parametrize("kind", ["s3", "s3_versioned", "gcs"])
def test_receipts_name_the_object_as_the_store_does(
    request: pytest.FixtureRequest, seaweed: SeaweedS3, tmp_path: Path, kind: str
) -> None:
    """ETag and version in a receipt are those that another client is told: nobody has to ask for them again."""
    records, prefix = tmp_path / "records", f"identity/{uuid.uuid4().hex}"
    for number in range(3):
        rewrite(records, f"tr_{number}", number)
    place: S3Place | GcsPlace
    if kind == "gcs":
        fake_gcs: FakeGcs = request.getfixturevalue("fake_gcs")
        place = GcsPlace(fake_gcs, shared_bucket(fake_gcs, versioned=False), prefix)
    else:
        place = S3Place(seaweed, shared_bucket(seaweed, versioned=kind == "s3_versioned"), prefix)
    for _ in range(2):  # each object has an older version where versions are kept
        with mirror_to(place) as mirror:
            for number in range(3):
                rewrite(records, f"tr_{number}", random.randrange(1_000_000))  # noqa: S311 - sample data
                mirror.submit(records, f"tr_{number}")
            assert mirror.flush(FLUSH_S)
    files = [file for receipt in newest(receipts_in(place)).values() for file in receipt.files]
    assert {file.name: (file.etag, file.version_id) for file in files} == {
        name: identity for name, identity in place.identities().items() if "_receipts/" not in name
    }


def test_a_file_too_large_for_one_request_is_mirrored(s3_place: S3Place, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """It goes in parts, is hashed as a whole, and is read but not sent when it turns out to be there already."""
    records = tmp_path / "records"
    rewrite(records, "tr_1", 1)
    with (records / "tr_1.experts.zst").open("wb") as file:
        file.write(b"experts")
        file.truncate(WHOLE_BYTES + 1_000_000)
    expected = record_files(records)
    with mirror_to(s3_place, via=s3_proxy.url, max_bytes_in_flight=1 << 20) as mirror:
        mirror.submit(records, "tr_1")
        assert mirror.flush(FLUSH_S)
        s3_proxy.clear()
        (records / "tr_1.json.zst").touch()
        mirror.submit(records, "tr_1")
        assert mirror.flush(FLUSH_S)
        assert puts(s3_proxy) == {}
    assert mirrored_files(s3_place) == expected
    (receipt,) = newest(receipts_in(s3_place)).values()
    assert {file.name: file.xxh3_128 for file in receipt.files} == {
        name: xxhash.xxh3_128_hexdigest(content) for name, content in expected.items()
    }


def test_one_worker_is_enough(place: Place, records: Path) -> None:
    """The smallest settings that are allowed copy everything, only not as fast."""
    with mirror_to(place, workers=1, max_bytes_in_flight=1, queue_size=1, attempts=1) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
    assert mirrored_files(place) == record_files(records)


def test_a_directory_that_takes_no_receipts_is_mirrored_all_the_same(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where no receipt can be kept beside the records it is said once, and the next start learns from the mirror's."""
    (records / ".mirror").write_text("in the way")
    sent = []
    for _ in range(2):
        s3_proxy.clear()
        with mirror_to(s3_place, via=s3_proxy.url) as mirror:
            mirror.scan(records)
            assert mirror.flush(FLUSH_S)
        sent.append(puts(s3_proxy).keys())
    assert sent == [record_files(records).keys(), set()]
    assert len([line for line in caplog.records if line.levelname == "WARNING"]) == 1
    assert mirrored_files(s3_place) == record_files(records)
    assert {receipt.id for receipt in receipts_in(s3_place)} == {
        name.partition(".")[0] for name in record_files(records)
    }


def test_a_record_that_is_a_link_or_a_pipe_is_never_waited_for(place: Place, records: Path) -> None:
    """Only regular files are records: whatever else bears such a name is passed by."""
    os.mkfifo(records / "tr_pipe.json.zst")
    rewrite(records, "tr_1", 1)
    (records / "tr_1.experts.zst").symlink_to("/etc/hostname")
    (records / "tr_link.json.zst").symlink_to(records / "tr_1.json.zst")
    with mirror_to(place) as mirror:
        mirror.scan(records)
        for record_id in ("tr_pipe", "tr_link", "tr_1"):
            mirror.submit(records, record_id)
        assert mirror.flush(FLUSH_S)
    names = {name for name in mirrored_files(place) if name.startswith(("tr_pipe", "tr_link", "tr_1."))}
    assert names == {"tr_1.tokens.zst", "tr_1.json.zst"}
