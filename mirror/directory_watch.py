"""One record directory watched for finished records: by file-system events where they work, by looking where not.

Events are the fast path and may be lost; a look at the whole directory finds what they missed. Where the directory
changes and no event comes (network file systems, exhausted limits), looking takes over, at the pace of a few seconds.
An idle directory costs one ``stat`` every TICK_S.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from mirror.background import RecordMirror
from mirror.errors import RecordError
from mirror.looking import matcher
from mirror.names import parse_name

logger = logging.getLogger(__name__)

TICK_S = 2.0
PAUSE = 20  # times as long as the last look took, before the next
CALM = 10  # times less often is a directory looked at that did not change
SETTLED_S = 2.0  # a directory that changed so recently may change again within its time stamp's grain
EVENT_STEP_MS = 50  # a wake-up each, also where nothing happens
EVENT_BATCH_MS = 100  # what came in a second, copied at once, would hold up whoever shares the CPU
EVENT_QUIET_MS = 1_000


@dataclass(slots=True, kw_only=True)
class Schedule:
    """When to look at a directory again. Times are in seconds on one clock, but for time stamps of the file system."""

    rescan_s: float
    polling: bool
    _looked: bool = False
    _ended_at: float = 0.0
    _took_s: float = 0.0
    _changed_ns: int = 0  # the directory's time stamp before the last look
    _settled: bool = False  # nothing can have happened during that look without changing the time stamp
    doubts: int = 0  # how often what changed may have gone unnoticed; see doubt()
    _resolved: int = 0  # how many of them a look has answered

    def is_due(self, now: float, changed_ns: int) -> bool:
        """Decide from the directory's present time stamp."""
        if not self._looked:
            return True
        changed = changed_ns != self._changed_ns or not self._settled
        if changed and self.doubts > self._resolved:
            return True
        since_s = now - self._ended_at
        if since_s < self._took_s * PAUSE:
            return False
        if not changed:
            return since_s >= self.rescan_s * CALM
        return self.polling or since_s >= self.rescan_s

    def doubt(self) -> None:
        """Look soon: events come from now on, and what changed before may have gone unnoticed. Any thread may call."""
        self.doubts += 1

    def looked(
        self, *, began: float, ended: float, changed_ns: int, wall_ns: int, doubts: int, saw_all: bool = True
    ) -> None:
        """Take note of a look; ``changed_ns``, ``wall_ns`` and ``doubts`` are of the moment before it began."""
        self._resolved = doubts
        self._looked = True
        self._ended_at = ended
        self._took_s = ended - began
        self._changed_ns = changed_ns
        self._settled = saw_all and wall_ns - changed_ns > SETTLED_S * 1e9

    def forget(self) -> None:
        """Begin anew: it is another directory now."""
        self._looked = False


@dataclass(slots=True)
class EventsSeen:
    """Whether events arrive: a directory that changed must have had one by the next reading but one."""

    _changed_ns: int | None = None
    _count: int = 0  # of events, at the last reading
    _suspect: int | None = None  # their count before a change that none announced yet

    def are_missing(self, changed_ns: int, count: int) -> bool:
        """Take a reading of the directory's time stamp and of how many events came so far."""
        missing = self._suspect is not None and count == self._suspect
        changed = self._changed_ns is not None and changed_ns != self._changed_ns
        self._suspect = self._count if changed and not missing else None
        self._changed_ns, self._count = changed_ns, count
        return missing


