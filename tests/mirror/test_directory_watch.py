"""A record directory is watched by events where they work, and by looking where they do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import watchfiles

from mirror import MirrorConfig, RecordMirror
from mirror.directory_watch import CALM, PAUSE, DirectoryWatch, EventsSeen, Schedule
from mirror.names import document_name
from tests.mirror.local_records import write_files

SECOND_NS = 1_000_000_000
HOUR_S = 3_600.0
NEVER_S = 300.0  # longer than a test
WAIT_S = 60.0


class Watching:
    """A mirror, and watches whose threads end with the test."""

    def __init__(self, mirror: Path) -> None:
        self._mirror_dir = mirror
        self.mirror = RecordMirror(mirror, MirrorConfig(fsync=False, rescan_s=HOUR_S))
        self._watches: list[DirectoryWatch] = []

    def watch(self, directory: Path, *, poll: bool = False, include: tuple[str, ...] = (), tick_s: float = 0.1) -> None:
        """Start watching."""
        made = DirectoryWatch(self.mirror, directory, rescan_s=HOUR_S, poll=poll, include=include, tick_s=tick_s)
        self._watches.append(made)
        made.start()

    def write_until_noticed(self, directory: Path) -> None:
        """Write one record after another until one of them arrives: from then on changes are noticed."""
        for number in range(int(WAIT_S / 0.2)):
            write_files(directory, f"tr_try{number}")
            time.sleep(0.2)
            if list(self._mirror_dir.glob("tr_try*")):
                return
        raise AssertionError("no change is noticed")

    def wait_for(self, *record_ids: str) -> None:
        """Wait until these records are in the mirror."""
        self.until(lambda: all((self._mirror_dir / document_name(one)).exists() for one in record_ids))

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline, f"it did not come to pass: {self.mirror.stats()}"
            time.sleep(0.02)

    def close(self) -> None:
        """Stop."""
        for watch in self._watches:
            watch.stop()
        self.mirror.close(10)


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    made = Watching(tmp_path / "mirror")
    yield made
    made.close()


def test_new_and_rewritten_records_are_noticed_by_events(watching: Watching, tmp_path: Path) -> None:
    """What is there at the start, what appears, and what is written again, long before the next look."""
    records = tmp_path / "records"
    write_files(records, "tr_before")
    watching.watch(records, tick_s=NEVER_S)
    watching.wait_for("tr_before")
    watching.write_until_noticed(records)
    write_files(records, "tr_after", tokens=b"t")
    watching.wait_for("tr_after")
    write_files(records, "tr_after", b"other", tokens=b"t")
    watching.until(lambda: (tmp_path / "mirror" / document_name("tr_after")).read_bytes() == b"other")


def test_a_directory_that_is_not_there_yet_is_waited_for(
    watching: Watching, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once; when the directory comes, it is watched; likewise when it is replaced by another."""
    records = tmp_path / "records"
    watching.watch(records)
    watching.until(lambda: "waiting for the record directory" in caplog.text)
    write_files(records, "tr_a")
    watching.wait_for("tr_a")
    records.rename(tmp_path / "old")
    write_files(records, "tr_b")
    watching.wait_for("tr_b")
    write_files(records, "tr_c")
    watching.wait_for("tr_c")
    waits = [record for record in caplog.records if "waiting for the record directory" in record.message]
    assert 1 <= len(waits) <= 2


