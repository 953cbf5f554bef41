"""What a server sees of its mirror: it hands records over, is told where they are, and closes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import xxhash

from mirror import ConfigError, MirrorConfig, RecordMirror, locate
from mirror.address import node_address
from mirror.background import NAMED
from mirror.errors import FileRefusedError, TryAgainError
from mirror.samples import write_corpus, write_litter
from mirror.store import Data, Stored
from mirror.testing.faults import requests_to
from mirror.testing.stores import FaultyStore, MemoryStore, Raise, StoreFault
from tests.mirror.local_records import replace_file, write_files
from tests.mirror.mirrors_in_memory import (
    URL,
    assert_books_balance,
    eventually,
    failing,
    is_receipt,
    mirror_on,
    on_disk,
    receipts_in,
    stalling,
)

DOWN = TryAgainError("put", "k", "connection refused")
ENDLESS = 20_000  # records


def test_a_finished_record_is_copied_and_receipted(tmp_path: Path) -> None:
    """Handed over, it is soon in the mirror byte for byte, with a receipt there and beside it."""
    names = write_files(tmp_path, "tr_a", b"doc", tokens=b"t")
    memory = MemoryStore()
    with mirror_on(memory) as mirror:
        assert mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        assert memory.records == on_disk(tmp_path)
        receipt = receipts_in(memory)["tr_a"]
        assert [file.name for file in receipt.files] == names
        assert receipt.host == "10.0.0.5"
        assert receipt.path == str(tmp_path / "tr_a.json.zst")
        stats = mirror.stats()
        assert (stats["submitted"], stats["mirrored"], stats["files"], stats["bytes"]) == (1, 1, 2, 4)
    assert list((tmp_path / ".mirror").rglob("*.jsonl")) != []


def test_many_records_of_several_directories_are_copied(tmp_path: Path) -> None:
    """One mirror takes the records of every directory that a server writes."""
    memory = MemoryStore()
    ids = {name: write_corpus(tmp_path / name, profile="tiny", count=40, seed=1, prefix=f"{name}_") for name in "abc"}
    with mirror_on(memory) as mirror:
        for name, record_ids in ids.items():
            for record_id in record_ids:
                assert mirror.submit(str(tmp_path / name), record_id)
        assert mirror.flush(30)
        assert_books_balance(mirror)
        assert mirror.stats()["mirrored"] == 120
    assert memory.records == {**on_disk(tmp_path / "a"), **on_disk(tmp_path / "b"), **on_disk(tmp_path / "c")}
    assert len(receipts_in(memory)) == 120


def test_a_flush_waits_for_what_was_handed_over_before_it_alone(tmp_path: Path) -> None:
    """A server that never pauses does not keep it from ending: each record here brings the next one."""
    stop = threading.Event()

    class Endless(MemoryStore):
        """A store in whose every copy another record is handed over."""

        async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
            number = int(key[3:11]) + 1 if key.startswith("tr_") else ENDLESS
            if number < ENDLESS and not stop.is_set():
                write_files(tmp_path, f"tr_{number:08}", b"doc")
                mirror.submit(tmp_path, f"tr_{number:08}")
            return await super().put(key, data, xxh3_128)

    memory = Endless()
    write_files(tmp_path, "tr_00000000", b"doc")
    with mirror_on(memory) as mirror:
        mirror.submit(tmp_path, "tr_00000000")
        assert mirror.flush(60)
        assert "tr_00000000" in receipts_in(memory)
        last = int(max(memory.records)[3:11])
        stop.set()
    assert last < ENDLESS - 1


def test_what_an_earlier_process_left_is_found_with_the_first_record(tmp_path: Path) -> None:
    """A restarted server need not know what is missing: the disk does; litter is no record."""
    write_corpus(tmp_path, profile="tiny", count=30, seed=1)
    records = on_disk(tmp_path)
    write_litter(tmp_path)
    write_files(tmp_path, "tr_new", b"doc")
    memory = MemoryStore()
    with mirror_on(memory) as mirror:
        mirror.submit(tmp_path, "tr_new")
        eventually(lambda: mirror.stats()["mirrored"] == 31)
        assert mirror.flush(30)
    assert memory.records == {**records, "tr_new.json.zst": b"doc"}


def test_a_scan_copies_what_is_missing_and_says_what_is_not(tmp_path: Path) -> None:
    """The first finds everything, the second that it is there, without a single write."""
    write_corpus(tmp_path, profile="tiny", count=30, seed=1)
    memory = MemoryStore()
    with mirror_on(memory) as mirror:
        looked = mirror.scan(tmp_path)
        assert (looked.records, looked.files) == (0, 0)
        assert mirror.flush(30)
        assert mirror.stats()["mirrored"] == 30
    puts = len(memory.puts)
    with mirror_on(memory) as mirror:
        looked = mirror.scan(tmp_path)
        assert (looked.records, looked.files) == (30, 60)
        assert mirror.flush(30)
        assert mirror.stats()["submitted"] == 0
        assert mirror.stats()["unchanged"] == 30
    assert [key for key in memory.keys_put[puts:] if not key.startswith("_receipts/")] == []


def test_a_scan_of_nothing_is_an_error(tmp_path: Path) -> None:
    """A directory that is not there is not an empty one."""
    with mirror_on(MemoryStore()) as mirror, pytest.raises(FileNotFoundError):
        mirror.scan(tmp_path / "absent")


def test_a_record_written_again_is_copied_again(tmp_path: Path) -> None:
    """Mirror and receipt end as the newer generation; a touch alone copies nothing."""
    memory = MemoryStore()
    with mirror_on(memory) as mirror:
        write_files(tmp_path, "tr_a", b"open", tokens=b"one")
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        write_files(tmp_path, "tr_a", b"done", tokens=b"two")
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        assert memory.records == on_disk(tmp_path)
        for file in receipts_in(memory)["tr_a"].files:
            assert file.xxh3_128 == xxhash.xxh3_128_hexdigest(memory.objects[file.name])
        puts = len(memory.records)
        for path in tmp_path.glob("*.zst"):
            os.utime(path)
        sent = mirror.stats()["files"]
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        assert mirror.stats()["files"] == sent
        assert len(memory.records) == puts


def test_excluded_kinds_stay_at_home_and_new_kinds_do_not(tmp_path: Path) -> None:
    """What the settings exclude is in no mirror and in no answer; a kind that nobody knew is in both."""
    write_files(tmp_path, "tr_a", b"doc", experts=b"e", brand_new=b"n")
    memory = MemoryStore()
    with mirror_on(memory, exclude=["experts"]) as mirror:
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        assert sorted(memory.records) == ["tr_a.brand_new.zst", "tr_a.json.zst"]
        assert mirror.names(tmp_path, "tr_a") == ["tr_a.brand_new.zst", "tr_a.json.zst"]
        assert receipts_in(memory)["tr_a"].excluded == ("experts",)


def test_a_kind_that_appears_while_records_are_copied_is_completed(tmp_path: Path) -> None:
    """Whatever a listing had missed when a record was copied is in the mirror when everything counts as copied."""
    memory = MemoryStore()
    with mirror_on(memory) as mirror:
        for number in range(20):
            write_files(tmp_path, f"tr_{number}", b"doc", **{f"kind{number}": b"x"})
            mirror.submit(tmp_path, f"tr_{number}")
        assert mirror.flush(30)
        assert memory.records == on_disk(tmp_path)
    for record_id, receipt in receipts_in(memory).items():
        kind = record_id.replace("tr_", "kind")
        assert [file.name for file in receipt.files] == [f"{record_id}.{kind}.zst", f"{record_id}.json.zst"]


def test_a_close_waits_for_a_kind_that_appeared_late(tmp_path: Path) -> None:
    """Also with a full queue and at the last moment: no document is left without a sidecar that lies beside it."""
    memory = MemoryStore()
    mirror = mirror_on(memory, queue_size=1)
    for number in range(20):
        write_files(tmp_path, f"tr_{number}", b"doc", **{f"kind{number}": b"x"})
        mirror.submit(tmp_path, f"tr_{number}")
    assert mirror.close(60)
    assert memory.records == on_disk(tmp_path)


def test_a_flush_waits_for_a_kind_of_what_it_finds_by_itself(tmp_path: Path) -> None:
    """A record that the first look finds may be under way without its kind when the directory is listed once more."""

    class Held(MemoryStore):
        """A store in which copies take long, and one of whose records gets a sidecar of a new kind meanwhile."""

        async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
            if key == "tr_new.json.zst":
                flushed.append(flushing.submit(mirror.flush, 30))
            elif key == "tr_old.json.zst" and not (tmp_path / "tr_old.brand_new.zst").exists():
                write_files(tmp_path, "tr_old", brand_new=b"x")
            if not key.startswith("_receipts/"):
                await asyncio.sleep(0.2)  # what a flush is to wait for
            return await super().put(key, data, xxh3_128)

    write_files(tmp_path, "tr_old", b"doc")
    write_files(tmp_path, "tr_new", b"doc")
    flushed: list[Future[bool]] = []
    memory = Held()
    with ThreadPoolExecutor(1) as flushing, mirror_on(memory, queue_size=1) as mirror:
        mirror.submit(tmp_path, "tr_new")
        eventually(lambda: flushed)
        assert flushed[0].result()
        assert memory.records == on_disk(tmp_path)


def test_flushes_at_once_owe_the_same(tmp_path: Path) -> None:
    """Whichever of them finds that a record lacks a sidecar of a new kind, none ends before it is there."""
    for number in range(500):
        (tmp_path / f"litter_{number}.tokens.zst").touch()  # so that listing takes a while, and is not done every time
    memory = MemoryStore()
    with ThreadPoolExecutor(6) as threads, mirror_on(memory) as mirror:
        for number in range(30):
            names = write_files(tmp_path, f"tr_{number}", b"doc", **{f"kind{number}": b"x"})
            mirror.submit(tmp_path, f"tr_{number}")

            def missing(_thread: int, names: list[str] = names) -> set[str]:
                assert mirror.flush(30)
                return set(names).difference(memory.objects)

            assert list(threads.map(missing, range(6))) == [set()] * 6


def test_a_server_is_told_at_once_where_a_record_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host, path, URI and files, whatever the store does, whether or not the record was handed over."""
    write_files(tmp_path / "records", "tr_a", b"doc", tokens=b"t", experts=b"e")
    monkeypatch.chdir(tmp_path)
    stall, fault = stalling()
    mirror = mirror_on(FaultyStore(MemoryStore(), fault), exclude=["experts"])
    mirror.submit("records", "tr_a")
    stall.reached.wait()
    assert mirror.locate("records", "tr_a") == {
        "host": "10.0.0.5",
        "path": str(tmp_path / "records" / "tr_a.json.zst"),
        "mirror": f"{URL}/tr_a.json.zst",
        "files": ["tr_a.tokens.zst", "tr_a.json.zst"],
    }
    assert mirror.uri("tr_a.tokens.zst") == f"{URL}/tr_a.tokens.zst"
    assert mirror.names(tmp_path / "records", "tr_b") == []
    assert not mirror.close(0)


