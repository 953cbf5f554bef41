"""What one process hands over to its helper process, and what it knows of what became of it.

A step is in the spool before the helper hears of it: whichever process dies, `record-mirror link` finds it there.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

import msgspec

from references import plain
from references.agenda import COUNTERS
from references.calls import THREAD_NAME
from references.codec import encode
from references.helper_process import LEAVE_S, HelperProcess
from references.messages import AskIsOver, Close, Closed, IsOver, Order, Remark, Report, RunTicket, Step
from references.run_index import Phase, StepIndex
from references.run_tickets import RunTickets
from references.seams import MOST
from references.spool import SpoolError, StepKey
from references.wandb_client import SERVICE
from references.worker import EXIT_GRACE_S

logger = logging.getLogger(__name__)

LEAVING_GRACE_S = 10.0  # where the interpreter leaves; what is not in the spool by then is lost
NOW = ("pending", "spooled", "waiting_for_receipts", "without_run")  # counts that go down again
NOTHING_YET = Report(0, dict.fromkeys((*COUNTERS, *NOW), 0), has_logged_all=True)


@dataclass(frozen=True, slots=True)
class _Job:
    phase: Phase
    step: int
    build: Callable[[], StepIndex | None]
    run: object | None


@dataclass(frozen=True, slots=True)
class _Spooled:
    key: StepKey
    data: bytes
    error: SpoolError | None  # why it is not in the spool


class Outbox:
    """One thread hands over, and begins a helper where there is none; the helper's own thread hears it."""

    def __init__(self, order: Order) -> None:
        """Start nothing."""
        self._pid = os.getpid()
        self._order = order
        self._tickets = RunTickets()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()  # None: close was called
        self._deadline = 0.0  # written by close before it puts None into ``_jobs``
        self._service: str | None = None  # of W&B's client, that the helper is connected to; written by our thread
        self._ended = threading.Event()  # there is no helper any more, nor will there be one
        self._lock = threading.Lock()  # guards all below
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_done = False  # our thread has handed everything over
        self._waiting = 0  # jobs
        self._dropped = 0  # steps that no helper was given
        self._is_whole = True  # no step was dropped, not built, or left to the spool by a helper that died
        self._bug: BaseException | None = None  # not raised yet
        self._helper: HelperProcess | None = None
        self._sent = 0  # steps, to this helper
        self._report = NOTHING_YET  # of this helper
        self._earlier: Counter[str] = Counter()  # of helpers that died

    def publish(self, phase: Phase, step: int, build: Callable[[], StepIndex | None], run: object | None) -> None:
        """Take over a step; when that is not possible any more, write it to the spool here and now.

        A bug in a step that was taken over is raised into a later one, however soon it is met.
        """
        job = _Job(phase, step, build, run)
        bug = None
        with self._lock:
            takes = not self._is_closed and self._waiting < self._order.settings.queue_size
            if takes:
                bug = self._take_bug()
                self._waiting += 1
                self._jobs.put(job)
                self._start()
        if not takes:
            self._drop_now(job)
            with self._lock:
                bug = self._take_bug()
        if bug is not None:
            raise bug

    def counts(self) -> dict[str, int]:
        """Return what happened so far and what is left, by name."""
        with self._lock:
            counts = {name: number + self._earlier[name] for name, number in self._report.counts.items()}
            counts["pending"] += self._waiting + self._on_the_way
            counts["dropped"] += self._dropped
            has_heard = self._report is not NOTHING_YET
        return counts if has_heard else {**counts, "spooled": self._order.spool.count()}

    def close(self, timeout_s: float) -> bool:
        """Finish what can be finished in that time, and end the helper; say whether W&B has every step."""
        self._end(min(timeout_s, MOST), EXIT_GRACE_S)
        atexit.unregister(self._leave)
        with self._lock:
            if (bug := self._take_bug()) is not None:
                raise bug
            return self._is_whole and not self._waiting and self._has_logged_all

    @property
    def _on_the_way(self) -> int:
        """How many steps the helper has not heard of, or not said so."""
        return self._sent - self._report.taken

    @property
    def _has_logged_all(self) -> bool:
        return self._report.has_logged_all and not self._on_the_way

    def _take_bug(self) -> BaseException | None:
        bug, self._bug = self._bug, None
        return bug

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
            self._thread.start()
            atexit.register(self._leave)

    def _end(self, timeout_s: float, grace_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        with self._lock:
            thread, was_closed, self._is_closed = self._thread, self._is_closed, True
            if not was_closed:
                self._deadline = deadline
                self._jobs.put(None)
        if thread is None:
            return
        thread.join(timeout_s + grace_s)
        self._ended.wait(max(0.0, deadline + EXIT_GRACE_S + LEAVE_S - time.monotonic()))
        with self._lock:
            helper = self._helper
        if helper is not None:
            helper.end()

    def _leave(self) -> None:
        """Write to the spool what was not yet: the interpreter leaves, and nobody has closed."""
        if os.getpid() == self._pid:  # a forked child has the handler, and neither the thread nor the helper
            self._end(0, LEAVING_GRACE_S)

    def _spool(self, job: _Job) -> _Spooled | None:
        """Build a step and make it durable; None where there is nothing in it."""
        index = job.build()
        if index is None:
            return None
        key, data = _name(index, job.run)
        try:
            self._order.spool.put(key, data)
        except SpoolError as error:
            return _Spooled(key, data, error)
        return _Spooled(key, data, None)

    def _drop_now(self, job: _Job) -> None:
        try:
            spooled = self._spool(job)
        except BaseException:
            self._count_dropped()
            raise
        if spooled is not None:
            self._drop(spooled)

    def _count_dropped(self, bug: BaseException | None = None) -> None:
        """Count a step that no helper is given, and keep the bug that it was lost by for a later call to raise."""
        with self._lock:
            self._dropped += 1
            self._is_whole = False
            self._bug = self._bug or bug

    def _drop(self, step: _Spooled) -> None:
        """Leave a step to the spool."""
        key = step.key
        self._count_dropped()
        if step.error is not None:
            _say(logging.ERROR, "%s step %d is lost: %s", key.phase, key.step, step.error)
        else:
            _say(logging.WARNING, "%s step %d is not logged by this process; the spool keeps it", key.phase, key.step)

    # On our thread

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._hand_over(job)
            except BaseException as error:  # noqa: BLE001 - a bug: whoever publishes or closes next raises it
                self._count_dropped(error)
                _say(logging.ERROR, "%s step %d is lost: its index was not built", job.phase, job.step, error=error)
            with self._lock:
                self._waiting -= 1
        with self._lock:
            helper, self._is_done = self._helper, True
        if helper is None:
            self._ended.set()
        else:
            helper.send(Close(max(0.0, self._deadline - time.monotonic())))

    def _hand_over(self, job: _Job) -> None:
        step = self._spool(job)
        if step is None:
            return
        ticket = self._tickets.of(job.run)
        helper = self._helper_for(ticket)
        with self._lock:
            takes = helper is not None and self._on_the_way < self._order.settings.queue_size
            if takes and helper is self._helper:
                self._sent += 1
            elif takes:  # it has just died
                self._is_whole = False
        if helper is None or not takes:
            self._drop(step)
            return
        if step.error is not None:
            text = "%s step %d is not in the spool, and lost if W&B fails too: %s"
            _say(logging.ERROR, text, job.phase, job.step, step.error)
        helper.send(Step(step.key, step.data, ticket))

    def _helper_for(self, ticket: RunTicket | None) -> HelperProcess | None:
        """Return a helper that can log to this run, or None where none can be started any more."""
        service = None if ticket is None else ticket.environment.get(SERVICE)
        with self._lock:
            helper = self._helper
        is_cut_off = bool(service and self._service and service != self._service)  # what it is connected to is gone
        if helper is not None and (is_cut_off or not helper.is_alive):
            helper.send(Close(0))
            helper.end()
            helper = None
        if helper is None:
            if self._is_too_late():
                return None
            self._service = None
            try:
                helper = HelperProcess(self._hear, self._gone)
            except (OSError, RuntimeError) as error:  # the latter: the interpreter leaves
                _say(logging.WARNING, "no process to log to W&B can be started: %s", error)
                return None
            with self._lock:
                self._helper = helper
            helper.listen()
            helper.send(self._order)
        self._service = service or self._service
        return helper

    def _is_too_late(self) -> bool:
        """Whether nobody would wait for a helper that began now."""
        with self._lock:
            return self._is_closed and time.monotonic() >= self._deadline

    # On the helper's thread

    def _hear(self, message: object) -> None:
        match message:
            case Report():
                with self._lock:
                    self._report = message
            case AskIsOver(run=run):
                with self._lock:
                    helper = self._helper
                if helper is not None:
                    helper.send(IsOver(run, self._tickets.is_over(run)))
            case Remark(logger=name, level=level, text=text):
                _say(level, "%s", text, to=logging.getLogger(name))
            case Closed(report=report):
                with self._lock:
                    self._report = report
                    if self._is_done:
                        self._ended.set()

    def _gone(self) -> None:
        with self._lock:
            self._helper = None
            has_died = not self._ended.is_set()
            if has_died:
                self._is_whole = self._is_whole and self._has_logged_all
                self._earlier.update({name: self._report.counts[name] for name in COUNTERS})
                self._sent, self._report = 0, NOTHING_YET
            if self._is_done:
                self._ended.set()
        if has_died:
            text = "the process that logs to W&B is gone; the spool keeps the steps that it had not logged yet"
            _say(logging.ERROR, text)


def _name(index: StepIndex, run: object | None) -> tuple[StepKey, bytes]:
    """Return which step of which run it is, and its bytes; an index that knows no run belongs to the one given."""
    run_id = plain.field(run, "id")  # whatever a trainer's tracker has there
    if not index.run and isinstance(run_id, str):
        index = msgspec.structs.replace(index, run=run_id)
    return StepKey(index.run, index.phase, index.step), encode(index)


def _say(
    level: int, text: str, *values: object, to: logging.Logger = logger, error: BaseException | None = None
) -> None:
    """Log a line. Whatever a filter or handler of the training's raises ends no thread of ours, and keeps no step."""
    try:
        to.log(level, text, *values, exc_info=error, stacklevel=2)
    except (Exception, SystemExit):  # noqa: BLE001 - the latter: a handler that leaves where an error is logged
        with contextlib.suppress(Exception):  # there may be nowhere to print to
            sys.stderr.write(f"{text % values}\n{traceback.format_exc()}")
