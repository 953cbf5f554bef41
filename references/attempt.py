"""One try to log one step: look what has landed, ask W&B where needed, log, wait. For a thread that may hang."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from mirror.redact import redact_text
from references import artifact_name
from references.artifact import build_artifact
from references.calls import run_on_a_thread
from references.codec import decode
from references.landing import IndexStore, Landing, Receipts, anywhere, land, mirrored_ids, step_json
from references.outage import MirrorOutages, Outage
from references.outcome import Outcome, Result, is_there, must_ask
from references.run_index import StepIndex
from references.spool import StepKey, content_hash
from references.wandb_client import (
    INDEX_HASH,
    LATEST,
    NUM_PENDING,
    Mode,
    Run,
    RunIsOverError,
    WaitedTooLongError,
    await_commit,
    find,
    hand_over,
    in_words,
    mode,
)

if TYPE_CHECKING:
    import wandb

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one try is about.

    Attributes:
        key: the step.
        data: its index as it is in the spool.
        run: where to log it; None: nowhere, only the mirror gets the index.
        newest_step: the newest step that W&B is known to have of this phase; None: ask.
        uncertain: an earlier try may have got through.
        may_wait: end with ``WAITING`` when records have not landed.
        logged_pending: how many records the version that is logged already lacks; None when none is logged.
        index_written: the mirror has this index already.
        timeout_s: how long the try may take, in seconds.
    """

    key: StepKey
    data: bytes
    run: Run | None
    newest_step: int | None
    uncertain: bool
    may_wait: bool
    logged_pending: int | None
    index_written: bool
    timeout_s: float


def attempt(job: Job, receipts: Receipts | None, index_store: IndexStore | None, outages: MirrorOutages) -> Result:
    """Try once. Never raises: whatever goes wrong is in the result.

    Args:
        job: what the try is about.
        receipts: where the receipts are; None: nowhere.
        index_store: who keeps the index; None: nobody.
        outages: which of the mirror's failures the log has told of, kept from one try to the next.
    """
    written = _begin_to_write(job, index_store, outages.writing)
    try:
        result = _attempt(job, receipts, outages.reading, written)
    except RunIsOverError as error:
        result = Result(outcome=Outcome.RUN_OVER, error=redact_text(str(error)))
    except WaitedTooLongError as error:
        result = Result(outcome=Outcome.TIMED_OUT, error=redact_text(str(error)))
    except Exception as error:  # noqa: BLE001 - W&B's client has no common base for its errors
        result = Result(outcome=Outcome.FAILED, error=in_words(error))
    return replace(result, index_written=written())


def _attempt(job: Job, receipts: Receipts | None, reading: Outage, written: Callable[[], bool]) -> Result:
    deadline = time.monotonic() + job.timeout_s
    if job.run is None:
        return Result(outcome=Outcome.RUN_OVER)
    logged_to = mode(job.run)
    if logged_to is Mode.DISABLED:
        return Result(outcome=Outcome.DISABLED)
    index = decode(job.data)
    landing, readable = _look(index, receipts, reading, is_patient=job.may_wait)
    too_early = _too_early(job, landing, can_wait=receipts is not None)
    if too_early is not None:
        return Result(outcome=too_early, num_pending=len(landing.pending))
    newest_step = job.newest_step
    if logged_to is Mode.ONLINE:
        newest_step = _newest_step(job, job.run) if newest_step is None else newest_step
        if must_ask(job.key.step, newest_step, uncertain=job.uncertain) and _has(job, job.run, landing):
            return Result(outcome=Outcome.THERE, num_pending=len(landing.pending), newest_step=newest_step)
    artifact = _build(job, index, landing, readable=readable)
    written()  # the mirror has the index before W&B does, if it takes it at all
    if time.monotonic() >= deadline:  # whoever waited has stopped, and may be logging it elsewhere by now
        raise TimeoutError("the time was over before W&B's client was given it")
    # ``benchmarks.step_end`` looks for this line.
    logger.debug("%s step %d goes to W&B's client, %d references", index.phase, index.step, len(landing.references))
    hand_over(job.run, artifact, artifact_name.aliases(index))
    if logged_to is Mode.OFFLINE:
        return Result(outcome=Outcome.OFFLINE, num_pending=len(landing.pending))
    await_commit(artifact, deadline - time.monotonic())
    return Result(outcome=Outcome.LOGGED, num_pending=len(landing.pending), newest_step=newest_step)


