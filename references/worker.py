"""The helper's one thread that thinks: takes events from an inbox, and lets the agenda begin what is due.

It never waits for W&B itself: what may hang runs on a thread of its own and is abandoned at its deadline. Every other
thread only puts an event into the inbox, or reads the last report.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from references.agenda import Agenda
from references.calls import THREAD_NAME, Call, run_on_a_thread
from references.messages import Report
from references.seams import MOST
from references.spool import StepKey
from references.wandb_client import Run

logger = logging.getLogger(__name__)

EXIT_GRACE_S = 1.0  # what the thread may need after a deadline, e.g. to end a write to the spool

Launch = Callable[[Call, Callable[[], object]], None]


@dataclass(frozen=True, slots=True)
class _Step:
    key: StepKey
    data: bytes
    run: Run | None


@dataclass(frozen=True, slots=True)
class _Ended:
    call: Call
    answer: object


@dataclass(frozen=True, slots=True)
class _Close:
    deadline: float


_Event = _Step | _Ended | _Close


class Worker:
    """One thread, from ``start`` to ``close``. Whoever hands over steps says how many may wait here."""

    def __init__(self, make_agenda: Callable[[Launch], Agenda], changed: Callable[[], object] = lambda: None) -> None:
        """Start nothing.

        Args:
            make_agenda: makes the agenda of what that function launches.
            changed: called after each event, on the thread: there is another report.
        """
        self._changed = changed
        self._inbox: SimpleQueue[_Event] = SimpleQueue()
        self._agenda = make_agenda(self._launch)
        self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
        self.report = Report(0, self._agenda.counts(), has_logged_all=True)  # replaced by the thread

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def take(self, key: StepKey, data: bytes, run: Run | None) -> None:
        """Hand over a step; it is in the spool."""
        self._inbox.put(_Step(key, data, run))

    def close(self, timeout_s: float) -> None:
        """Finish what can be finished in that time, and end the thread."""
        timeout_s = min(timeout_s, MOST)
        self._inbox.put(_Close(time.monotonic() + timeout_s))
        self._thread.join(timeout_s + EXIT_GRACE_S)

    def _launch(self, call: Call, function: Callable[[], object]) -> None:
        run_on_a_thread(function, lambda answer: self._inbox.put(_Ended(call, answer)))

    # On the thread

    def _work(self) -> None:
        deadline: float | None = None
        try:
            while deadline is None or (time.monotonic() < deadline and not self._agenda.is_finished):
                event = self._next_event(deadline)
                if isinstance(event, _Close):
                    deadline = event.deadline
                self._handle(event, time.monotonic())
            self._agenda.leave()
        except Exception:
            logger.exception("the publisher has a bug and ends; the spool keeps every step from now on")

    def _next_event(self, deadline: float | None) -> _Event | None:
        dues = [due for due in (self._agenda.next_due(), deadline) if due is not None]
        try:
            return self._inbox.get(timeout=max(0.0, min(dues) - time.monotonic()) if dues else None)
        except Empty:
            return None

    def _handle(self, event: _Event | None, now: float) -> None:
        taken = self.report.taken
        match event:
            case _Step(key=key, data=data, run=run):
                self._agenda.take(key, data, run, now)
                taken += 1
            case _Ended(call=call, answer=answer):
                self._agenda.ended(call, answer, now)
            case _Close(deadline=deadline):
                self._agenda.close(now, deadline)
            case None:
                pass
        self._agenda.advance(now)
        self.report = Report(taken, self._agenda.counts(), has_logged_all=self._agenda.has_logged_all)
        self._changed()
