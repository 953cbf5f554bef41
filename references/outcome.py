"""How one try to log a step ended, and what follows from it: decisions without any I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from references.wandb_client import Found

MAX_BACKOFF_S = 60.0


class Outcome(Enum):
    """How one try ended."""

    LOGGED = auto()  # W&B has committed the version
    THERE = auto()  # W&B had it already, from an earlier try or process
    OFFLINE = auto()  # the client keeps it for `wandb sync`
    DISABLED = auto()  # the client ignores everything
    WAITING = auto()  # records have not landed yet, and there is time to wait
    NOTHING_NEW = auto()  # a version is logged already, and no more records have landed since
    RUN_OVER = auto()  # the run was finished
    TIMED_OUT = auto()  # no answer in time; the client may still log it
    FAILED = auto()  # an error; after a lost reply the version may be there all the same


class Next(Enum):
    """What becomes of a step."""

    DONE = auto()
    KEEP = auto()  # done for this process; the spool keeps it for `record-mirror link`
    WAIT = auto()
    RETRY = auto()
    PARK = auto()  # until there is an active run
    ABANDON = auto()  # never again by this process
    GIVE_UP = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one try found out."""

    outcome: Outcome
    error: str = ""
    newest_step: int | None = None  # that ``latest`` named in W&B, -1 for none; None when nobody asked
    num_pending: int = 0  # records without a receipt
    index_written: bool = False


def decide(outcome: Outcome, *, tries: int, attempts: int) -> Next:
    """Decide what follows a try.

    Args:
        outcome: how it ended.
        tries: how many tries that failed there were, this one included.
        attempts: how many there may be.
    """
    match outcome:
        case Outcome.LOGGED | Outcome.THERE:
            return Next.DONE
        case Outcome.OFFLINE | Outcome.DISABLED:
            return Next.KEEP
        case Outcome.WAITING | Outcome.NOTHING_NEW:
            return Next.WAIT
        case Outcome.RUN_OVER:
            return Next.PARK
        case Outcome.TIMED_OUT:
            return Next.ABANDON
        case Outcome.FAILED:
            return Next.RETRY if tries < attempts else Next.GIVE_UP


def is_there(found: Found | None, *, index_hash: str, num_referenced: int, num_pending: int) -> bool:
    """Say whether W&B has a version with this content of the step that links no less than ours would."""
    return (
        found is not None
        and found.index_hash == index_hash
        and found.num_referenced >= num_referenced
        and found.num_pending <= num_pending
    )


def must_ask(step: int, newest_step: int, *, uncertain: bool) -> bool:
    """Say whether W&B is asked first what it has: a try may have got through, or the step is not a new one."""
    return uncertain or step <= newest_step


def backoff_s(tries: int, first_s: float) -> float:
    """Return the pause after the n-th failed try, in seconds: doubling, a minute at most."""
    return min(first_s * 2.0 ** min(tries - 1, 64), max(first_s, MAX_BACKOFF_S))
