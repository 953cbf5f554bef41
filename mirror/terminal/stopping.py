"""How a running command is asked to stop: SIGTERM or SIGINT once to finish what is under way, SIGINT again at once."""

from __future__ import annotations

import queue
import signal
import time
from types import FrameType, TracebackType
from typing import Any, Self

TICK_S = 0.5  # a signal that the system hands to another thread ends no wait: its handler runs at the next tick


class Stopping:
    """Listens to signals for the length of a ``with`` statement, which belongs on the main thread.

    A second SIGINT raises KeyboardInterrupt there, whatever the thread is doing; from then on SIGINT is ignored.
    """

    def __init__(self) -> None:
        """Listen to nothing yet."""
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()  # unlike an Event, a signal handler may use it
        self._before: dict[signal.Signals, Any] = {}  # handlers as the signal module knows them
        self.by: signal.Signals | None = None  # the first signal that came

    @property
    def asked(self) -> bool:
        """Whether a signal came."""
        return self.by is not None

    @property
    def interrupted(self) -> bool:
        """Whether it was a person at the keyboard."""
        return self.by is signal.SIGINT

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a signal, or for ``wake``; says whether a signal came."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.asked:
            left_s = TICK_S if deadline is None else deadline - time.monotonic()
            try:
                self._news.get(timeout=min(TICK_S, max(0.0, left_s)))
                break
            except queue.Empty:
                if left_s <= 0:
                    break
        return self.asked

    def wake(self) -> None:
        """End a wait; any thread may call."""
        self._news.put(None)

    def __enter__(self) -> Self:
        """Listen."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the signals to whoever had them before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: FrameType | None) -> None:
        again = self.asked
        self.by = self.by or signal.Signals(number)
        self._news.put(None)
        if again and number == signal.SIGINT:
            del self._before[signal.SIGINT]
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is under way: a third would only garble it
            raise KeyboardInterrupt
