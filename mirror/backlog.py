"""What is still to be copied, and the books: submitted = mirrored + failed + late + pending, in whatever order.

A record is *pending* while it waits or is being copied, and *late* when it was handed over but must be found again on
disk: the queue was full, the store kept failing, or the mirror was closed. Both are bounded in memory; the records are
on disk.
"""

from __future__ import annotations

import collections
import enum
import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from mirror.late import LateRecords

ENDED_FINDS = 10_000  # remembered, for the hand-overs that may follow them


class Outcome(enum.Enum):
    """What became of a record that was handed over, or found by a look."""

    MIRRORED = enum.auto()
    UNCHANGED = enum.auto()  # it was in the mirror already: nothing had to be sent
    FAILED = enum.auto()  # given up until somebody acts or the record is written again
    LATE = enum.auto()  # found again on disk later
    ELSEWHERE = enum.auto()  # another mirror has copied what a look had found: it leaves the books


class Added(enum.Enum):
    """What became of an offer to the backlog."""

    QUEUED = enum.auto()
    KNOWN = enum.auto()  # it waits already
    FULL = enum.auto()
    CLOSED = enum.auto()


@dataclass(slots=True)
class Job:
    """A record on its way, and how many times it was handed over since it was last settled."""

    directory: Path
    record_id: str
    count: int
    since: float  # Unix seconds: when it was first handed over, or written
    own: bool = True  # handed over here; False: found on disk, where it may be another mirror's
    copying: bool = False
    again: bool = False  # handed over once more while it was being copied
    age: int = 0  # how many marks there had been; 0 too for one that was late
    again_age: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The books at one moment."""

    submitted: int
    mirrored: int
    failed: int
    late: int
    pending: int
    oldest: float | None  # Unix seconds of the oldest record that is not in the mirror


@dataclass(frozen=True, slots=True)
class Left:
    """A record that was handed over and is not in the mirror."""

    directory: Path
    record_id: str
    reason: str | None  # why it was given up; None: it is late, and copied when it is found again on disk


class Backlog:
    """A bounded queue without duplicates, with its books. Any thread may call any method; each returns at once."""

    def __init__(self, size: int, *, late_names: int | None = None, clock: Callable[[], float] = time.time) -> None:
        """Hold up to ``size`` waiting records, and the ids of ``late_names`` late ones (None: of as many)."""
        self._size = size
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: dict[tuple[Path, str], Job] = {}
        self._waiting: collections.deque[Job] = collections.deque()
        self._found: list[Job] = []  # in no order; may hold some that were handed over since
        self._late = LateRecords(size if late_names is None else late_names)
        self._age = 0
        self._ages: collections.Counter[int] = collections.Counter()  # of the jobs
        self._finds: set[tuple[Path, str]] = set()  # pending, or late with a name, and handed over by nobody yet
        self._ended_finds: dict[tuple[Path, str], Outcome] = {}  # and how a hand-over that adds nothing ends
        self._submitted = self._mirrored = self._failed = self._pending = 0
        self._closed = self._abandoned = False

    def submit(self, directory: Path, record_id: str) -> Added:
        """Take a record that a server hands over; what does not fit is late.

        A look may have found it a moment before: it is one record in the books then, not two.
        """
        with self._lock:
            now, added = self._clock(), Added.CLOSED
            if not self._closed:
                self._forget_find(directory, record_id)
                added = self._add(Job(directory, record_id, 1, now, age=self._age))
            self._submitted += 1
            if added in (Added.FULL, Added.CLOSED):
                self._note_late(directory, record_id, 1, since=now)
            return added

    def found(self, directory: Path, record_id: str, since: float, *, owed: bool = False) -> Added:
        """Take a record that is on disk and not in the mirror; one that was late stops being late.

        ``owed``: its copy turned out to lack something, so that it is taken after a close too, and copied once more if
        it is being copied.
        """
        with self._lock:
            job = self._jobs.get((directory, record_id))
            if job is not None:
                if owed and job.copying:
                    self._copy_again(job)
                return Added.KNOWN
            count = self._late.found(directory, record_id)
            if self._abandoned or (self._closed and not count and not owed):
                return Added.CLOSED
            is_own = count > 0 and (directory, record_id) not in self._finds
            age = 0 if count else self._age
            added = self._add(Job(directory, record_id, count or 1, since, own=is_own, age=age))
            if added is Added.QUEUED:
                self._late.remove(directory, record_id, count)
                if not count:
                    self._submitted += 1
                if not is_own:
                    self._finds.add((directory, record_id))
            return added

    def take(self) -> Job | None:
        """Return the next record to copy; it stays pending until it is settled.

        What was handed over goes first, in its order. What was found goes when nothing else waits and in any order, so
        that mirrors that share a directory rarely copy the same at the same time.
        """
        with self._lock:
            job = self._waiting.popleft() if self._waiting else self._take_found()
            if job is not None:
                job.copying = True
                job.again = False
            return job

    def settle(self, job: Job, outcome: Outcome, *, look_at: float = 0.0) -> bool:
        """Say what became of a record; False if it was handed over again meanwhile and so waits once more."""
        with self._lock:
            if self._abandoned:
                return True
            self._forget_age(job.age)
            if job.again and outcome is not Outcome.LATE:
                job.copying = False
                job.age = job.again_age
                self._ages[job.age] += 1
                self._waiting.append(job)
                return False
            del self._jobs[job.directory, job.record_id]
            self._pending -= job.count
            if outcome is Outcome.LATE:
                self._note_late(job.directory, job.record_id, job.count, since=job.since, look_at=look_at)
            else:
                self._end(job.directory, job.record_id, outcome, job.count)
            return True

    def looking(self, directory: Path) -> tuple[frozenset[str], int]:
        """Return what is late before a look at the directory begins: the ids, and how many without."""
        with self._lock:
            return self._late.looking(directory)

    def settle_late(self, directory: Path, record_id: str | None, outcome: Outcome, count: int = 1) -> None:
        """Say what became of a late record that a look found to need no copy (None: of ``count`` without a name).

        What was handed over since the look began stays late: the look may have passed it by before.
        """
        with self._lock:
            count = self._late.looked_for(directory, record_id, count)
            self._late.remove(directory, record_id, count)
            self._end(directory, record_id, outcome, count)

    def late_in(self) -> list[Path]:
        """Return the directories that have late records."""
        with self._lock:
            return self._late.due(math.inf)

    def due(self, now: float, *, though_busy: Container[Path] = ()) -> list[Path]:
        """Return the directories whose late records may be looked for now; while much is pending only some."""
        with self._lock:
            is_busy = self._pending > self._size // 2
            return [path for path in self._late.due(now) if not is_busy or path in though_busy]

    def postpone(self, directory: Path, look_at: float) -> None:
        """Look for a directory's late records no earlier than this."""
        with self._lock:
            self._late.postpone(directory, look_at)

    def look_now(self) -> None:
        """Let every late record be looked for at once: the store is back, or this is the last chance."""
        with self._lock:
            self._late.look_now()

    def close(self) -> None:
        """Take no more but what is late already: what comes from now on is late."""
        with self._lock:
            self._closed = True

    def abandon(self) -> None:
        """Turn everything pending into late: nobody will copy it here any more."""
        with self._lock:
            self._closed = self._abandoned = True
            for job in self._jobs.values():
                self._pending -= job.count
                self._note_late(job.directory, job.record_id, job.count, since=job.since)
            self._jobs.clear()
            self._ages.clear()
            self._waiting.clear()
            self._found.clear()

    def mark(self) -> int:
        """Tell all that was handed over so far from what will be."""
        with self._lock:
            self._age += 1
            return self._age

    def is_settled(self, mark: int) -> bool:
        """Whether nothing is pending that was handed over before a mark, nor anything that was late before."""
        with self._lock:
            return all(age >= mark for age in self._ages)

    def counts(self) -> Counts:
        """Return the books as they are now."""
        with self._lock:
            since = [*(job.since for job in self._jobs.values()), *self._late.since()]
            return Counts(
                submitted=self._submitted,
                mirrored=self._mirrored,
                failed=self._failed,
                late=self._late.count,
                pending=self._pending,
                oldest=min(since, default=None),
            )

    @property
    def pending(self) -> int:
        """How many hand-overs wait or are being copied."""
        return self._pending

    @property
    def late(self) -> int:
        """How many hand-overs must be found again on disk."""
        return self._late.count

    def names(self, limit: int) -> list[str]:
        """Return ids of records that are not in the mirror, at most so many."""
        with self._lock:
            return [left.record_id for left in itertools.islice(self._left(), limit)]

    def left(self) -> list[Left]:
        """Return what is pending or late, as far as it has a name."""
        with self._lock:
            return list(self._left())

    def _left(self) -> Iterator[Left]:
        for directory, record_id in itertools.chain(self._jobs, self._late.names()):
            yield Left(directory, record_id, None)

    def _add(self, new: Job) -> Added:
        job = self._jobs.get((new.directory, new.record_id))
        if job is not None:
            if job.copying:
                self._copy_again(job)
            elif not job.own:
                self._waiting.append(job)
            job.own = True
            job.count += new.count
            self._pending += new.count
            return Added.KNOWN
        if len(self._jobs) >= self._size:
            return Added.FULL
        self._jobs[new.directory, new.record_id] = new
        self._ages[new.age] += 1
        self._waiting.append(new) if new.own else self._found.append(new)
        self._pending += new.count
        return Added.QUEUED

    def _end(self, directory: Path, record_id: str | None, outcome: Outcome, count: int) -> None:
        """Book the end of so many hand-overs of a record.

        A look that came by first may have ended it already: the hand-over that leaves everything as it is is no second
        record.
        """
        if record_id is not None and count:
            key = (directory, record_id)
            ended_as = self._ended_finds.pop(key, None)
            if key in self._finds:
                self._finds.remove(key)
                if outcome is not Outcome.ELSEWHERE:  # then it is in no book any more
                    self._ended_finds[key] = Outcome.FAILED if outcome is Outcome.FAILED else Outcome.UNCHANGED
                if len(self._ended_finds) > ENDED_FINDS:
                    del self._ended_finds[next(iter(self._ended_finds))]
            elif outcome is ended_as:  # and so adds nothing
                self._submitted -= 1
                count -= 1
        if outcome in (Outcome.MIRRORED, Outcome.UNCHANGED):
            self._mirrored += count
        elif outcome is Outcome.FAILED:
            self._failed += count
        else:
            self._submitted -= count

    def _forget_find(self, directory: Path, record_id: str) -> None:
        """Take a record off the books that is there only because a look found it; its job, if any, stays."""
        if (directory, record_id) not in self._finds:
            return
        self._finds.remove((directory, record_id))
        self._submitted -= 1
        job = self._jobs.get((directory, record_id))
        if job is None:
            self._late.remove(directory, record_id, 1)
        else:
            job.count -= 1
            self._pending -= 1

    def _copy_again(self, job: Job) -> None:
        job.own = True  # it will wait with those
        if not job.again:  # else it was asked for before some marks already
            job.again, job.again_age = True, self._age

    def _forget_age(self, age: int) -> None:
        self._ages[age] -= 1
        if not self._ages[age]:
            del self._ages[age]

    def _take_found(self) -> Job | None:
        while self._found:
            index = random.randrange(len(self._found))  # noqa: S311 - no secret
            self._found[index], self._found[-1] = self._found[-1], self._found[index]
            job = self._found.pop()
            if not job.own:
                return job
        return None

    def _note_late(self, directory: Path, record_id: str, count: int, *, since: float, look_at: float = 0.0) -> None:
        if not self._late.add(directory, record_id, count, since=since, look_at=look_at):
            self._finds.discard((directory, record_id))  # without a name nobody can tell it from others
