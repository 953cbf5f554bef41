"""Which kinds of sidecars a directory has: the known ones, and whatever else was seen there.

A sidecar's kind is part of its name, so a record's files can be looked up without a listing once the kinds are known. A
listing learns new ones; it is repeated whenever something is asked, but listings take at most a twentieth of the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from mirror.names import KNOWN_KINDS
from mirror.record import find_kinds

PAUSE = 20  # times as long as the last listing took


class Kinds:
    """The kinds seen in each directory. Any thread may call."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing but the known kinds yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[Path, frozenset[str]] = {}
        self._look_at: dict[Path, float] = {}

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
        with self._lock:
            if self.is_due(directory):
                began = self._clock()
                self._seen[directory] = self.known(directory) | find_kinds(directory)
                self._look_at[directory] = self._clock() + PAUSE * (self._clock() - began)
            return self.known(directory)

    def learn(self, directory: Path, kinds: set[str]) -> None:
        """Remember kinds that somebody else saw in a directory."""
        with self._lock:
            self._seen[directory] = self.known(directory) | kinds
