"""In which order a record's files become visible, and what happens when a record is written again meanwhile."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import xxhash

from mirror.receipts.receipt import newest
from mirror.samples import write_corpus, write_record
from mirror.testing import (
    Answer,
    FakeGcs,
    Fault,
    FaultProxy,
    Reply,
    Stall,
    requests_to,
    s3_error,
)
from tests.mirror.places import (
    DirectoryPlace,
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


class Watcher:
    """Sees each PUT as a proxy's ``check_request``, calls what a test wants to happen then, and keeps what it saw."""

    def __init__(self) -> None:
        self.proxy: FaultProxy | None = None
        self.seen: list[tuple[str, bytes, dict[str, bytes]]] = []  # name, content, what was answered by then
        self.on_put: Callable[[str], None] = lambda _name: None
        self._sent: dict[str, bytes] = {}

    def __call__(self, method: str, path: str, _headers: Mapping[str, str], body: bytes) -> Reply | None:
        name = path.rpartition("/")[2]
        if method == "PUT" and "_receipts/" not in path:
            assert self.proxy is not None
            answered = puts(self.proxy)
            self.seen.append((name, body, {sent: content for sent, content in self._sent.items() if answered[sent]}))
            self._sent[name] = body
            self.on_put(name)
        return None


@pytest.fixture
def records(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    directory.mkdir()
    return directory


def write(directory: Path, record_id: str, seed: int) -> None:
    write_record(directory, record_id, profile="tiny", rng=random.Random(seed))  # noqa: S311 - sample data


def assert_one_generation(place: Place, records: Path) -> None:
    """Check that mirror, disk and newest receipts agree."""
    expected = record_files(records)
    assert mirrored_files(place) == expected
    receipted = {file.name: file for receipt in newest(receipts_in(place)).values() for file in receipt.files}
    assert {name: file.xxh3_128 for name, file in receipted.items()} == {
        name: xxhash.xxh3_128_hexdigest(content) for name, content in expected.items()
    }


def test_a_document_is_sent_when_its_sidecars_were_answered(s3_place: S3Place, records: Path) -> None:
    """However long a sidecar takes, its document is not even begun before the store has acknowledged it."""
    write_corpus(records, profile="moe", count=4, seed=1)
    write_corpus(records, profile="tiny", count=30, seed=1)
    watcher = Watcher()
    with FaultProxy(s3_place.server.url, check_request=watcher) as proxy:
        watcher.proxy = proxy
        for name in ("experts", "tokens"):
            proxy.script(Fault(action=Stall(0.3), match=requests_to("PUT", f".{name}."), times=4))
        with mirror_to(s3_place, via=proxy.url) as mirror:
            mirror.scan(records)
            assert mirror.flush(FLUSH_S)
    documents = [(name, answered) for name, _, answered in watcher.seen if name.endswith(".json.zst")]
    assert len(documents) == 34
    for name, answered in documents:
        record_id = name.removesuffix(".json.zst")
        sidecars = {path.name for path in records.glob(f"{record_id}.*")} - {name}
        assert sidecars <= answered.keys()


@pytest.mark.parametrize("kind", ["directory", "s3", "gcs"])
def test_no_reader_sees_a_document_without_its_sidecars(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, records: Path
) -> None:
    """Whoever lists the mirror all the time never finds a document whose sidecars are not there."""
    write_corpus(records, profile="tokens", count=20, seed=1)
    place: Place = DirectoryPlace(tmp_path / "mirror")
    if kind == "s3":
        place = request.getfixturevalue("s3_place")
    elif kind == "gcs":
        fake_gcs: FakeGcs = request.getfixturevalue("fake_gcs")
        place = GcsPlace(fake_gcs, shared_bucket(fake_gcs, versioned=False), f"generations/{uuid.uuid4().hex}")
    expected = record_files(records).keys()
    incomplete: list[set[str]] = []
    looks = 0
    done = threading.Event()

    def look() -> None:
        nonlocal looks
        while not done.is_set():
            names = place.names()
            ids = {name.removesuffix(".json.zst") for name in names if name.endswith(".json.zst")}
            incomplete.append({name for name in expected if name.partition(".")[0] in ids} - names)
            looks += bool(ids)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        with mirror_to(place, workers=2) as mirror:
            mirror.scan(records)
            assert mirror.flush(FLUSH_S)
    finally:
        done.set()
        reader.join()
    assert not any(incomplete)
    assert looks


def test_a_document_stays_behind_when_a_sidecar_is_refused(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path
) -> None:
    """The record fails as a whole and by name; the next start tries it again and all is well."""
    write(records, "tr_1", 1)
    write(records, "tr_2", 2)
    refusal = Answer(s3_error(400, "EntityTooLarge"))
    s3_proxy.script(Fault(action=refusal, match=requests_to("PUT", "tr_1.tokens")))
    with mirror_to(s3_place, via=s3_proxy.url) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        stats = mirror.stats()
        assert (stats["mirrored"], stats["failed"]) == (1, 1)
        assert [left.record_id for left in mirror.left()] == ["tr_1"]
    assert set(mirrored_files(s3_place)) == {"tr_2.tokens.zst", "tr_2.json.zst"}
    with mirror_to(s3_place, via=s3_proxy.url) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
    assert_one_generation(s3_place, records)


@pytest.mark.parametrize("moment", ["tr_1.tokens.zst", "tr_1.json.zst"])
@pytest.mark.parametrize("submitted", [True, False])
def test_a_record_written_again_during_its_copy_ends_as_one_generation(
    s3_place: S3Place, records: Path, moment: str, *, submitted: bool
) -> None:
    """Whether the server says so or not, and whichever file is on its way, mirror and receipt end as the newer one."""
    write(records, "tr_1", 1)
    watcher = Watcher()
    with FaultProxy(s3_place.server.url, check_request=watcher) as proxy:
        watcher.proxy = proxy
        with mirror_to(s3_place, via=proxy.url) as mirror:
            rewrites = iter([2])

            def rewrite(name: str) -> None:
                if name == moment and (seed := next(rewrites, None)):
                    write(records, "tr_1", seed)
                    if submitted:
                        mirror.submit(records, "tr_1")

            watcher.on_put = rewrite
            mirror.submit(records, "tr_1")
            assert mirror.flush(FLUSH_S)
            assert mirror.stats()["mirrored"] == 1 + submitted
    assert_one_generation(s3_place, records)


def test_a_newer_document_waits_for_its_own_sidecars(s3_place: S3Place, records: Path) -> None:
    """A record written again while its document waits for its turn begins anew: newer sidecars go first."""
    ids = write_corpus(records, profile="tiny", count=12, seed=1)
    watcher = Watcher()
    rewritten: list[str] = []

    def rewrite(_name: str) -> None:
        """Write a record again whose sidecar was answered and whose document waits behind those of others."""
        assert watcher.proxy is not None
        answered, begun = puts(watcher.proxy), {name for name, _, _ in watcher.seen}
        waiting = (one for one in ids if answered[f"{one}.tokens.zst"] and f"{one}.json.zst" not in begun)
        if not rewritten and len(answered) > 2 and (record_id := next(waiting, None)):
            rewritten.append(record_id)
            write(records, record_id, 2)

    watcher.on_put = rewrite
    with FaultProxy(s3_place.server.url, check_request=watcher) as proxy:
        watcher.proxy = proxy
        with mirror_to(s3_place, via=proxy.url, max_bytes_in_flight=1) as mirror:  # one file at a time
            mirror.scan(records)
            assert mirror.flush(FLUSH_S)
    (record_id,) = rewritten
    newer = (records / f"{record_id}.json.zst").read_bytes()
    sidecar = (records / f"{record_id}.tokens.zst").read_bytes()
    (answered,) = [answered for _, content, answered in watcher.seen if content == newer]
    assert answered[f"{record_id}.tokens.zst"] == sidecar
    assert_one_generation(s3_place, records)


def test_a_record_that_is_written_again_and_again_is_copied_once_it_rests(s3_place: S3Place, records: Path) -> None:
    """A record that changes with each attempt is left for later, holds up no other, and arrives in the end."""
    write(records, "tr_1", 1)
    write(records, "tr_2", 2)
    watcher = Watcher()
    with FaultProxy(s3_place.server.url, check_request=watcher) as proxy:
        watcher.proxy = proxy
        rewrites = iter(range(3, 16))

        def rewrite(name: str) -> None:
            if name == "tr_1.json.zst" and (seed := next(rewrites, None)):
                write(records, "tr_1", seed)

        watcher.on_put = rewrite
        with mirror_to(s3_place, via=proxy.url) as mirror:
            mirror.submit(records, "tr_1")
            mirror.submit(records, "tr_2")
            assert mirror.flush(FLUSH_S)
            stats = mirror.stats()
    assert next(rewrites, None) is None
    assert (stats["submitted"], stats["mirrored"], stats["late"]) == (2, 2, 0)
    assert_one_generation(s3_place, records)


def test_a_record_that_is_gone_is_lost_and_said_so(
    s3_place: S3Place, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a record whose file is no longer there is lost; one deleted after it was mirrored is not."""
    write(records, "tr_1", 1)
    with mirror_to(s3_place) as mirror:
        mirror.submit(records, "tr_1")
        assert mirror.flush(FLUSH_S)
        (records / "tr_1.json.zst").unlink()
        mirror.submit(records, "tr_1")
        assert mirror.flush(FLUSH_S)
        assert mirror.stats()["lost"] == 0
        mirror.submit(records, "tr_never")
        assert mirror.flush(FLUSH_S)
        stats = mirror.stats()
    assert (stats["mirrored"], stats["failed"], stats["lost"]) == (2, 1, 1)
    assert "tr_never" in caplog.text
