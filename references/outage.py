"""What an operator hears of something that fails again and again: one line a minute, and one when it works again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

REMIND_EVERY_S = 60.0


class Outage:
    """Decides which failures are worth a line. Any thread may call."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin in health; ``clock``: seconds."""
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at: float | None = None  # on ``clock``, whatever has worked since
        self._is_told = False  # that it fails at present

    def failed(self) -> bool:
        """Take note of a failure; say whether it is told."""
        with self._lock:
            now = self._clock()
            if self._told_at is not None and now - self._told_at < REMIND_EVERY_S:
                return False
            self._told_at, self._is_told = now, True
            return True

    def worked(self) -> bool:
        """Take note of a success; say whether that is told: it is the first after a failure that was told."""
        with self._lock:
            was_told, self._is_told = self._is_told, False
            return was_told


@dataclass(frozen=True, slots=True)
class MirrorOutages:
    """What goes wrong with a mirror that steps are logged from: reading its receipts, writing indexes to it."""

    reading: Outage = field(default_factory=Outage)
    writing: Outage = field(default_factory=Outage)
