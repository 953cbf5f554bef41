"""The helper process: logs to W&B what the training process hands over, and leaves when that one is gone.

Whatever hangs in W&B's client hangs here, and ends with this process.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue

from references.agenda import Agenda
from references.bounded import BoundedIndexStore, BoundedReceipts
from references.claims import By, Claims
from references.landing import IndexStore, Receipts
from references.messages import AskIsOver, Close, Closed, IsOver, Order, Remark, RunTicket, Step
from references.mirror_access import MirrorAccess
from references.remote_run import RemoteRun, use
from references.seams import Patience, PublishSettings
from references.spool import Spool
from references.worker import Launch, Worker

PARENT_CHECK_S = 1.0  # between two looks at whether the training process is there
HEAR_OUT_S = 10.0  # what it may take to hear what a training process that is gone has said; likewise to leave then
ANSWER_S = 10.0  # what it may take to say whether a run was finished
_NEW_OBJECTS = 2_000_000  # between two collections of garbage: an artifact makes many objects, and no garbage


class Helper:
    """Works on the orders of one training process. Its main thread receives; the worker's and its calls' send."""

    def __init__(self, connection: Connection, order: Order, parent: int) -> None:
        """Take the order of the process ``parent``."""
        self._connection = connection
        self._sending = threading.Lock()
        self._asking = threading.Lock()
        self._answers: SimpleQueue[IsOver] = SimpleQueue()
        self._runs: dict[int, RemoteRun] = {}
        for package in ("mirror", "references"):
            logger = logging.getLogger(package)
            logger.addHandler(_Forwarding(self))
            logger.setLevel(order.log_level)
        access = None if order.mirror is None else MirrorAccess(*order.mirror)
        self._worker = make_worker(
            order.settings,
            order.patience,
            order.spool,
            receipts=access,
            index_store=access,
            trainer=parent,
            changed=lambda: self.send(self._worker.report),
        )
        self._worker.start()

    def work(self) -> None:
        """Do what comes until told to leave, or until the training process is gone and all it said was heard."""
        with contextlib.suppress(EOFError, OSError):  # it is gone
            while True:
                self._do(self._connection.recv())
        self._worker.close(0)

    def send(self, message: object) -> None:
        """Tell the training process; in vain if it is gone."""
        with contextlib.suppress(OSError), self._sending:
            self._connection.send(message)

    def _do(self, message: object) -> None:
        match message:
            case Step(key=key, data=data, run=ticket):
                self._worker.take(key, data, None if ticket is None else self._run_of(ticket))
            case IsOver():
                self._answers.put(message)
            case Close(timeout_s=timeout_s):
                threading.Thread(target=self._close, args=(timeout_s,), daemon=True).start()

    def _close(self, timeout_s: float) -> None:
        self._worker.close(timeout_s)
        self.send(Closed(self._worker.report))
        os._exit(0)  # whatever hangs

    def _run_of(self, ticket: RunTicket) -> RemoteRun:
        if ticket.number not in self._runs:
            use(ticket)
            self._runs[ticket.number] = RemoteRun(ticket, lambda: self._is_over(ticket.number))
        return self._runs[ticket.number]

    def _is_over(self, run: int) -> bool:
        with self._asking:
            self.send(AskIsOver(run))
            try:
                while (answer := self._answers.get(timeout=ANSWER_S)).run != run:
                    pass  # to a question that was given up
            except Empty:
                raise TimeoutError("the training process does not say whether the run was finished") from None
            return answer.is_over


class _Forwarding(logging.Handler):
    """Has the training process log what is logged here."""

    def __init__(self, helper: Helper) -> None:
        super().__init__()
        self._helper = helper

    def emit(self, record: logging.LogRecord) -> None:
        self._helper.send(Remark(record.name, record.levelno, self.format(record)))


def make_worker(
    settings: PublishSettings,
    patience: Patience,
    spool: Spool,
    receipts: Receipts | None,
    index_store: IndexStore | None,
    *,
    trainer: int,
    changed: Callable[[], object] = lambda: None,
) -> Worker:
    """Make the worker that logs the steps of the process ``trainer``; ``changed``: see ``Worker``."""

    def make_agenda(launch: Launch) -> Agenda:
        return Agenda(
            settings=settings,
            patience=patience,
            spool=spool,
            receipts=None if receipts is None else BoundedReceipts(receipts, patience.mirror_timeout_s),
            index_store=None if index_store is None else BoundedIndexStore(index_store, patience.mirror_timeout_s),
            launch=launch,
            claims=Claims(spool, By.TRAINING, process=trainer),
        )

    return Worker(make_agenda, changed)


def main(descriptor: int, parent: int) -> None:
    """Be the helper of the process ``parent``, which listens at the other end of this socket."""
    gc.freeze()  # what was imported
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
    connection = Connection(descriptor)
    threading.Thread(target=_leave_with, args=(parent, connection), daemon=True).start()
    order: Order | None = None
    try:
        with contextlib.suppress(EOFError, OSError):  # it is gone before it has said anything
            order = connection.recv()
        if order is not None:
            Helper(connection, order, parent).work()
    except Exception:  # noqa: BLE001 - a bug; whoever reads what the training prints hears of it
        traceback.print_exc()
    os._exit(0)  # whatever hangs; and W&B's client must not finish the runs of the training process


def _leave_with(parent: int, connection: Connection) -> None:
    """End the connection once the process ``parent`` is gone: a fork of it may hold the other end open for long.

    Whoever waits for the rest of a message, or for room to send one, waits no more.
    """
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    deadline = time.monotonic() + HEAR_OUT_S
    while connection.poll() and time.monotonic() < deadline:  # not everywhere could it be read afterwards
        time.sleep(0.01)
    with socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)
    time.sleep(HEAR_OUT_S)
    os._exit(0)  # whatever hangs