class DirectoryWatch:
    """Hands a directory's finished records to a mirror, on threads of its own, until it is stopped."""

    def __init__(
        self,
        mirror: RecordMirror,
        directory: Path,
        *,
        rescan_s: float,
        include: Collection[str] = (),
        poll: bool = False,
        tick_s: float = TICK_S,
    ) -> None:
        """Start nothing yet."""
        self._mirror = mirror
        self._directory = directory
        self._tick_s = tick_s
        self._include = tuple(include)
        self._wanted = matcher(include)
        self._schedule = Schedule(rescan_s=rescan_s, polling=poll)
        self._stopped = threading.Event()
        self._there = threading.Event()  # set while the directory exists
        self._gone = threading.Event()  # ends the events of a directory that was replaced
        self._events = 0  # written by the events' thread
        self._following = False  # likewise

    def start(self) -> None:
        """Start looking, and listening for events."""
        threading.Thread(target=self._look_regularly, name="record-mirror-look", daemon=True).start()
        if not self._schedule.polling:
            threading.Thread(target=self._follow_events, name="record-mirror-events", daemon=True).start()

    def stop(self) -> None:
        """Notice no more; the threads end soon."""
        self._stopped.set()
        self._gone.set()
        self._there.set()

    def look(self) -> bool:
        """Have every record of the directory copied that is not in the mirror; False if it cannot be looked at."""
        try:
            self._mirror.scan(self._directory, include=self._include)
        except FileNotFoundError:
            return True  # it has no records
        except (OSError, RecordError) as error:
            logger.warning("cannot look for records in %s: %s", self._directory, error)
            return False
        return True

    def _look_regularly(self) -> None:
        inode = None
        seen = EventsSeen()
        while not self._stopped.is_set():
            try:
                status = self._directory.stat()
            except OSError as error:
                if self._there.is_set() or inode is None:
                    logger.warning("waiting for the record directory %s: %s", self._directory, error.strerror)
                    inode = 0
                self._there.clear()
                self._gone.set()
            else:
                if status.st_ino != inode:
                    inode, seen = status.st_ino, EventsSeen()
                    self._schedule.forget()
                    self._gone.set()
                self._there.set()
                self._consider(status.st_mtime_ns, seen)
            self._stopped.wait(self._tick_s)

    def _consider(self, changed_ns: int, seen: EventsSeen) -> None:
        if self._following and not self._schedule.polling and seen.are_missing(changed_ns, self._events):
            self._fall_back("no file-system events arrive")
        began, wall_ns, doubts = time.monotonic(), time.time_ns(), self._schedule.doubts
        if self._schedule.is_due(began, changed_ns):
            saw_all = self._look_unless_closed()
            self._schedule.looked(
                began=began,
                ended=time.monotonic(),
                changed_ns=changed_ns,
                wall_ns=wall_ns,
                doubts=doubts,
                saw_all=saw_all,
            )

    def _look_unless_closed(self) -> bool:
        try:
            return self.look()
        except BaseException:
            if not self._stopped.is_set():
                raise
            return False  # the mirror was closed meanwhile

    def _fall_back(self, reason: str) -> None:
        logger.warning("%s in %s: it is looked at every %g s instead", reason, self._directory, self._tick_s)
        self._schedule.polling = True
        self._gone.set()
        self._following = False

    def _follow_events(self) -> None:
        import watchfiles  # noqa: PLC0415 - only where events are used

        while not self._stopped.is_set() and not self._schedule.polling:
            if not self._there.wait(self._tick_s):
                continue
            self._gone.clear()
            if self._stopped.is_set():
                return
            changes = watchfiles.watch(
                self._directory,
                watch_filter=None,
                debounce=EVENT_BATCH_MS,
                step=EVENT_STEP_MS,
                stop_event=self._gone,
                rust_timeout=EVENT_QUIET_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                recursive=False,
                force_polling=False,
            )
            try:
                for batch in changes:
                    if not self._following:
                        self._following = True
                        self._schedule.doubt()
                    self._take(path for change, path in batch if change is not watchfiles.Change.deleted)
                    self._events += bool(batch)
            except Exception as error:  # noqa: BLE001 - watchfiles raises several kinds, all with one remedy
                if self._directory.is_dir():
                    self._fall_back(f"file-system events are not to be had ({error})")
                self._there.clear()
            finally:
                self._following = False

    def _take(self, paths: Iterable[str]) -> None:
        for path in paths:
            found = parse_name(path.rpartition("/")[2])
            if found is not None and found.kind is None and self._wanted(found.record_id):
                self._mirror.submit(self._directory, found.record_id)
