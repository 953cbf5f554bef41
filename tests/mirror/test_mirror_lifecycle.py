"""How a mirror begins and ends, in one process, in forked ones, and in those that just exit; and who may call it."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest

from mirror import RecordMirror
from mirror.names import KNOWN_KINDS
from mirror.samples import write_corpus, write_record
from mirror.testing import Fault, FaultProxy, Hang, requests_to
from tests.mirror.places import DirectoryPlace, S3Place, mirror_to, mirrored_files, record_files

pytestmark = pytest.mark.integration

FLUSH_S = 60.0  # far more than any flush here takes


@pytest.fixture
def hanging(s3_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """A store that accepts everything and answers no write."""
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT"), times=1_000_000))
    yield s3_proxy
    s3_proxy.clear()


@pytest.fixture
def records(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    write_corpus(directory, profile="tiny", count=20, seed=1)
    return directory


def ids_in(directory: Path) -> list[str]:
    return sorted(path.name.removesuffix(".json.zst") for path in directory.glob("*.json.zst"))


def write(directory: Path, record_id: str) -> None:
    write_record(directory, record_id, profile="tiny", rng=random.Random(record_id))  # noqa: S311 - sample data


def run_script(script: str, *arguments: object, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own, which fails the test if it does not end."""
    return subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def test_a_store_that_hangs_never_holds_up_a_server(s3_place: S3Place, hanging: FaultProxy, records: Path) -> None:
    """Whatever a server calls returns while nothing gets through, thousands of times over; no record is touched."""
    before = record_files(records)
    mirror = mirror_to(s3_place, via=hanging.url, queue_size=1_000)
    mirror.start()
    for number in range(5_000):
        mirror.submit(records, f"tr_{number}")
    for record_id in ids_in(records):
        mirror.submit(records, record_id)
        assert mirror.locate(records, record_id)["files"]
    stats = mirror.stats()
    assert stats["submitted"] == 5_020
    assert stats["mirrored"] == 0
    mirror.close(0)
    assert record_files(records) == before


def test_a_close_that_runs_out_of_time_names_what_is_left_and_the_next_start_copies_it(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """``close`` waits no longer than it may, says False and which records, and loses none of them."""
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT"), times=1_000_000))
    mirror = mirror_to(s3_place, via=s3_proxy.url)
    for record_id in ids_in(records):
        mirror.submit(records, record_id)
    assert not mirror.close(0.3)
    assert not mirror.close()
    stats = mirror.stats()
    assert (stats["submitted"], stats["late"], stats["pending"]) == (20, 20, 0)
    (said,) = [line.getMessage() for line in caplog.records if "closed with" in line.getMessage()]
    assert all(record_id in said for record_id in ids_in(records))
    assert not mirror.submit(records, "tr_after")
    s3_proxy.clear()
    with mirror_to(s3_place, via=s3_proxy.url) as again:
        write(records, "tr_new")
        again.submit(records, "tr_new")  # the rest is found beside it
        assert again.flush(FLUSH_S)
        assert again.stats()["mirrored"] == 21
    assert mirrored_files(s3_place) == record_files(records)


def test_a_close_drains_what_waits_and_what_is_late(s3_place: S3Place, s3_proxy: FaultProxy, records: Path) -> None:
    """What was handed over is in the mirror when ``close`` says True, also what the queue had no room for."""
    s3_proxy.latency_s = 0.05
    mirror = mirror_to(s3_place, via=s3_proxy.url, queue_size=3, workers=2)
    for record_id in ids_in(records):
        mirror.submit(records, record_id)
    assert mirror.stats()["late"] > 0
    assert mirror.close(FLUSH_S)
    stats = mirror.stats()
    assert (stats["submitted"], stats["mirrored"], stats["late"]) == (20, 20, 0)
    assert mirrored_files(s3_place) == record_files(records)


def test_a_mirror_that_did_nothing_closes_at_once(s3_place: S3Place, hanging: FaultProxy) -> None:
    """Neither making nor closing a mirror contacts anybody."""
    mirror = mirror_to(s3_place, via=hanging.url)
    assert mirror.flush()
    assert mirror.close()
    assert hanging.requests == []


def test_flush_waits_for_the_receipts_too(s3_place: S3Place, records: Path) -> None:
    """After a flush the mirror itself says what it holds, without the mirror being closed."""
    with mirror_to(s3_place) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        segments = [content for key, content in s3_place.objects().items() if key.startswith("_receipts/") and content]
        assert sum(content.count(b"\n") for content in segments) == 20


def test_a_process_that_exits_without_closing_neither_hangs_nor_loses(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path
) -> None:
    """The interpreter ends while copies are under way; the next start brings the rest."""
    s3_proxy.script(Fault(action=Hang(), match=requests_to("PUT", ".json.zst"), times=7))
    script = """
        import json, sys
        from mirror import RecordMirror
        url, options, records = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
        mirror = RecordMirror(url, storage_options=options)
        mirror.scan(records)
        print(mirror.flush(1.0))
        sys.exit(7)
    """
    ended = run_script(script, s3_place.url, json.dumps(s3_place.options(via=s3_proxy.url)), records)
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "False\n", "")
    s3_proxy.clear()
    with mirror_to(s3_place, via=s3_proxy.url) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
    assert mirrored_files(s3_place) == record_files(records)


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_a_forked_childs_mirror_works_and_the_parents_goes_on(
    request: pytest.FixtureRequest, kind: str, tmp_path: Path, records: Path
) -> None:
    """After a fork in the middle of the work both processes copy what they are given, and each has its own books."""
    place = DirectoryPlace(tmp_path / "mirror") if kind == "directory" else request.getfixturevalue("s3_place")
    script = """
        import json, os, sys, warnings
        from pathlib import Path
        from mirror import RecordMirror
        url, options, records = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
        ids = sorted(path.name.removesuffix(".json.zst") for path in Path(records).glob("*.json.zst"))
        mirror = RecordMirror(url, storage_options=options)
        for record_id in ids[:10]:
            mirror.submit(records, record_id)
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads: the point
        child = os.fork()
        if not child:
            before = mirror.stats()["submitted"]
            for record_id in ids[10:]:
                mirror.submit(records, record_id)
            good = before == 0 and mirror.flush(60) and mirror.close(60)
            os._exit(0 if good else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(status, mirror.flush(60), mirror.close(60))
    """
    ended = run_script(script, place.url, json.dumps(place.options()), records)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0 True True\n", "", 0)
    assert mirrored_files(place) == record_files(records)


