"""``RecordMirror``: what a capture server embeds to have its finished records copied in the background."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Collection, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from types import TracebackType
from typing import Self, TypedDict, Unpack

from mirror.address import record_host
from mirror.backlog import Added, Backlog, Left
from mirror.config import MirrorConfig, MirrorOptions
from mirror.errors import RecordGoneError
from mirror.kinds import Kinds
from mirror.location import parse_location
from mirror.looking import Looked
from mirror.names import document_name
from mirror.place import place_id
from mirror.record import read_record
from mirror.running import Plan, Running
from mirror.stats import MirrorStats
from mirror.stores.driver import choose_driver
from mirror.stores.opening import StoreOpener, check_settings, open_store

logger = logging.getLogger(__name__)

LATE_NAMES = 100_000  # late records known by id; of more only the number is
NAMED = 20  # records named where not all can be

_in_child: list[object] = []  # what a parent ran: neither used nor torn down in its child
_alive: weakref.WeakSet[RecordMirror] = weakref.WeakSet()
_unmirrored: dict[int, Kinds] = {}  # by process: the kinds in directories that no mirror looks at


class RecordLocation(TypedDict):
    """Where a record is and will be, as a server's ``finish`` answers it (the project's formats, section 2)."""

    host: str
    path: str
    mirror: str | None
    files: list[str]


class RecordMirror:
    """Copies finished records to a store in the background; never slows or fails the server that hands them over.

    The thread that does the work starts with ``start``, ``with`` or the first ``submit``. After a fork the child starts
    with an empty mirror of its own. All methods may be called from any thread.
    """

    _starting: threading.Lock
    _closed: bool
    _kinds: Kinds
    _backlog: Backlog
    _directories: dict[str | os.PathLike[str], Path]  # as callers write them -> absolute

    def __init__(
        self,
        url: str | os.PathLike[str],
        config: MirrorConfig | None = None,
        *,
        open_store: StoreOpener = open_store,
        **options: Unpack[MirrorOptions],
    ) -> None:
        """Check the settings; nothing is contacted.

        Args:
            url: ``s3://bucket/prefix``, ``gs://bucket/prefix``, a directory, or whatever fsspec opens.
            config: settings; or give them one by one.
            open_store: what makes the store; for tests, which give one of their own.
            options: the fields of ``MirrorConfig``.

        Raises:
            ConfigError: a setting is wrong, or nothing installed can open the URL.
        """
        self.config = MirrorConfig.from_mapping(config.as_mapping() if config else None, **options)
        location = parse_location(url)
        check_settings(location, self.config)
        choose_driver(location, self.config)
        self._plan = Plan(
            location=location,
            place=place_id(location, self.config.storage_options),
            host=record_host(None, self.config.host),
            config=self.config,
            open_store=open_store,
        )
        self._running: Running | None = None
        self.begin_anew()
        _alive.add(self)

    @classmethod
    def from_config(cls, url: str | os.PathLike[str], mapping: Mapping[str, object] | None = None) -> Self:
        """Make a mirror from a run's ``record_mirror`` and ``record_mirror_config``.

        Raises:
            ConfigError: a setting is unknown or wrong.
        """
        return cls(url, MirrorConfig.from_mapping(mapping))

    @property
    def url(self) -> str:
        """The mirror's URL, without credentials."""
        return self._plan.location.shown

    def start(self) -> None:
        """Start the thread, and find out whether the mirror can be written: reported by the log and by ``stats``."""
        self._started(probe=True)

    def submit(self, record_dir: str | os.PathLike[str], record_id: str) -> bool:
        """Have a finished record copied; returns at once, whatever the store does.

        Returns:
            Whether it is queued now. If not, it is late: found again on disk and copied then.
        """
        added = self._backlog.submit(self._directory(record_dir), record_id)
        running = self._running or self._started()
        if added is Added.CLOSED or running is None:
            return False
        running.wake()
        return added is not Added.FULL

    def scan(self, record_dir: str | os.PathLike[str], *, include: Collection[str] = ()) -> Looked:
        """Have every finished record of a directory copied that is not in the mirror; returns when all are queued.

        Args:
            record_dir: the record directory.
            include: shell patterns such as ``tr_a*``: only records whose id matches one are looked for.

        Returns:
            How many records and files were found to be in the mirror already.

        Raises:
            OSError: the directory cannot be read.
            concurrent.futures.CancelledError: the mirror is closed, or was meanwhile.
        """
        running = self._running or self._started()
        if running is None:
            raise CancelledError
        looked = running.thread.start(running.engine.look_at(self._directory(record_dir), include)).result()
        if self._closed:  # what came after the close was not queued
            raise CancelledError
        return looked

    def locate(self, record_dir: str | os.PathLike[str], record_id: str, *, host: str | None = None) -> RecordLocation:
        """Say where a record is and will be, at once.

        Args:
            record_dir: the record directory.
            record_id: the trajectory's id.
            host: the address that the server is bound to, if that is what others reach it by.
        """
        return RecordLocation(
            host=record_host(host, self.config.host) if host else self._plan.host,
            path=str(self._directory(record_dir) / document_name(record_id)),
            mirror=self.uri(document_name(record_id)),
            files=self.names(record_dir, record_id),
        )

    def names(self, record_dir: str | os.PathLike[str], record_id: str) -> list[str]:
        """Return the names of a record's files that the mirror holds or will hold: sidecars, then the document."""
        return _names(self._directory(record_dir), record_id, self._kinds, self.config.exclude)

    def uri(self, name: str) -> str:
        """Return a file's URI in the mirror."""
        return self._plan.location.uri(name)

    def stats(self) -> MirrorStats:
        """Return counts and state: ``submitted`` is always ``mirrored + failed + late + pending``."""
        counts = self._backlog.counts()
        running = self._running
        engine = running.engine if running else None
        breaker = running.breaker if running else None
        calls = running.store.counts if running else None
        driver = running.driver if running else choose_driver(self._plan.location, self.config)
        return MirrorStats(
            url=self.url,
            submitted=counts.submitted,
            mirrored=counts.mirrored,
            failed=counts.failed,
            late=counts.late,
            pending=counts.pending,
            late_names=self._backlog.names(NAMED) if counts.late else [],
            lost=engine.totals.lost if engine else 0,
            timed_out=calls.timed_out if calls else 0,
            retried=calls.retried if calls else 0,
            files=engine.totals.sent_files if engine else 0,
            bytes=engine.totals.sent_bytes if engine else 0,
            kept_files=engine.totals.kept_files if engine else 0,
            unchanged=engine.totals.unchanged if engine else 0,
            lag_s=max(0.0, time.time() - counts.oldest) if counts.oldest is not None else 0.0,
            driver=driver.name,
            driver_reason=driver.reason,
            breaker=breaker.state.value if breaker else "closed",
            breaker_reason=breaker.reason if breaker else None,
            last_error=(engine.totals.last_error if engine else None) or (calls.last_error if calls else None),
        )

    def left(self) -> list[Left]:
        """Return the records that were handed over and are not in the mirror, as far as they have a name here."""
        given_up = self._running.engine.given_up.left() if self._running else []
        return [*given_up, *self._backlog.left()]

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until every record handed over so far, and its receipt, is in the mirror, but for what was given up.

        What was given up or lost was logged; ``stats`` counts it, and ``left`` names what is still on disk.

        Returns:
            False if the time ran out first, or a record directory cannot be read any more: the log says which.
        """
        return self._wait(timeout_s, late_too=True)

    def drain(self, timeout_s: float | None = None) -> bool:
        """Like ``flush``, but do not wait for what is late."""
        return self._wait(timeout_s, late_too=False)

    def close(self, timeout_s: float | None = None, *, timeout: float | None = None) -> bool:
        """Take no more records, drain for at most ``timeout_s`` (else ``shutdown_timeout_s``), and end the thread.

        A store that refuses everything is not waited for.

        Returns:
            Whether everything that was not given up or lost is in the mirror, receipts included. If not, or if there
            was no time to look, the log names what is left; the next start copies it.
        """
        given_s = timeout_s if timeout_s is not None else timeout
        with self._starting:
            ending, self._closed = not self._closed, True
        self._backlog.close()  # after _closed: a scan whose finds are no longer taken must see that it was cut short
        if ending:
            if self._running is not None:
                self._backlog.look_now()
                try:
                    self._running.wait_drained_or_refused(
                        self.config.shutdown_timeout_s if given_s is None else given_s
                    )
                finally:
                    self._running.end()
            self._backlog.abandon()
            self._say_what_is_left()
        return self._is_complete(late_too=True)

    def begin_anew(self) -> None:
        """Begin with empty books and no thread: when made, and in the child of a fork."""
        if self._running is not None:
            _in_child.append((self._running, self._backlog))
        self._starting = threading.Lock()
        self._running = None
        self._closed = False
        self._kinds = Kinds()
        self._backlog = Backlog(self.config.queue_size, late_names=max(self.config.queue_size, LATE_NAMES))
        self._directories = {}

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _started(self, *, probe: bool = False) -> Running | None:
        """Return what runs, begun if need be; None if the mirror was closed before anything did."""
        with self._starting:
            if self._running is None and not self._closed:
                self._running = Running(self._plan, self._backlog, self._kinds)
                if probe:
                    self._running.thread.start(self._running.engine.probe())
            return self._running

    def _wait(self, timeout_s: float | None, *, late_too: bool) -> bool:
        if self._running is None or self._closed:
            return self._is_complete(late_too=late_too)
        return self._running.wait_drained(timeout_s, late_too=late_too)

    def _is_complete(self, *, late_too: bool) -> bool:
        late = late_too and self._backlog.late
        return not (late or self._backlog.pending or self._receipts_waiting() or self._kinds.unsettled())

    def _receipts_waiting(self) -> int:
        return self._running.engine.receipts_waiting if self._running else 0

    def _say_what_is_left(self) -> None:
        left = self._backlog.late
        if left:
            names = ", ".join(self._backlog.names(NAMED))
            logger.warning(
                "closed with %d records not in the mirror yet; the next start copies them from disk: %s%s",
                left,
                names,
                ", ..." if left > NAMED else "",
            )
            if absent := [str(directory) for directory in self._backlog.late_in() if not os.path.isdir(directory)]:  # noqa: PTH112
                logger.warning(
                    "of these, what was handed over in %s cannot be copied: no such directory is there now",
                    ", ".join(absent),
                )
        if self._receipts_waiting():
            logger.warning(
                "closed with %d receipts not in the mirror yet; they are kept beside the records and the next start "
                "brings them over",
                self._receipts_waiting(),
            )
        if unsettled := self._kinds.unsettled():
            logger.warning(
                "the last look for sidecars of new kinds in %s did not take place; the next start looks for them",
                ", ".join(map(str, unsettled)),
            )

    def _directory(self, record_dir: str | os.PathLike[str]) -> Path:
        known = self._directories.get(record_dir)
        if known is None:
            known = self._directories[record_dir] = _absolute(record_dir)
        return known


def locate(record_dir: str | os.PathLike[str], record_id: str, *, host: str | None = None) -> RecordLocation:
    """Say where a record of a server without a mirror is: ``mirror`` is None, and ``files`` are those on disk.

    Args:
        record_dir: the record directory.
        record_id: the trajectory's id.
        host: the address that the server is bound to; loopback and wildcard ones are replaced by the node's own.
    """
    directory = _absolute(record_dir)
    return RecordLocation(
        host=record_host(host),
        path=str(directory / document_name(record_id)),
        mirror=None,
        files=_names(directory, record_id, _unmirrored.setdefault(os.getpid(), Kinds()), ()),
    )


def _names(directory: Path, record_id: str, kinds: Kinds, exclude: tuple[str, ...]) -> list[str]:
    try:
        wanted = kinds.glance(directory) - set(exclude)
        return [state.name for state in read_record(directory, record_id, wanted).files]
    except (RecordGoneError, OSError):
        return []


def _absolute(record_dir: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(record_dir))  # noqa: PTH100 - Path would not take ".." out


def _after_fork_in_child() -> None:
    for mirror in list(_alive):
        mirror.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
