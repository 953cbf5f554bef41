"""The seam between what a step means and who tells W&B about it.

The training callback hands each step to a ``Publisher``, which owns everything that is slow or may fail, and has the
step's index built where it works, so that the training thread need not. The one for W&B is
``references.publisher_process.PublisherProcess``, which the callback makes unless it is given another; making it starts
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from references.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from references.run_index import Phase, StepIndex

MOST = 1_000_000_000  # seconds, tries, steps: threads cannot wait for ever
_LEAST = {"queue_size": 1, "timeout_s": 0.001, "attempts": 1, "backoff_s": 0, "shutdown_timeout_s": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """How long and how often a publisher tries.

    Attributes:
        queue_size: step indexes that may wait; more are dropped from the queue, counted, and kept in the spool.
        timeout_s: what one artifact version may take before this process abandons it.
        attempts: how often one version is tried, the first time included.
        backoff_s: the pause before the second attempt; it doubles with each further one.
        shutdown_timeout_s: how long the end of training waits for what is still under way.

    Raises:
        ConfigError: a value makes no sense; the message names it.
    """

    queue_size: int = 16
    timeout_s: float = 300.0
    attempts: int = 3
    backoff_s: float = 5.0
    shutdown_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        """Refuse at once what would only fail much later, on another thread."""
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= MOST:
                raise ConfigError(f"{name.removesuffix('_s')} is {value!r}: give a number from {least} to {MOST}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for what others do.

    Attributes:
        receipts_wait_s: how long a step waits for the receipts of its records before it is logged without them.
        receipts_poll_s: the pause between two looks at the receipts.
        mirror_timeout_s: what one look at the receipts, or one write of an index, may take.
        settle_s: how long W&B's client may still be busy with a version that was abandoned.
    """

    receipts_wait_s: float = 60.0
    receipts_poll_s: float = 5.0
    mirror_timeout_s: float = 30.0
    settle_s: float = 300.0


class Publisher(Protocol):
    """Makes step indexes durable and logs them, in the background.

    ``publish`` and ``stats`` may be called from any thread and return at once: nothing they do touches a network. What
    fails later is logged and counted in ``stats``, never raised.
    """

    def publish(self, phase: Phase, step: int, build: Callable[[], StepIndex | None], *, run: object | None) -> None:
        """Take over one step, whose index is still to be built.

        The same phase and step may come again (a resumed run): that is a newer version of the same step. After
        ``close`` an index is still made durable where that needs no network, and counted as dropped.

        Args:
            phase: what has ended, a training step or an evaluation.
            step: its global step.
            build: returns the index, which nobody changes any more; None: there is nothing in it. Called once, here or
                on another thread, and then for one step after the other. Whatever it raises is a bug of ours, and is
                raised here, by a later call or by ``close``, which do their work first. ``index.run`` is "" when no run
                was ever seen.
            run: W&B's run to log to, e.g. ``wandb.run``; None when there is none now: spool the index and log it later.
        """
        ...

    def stats(self) -> Mapping[str, int]:
        """Return the counts so far, by name: ``logged``, ``failed``, ``timed_out``, ``dropped``, ``retried``, ..."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Finish what is under way, then end whatever works on it.

        May be called again, and without anything having been published.

        Args:
            timeout_s: how long to wait at most; 0 only looks.

        Returns:
            Whether everything that was published has also been logged (or waits in the spool of an offline run).
        """
        ...