def test_without_a_mirror_a_record_is_where_it_was_written(tmp_path: Path) -> None:
    """No URI, and every file on disk."""
    write_files(tmp_path, "tr_a", b"doc", tokens=b"t", brand_new=b"n")
    assert locate(tmp_path, "tr_a", host="10.0.0.7") == {
        "host": "10.0.0.7",
        "path": str(tmp_path / "tr_a.json.zst"),
        "mirror": None,
        "files": ["tr_a.brand_new.zst", "tr_a.tokens.zst", "tr_a.json.zst"],
    }
    assert locate(tmp_path, "tr_a", host="127.0.0.1")["host"] == node_address()
    assert locate(tmp_path, "tr_a")["host"] == node_address()


def test_asking_where_a_record_is_never_waits_for_a_large_directory(tmp_path: Path) -> None:
    """With a mirror or without one: what is known of the kinds there is the answer, and more is learned meanwhile."""
    write_files(tmp_path, "tr_a", b"doc", tokens=b"t", brand_new=b"n")
    for number in range(3_000):
        (tmp_path / f"tr_{number}.tokens.zst").touch()
    known = ["tr_a.tokens.zst", "tr_a.json.zst"]
    everything = ["tr_a.brand_new.zst", *known]
    mirror = mirror_on(MemoryStore())
    assert mirror.names(tmp_path, "tr_a") in (known, everything)
    eventually(lambda: mirror.names(tmp_path, "tr_a") == everything)
    eventually(lambda: locate(tmp_path, "tr_a")["files"] == everything)


