"""When to try again: bounded attempts, exponential pauses with jitter, the store's own wish honoured."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

MAX_PAUSE_S = 60.0
MAX_RETRY_AFTER_S = 300.0  # a store that asks for more is asked again sooner


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often one call is tried and how long each try may take."""

    attempts: int  # the first included
    backoff_s: float  # the mean pause before the second attempt; it doubles with each
    timeout_s: float  # of one attempt; doubled for the next each time that it ran out

    def pause_s(
        self,
        failures: int,
        retry_after_s: float | None = None,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> float:
        """Return how long to wait after the n-th failure in a row (from 1), in seconds."""
        pause = min(self.backoff_s * 2 ** min(failures - 1, 64), MAX_PAUSE_S)
        jittered = uniform(0.5 * pause, 1.5 * pause)
        return max(jittered, min(retry_after_s or 0.0, MAX_RETRY_AFTER_S))

    def stretch(self, timeouts: int) -> int:
        """Return by how much the next attempt may take longer after so many that ran out of time."""
        return int(2 ** min(timeouts, 6))
