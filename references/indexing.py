"""At the end of each step, what the generator did becomes the step's index: for any trainer.

On the training thread is done only what takes a few milliseconds: take the entries, see the batch, hand both over. A
mistake of the trainer's raises into the step. The index is built where the publisher works; a bug in that raises into
the step after. Whatever happens afterwards is the publisher's.
"""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Iterable, Sized
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from references import plain
from references.batch import count_unlogged, describe_mismatch, see_batch
from references.errors import BatchError, ConfigError, StepError
from references.phases import check_phases
from references.publisher_process import PublisherProcess
from references.record_log import RecordLog
from references.rows import build_index
from references.run_index import MAX_STEP_DIGITS, Phase, StepIndex
from references.seams import PublishSettings

if TYPE_CHECKING:
    from references.batch import Batch, SeenBatch
    from references.entry import Entry
    from references.record_log import BatchTaking
    from references.seams import Publisher

logger = logging.getLogger(__name__)

_Choose: TypeAlias = "Callable[[Batch | None], tuple[list[Entry], list[Entry]]]"  # a step's entries, and what waits on


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
            ConfigError: a phase is unknown, a setting makes no sense, or ``records`` is no log.
        """
        if not isinstance(records, RecordLog):
            raise ConfigError(f"records is a {type(records).__name__}: give the RecordLog that generators add to")
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
        self._publisher: Publisher = PublisherProcess(self._settings) if publisher is None else publisher
        self._run_id = ""
        self._lock = threading.Lock()  # guards the counts, one of which is counted where an index is built
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
            trajectory_ids: what names the batch's rows, see ``references.batch.see_batch``; None when the trainer does
                not know, and then nobody knows what trained.
            loss_masks: the batch's loss masks; rows past the ids are padding.
            run: W&B's run, e.g. ``wandb.run``; None when there is none now.

        Raises:
            StepError: the step has no number, or the run is none.
            BatchError: ids and loss masks do not fit together, or an asynchronous trainer has no ids.
            Exception: a bug of ours, perhaps in building the index of an earlier step.
        """
        if "train" not in self._phases:
            self._records.take("train")
            return
        seen = None if trajectory_ids is None else see_batch(trajectory_ids, loss_masks)
        self._publish("train", step, self._take(seen), seen, run)

    def eval_end(self, step: int | None, *, run: object | None = None) -> None:
        """End an evaluation: index it if the phase is enabled.

        Raises:
            StepError: the step has no number, or the run is none.
        """
        entries = self._records.take("eval")
        if "eval" in self._phases:
            self._publish("eval", step, lambda _batch: (entries, []), None, run)

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
        with self._lock:
            counts = dict(self._counts)
        return {**self._publisher.stats(), **counts}

    def _count(self, name: str, number: int) -> None:
        with self._lock:
            self._counts[name] += number

    def _discard(self) -> None:
        left = len(self._records.take("train"))
        self._count("discarded", left)
        if left:
            logger.info("%d attempts belong to a batch that the trainer dropped: they are in no step index", left)

    def _take(self, seen: SeenBatch | None) -> _Choose:
        """Take what a step may have; return what chooses that by its batch."""
        if self._keep_steps is None:
            entries = self._records.take("train")
            return lambda _batch: (entries, [])
        if seen is None:
            raise BatchError(
                "an asynchronous trainer must hand over its batch's trajectory ids: nothing else tells which of the "
                "attempts belong to this step"
            )
        taking = self._records.begin_batch("train", keep_steps=self._keep_steps)
        return lambda batch: ([], []) if batch is None else self._choose(taking, batch)

    def _choose(self, taking: BatchTaking, batch: Batch) -> tuple[list[Entry], list[Entry]]:
        entries, expired = taking.choose(batch)
        self._count("expired", expired)
        if expired:
            logger.info(
                "%d attempts were in no batch for %d steps: they are in no step index", expired, self._keep_steps
            )
        return entries, taking.left

    def _publish(
        self,
        phase: Phase,
        step: int | None,
        choose: _Choose,
        seen: SeenBatch | None,
        run: object,
    ) -> None:
        number = _checked_step(phase, step)
        run_id = plain.text(plain.field(run, "id")) or self._run_id
        build = partial(self._build, run_id, phase, number, choose, seen)
        self._publisher.publish(phase, number, build, run=run)
        self._run_id = run_id  # that of no run which was refused

    def _build(
        self,
        run_id: str,
        phase: Phase,
        step: int,
        choose: _Choose,
        seen: SeenBatch | None,
    ) -> StepIndex | None:
        """Build a step's index; None where nothing was generated for it."""
        batch = None if seen is None else seen.read()
        entries, waiting = choose(batch)
        if batch is not None:
            self._tell_unlogged(step, batch, entries, waiting)
        return build_index(entries, run=run_id, phase=phase, step=step, batch=batch) if entries else None

    def _tell_unlogged(self, step: int, batch: Batch, entries: list[Entry], waiting: list[Entry]) -> None:
        """Count what a batch names and no generator logged; where that is all of it, say how it could be named."""
        unlogged = count_unlogged(batch, entries)
        self._count("unlogged", unlogged)
        if unlogged:
            logger.warning(
                "the batch of step %s names %d samples that no generator logged: they are in no step index%s",
                step,
                unlogged,
                f"; {describe_mismatch(batch, entries or waiting)}" if unlogged == batch.num_named else "",
            )


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
