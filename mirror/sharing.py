"""Work of which whoever asks gets a run that began after they asked; who wait at the same time share one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Shared:
    """Used on one event loop. A run that fails is a failure of whoever began it; the next who waits begins another."""

    def __init__(self, work: Callable[[], Awaitable[object]]) -> None:
        """Begin nothing."""
        self._work = work
        self._running = asyncio.Lock()
        self._begun = 0  # runs
        self._done = 0  # the number of the last run that did not fail

    async def anew(self) -> None:
        """Return when a run is over that began after this call."""
        begun_before = self._begun
        async with self._running:
            if self._done <= begun_before:
                self._begun += 1
                await self._work()
                self._done = self._begun