def test_any_thread_and_any_event_loop_may_call(s3_place: S3Place, records: Path) -> None:
    """Two event loops in a row, with calls from their own threads, and many threads at a time use one mirror."""
    ids = ids_in(records)
    with mirror_to(s3_place) as mirror:

        async def serve(some: list[str]) -> None:
            for record_id in some:
                assert mirror.submit(records, record_id)
                await asyncio.sleep(0)
            assert await asyncio.to_thread(mirror.flush, FLUSH_S)

        asyncio.run(serve(ids[:5]))
        asyncio.run(serve(ids[5:10]))
        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(lambda record_id: mirror.submit(records, record_id), ids[10:] * 20))
        assert mirror.flush(FLUSH_S)
        stats = mirror.stats()
    assert stats["submitted"] == stats["mirrored"] == 10 + 10 * 20
    assert mirrored_files(s3_place) == record_files(records)


def test_the_books_balance_under_any_interleaving(s3_place: S3Place, s3_proxy: FaultProxy, records: Path) -> None:
    """Submitting from many threads while others look and one closes: what was submitted is accounted for throughout."""
    mirror = mirror_to(s3_place, via=s3_proxy.url, queue_size=7)
    ids = ids_in(records)
    done = threading.Event()
    wrong: list[object] = []

    def watch() -> None:
        while not done.is_set():
            stats = mirror.stats()
            if stats["submitted"] != stats["mirrored"] + stats["failed"] + stats["late"] + stats["pending"]:
                wrong.append(stats)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(8) as threads:
            submits = [threads.submit(mirror.submit, records, record_id) for record_id in ids * 50]
            submits[300].result()
            threads.submit(mirror.close, 0.2)
    finally:
        done.set()
        watcher.join()
    mirror.close(0)
    assert not wrong
    stats = mirror.stats()
    assert 0 <= stats["submitted"] - len(submits) < len(ids)  # a look may find one before it is handed over
    assert stats["pending"] == 0


