"""One try to log one step: look what has landed, ask W&B where needed, log, wait. For a thread that may hang."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirror.redact import redact_url
from references import artifact_name
from references.artifact import build_artifact
from references.codec import decode
from references.landing import IndexStore, Landing, Receipts, land, mirrored_ids, step_json
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
        run: where to log it.
        newest_step: the newest step that W&B is known to have of this phase; None: ask.
        uncertain: an earlier try may have got through.
        may_wait: end with ``WAITING`` when records have not landed.
        logged_pending: how many records the version that is logged already lacks; None when none is logged.
        index_written: the mirror has this index already.
        timeout_s: how long the try may take, in seconds.
    """

    key: StepKey
    data: bytes
    run: Run
    newest_step: int | None
    uncertain: bool
    may_wait: bool
    logged_pending: int | None
    index_written: bool
    timeout_s: float


def attempt(job: Job, receipts: Receipts | None, index_store: IndexStore | None) -> Result:
    """Try once. Never raises: whatever goes wrong is in the result."""
    written = job.index_written or _write_index(job, index_store)
    try:
        result = _attempt(job, receipts)
    except RunIsOverError as error:
        result = Result(outcome=Outcome.RUN_OVER, error=redact_url(str(error)))
    except WaitedTooLongError as error:
        result = Result(outcome=Outcome.TIMED_OUT, error=redact_url(str(error)))
    except Exception as error:  # noqa: BLE001 - W&B's client has no common base for its errors
        result = Result(outcome=Outcome.FAILED, error=redact_url(f"{type(error).__name__}: {error}"))
    return replace(result, index_written=written)


def _attempt(job: Job, receipts: Receipts | None) -> Result:
    deadline = time.monotonic() + job.timeout_s
    logged_to = mode(job.run)
    if logged_to is Mode.DISABLED:
        return Result(outcome=Outcome.DISABLED)
    index = decode(job.data)
    landing, readable = _look(index, receipts)
    num_pending = len(landing.pending)
    if num_pending and job.may_wait and receipts is not None:
        return Result(outcome=Outcome.WAITING, num_pending=num_pending)
    if job.logged_pending is not None and num_pending >= job.logged_pending:
        return Result(outcome=Outcome.NOTHING_NEW, num_pending=num_pending)
    newest_step = job.newest_step
    if logged_to is Mode.ONLINE:
        newest_step = _newest_step(job) if newest_step is None else newest_step
        if must_ask(job.key.step, newest_step, uncertain=job.uncertain) and _has(job, landing):
            return Result(outcome=Outcome.THERE, num_pending=num_pending, newest_step=newest_step)
    artifact = _build(job, index, landing, readable=readable)
    hand_over(job.run, artifact, artifact_name.aliases(index))
    if logged_to is Mode.OFFLINE:
        return Result(outcome=Outcome.OFFLINE, num_pending=num_pending)
    await_commit(artifact, deadline - time.monotonic())
    return Result(outcome=Outcome.LOGGED, num_pending=num_pending, newest_step=newest_step)


def _write_index(job: Job, index_store: IndexStore | None) -> bool:
    if index_store is None:
        return True
    try:
        index_store.write(job.key.phase, job.key.step, job.data)
    except Exception as error:  # noqa: BLE001 - a store may raise anything, and W&B shall hear of the step all the same
        logger.warning(
            "the mirror did not take the index of %s step %d, it is kept in the spool: %s",
            job.key.phase,
            job.key.step,
            redact_url(str(error)),
        )
        return False
    return True


def _look(index: StepIndex, receipts: Receipts | None) -> tuple[Landing, bool]:
    """Return what has landed, and whether the receipts could be read."""
    wanted = mirrored_ids(index)
    if not wanted:
        return land(index, {}), True
    if receipts is None:
        return land(index, {}), False
    try:
        found = receipts.find(wanted)
    except Exception as error:  # noqa: BLE001 - a store may raise anything, and the step is logged all the same
        logger.warning(
            "the receipts of %s step %d could not be read: %s", index.phase, index.step, redact_url(str(error))
        )
        return land(index, {}), False
    return land(index, found), True


def _newest_step(job: Job) -> int:
    latest = find(job.run, _name(job), LATEST)
    return latest.step if latest is not None and latest.step is not None else -1


def _has(job: Job, landing: Landing) -> bool:
    return is_there(
        find(job.run, _name(job), artifact_name.step_alias(job.key.phase, job.key.step)),
        index_hash=content_hash(job.data),
        num_referenced=len(landing.references),
        num_pending=len(landing.pending),
    )


def _build(job: Job, index: StepIndex, landing: Landing, *, readable: bool) -> wandb.Artifact:
    metadata = {
        **artifact_name.metadata(index, num_referenced=len(landing.references)),
        NUM_PENDING: len(landing.pending),
        "num_unlinked": landing.unlinked,
        "receipts_read": readable,
        INDEX_HASH: content_hash(job.data),
    }
    return build_artifact(_name(job), step_json(index, landing.pending), landing.references, metadata)


def _name(job: Job) -> str:
    return artifact_name.artifact_name(job.key.phase, job.key.run)
