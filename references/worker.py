"""The publisher's one thread: takes events from an inbox, and lets the agenda begin what is due.

Whatever other threads may see of it is written under its lock, after each event.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

import msgspec

from references import plain
from references.agenda import Agenda
from references.calls import THREAD_NAME, Call, run_on_a_thread
from references.codec import encode
from references.run_index import Phase, StepIndex
from references.seams import MOST
from references.spool import Spool, SpoolError, StepKey
from references.wandb_client import Run

logger = logging.getLogger(__name__)

EXIT_GRACE_S = 1.0  # what the thread may need after a deadline, e.g. to end a write to the spool
LEAVING_GRACE_S = 10.0  # likewise where the interpreter leaves, and what is not in the spool by then is lost

Launch = Callable[[Call, Callable[[], object]], None]


@dataclass(frozen=True, slots=True)
class _Published:
    phase: Phase
    step: int
    name: Callable[[], tuple[StepKey, bytes]]  # says which step of which run it is, and its bytes
    run: Run | None
    taken: Callable[[], object] = lambda: None
    is_spooled: bool = False


@dataclass(frozen=True, slots=True)
class _Ended:
    call: Call
    answer: object


@dataclass(frozen=True, slots=True)
class _Close:
    deadline: float


_Event = _Published | _Ended | _Close


class Worker:
    """One thread of one process; it starts with the first step and ends with ``close``."""

    def __init__(
        self,
        make_agenda: Callable[[Launch], Agenda],
        spool: Spool,
        inbox_size: int,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        """Start nothing.

        Args:
            make_agenda: makes the agenda of what that function launches.
            spool: where steps wait.
            inbox_size: steps that may wait to be written to the spool.
            changed: called after each event, on the thread, without the lock.
        """
        self._pid = os.getpid()
        self._spool = spool
        self._inbox_size = inbox_size
        self._changed = changed
        self._inbox: SimpleQueue[_Event] = SimpleQueue()
        self._agenda = make_agenda(self._launch)
        self._lock = threading.Lock()  # guards all below
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._in_inbox = 0  # steps
        self._dropped = 0  # steps that were not put there
        self._has_logged_all = True
        self._counts = self._agenda.counts()

    def publish(self, index: StepIndex, run: Run | None) -> None:
        """Hand over a step; when that is not possible any more, write it to the spool here and now."""
        self._publish(_Published(index.phase, index.step, partial(name_step, index, run), run))

    def publish_bytes(
        self, key: StepKey, data: bytes, run: Run | None, taken: Callable[[], object], *, is_spooled: bool
    ) -> None:
        """Hand over a step whose bytes are made, and perhaps in the spool; see ``publish``.

        ``taken`` is called, on any thread, as soon as the step is in the spool, or as it is known that the spool does
        not take it: nobody else need keep it any more.
        """
        self._publish(_Published(key.phase, key.step, lambda: (key, data), run, taken, is_spooled))

    def _publish(self, published: _Published) -> None:
        with self._lock:
            takes = not self._is_closed and self._in_inbox < self._inbox_size
            if takes:
                self._in_inbox += 1
                self._has_logged_all = False
                self._inbox.put(published)
                self._start()
            else:
                self._dropped += 1
        if not takes:
            self._only_spool(published)
            self._changed()

    @property
    def has_logged_all(self) -> bool:
        """Whether W&B, or the client of an offline run, has every step that was handed over."""
        with self._lock:
            return self._has_logged_all and not self._dropped

    def counts(self) -> dict[str, int]:
        """Return what happened so far and what is left, by name."""
        with self._lock:
            pending, dropped = self._counts["pending"] + self._in_inbox, self._counts["dropped"] + self._dropped
            return {**self._counts, "pending": pending, "dropped": dropped}

    def close(self, timeout_s: float) -> bool:
        """Finish what can be finished in that time, and end the thread; say whether W&B has every step."""
        self._end(min(timeout_s, MOST), EXIT_GRACE_S)
        if self._thread is None or not self._thread.is_alive():
            atexit.unregister(self._leave)
        return self.has_logged_all

    def _end(self, timeout_s: float, grace_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._lock:
            thread, was_closed, self._is_closed = self._thread, self._is_closed, True
            if not was_closed:
                self._inbox.put(_Close(deadline))
        if thread is not None:
            thread.join(max(0.0, deadline - time.monotonic()) + grace_s)

    def _leave(self) -> None:
        """Write to the spool what is still in the inbox: the interpreter leaves, and nobody has closed."""
        if os.getpid() == self._pid:  # a forked child has the handler, and neither the thread nor the steps
            self._end(0, LEAVING_GRACE_S)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
            self._thread.start()
            atexit.register(self._leave)

    def _only_spool(self, published: _Published) -> None:
        phase, step = published.phase, published.step
        try:
            self._spool.put(*published.name())
        except SpoolError as error:
            logger.error("%s step %d is lost: %s", phase, step, error)  # noqa: TRY400 - the sentence says all
        else:
            logger.warning("%s step %d is not logged by this process; the spool keeps it", phase, step)
        published.taken()

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
            with self._lock:
                self._is_closed = True
                self._has_logged_all = False
            self._rescue()

    def _take(self, published: _Published, now: float) -> None:
        try:
            key, data = published.name()
        except Exception:
            logger.exception("%s step %d is lost: its index cannot be written as JSON", published.phase, published.step)
            with self._lock:
                self._dropped += 1
        else:
            self._agenda.take(key, data, published.run, now, is_spooled=published.is_spooled)
        published.taken()

    def _rescue(self) -> None:
        """Write to the spool what nobody will take from the inbox any more."""
        with contextlib.suppress(Empty):
            while True:
                event = self._inbox.get_nowait()
                if isinstance(event, _Published):
                    self._only_spool(event)

    def _next_event(self, deadline: float | None) -> _Event | None:
        dues = [due for due in (self._agenda.next_due(), deadline) if due is not None]
        try:
            return self._inbox.get(timeout=max(0.0, min(dues) - time.monotonic()) if dues else None)
        except Empty:
            return None

    def _handle(self, event: _Event | None, now: float) -> None:
        match event:
            case _Published():
                self._take(event, now)
            case _Ended(call=call, answer=answer):
                self._agenda.ended(call, answer, now)
            case _Close(deadline=deadline):
                self._agenda.close(now, deadline)
            case None:
                pass
        self._agenda.advance(now)
        counts = self._agenda.counts()
        with self._lock:
            self._counts = counts
            self._in_inbox -= isinstance(event, _Published)
            self._has_logged_all = self._agenda.has_logged_all and not self._in_inbox
        self._changed()


def name_step(index: StepIndex, run: object | None) -> tuple[StepKey, bytes]:
    """Return which step of which run it is, and its bytes; an index that knows no run belongs to the one given."""
    run_id = plain.field(run, "id")  # whatever a trainer's tracker has there
    if not index.run and isinstance(run_id, str):
        index = msgspec.structs.replace(index, run=run_id)
    return StepKey(index.run, index.phase, index.step), encode(index)
