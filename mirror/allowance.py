"""A bound on what is under way: so many requests, or so many bytes; first come, first served."""

from __future__ import annotations

import asyncio
import collections
from contextlib import AbstractAsyncContextManager


class Allowance:
    """A capacity shared by tasks of one event loop, which may be changed while they run.

    What is larger than the whole capacity gets all of it, alone.
    """

    def __init__(self, capacity: int) -> None:
        """Allow ``capacity`` units at a time."""
        self._capacity = capacity
        self._used = 0
        self._waiting: collections.deque[tuple[asyncio.Future[None], int]] = collections.deque()

    @property
    def capacity(self) -> int:
        """How many units may be out at a time."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        self._capacity = capacity
        self._serve()

    @property
    def used(self) -> int:
        """How many units are out now."""
        return self._used

    def take(self, units: int = 1) -> AbstractAsyncContextManager[None]:
        """Hold ``units`` for the length of the block, waiting for them first."""
        return _Held(self, units)

    async def acquire(self, units: int) -> None:
        """Wait for ``units``, which have to be given back."""
        if self._waiting or not self._fits(units):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((turn, units))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # served and cancelled at once
                    self._used -= units
                elif (turn, units) in self._waiting:  # or passed over already, between its cancellation and this
                    self._waiting.remove((turn, units))
                self._serve()
                raise
        else:
            self._used += units

    def give_back(self, units: int) -> None:
        """Let others have ``units``."""
        self._used -= units
        if self._waiting:
            self._serve()

    def _fits(self, units: int) -> bool:
        return self._used == 0 or self._used + units <= self._capacity

    def _serve(self) -> None:
        while self._waiting and self._fits(self._waiting[0][1]):
            turn, units = self._waiting.popleft()
            if not turn.cancelled():
                self._used += units
                turn.set_result(None)


class _Held(AbstractAsyncContextManager[None]):  # a decorated generator costs several times as much, twice a file
    __slots__ = ("_allowance", "_units")

    def __init__(self, allowance: Allowance, units: int) -> None:
        self._allowance = allowance
        self._units = units

    async def __aenter__(self) -> None:
        await self._allowance.acquire(self._units)

    async def __aexit__(self, *_: object) -> None:
        self._allowance.give_back(self._units)
