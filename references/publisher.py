"""Logs each step to W&B in the background: neither a hang nor an outage of W&B is felt by the training.

One worker thread owns the ``Agenda`` and never waits for W&B itself: what may hang runs on a thread of its own and is
abandoned at its deadline. Every other thread only puts an event into the worker's inbox.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, cast

from references.agenda import Agenda, Patience
from references.bounded import BoundedIndexStore, BoundedReceipts
from references.claims import By, Claims
from references.seams import PublishSettings
from references.spool import Spool
from references.wandb_client import limit_client_retries
from references.worker import Launch, Worker

if TYPE_CHECKING:
    from references.landing import IndexStore, Receipts
    from references.run_index import StepIndex
    from references.wandb_client import Run


class WandbPublisher:
    """The ``Publisher`` for W&B that works in its own process.

    ``close`` ends its worker. A call that hangs in W&B's client cannot be ended, and goes on until the client gives up:
    a training uses ``PublisherProcess``, which leaves nothing behind.

    The worker starts with the first step. A forked child begins afresh with a worker of its own: it logs what is
    published there, and leaves to the parent what was published before.
    """

    def __init__(
        self,
        settings: PublishSettings | None = None,
        *,
        spool: Spool | None = None,
        receipts: Receipts | None = None,
        index_store: IndexStore | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Prepare; no thread is started, and W&B is not imported.

        Limits the retries of W&B's client through its environment variables where the user has not set them: create
        the publisher before ``wandb.init``.

        Args:
            settings: how long and how often to try.
            spool: where every step waits on disk until W&B has it; None: the user's own spool.
            receipts: the mirror's receipts; None: versions have no references.
            index_store: where the mirror keeps the indexes; None: they are in the spool and in W&B only.
            patience: how long to wait for receipts, and for what was abandoned.
        """
        limit_client_retries()
        self._make_worker: Callable[[], Worker] = partial(
            make_worker,
            settings or PublishSettings(),
            spool=spool or Spool(),
            receipts=receipts,
            index_store=index_store,
            patience=patience or Patience(),
        )
        self._worker = self._make_worker()
        self._pid = os.getpid()

    def publish(self, index: StepIndex, *, run: object | None) -> None:
        """Take over one step's index; see ``references.seams.Publisher``."""
        self._own().publish(index, cast("Run | None", run))

    def stats(self) -> Mapping[str, int]:
        """Return the counts so far, by name.

        - ``logged``: steps that W&B has; ``completed``: newer versions of them, for records that landed late.
        - ``failed``, ``timed_out``, ``dropped``: steps that were given up, if only for now; the spool keeps them.
        - ``retried``: further tries.
        - ``replaced``: contents that a newer one of the same step replaced before they were logged.
        - ``offline``, ``disabled``: steps given to a client that does not send them; the spool keeps them.
        - Now: ``pending``: steps in the queue; ``without_run``: steps waiting for an active run; ``spooled``: steps in
          the spool, of any process; ``waiting_for_receipts``: steps some of whose records have not landed.
        """
        return self._own().counts()

    def close(self, timeout_s: float) -> bool:
        """Finish what is under way, then end the worker; see ``references.seams.Publisher``."""
        return self._own().close(timeout_s)

    def _own(self) -> Worker:
        """Return this process's worker: a thread does not survive a fork, and its locks may be held for ever there."""
        if self._pid != os.getpid():
            self._worker = self._make_worker()
            self._pid = os.getpid()
        return self._worker


def make_worker(
    settings: PublishSettings,
    *,
    spool: Spool,
    receipts: Receipts | None,
    index_store: IndexStore | None,
    patience: Patience,
    changed: Callable[[], object] = lambda: None,
    trainer: int | None = None,
) -> Worker:
    """Make the worker of one process; for the arguments see ``WandbPublisher`` and ``Worker``.

    ``trainer`` is the process that began the runs, by default this one.
    """

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

    return Worker(make_agenda, spool, settings.queue_size, changed)
