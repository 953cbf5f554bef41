"""What is opened at the first call, kept for all calls, and opened anew after a refresh."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reopened(Generic[T]):
    """A client with its connections. Used on one event loop.

    Calls may be under way on the one from before a refresh, which is closed only when the next one has taken its place.
    """

    def __init__(self, connect: Callable[[], Awaitable[T]], close: Callable[[T], Awaitable[None]]) -> None:
        """Open nothing yet; ``close`` never raises."""
        self._connect = connect
        self._close = close
        self._current: T | None = None
        self._retired: T | None = None
        self._is_outdated = False
        self._opening = asyncio.Lock()

    async def get(self) -> T:
        """Return the client, made at the first call and at the first one after a refresh."""
        if self._current is None or self._is_outdated:
            async with self._opening:
                if self._current is None or self._is_outdated:
                    made = await self._connect()
                    outdated, self._retired, self._current = self._retired, self._current, made
                    self._is_outdated = False
                    if outdated is not None:
                        await self._close(outdated)
        return self._current

    def refresh(self) -> None:
        """Let the next call make another."""
        self._is_outdated = True

    async def aclose(self) -> None:
        """Close what there is."""
        current, retired = self._current, self._retired
        self._current = self._retired = None
        for client in (current, retired):
            if client is not None:
                await self._close(client)