@pytest.mark.parametrize(("bound", "host"), [("127.0.0.1", "10.0.0.5"), ("10.9.9.9", "10.0.0.5"), (None, "10.0.0.5")])
def test_a_set_host_is_every_records_host(tmp_path: Path, bound: str | None, host: str) -> None:
    """Whatever a server is bound to, the setting says how others reach the node."""
    assert mirror_on(MemoryStore()).locate(tmp_path, "tr_a", host=bound)["host"] == host


@pytest.mark.parametrize(("bound", "host"), [("[fd00::5]", "fd00::5"), ("0.0.0.0", None), ("node-7", "node-7")])  # noqa: S104 - not bound
def test_a_servers_own_address_is_its_records_host(tmp_path: Path, bound: str, host: str | None) -> None:
    """Without a setting it is what the server is bound to, if others can reach that."""
    assert mirror_on(MemoryStore(), host=None).locate(tmp_path, "tr_a", host=bound)["host"] == (host or node_address())


def test_a_full_queue_makes_records_late_and_the_same_process_copies_them(tmp_path: Path) -> None:
    """What does not fit is not queued now, is found again on disk, and counts once."""
    ids = write_corpus(tmp_path, profile="tiny", count=60, seed=1)
    memory = MemoryStore()
    stall, fault = stalling()
    with mirror_on(FaultyStore(memory, fault), queue_size=5) as mirror:
        queued = [mirror.submit(tmp_path, record_id) for record_id in ids]
        assert 5 <= sum(queued) < 60
        stats = mirror.stats()
        assert stats["late"] > 0
        assert stats["late_names"] != []
        assert_books_balance(mirror)
        stall.released.happen()
        assert mirror.flush(60)
        stats = mirror.stats()
        assert (stats["submitted"], stats["mirrored"], stats["late"], stats["pending"]) == (60, 60, 0, 0)
    assert memory.records == on_disk(tmp_path)


