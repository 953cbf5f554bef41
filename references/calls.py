"""Calls that may hang, each on a daemon thread of its own, so that whoever waits can stop waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from references.series import Series, Work

THREAD_NAME = "record-mirror-wandb"


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    """One call under way. Only its owner touches it; the thread that runs it never does.

    Attributes:
        series: the artifact that it is about.
        deadline: when the owner stops waiting, by the owner's clock, in seconds.
        ended: what the owner does with the answer (or the exception), at a time by its clock.
        work: what it logs; None: it only asks, or moves an alias.
        expired: what it does when the deadline has passed; ``ended`` may still follow.
        is_abandoned: the deadline has passed.
    """

    series: Series
    deadline: float
    ended: Callable[[Call, object, float], None]
    work: Work | None = None
    expired: Callable[[float], None] = lambda _now: None
    is_abandoned: bool = False


def run_on_a_thread(function: Callable[[], object], answered: Callable[[object], None]) -> None:
    """Run ``function`` on a new thread, then ``answered`` there; an exception is an answer as well.

    The thread is a daemon: one that hangs for ever does not keep the interpreter from leaving.
    """

    def run() -> None:
        try:
            answer = function()
        except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            answer = error
        answered(answer)

    threading.Thread(target=run, name=f"{THREAD_NAME}-call", daemon=True).start()
