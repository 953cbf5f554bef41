"""Threads, event loops, forks and exits: a mirror works in each, or is out of the way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mirror import RecordMirror
from mirror.names import document_name
from mirror.samples import write_corpus
from mirror.testing.stores import WAIT_S, FaultyStore, MemoryStore
from tests.mirror.forks import in_child
from tests.mirror.local_records import write_files
from tests.mirror.mirrors_in_memory import assert_books_balance, eventually, mirror_on, on_disk, stalling

ROOT = Path(__file__).parents[2]


def test_many_threads_may_hand_over_and_ask(tmp_path: Path) -> None:
    """Every call may come from any thread: nothing is lost, sent twice or raised.

    A record that a look finds before it is handed over counts as found and as handed over.
    """
    ids = write_corpus(tmp_path, profile="tiny", count=240, seed=1)
    memory = MemoryStore()
    failures: list[BaseException] = []

    def serve(mine: list[str]) -> None:
        try:
            for record_id in mine:
                mirror.submit(tmp_path, record_id)
                assert mirror.locate(tmp_path, record_id)["files"][-1] == f"{record_id}.json.zst"
                assert_books_balance(mirror)
        except BaseException as error:  # noqa: BLE001 - for the test's own thread
            failures.append(error)

    with mirror_on(memory, queue_size=50) as mirror:
        threads = [threading.Thread(target=serve, args=(ids[start::8],)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert mirror.flush(60)
        stats = mirror.stats()
        assert stats["mirrored"] == stats["submitted"] >= 240
        assert stats["files"] == 480
    assert memory.records == on_disk(tmp_path)


def test_closing_while_others_hand_over_keeps_the_books(tmp_path: Path) -> None:
    """Whatever comes before, during and after a close is mirrored or late, and the answers say which."""
    ids = write_corpus(tmp_path, profile="tiny", count=200, seed=1)
    memory = MemoryStore()
    mirror = mirror_on(memory)
    began = threading.Event()

    def serve(mine: list[str]) -> None:
        for record_id in mine:
            mirror.submit(tmp_path, record_id)
            began.set()

    threads = [threading.Thread(target=serve, args=(ids[start::4],)) for start in range(4)]
    for thread in threads:
        thread.start()
    began.wait()
    closers = [threading.Thread(target=mirror.close, args=(30,)) for _ in range(3)]
    for thread in closers:
        thread.start()
    for thread in [*threads, *closers]:
        thread.join()
    stats, late = mirror.stats(), {left.record_id for left in mirror.left()}
    assert stats["submitted"] >= 200  # a record that it finds on disk and is handed over after that counts twice
    assert stats["mirrored"] + stats["late"] == stats["submitted"]
    assert mirror.close() == (stats["late"] == 0)
    mirrored = {record_id for record_id in ids if document_name(record_id) in memory.records}
    assert mirrored | late == set(ids)


def test_one_mirror_serves_two_event_loops_in_a_row(tmp_path: Path) -> None:
    """It has a loop of its own; those of the server come and go."""
    memory = MemoryStore()
    mirror = mirror_on(memory)

    async def serve(record_id: str) -> bool:
        write_files(tmp_path, record_id)
        return mirror.submit(tmp_path, record_id) and await asyncio.to_thread(mirror.flush, 30)

    assert asyncio.run(serve("tr_a"))
    assert asyncio.run(serve("tr_b"))
    assert mirror.close(30)
    assert memory.records == on_disk(tmp_path)


def test_a_mirror_may_be_made_and_closed_inside_a_running_loop(tmp_path: Path) -> None:
    """Its methods block the caller at most for what they promise, and need no loop of the caller's."""
    write_files(tmp_path, "tr_a")
    memory = MemoryStore()

    async def serve() -> bool:
        with mirror_on(memory) as mirror:
            mirror.submit(tmp_path, "tr_a")
            return mirror.flush(30)

    assert asyncio.run(serve())
    assert memory.records == on_disk(tmp_path)


def test_a_child_of_a_fork_has_a_working_mirror_of_its_own(tmp_path: Path) -> None:
    """It begins with empty books, copies what it hands over and closes; the parent notices nothing of it."""
    parents, childs = tmp_path / "parent", tmp_path / "child"
    write_files(parents, "tr_a")
    memory = MemoryStore()
    stall, fault = stalling()
    mirror = mirror_on(FaultyStore(memory, fault))
    mirror.submit(parents, "tr_a")
    stall.reached.wait()

    def work() -> bool:
        began_empty = mirror.stats()["submitted"] == 0 and mirror.flush(0)
        write_files(childs, "tr_b")
        stall.released.happen()  # in the child's memory
        queued = mirror.submit(childs, "tr_b")
        return began_empty and queued and mirror.close(WAIT_S) and memory.records == on_disk(childs)

    assert in_child(work)
    assert memory.records == {}
    assert mirror.stats()["pending"] == 1
    stall.released.happen()
    assert mirror.flush(30)
    assert memory.records == on_disk(parents)
    assert mirror.close(30)


