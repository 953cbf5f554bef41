"""Blocking calls off the event loop, on daemon threads: one that hangs holds up neither a deadline nor the exit."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
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
        self._lock = threading.Lock()  # of the two numbers
        self._threads = 0
        self._unfinished = 0  # calls

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call on a thread and wait.

        When the wait is cancelled, a call that has begun ends by itself, and one that has not is never made.

        Raises:
            Exception: whatever ``call`` raises.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        unbegun: list[Callable[[], T]] = [lambda: call(*args, **kwargs)]  # emptied by whoever comes first

        def settle(result: T | None, error: BaseException | None) -> None:
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
                result = unbegun.pop()()
            except BaseException as error:  # noqa: BLE001 - it belongs to the waiter
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(settle, result, failure)

        self._submit(work)
        try:
            return await future
        finally:
            unbegun.clear()

    async def iterate(self, items: Iterator[T]) -> AsyncIterator[T]:
        """Yield what an iterator brings, each taken from it on a thread; it brings no None."""
        while (item := await self.run(next, items, None)) is not None:
            yield item

    def later(self, call: Callable[[], object]) -> None:
        """Call on a thread, and let nobody wait; what it raises is nobody's concern."""

        def work() -> None:
            with contextlib.suppress(Exception):
                call()

        self._submit(work)

    def _submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._unfinished += 1
            if self._unfinished > self._threads and self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._run, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._work.put(work)

    def close(self) -> None:
        """Let each thread end after the call that it is in."""
        with self._lock:
            ending, self._threads = self._threads, 0
        for _ in range(ending):
            self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            finally:
                del work  # else it would hold what it returned for as long as nothing else is to be done
                with self._lock:
                    self._unfinished -= 1
