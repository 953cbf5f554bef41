"""Which kinds of sidecars a directory has: the known ones, and whatever else was seen there.

A sidecar's kind is part of its name, so a record's files can be looked up without a listing once the kinds are known. A
listing learns new ones; it is repeated whenever something is asked, but listings take at most a hundredth of the time.
What was copied before a new kind was learned is remembered, found by the next listing, and copied once more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

from mirror.names import KNOWN_KINDS, sidecar_name
from mirror.record import find_kinds, is_larger_than, read_state, require_directory

PAUSE = 100  # times as long as the last listing took
FAILED_PAUSE_S = 10.0  # before a directory that cannot be listed is tried again, unless somebody waits for it
GONE_S = 1.0  # a directory that is away for so long is waited for no more, and looked for less and less often
MOST_PAUSE_S = 60.0  # between looks for it
FORGET_S = 3600.0  # after which what its records may lack is forgotten
GLANCED = 250  # entries, a tenth of a millisecond; a listing of more is no business of a thread that must not wait


class Kinds:
    """The kinds seen in each directory. Any thread may call; only what is said to list a directory takes long."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing but the known kinds yet."""
        self._clock = clock
        self._listing = threading.Lock()  # one listing at a time
        self._lock = threading.Lock()  # of what follows
        self._seen: dict[Path, frozenset[str]] = {}
        self._look_at: dict[Path, float] = {}
        self._listings = 0  # begun so far
        self._copied: dict[Path, dict[str, int]] = {}  # ids that no later listing has looked for, with their number
        self._missed: dict[Path, set[str]] = {}  # ids that were copied without a kind that they have
        self._away: dict[Path, tuple[float, float]] = {}  # since when a directory is, and when that was last seen

    def known(self, directory: Path) -> frozenset[str]:
        """Return what is known of a directory without looking."""
        return self._seen.get(directory, KNOWN_KINDS)

    def is_due(self, directory: Path) -> bool:
        """Whether a look may be taken now."""
        return self._look_at.get(directory, 0.0) <= self._clock()

    def look(self, directory: Path) -> frozenset[str]:
        """Return every kind that the directory has, listing it if that is due.

        Raises:
            OSError: the directory cannot be read.
        """
        with self._listing:
            if self.is_due(directory):
                self._list(directory)
            return self.known(directory)

    def glance(self, directory: Path) -> frozenset[str]:
        """Return what is known of a directory at once; a listing that is due takes place elsewhere if it is a long one.

        Raises:
            OSError: the directory cannot be read.
        """
        if self.is_due(directory) and self._listing.acquire(blocking=False):
            try:
                is_long = is_larger_than(directory, GLANCED)
                if not is_long:
                    self._list(directory)
            finally:
                self._listing.release()
            if is_long:
                listing = threading.Thread(target=self._list_quietly, args=(directory,), daemon=True)
                listing.name = "record-mirror-kinds"
                listing.start()
        return self.known(directory)

    def learn(self, directory: Path, kinds: Collection[str]) -> None:
        """Remember kinds that somebody else saw in a directory.

        Raises:
            OSError: the directory cannot be read.
        """
        with self._lock:
            self._add(directory, kinds)

    def copied(self, directory: Path, record_id: str, kinds: Collection[str]) -> None:
        """Remember a record that was copied with what it had of these kinds.

        Raises:
            OSError: the directory cannot be read.
        """
        with self._lock:
            self._copied.setdefault(directory, {})[record_id] = self._listings
            self._note_missed(directory, [record_id], self.known(directory).difference(kinds))
            self._away.pop(directory, None)

    def unsettled(self, *, gone_too: bool = False) -> list[Path]:
        """Return the directories whose copied records may lack kinds, or do and have not been offered once more.

        ``gone_too``: also those that have been away for a while, and may come back.
        """
        with self._lock:
            return [
                path for path in self._copied.keys() | self._missed.keys() if gone_too or self._away_s(path) < GONE_S
            ]

    def is_away(self, directory: Path) -> bool:
        """Whether a directory was not there when it was last listed."""
        return directory in self._away

    def to_recheck(self) -> list[Path]:
        """Return all of them that may be listed now."""
        now = self._clock()
        return [path for path in self.unsettled(gone_too=True) if self._next_look_at(path) <= now]

    def recheck(self, directory: Path) -> set[str]:
        """List a directory, and return the copied records that have a kind which was not known then.

        Each stays unsettled until ``offered`` says that it will be copied once more.

        Raises:
            OSError: the directory cannot be read. One that has been away for a while has nothing to complete: no error.
        """
        with self._listing:
            try:
                self._list(directory)
            except (FileNotFoundError, NotADirectoryError):
                if directory in self.unsettled():
                    raise
                return set()
        with self._lock:
            return set(self._missed.get(directory, ()))

    def offered(self, directory: Path, record_id: str) -> None:
        """Forget that a record lacks a kind: its next copy, which has not begun, takes along all that is known."""
        with self._lock:
            missed = self._missed.get(directory, set())
            missed.discard(record_id)
            if not missed:
                self._missed.pop(directory, None)

    def _list_quietly(self, directory: Path) -> None:
        with contextlib.suppress(OSError):  # whoever looks next is told
            self.look(directory)

    def _list(self, directory: Path) -> None:
        began = self._clock()
        with self._lock:
            self._listings += 1
        try:
            kinds = find_kinds(directory)
            with self._lock:
                self._add(directory, kinds)
                self._forget_earlier(directory)
                self._away.pop(directory, None)
                self._look_at[directory] = self._clock() + PAUSE * (self._clock() - began)
        except (FileNotFoundError, NotADirectoryError):
            with self._lock:
                self._note_away(directory)
            raise
        except BaseException:
            with self._lock:
                self._look_at[directory] = self._clock() + FAILED_PAUSE_S
            raise

    def _note_away(self, directory: Path) -> None:
        now = self._clock()
        since, _ = self._away.get(directory, (now, now))
        self._away[directory] = since, now
        if now - since >= FORGET_S:
            del self._away[directory]
            self._forget_earlier(directory)
            self._missed.pop(directory, None)

    def _away_s(self, directory: Path) -> float:
        since, seen = self._away.get(directory, (0.0, 0.0))
        return seen - since

    def _next_look_at(self, directory: Path) -> float:
        if directory not in self._away:
            return self._look_at.get(directory, 0.0)
        _, seen = self._away[directory]
        return seen + min(max(GONE_S, self._away_s(directory)), MOST_PAUSE_S)

    def _forget_earlier(self, directory: Path) -> None:
        """Forget the copies that ended before this listing began."""
        copied = self._copied.pop(directory, {})
        if left := {record_id: number for record_id, number in copied.items() if number >= self._listings}:
            self._copied[directory] = left

    def _add(self, directory: Path, kinds: Collection[str]) -> None:
        new = set(kinds) - self.known(directory)
        self._note_missed(directory, self._copied.get(directory, ()), new)
        self._seen[directory] = self.known(directory) | new  # once nobody who lacks them can be overlooked

    def _note_missed(self, directory: Path, copied: Collection[str], new: Collection[str]) -> None:
        names = ((record_id, sidecar_name(record_id, kind)) for kind in new for record_id in copied)
        missed: set[str] = set()
        for record_id, name in names:
            if read_state(directory, name) is not None:
                missed.add(record_id)
            else:
                require_directory(directory)
        if missed:
            self._missed.setdefault(directory, set()).update(missed)
