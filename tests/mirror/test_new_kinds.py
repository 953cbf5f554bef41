"""What a flush and a close owe to sidecars of kinds that nobody knew, also where their directory is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from mirror import RecordMirror
from mirror.errors import AccessDeniedError
from mirror.kinds import Kinds
from mirror.store import Data, Stored
from mirror.testing.stores import FaultyStore, MemoryStore, Moment
from tests.mirror.local_records import write_files
from tests.mirror.mirrors_in_memory import (
    assert_books_balance,
    eventually,
    mirror_on,
    on_disk,
    receipts_in,
    stalling,
)
from tests.mirror.moments import MOMENTS


@dataclass(frozen=True)
class Scene:
    """A mirror of a record that got a sidecar of a new kind once it was copied, which nobody has looked for yet."""

    records: Path
    aside: Path
    memory: MemoryStore
    mirror: RecordMirror

    def go_away(self) -> None:
        self.records.rename(self.aside)

    def come_back(self) -> None:
        self.aside.rename(self.records)

    @property
    def is_whole(self) -> bool:
        return self.memory.records == on_disk(self.records)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Nothing but a flush or a close looks for new kinds after the first copy."""
    monkeypatch.setattr("mirror.kinds.PAUSE", 1e9)
    monkeypatch.setattr("mirror.engine.FLUSH_EVERY_S", 0.01)
    records, memory = tmp_path / "records", MemoryStore()
    write_files(records, "tr_a", b"doc")
    mirror = mirror_on(memory, rescan_s=3600)
    mirror.submit(records, "tr_a")
    eventually(lambda: "tr_a" in receipts_in(memory))
    write_files(records, "tr_a", brand_new=b"x")
    yield Scene(records, tmp_path / "aside", memory, mirror)
    MOMENTS.forget()
    mirror.close(0)


@pytest.mark.parametrize("ask", [RecordMirror.flush, RecordMirror.close])
def test_one_that_is_away_for_a_moment_is_looked_at_when_it_is_back(
    scene: Scene, ask: Callable[[RecordMirror, float], bool]
) -> None:
    """Whoever waits does so for that moment, and the record is whole then."""
    scene.go_away()
    threading.Timer(0.2, scene.come_back).start()
    assert ask(scene.mirror, 30)
    assert scene.is_whole


@pytest.mark.parametrize("comes_back_first", [True, False])
def test_a_record_handed_over_while_it_is_away_is_late_and_not_lost(
    scene: Scene, caplog: pytest.LogCaptureFixture, *, comes_back_first: bool
) -> None:
    """It is copied once its directory is back, as soon as somebody waits."""
    assert scene.mirror.flush(30)
    scene.go_away()
    write_files(scene.aside, "tr_b", b"doc")
    for record_id in ("tr_a", "tr_b"):  # one is in the mirror, the other is not
        scene.mirror.submit(scene.records, record_id)
    eventually(lambda: scene.mirror.stats()["late"] == 2)
    if comes_back_first:
        scene.come_back()
    else:
        threading.Timer(0.2, scene.come_back).start()
    assert scene.mirror.flush(30)
    assert scene.mirror.stats()["failed"] == scene.mirror.stats()["lost"] == 0
    assert "lost" not in caplog.text
    assert_books_balance(scene.mirror)
    assert scene.is_whole


@pytest.mark.parametrize("ask", [RecordMirror.flush, RecordMirror.close])
def test_one_that_cannot_be_read_is_not_vouched_for(
    scene: Scene, caplog: pytest.LogCaptureFixture, ask: Callable[[RecordMirror, float], bool]
) -> None:
    """Whoever waits is told long before his time is over, and so is who asks afterwards."""
    scene.go_away()
    scene.records.symlink_to(scene.records)  # nobody can list it, whatever his rights
    assert not ask(scene.mirror, 1e6)
    assert not ask(scene.mirror, 0)
    assert f"cannot read the record directory {scene.records}: " in caplog.text
    scene.records.unlink()
    scene.come_back()
    with mirror_on(scene.memory) as again:
        again.scan(scene.records)
        assert again.flush(30)
    assert scene.is_whole


