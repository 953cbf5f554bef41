"""A store that is slow, hangs, refuses or is away never delays or fails the server, and costs no record."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirror.config import MirrorConfig
from mirror.errors import (
    AccessDeniedError,
    CredentialsError,
    StoreError,
    StoreRefusedError,
    ThrottledError,
    TryAgainError,
)
from mirror.names import parse_name
from mirror.samples import write_corpus
from mirror.testing.faults import requests_to
from mirror.testing.stores import (
    FaultyStore,
    FlipBit,
    MemoryStore,
    Raise,
    Stall,
    StoreFault,
    StoreThenRaise,
)
from tests.mirror.local_records import state_of, write_files
from tests.mirror.mirrors_in_memory import (
    assert_books_balance,
    eventually,
    failing,
    is_record,
    mirror_on,
    on_disk,
    receipts_in,
    stalling,
)

DOWN = TryAgainError("put", "k", "connection refused")
DENIED = AccessDeniedError("put", "k", "access denied")
NO_BUCKET = StoreRefusedError("put", "k", "NoSuchBucket")


def lines(caplog: pytest.LogCaptureFixture, logger: str = "mirror.breaker") -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == logger]


def test_handing_over_returns_while_the_store_hangs(tmp_path: Path) -> None:
    """Every call of the store hangs for ever: the server notices nothing, and its files are untouched."""
    ids = write_corpus(tmp_path, profile="tiny", count=200, seed=1)
    before = {path.name: state_of(path) for path in tmp_path.glob("*.zst")}
    stall, fault = stalling(lambda *_: True)
    mirror = mirror_on(FaultyStore(MemoryStore(), fault))
    mirror.start()
    assert all(mirror.submit(tmp_path, record_id) for record_id in ids)
    stall.reached.wait()
    stats = mirror.stats()
    assert (stats["pending"], stats["failed"]) == (200, 0)
    assert not mirror.close(0)
    assert mirror.stats()["late"] == 200
    assert {path.name: state_of(path) for path in tmp_path.glob("*.zst")} == before


@pytest.mark.parametrize("error", [DOWN, NO_BUCKET, DENIED, CredentialsError("put", "k", "expired"), OSError("odd")])
def test_handing_over_never_raises_for_a_stores_sake(tmp_path: Path, error: Exception) -> None:
    """Whatever the store answers, for ever: a record is queued, the books balance, a close returns."""
    ids = write_corpus(tmp_path, profile="tiny", count=20, seed=1)
    fault = StoreFault(action=Raise(error=error), times=1_000_000)
    mirror = mirror_on(FaultyStore(MemoryStore(), fault), shutdown_timeout_s=0.05)
    for record_id in ids:
        assert mirror.submit(tmp_path, record_id)
    assert not mirror.flush(0.05)
    assert_books_balance(mirror)
    assert not mirror.close()
    assert_books_balance(mirror)
    assert mirror.stats()["mirrored"] == 0


def test_a_call_that_hangs_is_cancelled_and_the_record_copied(tmp_path: Path) -> None:
    """The timeout ends it for real; both are counted."""
    write_files(tmp_path, "tr_a", b"doc")
    memory = MemoryStore()
    stall = Stall()
    store = FaultyStore(memory, StoreFault(action=stall, match=is_record))
    with mirror_on(store, timeout_s=0.05) as mirror:
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        assert stall.cancelled.happened
        stats = mirror.stats()
        assert stats["timed_out"] >= 1
        assert stats["retried"] >= 1
        assert "no answer within" in str(stats["last_error"])
    stall.released.happen()
    assert memory.keys_put.count("tr_a.json.zst") == 1


def test_passing_failures_are_tried_again(tmp_path: Path) -> None:
    """A reset, a refusal to be fast and a lost reply cost attempts, which are counted, and no record."""
    write_files(tmp_path, "tr_a", b"doc")
    memory = MemoryStore()
    faults = (
        Raise(error=DOWN),
        Raise(error=ThrottledError("put", "k", "SlowDown", retry_after_s=0.01)),
        StoreThenRaise(error=DOWN),
    )
    store = FaultyStore(memory, *(StoreFault(action=fault, match=is_record) for fault in faults))
    with mirror_on(store, attempts=5) as mirror:
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        stats = mirror.stats()
        assert (stats["retried"], stats["mirrored"], stats["failed"]) == (3, 1, 0)
    assert memory.records == on_disk(tmp_path)


def test_a_flipped_bit_never_gets_a_receipt(tmp_path: Path) -> None:
    """The store refuses what does not match its hash, and the right bytes are sent."""
    write_files(tmp_path, "tr_a", b"doc", tokens=b"t")
    memory = MemoryStore()
    with mirror_on(FaultyStore(memory, StoreFault(action=FlipBit(), match=is_record, times=2))) as mirror:
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
    assert memory.records == on_disk(tmp_path)


def test_expired_credentials_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """All copies under way fail with the old ones; one refresh lets them through, and nobody is alarmed."""
    ids = write_corpus(tmp_path, profile="text", count=8, seed=1)
    memory = MemoryStore()
    expired = StoreFault(
        action=Raise(error=CredentialsError("put", "k", "ExpiredToken")),
        match=lambda operation, key: is_record(operation, key) and not memory.refreshes,
        times=1_000,
    )
    with mirror_on(FaultyStore(memory, expired)) as mirror:
        for record_id in ids:
            mirror.submit(tmp_path, record_id)
        assert mirror.flush(30)
    assert memory.refreshes == 1
    assert lines(caplog) == []


def test_an_outage_costs_time_and_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Work waits instead of failing, the log says so once and when it is over, and everything is copied then."""
    caplog.set_level(logging.INFO)
    ids = write_corpus(tmp_path, profile="tiny", count=100, seed=1)
    memory = MemoryStore()
    store = FaultyStore(memory, failing(DOWN))
    with mirror_on(store, queue_size=50) as mirror:
        for record_id in ids[:50]:
            mirror.submit(tmp_path, record_id)
        eventually(lambda: mirror.stats()["breaker"] == "open")
        for record_id in ids[50:]:
            mirror.submit(tmp_path, record_id)
        stats = mirror.stats()
        assert (stats["mirrored"], stats["failed"], stats["breaker_reason"]) == (0, 0, "connection refused")
        assert stats["pending"] + stats["late"] == 100
        calls = 1_000_000 - store.remaining
        assert calls <= 8 * 2 * 3  # workers, files, attempts: not one for every record that waits
        assert not mirror.flush(0.01)
        store.heal()
        assert mirror.flush(60)
        stats = mirror.stats()
        assert (stats["mirrored"], stats["failed"], stats["late"], stats["breaker"]) == (100, 0, 0, "closed")
    assert memory.records == on_disk(tmp_path)
    assert [level for level, _ in lines(caplog)] == ["WARNING", "INFO"]
    assert "connection refused" in lines(caplog)[0][1]
    assert "answers again" in lines(caplog)[1][1]


