"""What a step that waits in the spool or in the mirror needs, so that W&B has it once: decisions from facts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from references.run_index import Phase
from references.wandb_client import Found


class Verdict(StrEnum):
    """What becomes of a step."""

    LOG = "log"  # W&B does not have it
    COMPLETE = "complete"  # W&B has it, and more of its records have landed since
    THERE = "there"  # nothing to do
    OLDER = "older"  # W&B has a newer content of this step


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedStep:
    """What became of one step, or would become of it.

    Attributes:
        num_pending: how many of its records have not landed; 0 where nobody had to look.
        error: why it is not done; None when it is.
    """

    phase: Phase
    step: int
    verdict: Verdict
    num_pending: int = 0
    error: str | None = None


def judge(history: Sequence[Found], content: str, written_at_s: float | None) -> Verdict:
    """Decide by content; whether more records have landed since is for the caller to find out.

    Of two contents of one step the later one counts. One that W&B had before its present one is older. One that it
    never had is newer, unless it is known to have been written before W&B got its present one.

    Args:
        history: W&B's versions of the step, oldest first.
        content: the hash of what waits.
        written_at_s: when that was written, in Unix time; None: nobody knows.
    """
    if not history:
        return Verdict.LOG
    newest = history[-1]
    if newest.index_hash == content:
        return Verdict.THERE
    if any(found.index_hash == content for found in history):
        return Verdict.OLDER
    if written_at_s is not None and newest.created_at_s is not None and written_at_s < newest.created_at_s:
        return Verdict.OLDER
    return Verdict.LOG