def test_polling_needs_no_events(watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the directory is enough."""
    monkeypatch.setattr(watchfiles, "watch", None)
    records = tmp_path / "records"
    write_files(records, "tr_a")
    watching.watch(records, poll=True)
    watching.wait_for("tr_a")
    write_files(records, "tr_b")
    watching.wait_for("tr_b")


def test_where_events_do_not_come_looking_takes_over(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a network file system nothing fails and no event comes: the directory's change gives it away."""

    def silent(*_paths: Path, stop_event: threading.Event, **_options: object) -> Iterator[set[object]]:
        yield set()
        stop_event.wait()

    monkeypatch.setattr(watchfiles, "watch", silent)
    records = tmp_path / "records"
    write_files(records, "tr_a")
    watching.watch(records)
    watching.wait_for("tr_a")
    watching.write_until_noticed(records)
    write_files(records, "tr_b")
    watching.wait_for("tr_b")
    assert [record.message for record in caplog.records if "looked at every" in record.message] == [
        f"no file-system events arrive in {records}: it is looked at every 0.1 s instead"
    ]


def test_where_events_are_refused_looking_takes_over(
    watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The system's limit of watches is reached: records are copied all the same."""

    def refused(*_paths: Path, **_options: object) -> Iterator[set[object]]:
        raise OSError("OS file watch limit reached")
        yield from ()

    monkeypatch.setattr(watchfiles, "watch", refused)
    records = tmp_path / "records"
    write_files(records, "tr_a")
    watching.watch(records)
    watching.wait_for("tr_a")
    write_files(records, "tr_b")
    watching.wait_for("tr_b")
    assert any("OS file watch limit reached" in record.message for record in caplog.records)


def test_only_included_records_are_handed_over(watching: Watching, tmp_path: Path) -> None:
    """By events and by looks alike."""
    records = tmp_path / "records"
    write_files(records, "tr_a1")
    write_files(records, "tr_b1")
    watching.watch(records, include=("tr_a*", "tr_try*"), tick_s=NEVER_S)
    watching.wait_for("tr_a1")
    watching.write_until_noticed(records)
    write_files(records, "tr_b2")
    write_files(records, "tr_a2")
    watching.wait_for("tr_a2")
    assert watching.mirror.flush(WAIT_S)
    assert not list((tmp_path / "mirror").glob("tr_b*"))


class TestSchedule:
    """When a directory is looked at again."""

    def test_at_once_at_first(self) -> None:
        """Whatever its time stamp."""
        assert Schedule(rescan_s=60, polling=False).is_due(0.0, 0)

    def test_regularly_when_it_changes_and_rarely_when_not(self) -> None:
        """Events may be lost, so a changed directory is looked at; one that did not change costs next to nothing."""
        schedule = Schedule(rescan_s=60, polling=False)
        schedule.looked(began=0, ended=0, changed_ns=5, wall_ns=10 * SECOND_NS, doubts=0)
        assert not schedule.is_due(59, 6)
        assert schedule.is_due(60, 6)
        assert not schedule.is_due(60 * CALM - 1, 5)
        assert schedule.is_due(60 * CALM, 5)

    def test_at_once_after_a_change_when_polling(self) -> None:
        """Looking is then the only way to notice."""
        schedule = Schedule(rescan_s=60, polling=True)
        schedule.looked(began=0, ended=0, changed_ns=5, wall_ns=10 * SECOND_NS, doubts=0)
        assert schedule.is_due(1, 6)
        assert not schedule.is_due(1, 5)

    def test_a_time_stamp_that_is_still_fresh_proves_nothing(self) -> None:
        """A record may have been written within the grain of the same time stamp, behind the look's back."""
        schedule = Schedule(rescan_s=60, polling=True)
        schedule.looked(began=0, ended=0, changed_ns=9 * SECOND_NS, wall_ns=10 * SECOND_NS, doubts=0)
        assert schedule.is_due(1, 9 * SECOND_NS)

    def test_looks_take_a_small_part_of_the_time(self) -> None:
        """A directory that takes long to look at is looked at less often."""
        schedule = Schedule(rescan_s=1, polling=True)
        schedule.looked(began=0, ended=10, changed_ns=5, wall_ns=10 * SECOND_NS, doubts=0)
        assert not schedule.is_due(10 + 10 * PAUSE - 1, 6)
        assert schedule.is_due(10 + 10 * PAUSE, 6)

    def test_another_directory_of_that_name_is_looked_at_at_once(self) -> None:
        """It was replaced: what was known of the old one says nothing."""
        schedule = Schedule(rescan_s=60, polling=False)
        schedule.looked(began=0, ended=0, changed_ns=5, wall_ns=10 * SECOND_NS, doubts=0)
        schedule.forget()
        assert schedule.is_due(1, 5)

    def test_soon_after_events_begin(self) -> None:
        """What changed between the first look and the first event would be noticed by neither."""
        schedule = Schedule(rescan_s=60, polling=False)
        schedule.looked(began=0, ended=50, changed_ns=5, wall_ns=10 * SECOND_NS, doubts=0)
        schedule.doubt()
        assert not schedule.is_due(51, 5)
        assert schedule.is_due(51, 6)
        schedule.looked(began=51, ended=51, changed_ns=6, wall_ns=10 * SECOND_NS, doubts=schedule.doubts)
        assert not schedule.is_due(52, 7)


class TestEventsSeen:
    """Whether events arrive."""

    @pytest.mark.parametrize(
        ("readings", "missing"),
        [
            ([(1, 0), (1, 0), (1, 0)], False),  # nothing changed
            ([(1, 0), (2, 0), (2, 0)], True),  # it changed, and no event came in a whole tick after that
            ([(1, 0), (2, 0), (2, 1)], False),  # the event came a little later
            ([(1, 0), (2, 1), (2, 1)], False),  # or a little earlier than the reading
            ([(1, 0), (2, 0), (3, 1), (3, 1)], False),
            ([(1, 3), (2, 4), (3, 4), (3, 4)], True),  # they came once, and no longer do
        ],
    )
    def test_a_change_without_an_event(self, readings: list[tuple[int, int]], missing: bool) -> None:  # noqa: FBT001 - a column of the table
        """Only a change that no event announced, before it was read or within the next tick, speaks against events."""
        seen = EventsSeen()
        assert [seen.are_missing(*reading) for reading in readings][-1] is missing