def test_what_became_late_in_an_outage_is_copied_by_the_same_process(tmp_path: Path) -> None:
    """Records whose attempts are used up are found again on disk as soon as the store is back."""
    first, *others = write_corpus(tmp_path, profile="tiny", count=10, seed=1)
    memory = MemoryStore()
    store = FaultyStore(memory)
    with mirror_on(store, attempts=1, rescan_s=3600.0) as mirror:
        mirror.scan(tmp_path)
        mirror.submit(tmp_path, first)
        assert mirror.flush(30)  # and no look is under way any more
        store.add(failing(DOWN))
        for record_id in others:
            write_files(tmp_path, record_id, b"again", tokens=b"again")
            mirror.submit(tmp_path, record_id)
        eventually(lambda: mirror.stats()["late"] > 0 and mirror.stats()["breaker"] == "open")
        store.heal()
        assert mirror.flush(60)
        assert_books_balance(mirror)
    assert memory.records == on_disk(tmp_path)


def test_a_close_looks_for_what_is_late_at_once(tmp_path: Path) -> None:
    """It is the last chance in this process, however far off the next look would be."""
    write_files(tmp_path, "tr_a", b"doc")
    memory = MemoryStore()
    store = FaultyStore(memory)
    mirror = mirror_on(store, attempts=1, rescan_s=3600.0)
    mirror.scan(tmp_path)
    assert mirror.flush(30)
    store.add(StoreFault(action=Raise(error=DOWN), match=is_record))
    write_files(tmp_path, "tr_a", b"again")
    mirror.submit(tmp_path, "tr_a")
    eventually(lambda: mirror.stats()["late"] == 1)
    assert mirror.close(30)
    assert memory.records == on_disk(tmp_path)


