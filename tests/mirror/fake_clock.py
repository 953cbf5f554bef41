"""Time for tests: a clock that only a test turns, and a sleep that returns at once and keeps what was asked of it."""

from __future__ import annotations

import asyncio


class FakeClock:
    """Seconds since some moment."""

    def __init__(self, now: float = 1_000.0) -> None:
        """Begin at a moment."""
        self.now = now

    def __call__(self) -> float:
        """Return the moment."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class FakeSleep:
    """Remembers every pause, and takes none; the clock moves on by as much."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        """Begin without pauses."""
        self.pauses_s: list[float] = []
        self._clock = clock

    async def __call__(self, seconds: float) -> None:
        """Let others run, no more."""
        self.pauses_s.append(seconds)
        if self._clock is not None:
            self._clock.advance(seconds)
        await asyncio.sleep(0)


async def settled() -> None:
    """Let every task run as far as it can without the world outside."""
    for _ in range(20):
        await asyncio.sleep(0)