def test_a_close_without_time_to_look_is_not_complete(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """It says so, and the next start finds what it did not look for."""
    assert not scene.mirror.close(0)
    assert not scene.mirror.close()
    assert not scene.mirror.flush(0)
    assert f"sidecars of new kinds in {scene.records} did not take place" in caplog.text
    with mirror_on(scene.memory) as again:
        again.scan(scene.records)
        assert again.flush(30)
    assert scene.is_whole


def test_one_that_comes_back_later_is_completed_then(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it meanwhile."""
    monkeypatch.setattr("mirror.kinds.GONE_S", 0.01)
    scene.go_away()
    assert scene.mirror.flush()
    scene.come_back()
    assert scene.mirror.flush(30)
    assert scene.is_whole
    assert scene.mirror.close(0)


def test_a_busy_server_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much waits to be copied, a directory that cannot be read is looked for while somebody waits."""
    monkeypatch.setattr("mirror.engine.RETRY_S", 0.01)
    monkeypatch.setattr("mirror.engine.TICK_S", 0.01)
    records = tmp_path / "records"
    stall, fault = stalling()
    memory = MemoryStore()
    mirror = mirror_on(FaultyStore(memory, fault), queue_size=4, rescan_s=3600)
    mirror.submit(tmp_path / "absent", "tr_x")
    assert not mirror.flush()
    for number in range(4):
        write_files(records, f"tr_{number}", b"doc")
        mirror.submit(records, f"tr_{number}")
    with ThreadPoolExecutor(1) as thread:
        flushing = thread.submit(mirror.flush, 60)
        stall.reached.wait()
        write_files(tmp_path / "absent", "tr_x", b"doc")
        stall.released.happen()
        assert flushing.result()
    assert memory.records == on_disk(records) | on_disk(tmp_path / "absent")
    assert mirror.close(30)


def test_what_does_not_come_back_for_long_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once that a directory cannot be read, and then which records are lost; the books say so too."""
    monkeypatch.setattr("mirror.engine.RETRY_S", 0.01)
    monkeypatch.setattr("mirror.engine.TICK_S", 0.01)
    with mirror_on(MemoryStore(), rescan_s=0.01) as mirror:
        for record_id in ("tr_a", "tr_b"):
            mirror.submit(tmp_path / "absent", record_id)
        for _ in range(3):
            assert not mirror.flush()
        assert len(caplog.messages) == 1
        monkeypatch.setattr("mirror.unreadable.LOST_AFTER_S", 0.0)
        eventually(lambda: mirror.stats()["lost"] == 2)
        assert (mirror.stats()["failed"], mirror.stats()["late"]) == (2, 0)
        assert mirror.flush()
        assert_books_balance(mirror)
    assert sum("is lost" in message for message in caplog.messages) == 2


def test_nobody_waits_for_ever_for_one_that_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A flush ends, with False, as does a close long before its time is over; what comes back is copied."""
    monkeypatch.setattr("mirror.engine.RETRY_S", 0.01)
    monkeypatch.setattr("mirror.engine.TICK_S", 0.01)
    records = tmp_path / "records"
    memory = MemoryStore()
    with mirror_on(memory) as mirror:
        mirror.submit(records, "tr_a")
        assert not mirror.flush()
        assert mirror.drain()
        write_files(records, "tr_a", b"doc")
        assert mirror.flush(30)
        assert memory.records == on_disk(records)
        mirror.submit(tmp_path / "absent", "tr_a")
        assert not mirror.close(1e6)
        assert [left.record_id for left in mirror.left()] == ["tr_a"]
        assert f"what was handed over in {tmp_path / 'absent'} cannot be copied" in caplog.text


def test_a_record_deleted_with_everything_else_is_no_reason_to_wait(scene: Scene) -> None:
    """What is gone for good can lack nothing."""
    scene.go_away()
    assert scene.mirror.flush()
    assert scene.mirror.close(0)


def test_a_close_whose_time_ends_during_its_last_look_is_not_complete(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that look ends, with a find, while everything else is let go of."""
    looking, may_look, has_looked = Moment(), threading.Event(), threading.Event()
    recheck, aclose = Kinds.recheck, MemoryStore.aclose

    def slow(self: Kinds, directory: Path) -> set[str]:
        looking.happen()
        may_look.wait()
        found = recheck(self, directory)
        has_looked.set()
        return found

    async def closing(self: MemoryStore) -> None:
        may_look.set()
        has_looked.wait()
        await aclose(self)

    monkeypatch.setattr(Kinds, "recheck", slow)
    monkeypatch.setattr(MemoryStore, "aclose", closing)
    assert not scene.mirror.close(0.1)
    assert looking.happened
    assert not scene.mirror.close()
    assert not scene.is_whole


def test_who_closes_while_somebody_else_does_hears_nothing_that_is_not_certain(scene: Scene) -> None:
    """False, until the last look has taken place."""
    looking, may_look = Moment(), threading.Event()

    def look() -> None:
        looking.happen()
        may_look.wait()

    MOMENTS.before("os.listdir", "records", look)
    with ThreadPoolExecutor(1) as thread:
        closing = thread.submit(scene.mirror.close, 60)
        looking.wait()
        assert not scene.mirror.close(30)
        assert not scene.mirror.flush(30)
        assert not scene.mirror.drain(30)
        may_look.set()
        assert closing.result()
    assert scene.mirror.close()
    assert scene.mirror.flush(0)
    assert scene.is_whole


def test_what_a_flush_completed_needs_no_other_look(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """A close without any time is complete then, and has nothing to say."""
    caplog.set_level(logging.WARNING)
    assert scene.mirror.flush(30)
    assert scene.is_whole
    assert scene.mirror.close(0)
    assert caplog.text == ""


class ProbeDenied(MemoryStore):
    """A bucket that refuses to be probed, from a moment on, and takes everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.denies = Moment()

    async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
        if not data:
            await self.denies.awaited()
            raise AccessDeniedError("put", key, "access denied")
        return await super().put(key, data, xxh3_128)


@pytest.mark.parametrize("is_lacking", [False, True])
def test_a_store_that_refuses_everything_keeps_nobody_from_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_lacking: bool
) -> None:
    """A close is complete where nothing has to be sent any more, and else ends long before its time is over."""
    monkeypatch.setattr("mirror.kinds.PAUSE", 1e9)
    monkeypatch.setattr("mirror.engine.FLUSH_EVERY_S", 0.01)
    store = ProbeDenied()
    mirror = mirror_on(store)
    mirror.start()
    write_files(tmp_path, "tr_a", b"doc")
    mirror.submit(tmp_path, "tr_a")
    eventually(lambda: "tr_a" in receipts_in(store))
    if is_lacking:
        write_files(tmp_path, "tr_a", brand_new=b"x")
    store.denies.happen()
    eventually(lambda: mirror.stats()["breaker"] == "refused")
    assert mirror.close(1e6) is not is_lacking