def test_a_close_does_not_wait_for_a_store_that_refuses_everything(tmp_path: Path) -> None:
    """Nothing would come of it until somebody acts: the records are on disk, for the next start."""
    write_files(tmp_path, "tr_a")
    mirror = mirror_on(FaultyStore(MemoryStore(), failing(NO_BUCKET)))
    mirror.submit(tmp_path, "tr_a")
    assert not mirror.close(1e6)
    assert mirror.stats()["breaker"] == "refused"
    assert mirror.stats()["late"] >= 1


@pytest.mark.parametrize("error", [NO_BUCKET, DENIED])
def test_a_store_that_refuses_everything_is_reported_once_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: StoreError
) -> None:
    """Before any record: loudly in the log, in the stats, and not again for each record; acting on it is enough."""
    ids = write_corpus(tmp_path, profile="tiny", count=20, seed=1)
    memory = MemoryStore()
    store = FaultyStore(memory, failing(error))
    mirror = mirror_on(store)
    mirror.start()
    eventually(lambda: mirror.stats()["breaker"] == "refused")
    for record_id in ids:
        mirror.submit(tmp_path, record_id)
    assert not mirror.flush(0.05)
    stats = mirror.stats()
    assert (stats["mirrored"], stats["failed"], stats["breaker_reason"]) == (0, 0, error.reason)
    assert [level for level, _ in lines(caplog)] == ["ERROR"]
    assert error.reason in lines(caplog)[0][1]
    assert lines(caplog, "mirror.engine") == []
    store.heal()
    assert mirror.flush(60)
    assert mirror.stats()["mirrored"] == 20
    assert mirror.close(30)


def test_a_denied_file_is_not_a_denied_store(tmp_path: Path) -> None:
    """One record that may not be written is given up; the breaker stays closed and the others go through."""
    ids = write_corpus(tmp_path, profile="tiny", count=10, seed=1)
    denied = failing(DENIED, requests_to("put", f"{ids[4]}.json.zst"))
    with mirror_on(FaultyStore(MemoryStore(), denied)) as mirror:
        for record_id in ids:
            mirror.submit(tmp_path, record_id)
        assert mirror.flush(30)
        stats = mirror.stats()
        assert (stats["mirrored"], stats["failed"], stats["breaker"]) == (9, 1, "closed")


def test_everything_denied_later_on_costs_no_record(tmp_path: Path) -> None:
    """A policy that changes while receipts wait to be flushed makes records wait, not fail."""
    (first,) = write_corpus(tmp_path, profile="tiny", count=1, seed=1)
    memory = MemoryStore()
    store = FaultyStore(memory)
    with mirror_on(store) as mirror:
        mirror.submit(tmp_path, first)
        eventually(lambda: mirror.stats()["mirrored"] == 1)
        store.add(failing(DENIED))
        write_corpus(tmp_path, profile="tiny", count=29, seed=2)
        mirror.scan(tmp_path)
        mirror.submit(tmp_path, first)
        assert not mirror.flush(2.5)  # long enough for a probe or two
        assert mirror.stats()["failed"] == 0
        store.heal()
        assert mirror.flush(60)
        assert_books_balance(mirror)
    assert memory.records == on_disk(tmp_path)


def test_no_reader_ever_sees_a_document_before_its_sidecars(tmp_path: Path) -> None:
    """Whatever fails on the way, whenever a document arrives everything that belongs to it is there."""
    ids = write_corpus(tmp_path, profile="tiny", count=60, seed=1)
    memory = MemoryStore()
    faults = [StoreFault(action=Raise(error=DOWN), match=requests_to("put", f"{i}.tokens")) for i in ids[::3]]
    faults += [StoreFault(action=StoreThenRaise(error=DOWN), match=requests_to("put", f"{i}.json")) for i in ids[::5]]
    with mirror_on(FaultyStore(memory, *faults)) as mirror:
        for record_id in ids:
            mirror.submit(tmp_path, record_id)
        assert mirror.flush(60)
    seen: set[str] = set()
    for key in memory.keys_put:
        seen.add(key)
        parsed = parse_name(key)
        if parsed is not None and parsed.kind is None:
            assert f"{parsed.record_id}.tokens.zst" in seen
    assert memory.records == on_disk(tmp_path)


