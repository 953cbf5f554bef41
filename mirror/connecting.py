"""From a location and settings to a store that retries, for checks and repairs: they fail when the store is away."""

from __future__ import annotations

from mirror.breaker import Breaker
from mirror.config import MirrorConfig
from mirror.limiter import Limiter
from mirror.location import Location
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.stores.opening import open_store


def connect(location: Location, config: MirrorConfig) -> ReliableStore:
    """Make a store that has to answer; nothing is contacted. Call it on the event loop.

    Raises:
        ConfigError: nothing installed can open the location.
    """
    return ReliableStore(
        open_store(location, config),
        RetryPolicy(attempts=config.attempts, backoff_s=config.backoff_s, timeout_s=config.timeout_s),
        limiter=Limiter(config.workers),
        breaker=Breaker(location.shown, waiting=None),
    )