def test_a_record_whose_file_is_gone_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """That alone is a loss: it is said, counted as failed, and named."""
    write_files(tmp_path, "tr_a")
    with mirror_on(MemoryStore()) as mirror:
        mirror.submit(tmp_path, "tr_gone")
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        stats = mirror.stats()
        assert (stats["mirrored"], stats["failed"], stats["lost"]) == (1, 1, 1)
    assert "'tr_gone' is lost" in caplog.text


def test_a_late_record_whose_file_is_gone_is_lost_too(tmp_path: Path) -> None:
    """Waiting for a store that is away does not hide that somebody deleted the record."""
    stall, fault = stalling()
    with mirror_on(FaultyStore(MemoryStore(), fault), queue_size=1) as mirror:
        for record_id in ("tr_a", "tr_b"):
            write_files(tmp_path, record_id)
            mirror.submit(tmp_path, record_id)
        (tmp_path / "tr_b.json.zst").unlink()
        stall.released.happen()
        assert mirror.flush(30)
        stats = mirror.stats()
        assert (stats["mirrored"], stats["failed"], stats["lost"]) == (1, 1, 1)


def test_a_record_deleted_after_its_copy_is_not_lost(tmp_path: Path) -> None:
    """Handed over once more when its receipt is there and its file is not, it is in the mirror."""
    write_files(tmp_path, "tr_a")
    with mirror_on(MemoryStore()) as mirror:
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        (tmp_path / "tr_a.json.zst").unlink()
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        assert (mirror.stats()["mirrored"], mirror.stats()["lost"]) == (2, 0)


def test_a_record_that_is_receipted_in_the_mirror_alone_may_be_deleted(tmp_path: Path) -> None:
    """The disk was full when it was copied: a later mirror finds it, a prune deletes it first, and nothing is lost."""
    memory = MemoryStore()
    write_files(tmp_path, "tr_a")
    with mirror_on(memory) as mirror:
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
    shutil.rmtree(tmp_path / ".mirror")
    write_files(tmp_path, "tr_b")
    stall, fault = stalling()
    with mirror_on(FaultyStore(memory, fault), workers=1) as mirror:
        mirror.submit(tmp_path, "tr_b")
        mirror.scan(tmp_path)
        (tmp_path / "tr_a.json.zst").unlink()
        stall.released.happen()
        assert mirror.flush(30)
        stats = mirror.stats()
        assert (stats["mirrored"], stats["failed"], stats["lost"]) == (2, 0, 0)


