"""One event loop on one daemon thread, to which any other thread may hand work."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_in_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own, whether or not the calling thread has a running one."""
    thread = LoopThread("record-mirror")
    future = thread.start(coroutine)
    try:
        return future.result()
    except BaseException:  # an interrupt of the caller ends the work too
        future.cancel()
        raise
    finally:
        thread.close(5)


class LoopThread:
    """Runs coroutines for threads that have no loop, or another one.

    The thread is a daemon: an interpreter that exits without ``close`` does not wait for it.
    """

    def __init__(self, name: str) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call something on the loop, soon; forgotten if the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def close(self, timeout_s: float) -> None:
        """End the loop and its thread; a thread that does not end in time is left to the interpreter's exit."""
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
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