def test_existing_servers_call_it_as_they_always_did(tmp_path: Path, records: Path) -> None:
    """The names that servers and configurations in use have go on working."""
    url = str(tmp_path / "mirror")
    mirror = RecordMirror(
        url,
        exclude=("experts",),
        workers=4,
        queue_size=100,
        timeout=30.0,
        attempts=3,
        backoff=0.1,
        shutdown_timeout=5.0,
        storage_options=None,
    )
    record_id = ids_in(records)[0]
    assert mirror.submit(str(records), record_id) is True
    assert mirror.names(str(records), record_id) == [f"{record_id}.tokens.zst", f"{record_id}.json.zst"]
    assert mirror.uri("x.json.zst") == f"file://{url}/x.json.zst"
    assert mirror.close(timeout=None) is True
    assert {"mirrored", "failed", "timed_out", "retried", "pending"} <= mirror.stats().keys()
    again = RecordMirror.from_config(
        url, {"timeout": 30, "backoff": 0.1, "shutdown_timeout": 5, "exclude": ["experts"]}
    )
    assert (again.config.timeout_s, again.config.exclude) == (30.0, ("experts",))


def test_a_new_kind_in_a_large_directory_is_not_left_behind(s3_place: S3Place, tmp_path: Path) -> None:
    """A kind that appears for the first time just after a look at a directory's many names still arrives."""
    records = tmp_path / "records"
    write(records, "tr_first")
    for number in range(20_000):  # so many names that a listing of them is not repeated for each record
        (records / f".{number}.tmp").touch()
    with mirror_to(s3_place) as mirror:
        mirror.submit(records, "tr_first")
        assert mirror.flush(FLUSH_S)
        (records / "tr_second.thoughts.zst").write_bytes(b"a kind of tomorrow")
        write(records, "tr_second")
        assert "thoughts" not in KNOWN_KINDS
        mirror.submit(records, "tr_second")
        assert mirror.flush(FLUSH_S)
    assert mirrored_files(s3_place) == record_files(records)


def test_closing_ends_a_scan_that_waits_for_room(s3_place: S3Place, hanging: FaultProxy, records: Path) -> None:
    """A thread that has a directory looked through while nothing gets through is let go by a close."""
    mirror = mirror_to(s3_place, via=hanging.url, queue_size=2)
    mirror.start()
    with ThreadPoolExecutor(1) as threads:
        scan = threads.submit(mirror.scan, records)
        while mirror.stats()["pending"] < 2:
            assert not scan.done()
        assert not mirror.close(0.2)
        assert isinstance(scan.exception(FLUSH_S), CancelledError)


@pytest.mark.parametrize("wait", ["", "mirror.flush(0.05)", "mirror.flush(60)", "mirror.close(60)"])
def test_a_process_may_end_at_any_moment_of_a_copy(s3_place: S3Place, records: Path, wait: str) -> None:
    """Whatever is under way in the store's client: an exit is an exit, never a crash of the interpreter."""
    script = f"""
    import json, sys
    from mirror import RecordMirror
    url, options, records = json.loads(sys.argv[1])
    mirror = RecordMirror(url, storage_options=options)
    mirror.scan(records)
    {wait}
    """
    arguments = json.dumps([s3_place.url, s3_place.options(), str(records)])
    for _ in range(5):
        ended = run_script(script, arguments)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_scan_that_a_close_cut_short_does_not_pass_for_a_whole_one(
    s3_place: S3Place, s3_proxy: FaultProxy, records: Path
) -> None:
    """Where the close finds time to copy what was queued, the scan that could not queue the rest says so."""
    s3_proxy.latency_s = 0.3
    mirror = mirror_to(s3_place, via=s3_proxy.url, queue_size=2)
    mirror.start()
    with ThreadPoolExecutor(1) as threads:
        scan = threads.submit(mirror.scan, records)
        while mirror.stats()["pending"] < 2:
            assert not scan.done()
        assert mirror.close(FLUSH_S)
        assert isinstance(scan.exception(FLUSH_S), CancelledError)
    assert mirror.stats()["mirrored"] < len(ids_in(records))


def test_a_kind_that_was_missed_is_found_by_the_next_start(s3_place: S3Place, records: Path) -> None:
    """A sidecar of an unknown kind that an earlier process did not see is copied by the next look at the directory."""
    with mirror_to(s3_place) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
    (records / f"{ids_in(records)[3]}.thoughts.zst").write_bytes(b"a kind of tomorrow")
    with mirror_to(s3_place) as mirror:
        mirror.scan(records)
        assert mirror.flush(FLUSH_S)
        assert mirror.stats()["files"] == 1
    assert mirrored_files(s3_place) == record_files(records)
