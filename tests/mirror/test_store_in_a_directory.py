"""A mirror in a directory that others read while it is written, and whose file server may hang."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from mirror.errors import FileRefusedError
from mirror.store import WHOLE_BYTES, Store
from mirror.stores.leftovers import Leftovers
from mirror.stores.new_file import GivenUpError, NewFile
from mirror.stores.threads import DaemonThreads
from tests.mirror.fake_clock import FakeClock
from tests.mirror.mirrors_in_memory import eventually
from tests.mirror.places import DirectoryPlace
from tests.mirror.store_kinds import Kind, get, kind_of, put

pytestmark = pytest.mark.integration

KEY = "tr_1.tokens.zst"


@pytest.fixture
def mirror_dir(tmp_path: Path) -> Path:
    return tmp_path / "a" / "new" / "mirror"


@pytest.fixture
def kind(mirror_dir: Path) -> Kind:
    return kind_of(DirectoryPlace(mirror_dir))


def test_a_poller_never_sees_a_short_file(kind: Kind, mirror_dir: Path) -> None:
    """Whoever reads the final name all the time sees whole contents only, old or new, in one part or in many."""
    contents = [bytes([number]) * (1_000_000 + number) for number in range(20)]
    allowed = {(content[0], len(content)) for content in contents}
    large = WHOLE_BYTES + 1
    seen: set[tuple[int, int]] = set()
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            try:
                content = (mirror_dir / KEY).read_bytes()
            except FileNotFoundError:
                continue
            assert content.count(content[0]) == len(content)
            seen.add((content[0], len(content)))

    async def parts() -> AsyncIterator[bytes]:
        yield b"\xff" * WHOLE_BYTES
        yield b"\xff"

    async def use(store: Store) -> None:
        for content in contents:
            await put(store, KEY, content)
        await store.put_parts(KEY, parts, large)
        await asyncio.to_thread(wait_until_seen)

    def wait_until_seen() -> None:
        while (0xFF, large) not in seen and poller.is_alive():
            done.wait(0.01)

    poller = threading.Thread(target=poll)
    poller.start()
    try:
        kind.run(use)
    finally:
        done.set()
        poller.join()
    assert seen <= allowed | {(0xFF, large)}
    assert (0xFF, large) in seen


def test_copies_under_way_are_not_listed(kind: Kind, mirror_dir: Path) -> None:
    """The temporary files of other writers, dead or alive, are no objects of the mirror."""

    async def use(store: Store) -> None:
        await put(store, KEY, b"one")
        (mirror_dir / ".0123456789abcdef.tmp").write_bytes(b"left by a crash")
        assert [info.key async for page in store.list_pages() for info in page] == [KEY]

    kind.run(use)


def test_what_is_no_regular_file_is_no_object(kind: Kind, mirror_dir: Path, tmp_path: Path) -> None:
    """A link or a directory in an object's place is neither followed nor listed; a put replaces a link."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")

    async def use(store: Store) -> None:
        await put(store, KEY, b"one")
        (mirror_dir / "link.json.zst").symlink_to(secret)
        (mirror_dir / "directory.json.zst").mkdir()
        assert [info.key async for page in store.list_pages() for info in page] == [KEY]
        for name in ("link.json.zst", "directory.json.zst"):
            assert await store.stat(name) is None
            with pytest.raises(FileRefusedError):
                await get(store, name)
        await put(store, "link.json.zst", b"ours")
        assert await get(store, "link.json.zst") == b"ours"

    kind.run(use)
    assert secret.read_bytes() == b"secret"


def test_a_reader_that_stops_early_leaves_no_file_open(kind: Kind) -> None:
    """Reads that are given up half-way do not add up to open files."""

    async def use(store: Store) -> None:
        await put(store, KEY, bytes(10 << 20))
        for _ in range(50):
            async with aclosing(store.read(KEY)) as chunks:  # type: ignore[type-var] # an async generator
                assert await anext(chunks)
        await put(store, KEY, b"")  # behind the closes on the store's threads
        assert open_files().count(KEY) <= 16

    kind.run(use)


def open_files() -> list[str]:
    return [path.readlink().name for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]


def test_a_file_that_was_given_up_never_appears(tmp_path: Path) -> None:
    """What a hung file server writes after our deadline does not replace what a later attempt has written since."""
    target = tmp_path / "deep" / "tr_1.json.zst"
    late = NewFile(target, fsync=False)
    late.write(b"older")
    late.give_up()
    newer = NewFile(target, fsync=True)
    newer.write(b"new")
    newer.write(b"er")
    newer.publish()
    with pytest.raises(GivenUpError):
        late.write(b"still")
    with pytest.raises(GivenUpError):
        late.publish()
    late.discard()
    assert {path.name: path.read_bytes() for path in target.parent.iterdir()} == {"tr_1.json.zst": b"newer"}


