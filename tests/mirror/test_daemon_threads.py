"""Blocking calls run beside the loop, and one that hangs holds up nobody."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from mirror.stores.threads import DaemonThreads
from mirror.testing.stores import Moment
from tests.mirror.mirrors_in_memory import eventually


def test_a_call_comes_back_with_its_result_or_its_error() -> None:
    """From another thread, which ends with the pool."""

    async def scenario() -> None:
        threads = DaemonThreads(2, "pool")
        assert await threads.run(divmod, 7, 2) == (3, 1)
        assert await threads.run(lambda: threading.current_thread().daemon)
        with pytest.raises(ZeroDivisionError):
            await threads.run(divmod, 1, 0)
        threads.close()

    asyncio.run(scenario())
    eventually(lambda: not any(thread.name.startswith("pool") for thread in threading.enumerate()))


def test_an_idle_thread_holds_nothing() -> None:
    """What a call returned is its caller's alone: it may be large, and the next call may never come."""

    class Large:
        """Something that somebody may let go."""

    threads = DaemonThreads(1, "idle")

    async def scenario() -> weakref.ref[Large]:
        return weakref.ref(await threads.run(Large))

    large = asyncio.run(scenario())
    eventually(lambda: large() is None)
    threads.close()


def test_no_more_threads_than_allowed() -> None:
    """What comes beyond waits for one that is free."""

    async def scenario() -> None:
        threads = DaemonThreads(3, "few")
        release = threading.Event()
        calls = [asyncio.ensure_future(threads.run(release.wait)) for _ in range(10)]
        await asyncio.sleep(0)
        assert sum(thread.name.startswith("few") for thread in threading.enumerate()) == 3
        release.set()
        assert all(await asyncio.gather(*calls))
        threads.close()

    asyncio.run(scenario())


def test_a_call_that_hangs_is_left_behind() -> None:
    """Its deadline ends the wait, the loop ends, and another call gets a thread meanwhile."""
    hanging, release = Moment(), threading.Event()

    def hang() -> None:
        hanging.happen()
        release.wait()

    async def scenario() -> None:
        threads = DaemonThreads(2, "hung")
        call = asyncio.ensure_future(threads.run(hang))
        await asyncio.to_thread(hanging.wait)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await call
        assert await threads.run(abs, -5) == 5
        threads.close()

    asyncio.run(scenario())
    release.set()
    eventually(lambda: not any(thread.name.startswith("hung") for thread in threading.enumerate()))
