"""Who asks for the same at the same time shares the work, and nobody gets what was known before they asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from mirror.sharing import Shared


def run(scenario: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 30))


class Readings:
    """Work that a test lets go on."""

    def __init__(self) -> None:
        self.begun = 0
        self.goes_on = asyncio.Event()
        self.fails = False

    async def read(self) -> None:
        self.begun += 1
        await self.goes_on.wait()
        if self.fails:
            raise OSError


def test_who_wait_at_the_same_time_share_a_run_that_began_after_they_asked() -> None:
    """One is under way when three ask: they get the next one, and it is one for all."""

    async def scenario() -> None:
        readings = Readings()
        shared = Shared(readings.read)
        first = asyncio.create_task(shared.anew())
        await asyncio.sleep(0)
        others = [asyncio.create_task(shared.anew()) for _ in range(3)]
        await asyncio.sleep(0)
        assert readings.begun == 1
        readings.goes_on.set()
        await asyncio.gather(first, *others)
        assert readings.begun == 2
        await shared.anew()
        assert readings.begun == 3

    run(scenario)


def test_a_run_that_failed_is_nobody_elses_answer() -> None:
    """Who waited meanwhile begins another."""

    async def scenario() -> None:
        readings = Readings()
        readings.goes_on.set()
        readings.fails = True
        shared = Shared(readings.read)
        asked = [asyncio.create_task(shared.anew()) for _ in range(3)]
        await asyncio.gather(*asked, return_exceptions=True)
        assert [type(one.exception()) for one in asked] == [OSError] * 3
        assert readings.begun == 3
        readings.fails = False
        await shared.anew()

    run(scenario)


def test_a_run_that_was_cut_short_is_nobody_elses_answer() -> None:
    """As when its task is cancelled."""

    async def scenario() -> None:
        readings = Readings()
        shared = Shared(readings.read)
        first = asyncio.create_task(shared.anew())
        second = asyncio.create_task(shared.anew())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        readings.goes_on.set()
        await second
        assert readings.begun == 2

    run(scenario)