def test_a_refused_file_fails_alone_and_is_tried_again_when_it_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One record is given up with one line that names it; the others go on; a newer generation gets its chance."""
    ids = write_corpus(tmp_path, profile="tiny", count=10, seed=1)
    refused = ids[3]
    bad = f"{refused}.json.zst"
    memory = MemoryStore()
    refusal = Raise(error=FileRefusedError("put", bad, "KeyTooLong"))
    store = FaultyStore(memory, StoreFault(action=refusal, match=requests_to("put", bad), times=1_000))
    with mirror_on(store) as mirror:
        for record_id in ids:
            mirror.submit(tmp_path, record_id)
        assert mirror.flush(30)
        mirror.scan(tmp_path)
        assert mirror.flush(30)
        stats = mirror.stats()
        assert (stats["submitted"], stats["mirrored"], stats["failed"]) == (10, 9, 1)
        assert bad not in memory.objects
        assert [left.record_id for left in mirror.left()] == [refused]
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 1
        assert refused in errors[0]
        assert "KeyTooLong" in errors[0]
        store.heal()
        replace_file(tmp_path / bad, b"shorter")
        mirror.scan(tmp_path)
        assert mirror.flush(30)
        assert memory.objects[bad] == b"shorter"
        assert mirror.left() == []


@pytest.mark.parametrize("change", [Path.unlink, Path.touch])
def test_a_record_that_a_look_copied_before_it_went_counts_once(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """It may be deleted as soon as it is in the mirror, also before its server hands it over; a touch is no change."""
    write_files(tmp_path, "tr_a")
    with mirror_on(MemoryStore()) as mirror:
        mirror.scan(tmp_path)
        assert mirror.flush(30)
        change(tmp_path / "tr_a.json.zst")
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
        stats = mirror.stats()
        assert (stats["submitted"], stats["mirrored"], stats["lost"]) == (1, 1, 0)


@pytest.mark.parametrize("record_id", ["a\nb", "a\0b", "../a", "a" * 300])
def test_a_name_that_is_refused_fails_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, record_id: str
) -> None:
    """Whatever a server hands over as an id: it is said once, on one line, and is no bug."""
    with mirror_on(MemoryStore()) as mirror:
        mirror.submit(tmp_path, record_id)
        assert mirror.flush(30)
        assert mirror.stats()["failed"] == 1
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 1
    assert errors[0].getMessage().isprintable()
    assert errors[0].exc_info is None


def test_a_bug_costs_one_record_and_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What no store answers is a mistake of ours: its traceback is logged, and the next record goes on."""
    for record_id in ("tr_a", "tr_b"):
        write_files(tmp_path, record_id)
    bug = StoreFault(action=Raise(error=TypeError("a mistake")), match=requests_to("put", "tr_a"))
    with mirror_on(FaultyStore(MemoryStore(), bug)) as mirror:
        for record_id in ("tr_a", "tr_b"):
            mirror.submit(tmp_path, record_id)
        assert mirror.flush(30)
        assert (mirror.stats()["mirrored"], mirror.stats()["failed"]) == (1, 1)
    assert "a bug kept 'tr_a' from being copied" in caplog.text
    assert any(record.exc_info for record in caplog.records)


def test_flush_waits_for_everything_and_gives_up_in_time(tmp_path: Path) -> None:
    """False while something is missing, be it a record or its receipt; True when all is there."""
    write_files(tmp_path, "tr_a")
    memory = MemoryStore()
    stall, fault = stalling()
    receipts, receipt_fault = stalling(is_receipt)
    with mirror_on(FaultyStore(memory, fault, receipt_fault)) as mirror:
        assert mirror.flush(30)
        mirror.submit(tmp_path, "tr_a")
        assert not mirror.flush(0.01)
        stall.released.happen()
        receipts.reached.wait()
        assert not mirror.flush(0.01)
        receipts.released.happen()
        assert mirror.flush(30)
        assert set(receipts_in(memory)) == {"tr_a"}


def test_a_close_drains(tmp_path: Path) -> None:
    """Everything handed over before it is in the mirror, late records included."""
    ids = write_corpus(tmp_path, profile="tiny", count=50, seed=1)
    memory = MemoryStore()
    mirror = mirror_on(memory, queue_size=10)
    for record_id in ids:
        mirror.submit(tmp_path, record_id)
    assert mirror.close(30)
    assert memory.records == on_disk(tmp_path)
    assert len(receipts_in(memory)) == 50
    assert memory.closes == 1
    assert mirror.stats()["mirrored"] == 50


