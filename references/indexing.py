"""At the end of each step, what the generator did becomes the step's index: for any trainer.

On the training thread is done only what needs no network: take the entries, build the index, hand it over. A mistake in
that raises into the step, since it is ours; whatever happens afterwards is the publisher's.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterable, Sized
from typing import TYPE_CHECKING, cast

from references import plain
from references.batch import count_unlogged, read_batch
from references.errors import BatchError, ConfigError, StepError
from references.phases import check_phases
from references.publisher import WandbPublisher
from references.rows import build_index
from references.run_index import MAX_STEP_DIGITS, Phase
from references.seams import PublishSettings

if TYPE_CHECKING:
    from references.batch import Batch
    from references.entry import Entry
    from references.record_log import RecordLog
    from references.seams import Publisher

logger = logging.getLogger(__name__)


class StepIndexer:
    """Indexes each training step, and each evaluation where that is enabled, in W&B.

    ``step_start``, ``step_end``, ``eval_end`` and ``train_end`` belong to one thread, the trainer's; ``stats`` may be
    called from any.
    """

    def __init__(
        self,
        records: RecordLog,
        phases: Iterable[str] = ("train",),
        *,
        queue_size: int = 16,
        timeout: float = 300.0,
        attempts: int = 3,
        backoff: float = 5.0,
        shutdown_timeout: float = 120.0,
        keep_steps: int | None = None,
        publisher: Publisher | None = None,
    ) -> None:
        """Index what the generator logs in ``records``.

        Args:
            records: the log that the generator adds to.
            phases: what is indexed, of ``train`` and ``eval``; the entries of the others are dropped.
            queue_size: step indexes that may wait for W&B.
            timeout: seconds that one artifact version may take.
            attempts: how often a version is tried.
            backoff: seconds before the second attempt, doubled with each further one.
            shutdown_timeout: seconds that the end of training waits.
            keep_steps: for an asynchronous trainer, for how many further steps an entry waits for the batch that has
                it; None for a synchronous one, whose step ends with all that was generated for it.
            publisher: who takes the indexes over; by default one that logs to W&B, made of the settings above.

        Raises:
            ConfigError: a phase is unknown, or a setting makes no sense.
        """
        self._settings = PublishSettings(
            queue_size=queue_size,
            timeout_s=timeout,
            attempts=attempts,
            backoff_s=backoff,
            shutdown_timeout_s=shutdown_timeout,
        )
        if keep_steps is not None and keep_steps < 0:
            raise ConfigError(f"keep_steps is {keep_steps}: give None or a number of steps, 0 or more")
        self._records = records
        self._phases = check_phases(phases if isinstance(phases, str) else list(phases))
        self._keep_steps = keep_steps
        self._publisher: Publisher = WandbPublisher(self._settings) if publisher is None else publisher
        self._run_id = ""
        self._counts = {"discarded": 0, "expired": 0, "unlogged": 0}

    def step_start(self) -> None:
        """Begin a training step: what an earlier one left behind belongs to a batch that was dropped.

        An asynchronous trainer need not call this; what it left behind may yet be trained.
        """
        if self._keep_steps is None:
            self._discard()

    def step_end(
        self,
        step: int | None,
        *,
        trajectory_ids: Iterable[object] | None = None,
        loss_masks: Sized | None = None,
        run: object | None = None,
    ) -> None:
        """End a training step: index all that was generated for it.

        Args:
            step: the global step.
            trajectory_ids: what names the batch's rows, see ``references.batch.read_batch``; None when the trainer does
                not know, and then nobody knows what trained.
            loss_masks: the batch's loss masks; rows past the ids are padding.
            run: W&B's run, e.g. ``wandb.run``; None when there is none now.

        Raises:
            StepError: the step has no number.
            BatchError: ids and loss masks do not fit together, or an asynchronous trainer has no ids.
        """
        if "train" not in self._phases:
            self._records.take("train")
            return
        batch = None if trajectory_ids is None else read_batch(trajectory_ids, loss_masks)
        entries = self._take(batch)
        self._count_unlogged(step, batch, entries)
        self._publish("train", step, entries, batch, run)

    def eval_end(self, step: int | None, *, run: object | None = None) -> None:
        """End an evaluation: index it if the phase is enabled.

        Raises:
            StepError: the step has no number.
        """
        entries = self._records.take("eval")
        if "eval" in self._phases:
            self._publish("eval", step, entries, None, run)

    def train_end(self) -> bool:
        """End the training: wait for what is still under way, at most as long as the settings say.

        Returns:
            Whether everything was logged.
        """
        self._discard()
        return self.close()

    def close(self, timeout: float | None = None) -> bool:
        """Let the publisher finish, then end it.

        Args:
            timeout: seconds to wait at most; None for ``shutdown_timeout``.

        Returns:
            Whether everything was logged.
        """
        return self._publisher.close(self._settings.shutdown_timeout_s if timeout is None else timeout)

    def stats(self) -> dict[str, int]:
        """Return the publisher's counts and our own.

        ``discarded`` entries belong to a batch that the trainer dropped, ``expired`` ones were in no batch for too
        long, ``unlogged`` is what batches named and no generator had logged.
        """
        return {**self._publisher.stats(), **self._counts}

    def _discard(self) -> None:
        left = len(self._records.take("train"))
        self._counts["discarded"] += left
        if left:
            logger.info("%d attempts belong to a batch that the trainer dropped: they are in no step index", left)

    def _take(self, batch: Batch | None) -> list[Entry]:
        if self._keep_steps is None:
            return self._records.take("train")
        if batch is None:
            raise BatchError(
                "an asynchronous trainer must hand over its batch's trajectory ids: nothing else tells which of the "
                "attempts belong to this step"
            )
        entries, expired = self._records.take_batch("train", batch, keep_steps=self._keep_steps)
        self._counts["expired"] += expired
        if expired:
            logger.info(
                "%d attempts were in no batch for %d steps: they are in no step index", expired, self._keep_steps
            )
        return entries

    def _count_unlogged(self, step: int | None, batch: Batch | None, entries: list[Entry]) -> None:
        unlogged = count_unlogged(batch, entries) if batch else 0
        self._counts["unlogged"] += unlogged
        if unlogged:
            logger.warning(
                "the batch of step %s names %d samples that no generator logged: they are in no step index",
                step,
                unlogged,
            )

    def _publish(self, phase: Phase, step: int | None, entries: list[Entry], batch: Batch | None, run: object) -> None:
        number = _checked_step(phase, step)
        self._run_id = plain.text(plain.field(run, "id")) or self._run_id
        if entries:
            index = build_index(entries, run=self._run_id, phase=phase, step=number, batch=batch)
            self._publisher.publish(index, run=run)


def _checked_step(phase: Phase, step: int | None) -> int:
    try:
        number = operator.index(cast("int", step))
    except TypeError:
        number = -1
    if not 0 <= number < 10**MAX_STEP_DIGITS:
        raise StepError(
            f"the {phase} step is {step!r}: give the global step, a number from 0 of at most {MAX_STEP_DIGITS} digits, "
            "to index it under"
        )
    return number
