"""The seam between what a step means and who tells W&B about it.

The training callback hands each step's index to a ``Publisher``, which owns everything that is slow or may fail. A
``PatientPublisher`` also has the index built where it works, so that the training thread need not. The one for W&B is
``references.publisher_process.PublisherProcess``, which the callback makes unless it is given another; making it starts
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

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


class Publisher(Protocol):
    """Makes step indexes durable and logs them, in the background.

    ``publish`` and ``stats`` may be called from any thread and return at once: nothing they do touches a network. What
    fails later is logged and counted in ``stats``, never raised.
    """

    def publish(self, index: StepIndex, *, run: object | None) -> None:
        """Take over one step's index.

        The same phase and step may come again (a resumed run): that is a newer version of the same step. After
        ``close`` an index is still made durable where that needs no network, and counted as dropped.

        Args:
            index: what to publish; never changed by anybody. ``index.run`` is "" when no run was ever seen.
            run: W&B's run to log to, e.g. ``wandb.run``; None when there is none now: spool the index and log it later.
        """
        ...

    def stats(self) -> Mapping[str, int]:
        """Return the counts so far, by name: ``logged``, ``failed``, ``timed_out``, ``dropped``, ``retried``, ..."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Finish what is under way, then end the worker.

        May be called again, and without anything having been published.

        Args:
            timeout_s: how long to wait at most; 0 only looks.

        Returns:
            Whether everything that was published has also been logged (or waits in the spool of an offline run).
        """
        ...


@runtime_checkable
class PatientPublisher(Publisher, Protocol):
    """A publisher that takes over steps whose index is still to be built."""

    def publish_later(
        self, phase: Phase, step: int, build: Callable[[], StepIndex | None], *, run: object | None
    ) -> None:
        """Take over one step; as ``publish``, but for the index, which ``build`` returns; None: there is nothing in it.

        ``build`` is called once, on another thread, steps in the order of their calls. Whatever it raises is a bug of
        ours: the next call of ``publish``, ``publish_later`` or ``close`` does its work, then raises it.
        """
        ...
