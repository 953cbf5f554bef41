"""Copy everything that is missing from a mirror, then end: never for ever, whatever the store does."""

from __future__ import annotations

import enum
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mirror.background import RecordMirror
from mirror.backlog import Left
from mirror.breaker import BreakerState
from mirror.config import MirrorConfig
from mirror.errors import ConfigError
from mirror.location import Location
from mirror.receipts.ledger import DIRECTORY as BESIDE_RECORDS
from mirror.receipts.segments import PREFIX as RECEIPTS
from mirror.stats import MirrorStats
from mirror.terminal.progress import Tally
from mirror.terminal.stopping import Stopping

GIVE_UP_AFTER_S = 60.0
_LOOK_EVERY_S = 0.25  # at the mirror's counts


class Ended(enum.Enum):
    """Why a copy came to its end."""

    DONE = enum.auto()  # everything that is on disk was tried
    INTERRUPTED = enum.auto()  # by a person
    TERMINATED = enum.auto()  # by a supervisor
    REFUSED = enum.auto()  # the store refuses everything until somebody acts
    AWAY = enum.auto()  # the store has not answered for too long
    OUT_OF_TIME = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a copy ends before it is done; in seconds."""

    give_up_after_s: float = GIVE_UP_AFTER_S  # of a store that does not answer
    max_duration_s: float | None = None

    def reached(self, *, breaker: str, away_s: float, elapsed_s: float) -> Ended | None:
        """Decide whether it is time to end."""
        if breaker == BreakerState.REFUSED:
            return Ended.REFUSED
        if breaker == BreakerState.OPEN and away_s >= self.give_up_after_s:
            return Ended.AWAY
        if self.max_duration_s is not None and elapsed_s >= self.max_duration_s:
            return Ended.OUT_OF_TIME
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSummary:
    """What a copy did; counted in files, but for ``records`` and ``size_bytes``."""

    ended: Ended
    reason: str | None  # the last error, where one is why something is missing
    copied: int
    unchanged: int
    failed: int
    late: int
    records: int  # that were copied or completed
    size_bytes: int  # that were sent
    retried: int  # requests
    lost: int  # records whose files disappeared before they were copied
    left: tuple[Left, ...]  # records that are not in the mirror, as far as they have a name
    problems: tuple[str, ...]  # of directories that could not be read
    looked_at_everything: bool

    @property
    def missing(self) -> int:
        """How much is not in the mirror that should be: 0 only if everything is."""
        return self.failed + self.late + self.lost + len(self.problems) + (not self.looked_at_everything)


def sync(
    record_dirs: Sequence[Path],
    url: str | os.PathLike[str],
    config: MirrorConfig,
    *,
    stopping: Stopping,
    include: Collection[str] = (),
    limits: Limits | None = None,
    tell: Callable[[Tally], object] = lambda _tally: None,
) -> SyncSummary:
    """Copy what is missing from the mirror.

    Args:
        record_dirs: the record directories.
        url: the mirror.
        config: its settings.
        stopping: how it is asked to end early.
        include: shell patterns of record ids; none: all records.
        limits: when it ends by itself.
        tell: called a few times a second with how far it is.

    Raises:
        ConfigError: a setting is wrong.
    """
    mirror = RecordMirror(url, config)
    work = _Work(mirror, record_dirs, include, stopping)
    at_once = False
    try:
        ended, reason = _supervise(work, stopping, limits or Limits(), tell)
        drains = ended in {Ended.INTERRUPTED, Ended.TERMINATED, Ended.OUT_OF_TIME}
        work.closing = True
        mirror.close(None if drains else 0.0)
    except KeyboardInterrupt:
        ended, reason, at_once = Ended.INTERRUPTED, None, True
    if work.crash is not None:
        raise work.crash
    return _sum_up(mirror, work, ended, reason, at_once=at_once)


def check_directories(
    record_dirs: Sequence[str], location: Location | None, *, must_exist: bool, url_first: bool = False
) -> list[Path]:
    """Return the record directories, absolute and each once.

    Args:
        record_dirs: as they were given.
        location: their mirror's, where one is named.
        must_exist: one that is not there is refused.
        url_first: the mirror is named before them, and not behind.

    Raises:
        ConfigError: one is a URL, a file, a mirror, or is not there; or the mirror is a file or a record directory.
    """
    order = "the record directory comes first, the mirror's URL last"
    if url_first:
        order = "the mirror's URL comes first, the record directory last"
    mirror = None if location is None else location.directory
    _check_mirror(mirror, order)
    found: dict[Path, None] = {}
    for text in record_dirs:
        if "://" in text:
            raise ConfigError(f"{text} is a URL where a record directory is expected: `--help` shows the order")
        directory = Path(os.path.abspath(text))  # noqa: PTH100 - Path would not take ".." out
        if mirror is not None and mirror.resolve() == directory.resolve():
            raise ConfigError(f"{directory} cannot be its own mirror: name another directory as the mirror")
        if directory.exists() and not directory.is_dir():
            raise ConfigError(f"{directory} is a file, not a directory: name the directory that holds the records")
        if must_exist and not directory.is_dir():
            raise ConfigError(f"the record directory {directory} does not exist")
        if (directory / RECEIPTS).is_dir():
            raise ConfigError(f"{directory} is a mirror (it has {RECEIPTS.rstrip('/')}): {order}")
        found[directory] = None
    return list(found)


def _check_mirror(mirror: Path | None, order: str) -> None:
    if mirror is None:
        return
    if mirror.exists() and not mirror.is_dir():
        raise ConfigError(f"{mirror} is a file, not a directory: name a directory as the mirror")
    if (mirror / BESIDE_RECORDS).is_dir() and not (mirror / RECEIPTS).is_dir():
        raise ConfigError(f"{mirror} is a record directory (it has {BESIDE_RECORDS}): {order}")


@dataclass
class _Work:
    """Looks and copies on a thread of its own, so that whoever waits for it can also be told to stop."""

    mirror: RecordMirror
    directories: Sequence[Path]
    include: Collection[str]
    stopping: Stopping
    unchanged: int = 0  # files
    problems: dict[Path | None, str] = field(default_factory=dict)  # by directory
    finished: bool = False
    closing: bool = False  # set before the mirror is closed: what fails from then on is no news
    crash: BaseException | None = None

    def __post_init__(self) -> None:
        threading.Thread(target=self._run, name="record-mirror-sync", daemon=True).start()

    def _run(self) -> None:
        try:
            for files in self._look():
                self.unchanged += files
            is_complete = self.mirror.drain()
            if self.mirror.stats()["late"]:  # once more: what failed in passing, or was being written
                self.problems.clear()
                list(self._look())
                is_complete = self.mirror.drain()
            if not is_complete and not self.closing:
                self.problems[None] = "a record directory cannot be read any more: the log says which"
            for directory in self.directories:
                if not directory.is_dir():
                    self.problems.setdefault(directory, f"{directory} is not there any more")
            self.finished = True
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits
            if not self.closing:
                self.crash = error
        finally:
            self.stopping.wake()

    def _look(self) -> Iterator[int]:
        """Have every directory looked at; yield how many files of it are in the mirror already."""
        for directory in self.directories:
            try:
                yield self.mirror.scan(directory, include=self.include).files
            except OSError as error:
                self.problems[directory] = f"{directory} cannot be read: {error.strerror or error}"


def _supervise(
    work: _Work, stopping: Stopping, limits: Limits, tell: Callable[[Tally], object]
) -> tuple[Ended, str | None]:
    began = time.monotonic()
    answered_at = began
    while not work.finished and work.crash is None:
        stats = work.mirror.stats()
        now = time.monotonic()
        if stats["breaker"] == BreakerState.CLOSED:
            answered_at = now
        tell(_tally(stats))
        if stopping.asked:
            return (Ended.INTERRUPTED if stopping.interrupted else Ended.TERMINATED), None
        ended = limits.reached(breaker=stats["breaker"], away_s=now - answered_at, elapsed_s=now - began)
        if ended is not None:
            reason = stats["breaker_reason"] or stats["last_error"]
            return ended, None if ended is Ended.OUT_OF_TIME else str(reason)
        stopping.wait(_LOOK_EVERY_S)
    return Ended.DONE, work.mirror.stats()["last_error"]


def _tally(stats: MirrorStats) -> Tally:
    counts = {"failed": stats["failed"], "late": stats["late"], "retried": stats["retried"]}
    notes = [f"{count:,} {name}" for name, count in counts.items() if count]
    if stats["breaker"] != BreakerState.CLOSED:
        notes.append(f"waiting for the store: {stats['breaker_reason']}")
    return Tally(
        done=stats["mirrored"] + stats["failed"],
        total=stats["submitted"],
        unit="records",
        size_bytes=stats["bytes"],
        note=", ".join(notes),
    )


def _sum_up(mirror: RecordMirror, work: _Work, ended: Ended, reason: str | None, *, at_once: bool) -> SyncSummary:
    stats = mirror.stats()
    left = tuple(mirror.left())

    def files_of(some: list[Left]) -> int:
        if at_once:
            return len(some)  # somebody is waiting at the keyboard
        return sum(len(mirror.names(record.directory, record.record_id)) or 1 for record in some)

    return SyncSummary(
        ended=ended,
        reason=reason,
        copied=stats["files"],
        unchanged=work.unchanged + stats["kept_files"],
        failed=files_of([record for record in left if record.reason is not None]),
        late=files_of([record for record in left if record.reason is None]),
        records=stats["mirrored"],
        size_bytes=stats["bytes"],
        retried=stats["retried"],
        lost=stats["lost"],
        left=left,
        problems=tuple(work.problems.values()),
        looked_at_everything=work.finished,
    )