def _too_early(job: Job, landing: Landing, *, can_wait: bool) -> Outcome | None:
    """Say why nothing is logged yet: more is to land, or no more has landed than the last version has."""
    if landing.pending and job.may_wait and can_wait:
        return Outcome.WAITING
    if job.logged_pending is not None and len(landing.pending) >= job.logged_pending:
        return Outcome.NOTHING_NEW
    return None


def _begin_to_write(job: Job, index_store: IndexStore | None, writing: Outage) -> Callable[[], bool]:
    """Begin to give the mirror the index; return what waits for the end of that, and says whether the mirror has it."""
    if job.index_written or index_store is None:
        return lambda: True
    answers: SimpleQueue[object] = SimpleQueue()
    run_on_a_thread(partial(_write_index, job, index_store, writing), answers.put)
    return cache(lambda: answers.get() is True)


def _write_index(job: Job, index_store: IndexStore, writing: Outage) -> bool:
    try:
        index_store.write(job.key.phase, job.key.step, job.data)
    except Exception as error:  # noqa: BLE001 - a store may raise anything, and W&B shall hear of the step all the same
        logger.log(
            logging.WARNING if writing.failed() else logging.DEBUG,
            "the mirror did not take the index of %s step %d, it is kept in the spool: %s",
            job.key.phase,
            job.key.step,
            redact_text(str(error)),
        )
        return False
    if writing.worked():
        logger.info("the mirror takes step indexes again")
    return True


def _look(index: StepIndex, receipts: Receipts | None, reading: Outage, *, is_patient: bool) -> tuple[Landing, bool]:
    """Return what has landed, and whether the receipts could be read; who looks again soon does not warn yet."""
    covers = anywhere if receipts is None else receipts.covers
    wanted = mirrored_ids(index, covers)
    if not wanted or receipts is None:
        return land(index, {}, covers), not wanted
    try:
        found = receipts.find(wanted)
    except Exception as error:  # noqa: BLE001 - a store may raise anything, and the step is logged all the same
        level = logging.WARNING if not is_patient and reading.failed() else logging.DEBUG
        logger.log(
            level, "the receipts of %s step %d could not be read: %s", index.phase, index.step, redact_text(str(error))
        )
        return land(index, {}, covers), False
    if reading.worked():
        logger.info("the receipts can be read again")
    return land(index, found, covers), True


def _newest_step(job: Job, run: Run) -> int:
    latest = find(run, _name(job), LATEST)
    return latest.step if latest is not None and latest.step is not None else -1


def _has(job: Job, run: Run, landing: Landing) -> bool:
    return is_there(
        find(run, _name(job), artifact_name.step_alias(job.key.phase, job.key.step)),
        index_hash=content_hash(job.data),
        num_referenced=len(landing.references),
        num_pending=len(landing.pending),
    )


def _build(job: Job, index: StepIndex, landing: Landing, *, readable: bool) -> wandb.Artifact:
    metadata = {
        **artifact_name.metadata(index, num_referenced=len(landing.references)),
        NUM_PENDING: len(landing.pending),
        "num_unlinked": landing.unlinked,
        "num_elsewhere": landing.elsewhere,
        "receipts_read": readable,
        INDEX_HASH: content_hash(job.data),
    }
    return build_artifact(_name(job), step_json(index, landing.pending), landing.references, metadata)


def _name(job: Job) -> str:
    return artifact_name.artifact_name(job.key.phase, job.key.run)
