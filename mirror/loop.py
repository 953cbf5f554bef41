"""One event loop on one daemon thread, to which any other thread may hand work."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # now: once the interpreter is ending, its exit cannot be prepared any more
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, TypeVar, cast

from mirror.importing import importing

T = TypeVar("T")

EXIT_S = 1.0  # for what is under way when the interpreter exits to be cancelled
LET_GO_S = 1.0  # for connections to be closed
SETTLE_S = 0.05  # for obstore's threads to let go of a call that has ended
_alive: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def run_in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, whether or not the calling thread has a running one."""
    thread = LoopThread("record-mirror")
    try:
        return _wait_for(thread.start(coroutine))
    finally:
        thread.close(5)


def iterate_in_loop(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """Yield what an asynchronous generator yields; it runs on a loop of its own until it, or the caller, is done."""
    end = object()

    async def following() -> T | object:
        return await anext(items, end)

    async def close() -> None:
        await items.aclose()

    thread = LoopThread("record-mirror")
    try:
        while (item := _wait_for(thread.start(following()))) is not end:
            yield cast("T", item)
    except GeneratorExit:  # the caller has enough
        _wait_for(thread.start(close()))
        raise
    finally:
        thread.close(5)


def _wait_for(future: concurrent.futures.Future[T]) -> T:
    try:
        return future.result()
    except BaseException:  # an interrupt of the caller ends the work too
        future.cancel()
        raise


class LoopThread:
    """Runs coroutines for threads that have no loop, or another one.

    The thread is a daemon: an interpreter that exits without ``close`` waits for it no longer than ``EXIT_S``.
    """

    def __init__(self, name: str) -> None:
        """Start the thread."""
        with importing:
            import uvloop  # noqa: PLC0415 - only where there is work for a loop

        self._loop = uvloop.new_event_loop()  # asyncio's own costs a tenth more CPU for each small file
        self._lock = threading.Lock()
        self._is_closing = False
        self._at_end: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _alive.add(self)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop; cancelling the future cancels it. On a closed loop it is cancelled at once."""
        with self._lock:
            if not self._is_closing:
                return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        coroutine.close()
        never: concurrent.futures.Future[T] = concurrent.futures.Future()
        never.cancel()
        return never

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call something on the loop, soon; forgotten if the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def at_end(self, let_go: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have connections let go before the loop ends, also where nobody said that it should."""
        self._at_end = let_go

    def close(self, timeout_s: float) -> None:
        """End the loop and its thread; a thread that does not end in time is left to the interpreter's exit."""
        with self._lock:
            self._is_closing = True
        self.call_soon(self._loop.stop)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=1))
            if self._at_end is not None:
                with contextlib.suppress(TimeoutError):
                    self._loop.run_until_complete(asyncio.wait_for(self._at_end(), LET_GO_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()


@atexit.register
def _end_all() -> None:
    """Leave no call under way: obstore's threads take the interpreter's lock when one ends, and too late they abort."""
    for thread in list(_alive):
        thread.close(EXIT_S)
    if "obstore" in sys.modules:
        time.sleep(SETTLE_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_alive.clear)  # a child has none of its parent's threads