def test_a_close_that_runs_out_of_time_names_what_is_left_and_the_next_start_copies_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """False, with names; the local records are untouched; nothing that was copied is sent again."""
    ids = write_corpus(tmp_path, profile="tiny", count=NAMED + 10, seed=1)
    before = on_disk(tmp_path)
    memory = MemoryStore()
    _, fault = stalling(lambda operation, key: operation == "put" and any(i in key for i in ids[5:]))
    mirror = mirror_on(FaultyStore(memory, fault), workers=64)
    for record_id in ids:
        mirror.submit(tmp_path, record_id)
    eventually(lambda: mirror.stats()["mirrored"] == 5)
    assert not mirror.close(0.01)
    assert on_disk(tmp_path) == before
    stats = mirror.stats()
    assert (stats["mirrored"], stats["late"], stats["pending"]) == (5, NAMED + 5, 0)
    (line,) = [record.getMessage() for record in caplog.records if "closed with" in record.getMessage()]
    assert f"closed with {NAMED + 5} records not in the mirror yet" in line
    assert sum(record_id in line for record_id in ids[5:]) == NAMED
    assert len(mirror.left()) == NAMED + 5
    sent = len(memory.records)
    with mirror_on(memory) as again:
        again.scan(tmp_path)
        assert again.flush(30)
    assert memory.records == before
    assert len([key for key in memory.keys_put if not key.startswith("_receipts/")]) == len(before)
    assert sent >= 10


