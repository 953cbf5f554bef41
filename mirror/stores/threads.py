"""Blocking calls off the event loop, on daemon threads: one that hangs holds up neither a deadline nor the exit."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads:
    """A pool of at most ``limit`` threads, started as needed.

    The standard executor joins its threads when the interpreter exits, and so would wait for a hung file server.
    """

    def __init__(self, limit: int, name: str) -> None:
        """Start nothing yet."""
        self._limit = limit
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = 0  # touched on the event loop only
        self._busy = 0

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call on a thread and wait; a cancelled wait leaves the call to end by itself.

        Raises:
            Exception: whatever ``call`` raises.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            self._busy -= 1
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type] # None only where T allows it

        def work() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = call(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - it belongs to the waiter
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(settle, result, failure)

        self._busy += 1
        if self._busy > self._threads and self._threads < self._limit:
            self._threads += 1
            threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._work.put(work)
        return await future

    def close(self) -> None:
        """Let each thread end after the call that it is in."""
        for _ in range(self._threads):
            self._work.put(None)
        self._threads = 0

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
