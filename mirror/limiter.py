"""How many requests at a time: half as many when the store throttles, one more after each round that went well."""

from __future__ import annotations

import time
from collections.abc import Callable

from mirror.allowance import Allowance

HALVE_EVERY_S = 1.0  # a burst of refusals is one sign, not many


class Limiter(Allowance):
    """Adaptive concurrency (additive increase, multiplicative decrease) between 1 and ``limit`` requests."""

    def __init__(self, limit: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin at the limit."""
        super().__init__(limit)
        self._limit = limit
        self._clock = clock
        self._good = 0
        self._halved_at = float("-inf")

    def throttled(self) -> None:
        """Take note that the store asked for fewer requests, or did not keep up."""
        self._good = 0
        if self._clock() - self._halved_at >= HALVE_EVERY_S:
            self._halved_at = self._clock()
            self.capacity = max(1, self.capacity // 2)

    def succeeded(self) -> None:
        """Take note of a request that went well."""
        if self.capacity >= self._limit:
            return
        self._good += 1
        if self._good >= self.capacity:
            self._good = 0
            self.capacity += 1
