"""A breaker in front of a store: when nothing gets through, work waits, and one call at a time finds out if it does."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable

from mirror.errors import StoreError

logger = logging.getLogger(__name__)

THRESHOLD = 5  # failures with no success in between
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
REMIND_EVERY_S = 60.0


class BreakerState(enum.StrEnum):
    """What callers of the store do now."""

    CLOSED = "closed"  # they call
    OPEN = "open"  # they wait; one of them probes now and then
    REFUSED = "refused"  # as open, and somebody has to act


class Breaker:
    """Used on one event loop; ``state`` and ``reason`` may be read from any thread.

    One log line when it opens, one when an outage turns out to be a refusal, one a minute while it stays open, one when
    it closes.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        waiting: str | None = "records wait on local disk",
    ) -> None:
        """Begin closed.

        Args:
            name: how the log calls the store.
            clock: seconds.
            waiting: what the log says that goes on meanwhile; None: nothing waits out a refusal, its caller is told.
        """
        self.state = BreakerState.CLOSED
        self.reason: str | None = None
        self._name = name
        self._waiting = waiting
        self._clock = clock
        self._open_since: float | None = None  # on ``clock``
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._probe_at = 0.0
        self._probing = False
        self._reminded_at = 0.0
        self._refusal_told = False  # in this outage
        self._changed = asyncio.Event()

    @property
    def away_s(self) -> float:
        """For how long it has not been closed, in seconds."""
        return 0.0 if self._open_since is None else self._clock() - self._open_since

    async def admit(self) -> None:
        """Return when a call may be made; each admitted call ends with ``succeeded``, ``failed`` or ``abandoned``."""
        while self.state is not BreakerState.CLOSED:
            wait_s = self._probe_at - self._clock()
            if wait_s <= 0 and not self._probing:
                self._probing = True
                return
            changed = self._changed
            try:
                async with asyncio.timeout(None if self._probing else max(wait_s, 0.001)):
                    await changed.wait()
            except TimeoutError:
                continue

    def succeeded(self) -> None:
        """Take note that the store answered, be it with a refusal of one file."""
        self._failures = 0
        if self.state is BreakerState.CLOSED:
            return  # nobody waits
        logger.info("%s answers again after %.0f s; work goes on", self._name, self.away_s)
        self.state, self.reason, self._open_since = BreakerState.CLOSED, None, None
        self._pause_s = FIRST_PAUSE_S
        self._refusal_told = False
        self._probing = False
        self._wake()

    def failed(self, error: StoreError, *, refused: bool = False) -> None:
        """Take note of a failure; ``refused``: it will not pass until somebody acts."""
        was_probe, self._probing = self._probing, False
        self._failures += 1
        now = self._clock()
        if self.state is not BreakerState.CLOSED:
            if was_probe:  # not one of many calls that were under way when it opened
                self._pause_s = min(self._pause_s * 2, MAX_PAUSE_S)
                self._probe_at = now + self._pause_s
            self._become(refused, error)
            if refused and not self._refusal_told:
                self._say(logging.ERROR, "now", now)
            elif now - self._reminded_at >= REMIND_EVERY_S:
                self._say(logging.WARNING, "still", now)
        elif refused or self._failures >= THRESHOLD:
            self._open_since = now
            self._probe_at = now + self._pause_s
            self._become(refused, error)
            self._say(logging.ERROR if refused else logging.WARNING, "now", now)
        self._wake()

    def abandoned(self) -> None:
        """Take note that an admitted call was cancelled: it says nothing about the store."""
        self._probing = False
        self._wake()

    def _become(self, refused: bool, error: StoreError) -> None:  # noqa: FBT001 - private, one caller's own flag
        self.state = BreakerState.REFUSED if refused else BreakerState.OPEN
        self.reason = error.reason

    def _say(self, level: int, when: str, now: float) -> None:
        self._reminded_at = now
        does = "refuses everything" if self.state is BreakerState.REFUSED else "does not answer"
        meanwhile = f": {self._waiting}" if self._waiting else ""
        if self.state is BreakerState.REFUSED:
            self._refusal_told = True
            level = level if self._waiting else logging.INFO
            meanwhile += " until somebody acts"
        logger.log(level, "%s %s %s (%s)%s", self._name, when, does, self.reason, meanwhile)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
