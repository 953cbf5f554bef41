"""A mirror whose store is slow, down, full of errors, or refuses: records are late, never lost, and all arrive."""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from mirror import RecordMirror
from mirror.samples import write_corpus, write_record
from mirror.stats import MirrorStats
from mirror.testing import (
    ADMIN,
    READER,
    WRITER,
    Answer,
    Fault,
    FaultProxy,
    Hang,
    Identity,
    LoseReply,
    Reply,
    Reset,
    SeaweedS3,
    Throttle,
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
    receipts_in,
    record_files,
)
from tests.mirror.store_kinds import shared_bucket

pytestmark = pytest.mark.integration

FLUSH_S = 60.0  # far more than any flush here takes


@pytest.fixture
def records(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    write_corpus(directory, profile="tiny", count=25, seed=1)
    return directory


def write(directory: Path, record_id: str) -> None:
    write_record(directory, record_id, profile="tiny", rng=random.Random(record_id))  # noqa: S311 - sample data


def numbers(mirror: RecordMirror) -> MirrorStats:
    """Return the stats, whose books must balance at any time."""
    stats = mirror.stats()
    assert stats["submitted"] == stats["mirrored"] + stats["failed"] + stats["late"] + stats["pending"]
    return stats


def wait_until(holds: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    """Return once it holds; looking costs nothing and nothing depends on how often."""
    pause = threading.Event()
    for _ in range(int(timeout_s / 0.02)):
        if holds():
            return
        pause.wait(0.02)
    pytest.fail("it never came to hold")


PASSING: list[tuple[str, Fault, bool]] = [
    ("reset", Fault(action=Reset(), match=requests_to("PUT"), times=6), False),
    ("reset within", Fault(action=Reset(after_bytes=100), match=requests_to("PUT"), times=6), False),
    ("lost replies", Fault(action=LoseReply(), match=requests_to("PUT"), times=6), False),
    ("internal error", Fault(action=Answer(s3_error(500, "InternalError")), match=requests_to("PUT"), times=6), True),
    ("slow down", Fault(action=Answer(s3_error(503, "SlowDown", retry_after_s=0.2)), times=6), True),
    ("bad gateway", Fault(action=Answer(Reply(status=502, body=b"<html>")), times=6), True),
    ("slow", Fault(action=Throttle(bytes_per_s=5_000), match=requests_to("PUT"), times=20), False),
]


@pytest.mark.parametrize(("fault", "is_counted"), [case[1:] for case in PASSING], ids=[case[0] for case in PASSING])
def test_what_passes_is_outlasted(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path, fault: Fault, *, is_counted: bool
) -> None:
    """Errors that pass cost attempts, which are counted; every file arrives, and is acknowledged no more than once."""
    s3_proxy.script(fault)
    with mirror_to(s3_place, via=s3_proxy.url) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        stats = numbers(mirror)
    assert s3_proxy.remaining_faults == 0
    assert (stats["submitted"], stats["mirrored"]) == (25, 25)
    if is_counted:
        assert stats["retried"] + stats["late"] >= 1
    assert mirrored_files(s3_place) == record_files(records)
    acknowledged = Counter(request.path for request in s3_proxy.requests if request.status == 200)
    assert {count for path, count in acknowledged.items() if "_receipts/" not in path} == {1}


@pytest.mark.parametrize("kind", ["s3-obstore", "s3-fsspec", "gcs-fsspec"])
def test_an_outage_makes_records_late_and_loses_none(
    request: pytest.FixtureRequest, kind: str, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the store is down records wait or are late, with one line in the log; when it is back all are copied."""
    place, proxy = place_behind_proxy(request, kind)
    caplog.set_level(logging.INFO, logger="mirror")
    before = record_files(records)
    with mirror_to(place, via=proxy.url) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        proxy.down()
        for number in range(30):
            write(records, f"tr_during_{number}")
            assert mirror.submit(records, f"tr_during_{number}")
        wait_until(lambda: numbers(mirror)["breaker"] == "open")
        stats = numbers(mirror)
        assert stats["late"] + stats["pending"] == 30
        assert stats["lag_s"] > 0
        assert stats["last_error"]
        proxy.up()
        assert mirror.flush(FLUSH_S)
        stats = numbers(mirror)
    assert (stats["submitted"], stats["mirrored"], stats["breaker"], stats["lag_s"]) == (55, 55, "closed", 0.0)
    assert mirrored_files(place) == record_files(records)
    assert record_files(records).items() >= before.items()
    said = [line.getMessage() for line in caplog.records if line.name == "mirror.breaker"]
    assert len(said) == 2
    assert "does not answer" in said[0]
    assert "answers again" in said[1]


def test_a_single_late_record_is_copied_by_the_same_process(
    s3_place: S3Place, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """The last record of a run, given up during an outage, is copied when the store is back without another one."""
    records = tmp_path / "records"
    write(records, "tr_last")
    with mirror_to(s3_place, via=s3_proxy.url, attempts=3, backoff_s=0.01) as mirror:
        assert mirror.flush(FLUSH_S)
        s3_proxy.down()
        mirror.submit(records, "tr_last")
        wait_until(lambda: numbers(mirror)["late"] == 1)
        s3_proxy.up()
        assert mirror.flush(FLUSH_S)
        assert numbers(mirror)["mirrored"] == 1
    assert mirrored_files(s3_place) == record_files(records)


def test_a_single_record_outlasts_an_outage_longer_than_its_attempts(
    s3_place: S3Place, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Likewise when its attempts have just opened the breaker and nothing else is left that could try the store."""
    records = tmp_path / "records"
    write(records, "tr_last")
    with mirror_to(s3_place, via=s3_proxy.url, attempts=5, backoff_s=0.01) as mirror:
        assert mirror.flush(FLUSH_S)
        s3_proxy.down()
        mirror.submit(records, "tr_last")
        wait_until(lambda: numbers(mirror)["late"] == 1)
        assert numbers(mirror)["breaker"] == "open"
        s3_proxy.up()
        assert mirror.flush(FLUSH_S)
        assert numbers(mirror)["mirrored"] == 1
    assert mirrored_files(s3_place) == record_files(records)


def test_a_call_that_hangs_is_timed_out_and_tried_again(s3_place: S3Place, s3_proxy: FaultProxy, records: Path) -> None:
    """A store that accepts and never answers costs a deadline a call, is counted, and holds up nothing for good."""
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT"), times=8))
    with mirror_to(s3_place, via=s3_proxy.url, timeout_s=0.5) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        stats = numbers(mirror)
    assert s3_proxy.remaining_faults == 0
    assert stats["timed_out"] >= 1
    assert stats["mirrored"] == 25
    assert mirrored_files(s3_place) == record_files(records)


def test_a_full_queue_makes_records_late_and_the_same_process_copies_them(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path
) -> None:
    """What does not fit into the queue is not queued, is named as late, and is found on disk when there is room."""
    ids = sorted(path.name.removesuffix(".json.zst") for path in records.glob("*.json.zst"))
    with mirror_to(s3_place, via=s3_proxy.url, queue_size=5) as mirror:
        mirror.scan(records)  # after which nothing is looked for but what is late
        assert mirror.flush(FLUSH_S)
        for record_id in ids:
            write(records, record_id)
        s3_proxy.latency_s = 0.3
        queued = [mirror.submit(records, record_id) for record_id in ids]
        assert queued.count(False) >= 10
        assert numbers(mirror)["late"] >= 10
        assert set(numbers(mirror)["late_names"]) <= set(ids)
        s3_proxy.latency_s = 0
        assert mirror.flush(FLUSH_S)
        stats = numbers(mirror)
    assert (stats["submitted"], stats["mirrored"], stats["late"]) == (50, 50, 0)
    assert mirrored_files(s3_place) == record_files(records)


def test_an_absent_bucket_is_found_at_the_start_and_copying_begins_once_it_is_there(
    seaweed: SeaweedS3, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported once and loudly, and in the stats; nothing fails; when somebody makes the bucket all is copied."""
    place = S3Place(seaweed, f"absent-{uuid.uuid4().hex[:12]}")
    with mirror_to(place) as mirror:
        wait_until(lambda: numbers(mirror)["breaker"] == "refused")
        assert "bucket" in str(numbers(mirror)["breaker_reason"]).lower()
        mirror.scan(records)
        stats = numbers(mirror)
        assert (stats["failed"], stats["pending"]) == (0, 25)
        seaweed.make_bucket(place.bucket)
        assert mirror.flush(FLUSH_S)
        assert numbers(mirror)["mirrored"] == 25
    said = [line for line in caplog.records if line.levelno >= logging.ERROR]
    assert len(said) == 1
    assert place.bucket in said[0].getMessage()
    assert mirrored_files(place) == record_files(records)


def test_a_directory_that_cannot_be_made_refuses_until_somebody_acts(
    tmp_path: Path, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file in the way of the mirror's directory is reported once; when it is gone copying begins."""
    (tmp_path / "shared").write_text("not a directory")
    place = DirectoryPlace(tmp_path / "shared" / "run-7")
    with mirror_to(place) as mirror:
        wait_until(lambda: numbers(mirror)["breaker"] == "refused")
        mirror.scan(records)
        assert numbers(mirror)["failed"] == 0
        (tmp_path / "shared").unlink()
        assert mirror.flush(FLUSH_S)
        assert numbers(mirror)["mirrored"] == 25
    assert len([line for line in caplog.records if line.levelno >= logging.ERROR]) == 1
    assert mirrored_files(place) == record_files(records)


def test_credentials_that_may_only_read_refuse_the_store(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Access denied to everything is the store's refusal: no record is given up for it, and few requests are made."""
    reader = S3Place(s3_place.server, s3_place.bucket, s3_place.prefix, READER)
    mirror = mirror_to(reader, via=s3_proxy.url)
    mirror.start()
    mirror.scan(records)
    wait_until(lambda: numbers(mirror)["breaker"] == "refused")
    assert not mirror.flush(0.5)
    stats = numbers(mirror)
    assert (stats["failed"], stats["late"] + stats["pending"]) == (0, 25)
    assert not mirror.close(0.1)
    assert numbers(mirror)["late"] == 25
    assert len([line for line in caplog.records if line.levelno >= logging.ERROR]) == 1
    assert s3_proxy.counts["PUT"] <= 60  # at most one file and one probe for each worker when it began, then few
    with mirror_to(s3_place) as again:
        again.scan(records)
        assert again.flush(FLUSH_S)
    assert mirrored_files(s3_place) == record_files(records)


def test_a_mirror_needs_to_write_only(s3_place: S3Place, records: Path) -> None:
    """A server's credentials need not read or list the bucket."""
    writer = S3Place(s3_place.server, s3_place.bucket, s3_place.prefix, WRITER)
    with mirror_to(writer) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        assert numbers(mirror)["last_error"] is None
    assert mirrored_files(s3_place) == record_files(records)


def test_access_denied_to_one_file_is_that_files_failure(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path
) -> None:
    """While other files get through, a denial concerns the file alone."""
    write(records, "tr_secret")
    s3_proxy.script(
        Fault(action=Answer(s3_error(403, "AccessDenied")), match=requests_to("PUT", "tr_secret"), times=100)
    )
    with mirror_to(s3_place, via=s3_proxy.url) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        stats = numbers(mirror)
        assert (stats["mirrored"], stats["failed"], stats["breaker"]) == (25, 1, "closed")
        assert [(left.record_id, left.reason is not None) for left in mirror.left()] == [("tr_secret", True)]
    expected = record_files(records)
    assert mirrored_files(s3_place) == {name: expected[name] for name in expected if "tr_secret" not in name}


def test_expired_credentials_are_read_again(
    s3_place: S3Place, records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the credentials of a run expire and somebody writes new ones where they came from, copying goes on."""
    shared = tmp_path / "credentials"
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))

    def write_credentials(identity: Identity) -> None:
        lines = f"aws_access_key_id = {identity.access_key}\naws_secret_access_key = {identity.secret_key}\n"
        shared.write_text(f"[default]\n{lines}")

    expired = Counter[str]()

    def expire(method: str, _path: str, headers: Mapping[str, str], _body: bytes) -> Reply | None:
        if f"Credential={WRITER.access_key}/" not in headers["authorization"]:
            return None
        if expired.total() == 2:
            write_credentials(ADMIN)
        expired[method] += 1
        return s3_error(403, "ExpiredToken")

    write_credentials(WRITER)
    with FaultProxy(s3_place.server.url, check_request=expire) as proxy:
        options = {key: value for key, value in s3_place.options(via=proxy.url).items() if key not in {"key", "secret"}}
        with RecordMirror(
            s3_place.url, storage_options=options, driver=s3_place.driver, workers=8, backoff_s=0.05, rescan_s=0.2
        ) as mirror:
            mirror.scan(records)
            assert mirror.flush(FLUSH_S)
            stats = numbers(mirror)
    assert (stats["mirrored"], stats["failed"]) == (25, 0)
    assert expired.total() > 2
    assert mirrored_files(s3_place) == record_files(records)


def test_no_secret_is_told(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the log at its most talkative, nor errors, stats or receipts hold what the options keep secret."""
    secrets = ["very-secret-key", "very-secret-token", "AKIAVERYSECRET"]
    options = s3_place.options(via=s3_proxy.url) | {"key": secrets[2], "secret": secrets[0], "token": secrets[1]}
    echo = " ".join(f"{secret} x-amz-security-token={secret}" for secret in secrets)
    s3_proxy.script(
        Fault(action=Answer(s3_error(403, "AccessDenied", message=echo)), match=requests_to("PUT", "tr_"), times=3),
        Fault(action=Answer(s3_error(500, "InternalError", message=echo)), times=10),
    )
    caplog.set_level(logging.DEBUG, logger="mirror")
    mirror = RecordMirror(s3_place.url, storage_options=options, driver=s3_place.driver, backoff_s=0.01, rescan_s=0.2)
    mirror.start()
    mirror.scan(records)
    wait_until(lambda: numbers(mirror)["breaker"] == "refused")
    told = [caplog.text, repr(mirror.stats()), repr(mirror.config), repr(mirror), repr(mirror.left()), mirror.url]
    mirror.close(0.1)
    with mirror_to(s3_place) as again:
        again.scan(records)
        assert again.flush(FLUSH_S)
    told += [caplog.text, repr(receipts_in(s3_place))]
    told += [path.read_text() for path in (records / ".mirror").rglob("*") if path.is_file()]
    assert "x-amz-security-token=***" in told[0]  # what the store echoed was told, as far as it may be
    for text in told:
        for secret in [*secrets, ADMIN.secret_key]:
            assert secret not in text


@pytest.fixture(params=["obstore", "fsspec"])
def s3_place(request: pytest.FixtureRequest, s3_place: S3Place) -> S3Place:
    """A deep new prefix on the S3 server, by each of its drivers."""
    return replace(s3_place, driver=request.param)


def place_behind_proxy(request: pytest.FixtureRequest, kind: str) -> tuple[Place, FaultProxy]:
    store, _, driver = kind.partition("-")
    proxy: FaultProxy = request.getfixturevalue(f"{store}_proxy")
    server = request.getfixturevalue("seaweed" if store == "s3" else "fake_gcs")
    kind_of_place = S3Place if store == "s3" else GcsPlace
    bucket = shared_bucket(server, versioned=False)
    return kind_of_place(server, bucket, f"faults/{uuid.uuid4().hex}", driver=driver), proxy