def test_bytes_in_flight_and_requests_are_bounded(tmp_path: Path) -> None:
    """However much waits, only so much is read, and only so many requests are made at a time."""
    for number in range(30):
        write_files(tmp_path, f"tr_{number}", bytes(1000))
    stall, fault = stalling()
    memory = MemoryStore()
    store = FaultyStore(memory, fault)
    with mirror_on(store, workers=16, max_bytes_in_flight=4_500) as mirror:
        for number in range(30):
            mirror.submit(tmp_path, f"tr_{number}")
        eventually(lambda: 1_000_000 - store.remaining >= 4)
        assert not mirror.flush(0.05)
        assert 1_000_000 - store.remaining == 4
        stall.released.happen()
        assert mirror.flush(30)
    assert len(memory.records) == 30


def test_two_writers_of_one_directory_and_one_place(tmp_path: Path) -> None:
    """Several servers share both without knowing of each other: all is there, and each has receipts of its own."""
    memory = MemoryStore()
    with mirror_on(memory) as first, mirror_on(memory) as second:
        for mirror, record_id in ((first, "tr_first"), (second, "tr_second")):
            write_files(tmp_path, record_id)
            mirror.scan(tmp_path)
            assert mirror.flush(30)
        ids = write_corpus(tmp_path, profile="tiny", count=40, seed=1)
        for number, record_id in enumerate(ids):
            (first if number % 2 else second).submit(tmp_path, record_id)
        assert first.flush(30)
        assert second.flush(30)
        assert_books_balance(first)
        assert_books_balance(second)
    assert memory.records == on_disk(tmp_path)
    receipts = receipts_in(memory)
    assert set(receipts) == {*ids, "tr_first", "tr_second"}
    assert receipts["tr_first"].writer != receipts["tr_second"].writer


def test_no_secret_is_in_what_a_mirror_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Storage options are in no log line, no stats and no receipt."""
    caplog.set_level(logging.DEBUG)
    write_files(tmp_path, "tr_a")
    memory = MemoryStore()
    client = {"aws_session_token": "CANARY-3"}
    config = MirrorConfig(storage_options={"key": "CANARY-1", "secret": "CANARY-2", "client_kwargs": client})
    with mirror_on(FaultyStore(memory, failing(NO_BUCKET)), **config.as_mapping()) as mirror:
        mirror.submit(tmp_path, "tr_a")
        assert not mirror.flush(0.05)
        assert "CANARY" not in str(mirror.stats())
        assert not mirror.close(0)
    assert "CANARY" not in caplog.text
    assert "CANARY" not in repr(config)
    assert not any(b"CANARY" in data for data in memory.objects.values())
    assert not any(b"CANARY" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


ACTIONS = st.sampled_from(
    [Raise(error=DOWN), StoreThenRaise(error=DOWN), FlipBit(), Raise(error=ThrottledError("put", "k", "SlowDown"))]
)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(st.tuples(ACTIONS, st.integers(0, 9)), max_size=12), stop_after=st.none() | st.integers(0, 20))
def test_whatever_goes_wrong_in_the_end_everything_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, script: list[tuple[Raise, int]], stop_after: int | None
) -> None:
    """Any script of faults, and a close at any moment: after the next start mirror, receipts and disk agree."""
    records = tmp_path_factory.mktemp("records")
    ids = write_corpus(records, profile="tiny", count=10, seed=1)
    memory = MemoryStore()
    faults = [StoreFault(action=action, match=requests_to("put", ids[number])) for action, number in script]
    mirror = mirror_on(FaultyStore(memory, *faults), attempts=2, backoff_s=0.0)
    for number, record_id in enumerate(ids):
        mirror.submit(records, record_id)
        if number == stop_after:
            mirror.close(0)
    mirror.close(0 if stop_after else 30)
    assert_books_balance(mirror)
    with mirror_on(memory) as again:
        again.scan(records)
        assert again.flush(60)
        assert_books_balance(again)
    assert memory.records == on_disk(records)
    receipts = receipts_in(memory)
    assert set(receipts) == set(ids)
    infos = {put.key: put.stored.etag for put in memory.puts}
    for receipt in receipts.values():
        for file in receipt.files:
            assert file.etag == infos[file.name]