def test_a_close_without_the_last_receipts_is_not_complete(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Records without receipts in the mirror are not proven there: the next start brings them, without the records."""
    write_files(tmp_path, "tr_a")
    memory = MemoryStore()
    mirror = mirror_on(FaultyStore(memory, failing(DOWN, is_receipt)))
    mirror.submit(tmp_path, "tr_a")
    eventually(lambda: mirror.stats()["mirrored"] == 1)
    assert not mirror.close(0.01)
    assert not mirror.close()
    assert "receipts" in caplog.text
    with mirror_on(memory) as again:
        again.scan(tmp_path)
        assert again.flush(30)
    assert set(receipts_in(memory)) == {"tr_a"}
    assert memory.keys_put.count("tr_a.json.zst") == 1


def test_a_closed_mirror_takes_nothing_and_raises_nothing(tmp_path: Path) -> None:
    """Handed over later, a record is late, in the books and in the answer of another close; asking still works."""
    write_files(tmp_path, "tr_a")
    mirror = mirror_on(MemoryStore())
    mirror.submit(tmp_path, "tr_a")
    assert mirror.close(30)
    assert mirror.close(30)
    assert mirror.flush(0)
    write_files(tmp_path, "tr_b")
    assert not mirror.submit(tmp_path, "tr_b")
    assert not mirror.close(30)
    assert not mirror.flush(0)
    assert mirror.drain(0)
    mirror.start()
    stats = mirror.stats()
    assert (stats["submitted"], stats["mirrored"], stats["late"], stats["pending"]) == (2, 1, 1, 0)
    assert stats["late_names"] == ["tr_b"]
    assert mirror.locate(tmp_path, "tr_b")["mirror"] == f"{URL}/tr_b.json.zst"
    with pytest.raises(CancelledError):
        mirror.scan(tmp_path)


def test_a_mirror_that_did_nothing_closes(tmp_path: Path) -> None:
    """Whoever never started it has nothing to wait for; what comes afterwards starts nothing."""
    memory = MemoryStore()
    mirror = mirror_on(memory)
    assert mirror.flush(0)
    assert mirror.close()
    assert not mirror.submit(tmp_path, "tr_a")
    with pytest.raises(CancelledError):
        mirror.scan(tmp_path)
    assert memory.calls == []


def test_leaving_the_block_closes(tmp_path: Path) -> None:
    """Also when something else went wrong in it."""
    write_files(tmp_path, "tr_a")
    memory = MemoryStore()
    with contextlib.suppress(ZeroDivisionError), mirror_on(memory) as mirror:
        mirror.submit(tmp_path, "tr_a")
        raise ZeroDivisionError
    assert memory.records == on_disk(tmp_path)
    assert memory.closes == 1


def test_one_directory_mirrored_to_two_places_is_in_both(tmp_path: Path) -> None:
    """What is in the first says nothing about the second."""
    write_files(tmp_path, "tr_a")
    first, second = MemoryStore(), MemoryStore()
    with mirror_on(first) as mirror:
        mirror.submit(tmp_path, "tr_a")
        assert mirror.flush(30)
    with RecordMirror("s3://bucket/other", open_store=second.opened) as mirror:
        mirror.scan(tmp_path)
        assert mirror.flush(30)
    assert second.records == on_disk(tmp_path)


def test_the_stats_have_every_key_before_anything_happened() -> None:
    """A page that shows them need not ask if there is something."""
    stats = mirror_on(MemoryStore()).stats()
    assert stats["url"] == URL
    assert stats["breaker"] == "closed"
    assert stats["lag_s"] == 0.0
    for key in ("submitted", "mirrored", "failed", "late", "pending", "timed_out", "retried", "lost", "bytes", "files"):
        assert stats[key] == 0
    assert stats["last_error"] is None


def test_the_lag_is_the_age_of_the_oldest_record_on_its_way(tmp_path: Path) -> None:
    """More than nothing while one waits, nothing when all are there."""
    write_files(tmp_path, "tr_a")
    stall, fault = stalling()
    with mirror_on(FaultyStore(MemoryStore(), fault)) as mirror:
        mirror.submit(tmp_path, "tr_a")
        stall.reached.wait()
        eventually(lambda: mirror.stats()["lag_s"] > 0)
        stall.released.happen()
        assert mirror.flush(30)
        assert mirror.stats()["lag_s"] == 0


def test_existing_servers_call_it_as_they_always_did(tmp_path: Path) -> None:
    """The older names of options and the older call of close are taken."""
    write_files(tmp_path, "tr_a", b"doc", tokens=b"t")
    memory = MemoryStore()
    mirror = RecordMirror(
        URL,
        exclude=("experts",),
        workers=4,
        queue_size=10,
        timeout=30,
        attempts=2,
        backoff=0.1,
        shutdown_timeout=5,
        storage_options=None,
        open_store=memory.opened,
    )
    assert mirror.config == MirrorConfig(
        exclude=("experts",),
        workers=4,
        queue_size=10,
        timeout_s=30.0,
        attempts=2,
        backoff_s=0.1,
        shutdown_timeout_s=5.0,
    )
    assert mirror.submit(str(tmp_path), "tr_a") is True
    assert mirror.names(str(tmp_path), "tr_a") == ["tr_a.tokens.zst", "tr_a.json.zst"]
    assert mirror.uri("tr_a.json.zst") == f"{URL}/tr_a.json.zst"
    assert mirror.close(timeout=30) is True
    assert {"mirrored", "failed", "timed_out", "retried", "pending"} <= mirror.stats().keys()


@pytest.mark.parametrize(
    ("url", "options", "sentence"),
    [
        (URL, {"worker": 4}, "did you mean 'workers'"),
        (URL, {"exclude": "experts"}, "must be a list"),
        (URL, {"workers": "4"}, "whole number"),
        (URL, {"host": "a b"}, "host must be an address"),
        ("", {}, "names nothing"),
        ("s3:///x", {}, "names no bucket"),
        ("nosuch://x", {}, "no store is known for nosuch://"),
        ("simplecache::s3://x", {}, "neither"),
    ],
)
def test_a_wrong_setting_is_refused_at_construction(url: str, options: dict[str, object], sentence: str) -> None:
    """In one sentence, before anything runs or is contacted, however the settings came."""
    with pytest.raises(ConfigError, match=sentence):
        RecordMirror.from_config(url, options)
    with pytest.raises(ConfigError, match=sentence):
        RecordMirror(url, **options)  # type: ignore[arg-type] # the point


def test_a_store_whose_package_is_missing_says_what_to_install() -> None:
    """The sentence has the command, or what fsspec says of the package."""
    with pytest.raises(ConfigError, match=r"needs a package that is not installed.*install") as caught:
        RecordMirror("sftp://host/x")
    assert "\n" not in str(caught.value)


def test_making_a_mirror_contacts_nothing(tmp_path: Path) -> None:
    """Only a start or the first record does."""
    memory = MemoryStore()
    mirror = mirror_on(memory)
    mirror.locate(tmp_path, "tr_a")
    mirror.stats()
    assert memory.calls == []


def test_the_log_of_a_quiet_run_is_quiet(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has to read anything while all goes well."""
    caplog.set_level(logging.INFO)
    write_corpus(tmp_path, profile="tiny", count=20, seed=1)
    with mirror_on(MemoryStore()) as mirror:
        mirror.scan(tmp_path)
        assert mirror.flush(30)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("mirror")] == []
