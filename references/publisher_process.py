"""Logs each step to W&B from a helper process: neither its work nor its hanging is felt by the training process.

What is left here is to have a step's index built, to write it to the spool and to hand over its bytes, which one thread
does. The helper does the rest: receipts, manifest, W&B. One that dies is replaced for the next step; the steps that it
had not logged wait in the spool for `record-mirror link`.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mirror.config import MirrorConfig
from mirror.location import parse_location
from references.errors import ConfigError
from references.messages import Order
from references.mirror_access import MirrorAccess
from references.outbox import Outbox
from references.seams import Patience, PublishSettings
from references.spool import Spool
from references.wandb_client import check_run, limit_client_retries

if TYPE_CHECKING:
    from references.run_index import Phase, StepIndex


class PublisherProcess:
    """The ``Publisher`` for W&B that a training uses.

    The helper starts with the first step, and ends with ``close`` or with the training process. A forked child begins
    afresh with a helper of its own, and leaves to the parent what was published before.
    """

    def __init__(
        self,
        settings: PublishSettings | None = None,
        *,
        spool: Spool | None = None,
        mirror: str | os.PathLike[str] | None = None,
        mirror_config: MirrorConfig | None = None,
        patience: Patience | None = None,
    ) -> None:
        """Prepare; nothing is started, and W&B is not imported.

        Limits the retries of W&B's client through its environment variables where the user has not set them: create
        the publisher before ``wandb.init``.

        Args:
            settings: how long and how often to try.
            spool: where every step waits on disk until W&B has it; None: the user's own spool.
            mirror: the mirror's URL, where receipts are read and the indexes are kept; None: versions have no
                references.
            mirror_config: settings of the mirror.
            patience: how long to wait for receipts, and for what was abandoned.

        Raises:
            ConfigError: the mirror's settings hold what no other process can be given.
            mirror.ConfigError: a setting of the mirror is wrong, or nothing installed can open its URL.
        """
        limit_client_retries()
        if mirror is not None:
            MirrorAccess(mirror, mirror_config)  # refuses at once what no helper could use
            location = parse_location(mirror)
            mirror = location.directory or mirror  # the former also where the training changes its directory
        self._order = Order(
            settings=settings or PublishSettings(),
            patience=patience or Patience(),
            spool=spool or Spool(),
            mirror=None if mirror is None else (os.fspath(mirror), mirror_config or MirrorConfig()),
            log_level=min(logging.getLogger(package).getEffectiveLevel() for package in ("mirror", "references")),
        )
        try:
            pickle.dumps(self._order)
        except Exception as error:
            raise ConfigError(
                f"the mirror's storage_options cannot be given to another process ({error}): give plain values"
            ) from error
        self._outbox = Outbox(self._order)
        self._pid = os.getpid()
        self._inherited: list[Outbox] = []  # whose helpers are the parent's: to forget them would touch these

    def publish(self, phase: Phase, step: int, build: Callable[[], StepIndex | None], *, run: object | None) -> None:
        """Take over one step; see ``references.seams.Publisher``.

        Raises:
            StepError: the run is none of W&B's client.
        """
        check_run(run)
        self._own().publish(phase, step, build, run)

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
        """Finish what is under way, then end the helper, whatever it does; see ``references.seams.Publisher``."""
        return self._own().close(timeout_s)

    def _own(self) -> Outbox:
        if self._pid != os.getpid():
            self._inherited.append(self._outbox)
            self._outbox = Outbox(self._order)
            self._pid = os.getpid()
        return self._outbox