def test_a_file_that_is_given_up_at_once_is_not_made(tmp_path: Path) -> None:
    """Discarding before, after or instead of any write leaves an empty directory."""
    NewFile(tmp_path / "tr_1.json.zst", fsync=False).discard()
    file = NewFile(tmp_path / "tr_2.json.zst", fsync=False)
    file.discard()
    with pytest.raises(GivenUpError):
        file.write(b"late")
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_call_that_waits_behind_a_hung_one_is_not_made_after_its_deadline() -> None:
    """Calls whose wait was cancelled before they began are never made, so that they hold nothing and change nothing."""
    hung = threading.Event()
    made: list[str] = []

    async def use() -> None:
        threads = DaemonThreads(1, "test")
        first = asyncio.create_task(threads.run(hung.wait))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(threads.run(made.append, "too late"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        last = asyncio.create_task(threads.run(made.append, "in time"))
        hung.set()
        await asyncio.gather(first, last)
        threads.close()

    asyncio.run(use())
    assert made == ["in time"]


LEFT = ".0123456789abcdef01234567.tmp"  # what a file is called that was being written when its process was killed
DAYS_2 = 2 * 86_400


def leave(folder: Path, name: str = LEFT, *, age_s: float = DAYS_2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(b"half")
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_what_killed_writers_left_is_removed_by_the_next_writer(kind: Kind, mirror_dir: Path) -> None:
    """Once it is older than a day: beside the records, beside every writer's receipts, and beside the step indexes."""
    folders = [mirror_dir, mirror_dir / "_receipts" / "dead-1", mirror_dir / "index" / "train"]
    old = [leave(folder) for folder in folders]
    young = [leave(folder, ".fedcba9876543210fedcba98.tmp", age_s=80_000) for folder in folders]

    async def use(store: Store) -> None:
        await put(store, "_receipts/live-1/00000000.jsonl", b"")
        await asyncio.to_thread(eventually, lambda: not any(path.exists() for path in old))

    kind.run(use)
    assert all(path.exists() for path in young)


def test_nothing_else_is_removed(kind: Kind, mirror_dir: Path, tmp_path: Path) -> None:
    """No other dot-file, nothing of that name that is no file, nothing behind a link, and nothing further down."""
    elsewhere = leave(tmp_path / "elsewhere")
    kept = [
        elsewhere,
        leave(mirror_dir, ".tr_1.json.zst.tmp"),
        leave(mirror_dir, ".0123456789ABCDEF01234567.tmp"),
        leave(mirror_dir, ".0123456789abcdef01234567"),
        leave(mirror_dir, "0123456789abcdef01234567.tmp"),
        leave(mirror_dir, f"{LEFT}.json.zst"),
        leave(mirror_dir / ".hidden"),
        leave(mirror_dir / "somebody" / "elses" / "tree"),
    ]
    directory = mirror_dir / ".aaaaaaaaaaaaaaaaaaaaaaaa.tmp"
    directory.mkdir()
    link = mirror_dir / ".bbbbbbbbbbbbbbbbbbbbbbbb.tmp"
    link.symlink_to(elsewhere)
    for path in (directory, link):
        os.utime(path, (time.time() - DAYS_2,) * 2, follow_symlinks=False)
    (mirror_dir / "linked").symlink_to(elsewhere.parent)
    ours = [leave(mirror_dir), leave(mirror_dir / "_receipts" / "dead-1")]

    async def use(store: Store) -> None:
        await put(store, KEY, b"one")
        await asyncio.to_thread(eventually, lambda: not any(path.exists() for path in ours))

    kind.run(use)
    assert all(path.exists() for path in kept)
    assert directory.is_dir()
    assert link.is_symlink()


def test_a_reader_removes_nothing(kind: Kind, mirror_dir: Path) -> None:
    """Who only looks leaves everything as it is."""
    old = leave(mirror_dir)
    (mirror_dir / KEY).write_bytes(b"one")

    async def use(store: Store) -> None:
        assert await get(store, KEY) == b"one"
        assert [info.key async for page in store.list_pages() for info in page] == [KEY]

    kind.run(use)
    assert old.exists()


def test_the_file_servers_clock_says_what_is_old(tmp_path: Path) -> None:
    """A file server that lives in another year than this machine: only its own times are compared."""
    old, young = leave(tmp_path, age_s=-3 * DAYS_2), leave(tmp_path, ".fedcba9876543210fedcba98.tmp", age_s=DAYS_2 * 9)

    async def use() -> None:
        leftovers = Leftovers(tmp_path)
        leftovers.wrote(leave(tmp_path, "behind", age_s=DAYS_2 * 9))
        await leftovers.aclose()
        assert (old.exists(), young.exists()) == (True, True)
        leftovers = Leftovers(tmp_path)
        leftovers.wrote(leave(tmp_path, "ahead", age_s=-4 * DAYS_2))
        await asyncio.to_thread(eventually, lambda: not (old.exists() or young.exists()))
        await leftovers.aclose()

    asyncio.run(use())


def test_leftovers_are_looked_for_once_a_day(tmp_path: Path) -> None:
    """However many files are written in between."""
    clock = FakeClock()

    async def use() -> None:
        leftovers = Leftovers(tmp_path, clock=clock)
        written = leave(tmp_path, "now", age_s=0)
        first = leave(tmp_path)
        leftovers.wrote(written)
        await asyncio.to_thread(eventually, lambda: not first.exists())
        second = leave(tmp_path)
        clock.now += 86_399
        leftovers.wrote(written)
        clock.now += 1
        assert second.exists()
        leftovers.wrote(written)
        await asyncio.to_thread(eventually, lambda: not second.exists())
        await leftovers.aclose()

    asyncio.run(use())


def test_leftovers_that_cannot_be_removed_cost_a_line_for_the_curious(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A mirror that has gone meanwhile: nothing is raised, and nothing is said to who does not ask."""
    caplog.set_level("DEBUG", "mirror")

    async def use() -> None:
        leftovers = Leftovers(tmp_path / "gone")
        leftovers.wrote(tmp_path / "gone" / KEY)
        await asyncio.to_thread(eventually, lambda: caplog.records)
        await leftovers.aclose()

    asyncio.run(use())
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