def test_a_child_that_only_ends_is_not_held_up(tmp_path: Path) -> None:
    """A process forked for something else exits as if there were no mirror, and may close it all the same."""
    write_files(tmp_path, "tr_a")
    stall, fault = stalling()
    mirror = mirror_on(FaultyStore(MemoryStore(), fault))
    mirror.submit(tmp_path, "tr_a")
    stall.reached.wait()
    assert in_child(lambda: True)
    assert in_child(mirror.close)
    stall.released.happen()
    assert mirror.close(30)


def test_a_fork_while_threads_hand_over_leaves_no_lock_behind(tmp_path: Path) -> None:
    """Whatever another thread of the parent was in the middle of, the child's mirror works."""
    write_files(tmp_path, "tr_a")
    memory = MemoryStore()
    mirror = mirror_on(memory)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            mirror.submit(tmp_path, "tr_a")
            mirror.stats()

    threads = [threading.Thread(target=serve) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert in_child(lambda: mirror.submit(tmp_path, "tr_a") and mirror.flush(WAIT_S) and mirror.close(WAIT_S))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert mirror.flush(30)
    assert mirror.close(30)


SERVER = """
import sys
from pathlib import Path
from mirror.testing.stores import FaultyStore, MemoryStore
from tests.mirror.mirrors_in_memory import mirror_on, stalling

records, what = Path(sys.argv[1]), sys.argv[2]
stall, fault = stalling(lambda *_: True)
store = FaultyStore(MemoryStore(), fault) if what == "hanging" else MemoryStore()
mirror = mirror_on(store)
mirror.start()
for path in records.glob("*.json.zst"):
    mirror.submit(records, path.name.removesuffix(".json.zst"))
if what == "hanging":
    stall.reached.wait()
if what == "raising":
    raise SystemExit(7)
"""


LATE = """
import atexit, sys
from mirror import RecordMirror
mirror = RecordMirror(sys.argv[2])
atexit.register(lambda: print(mirror.submit(sys.argv[1], "tr_a"), mirror.flush(60), mirror.close(60)))
"""


def test_a_record_that_is_handed_over_while_the_interpreter_ends_is_copied(tmp_path: Path) -> None:
    """Also the first one, with which the mirror's work begins."""
    write_files(tmp_path / "records", "tr_a")
    command = [sys.executable, "-c", LATE, str(tmp_path / "records"), str(tmp_path / "m")]
    ended = subprocess.run(command, cwd=ROOT, timeout=WAIT_S, check=True, capture_output=True, text=True)  # noqa: S603 - our own interpreter and script
    assert (ended.stdout, ended.stderr) == ("True True True\n", "")
    assert (tmp_path / "m" / "tr_a.json.zst").exists()


@pytest.mark.parametrize(("what", "code"), [("hanging", 0), ("working", 0), ("raising", 7)])
def test_an_interpreter_that_exits_without_a_close_neither_hangs_nor_complains(
    tmp_path: Path, what: str, code: int
) -> None:
    """The thread is no reason to stay, and nothing is written to the console at the end."""
    write_corpus(tmp_path, profile="tiny", count=20, seed=1)
    ended = subprocess.run(  # noqa: S603 - our own interpreter and script
        [sys.executable, "-c", SERVER, str(tmp_path), what],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (code, "", "")


def test_what_an_exit_left_the_next_start_copies(tmp_path: Path) -> None:
    """Into a directory, by real processes: whatever the first one managed, the second one completes."""
    records, place = tmp_path / "records", tmp_path / "mirror"
    write_corpus(records, profile="tiny", count=60, seed=1)
    script = (
        "import sys\nfrom pathlib import Path\nfrom mirror import RecordMirror\n"
        "mirror = RecordMirror(sys.argv[2], fsync=False)\n"
        "for path in Path(sys.argv[1]).glob('*.json.zst'):\n"
        "    mirror.submit(sys.argv[1], path.name.removesuffix('.json.zst'))\n"
    )
    subprocess.run([sys.executable, "-c", script, str(records), str(place)], cwd=ROOT, timeout=WAIT_S, check=True)  # noqa: S603 - our own interpreter and script
    with RecordMirror(place, fsync=False) as mirror:
        mirror.scan(records)
        assert mirror.flush(60)
    assert on_disk(place) == on_disk(records)


def test_no_thread_is_left_after_a_close(tmp_path: Path) -> None:
    """Neither that of the loop nor those that look at the disk."""
    before = set(threading.enumerate())
    write_corpus(tmp_path / "records", profile="tiny", count=20, seed=1)
    with RecordMirror(tmp_path / "mirror", fsync=False) as mirror:
        mirror.scan(tmp_path / "records")
        assert mirror.flush(30)
        assert set(threading.enumerate()) - before
    eventually(lambda: set(threading.enumerate()) <= before, "the end of every thread")
