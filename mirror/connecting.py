"""From a location and settings to a store that retries: one way for copies, checks and repairs."""

from __future__ import annotations

from mirror.breaker import Breaker
from mirror.config import MirrorConfig
from mirror.limiter import Limiter
from mirror.location import Location
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.stores.opening import open_store


def connect(location: Location, config: MirrorConfig) -> ReliableStore:
    """Make a store for a check, which fails when the store is away; nothing is contacted. Call it on the event loop.

    Raises:
        ConfigError: nothing installed can open the location.
    """
    store = open_store(
        location,
        config.storage_options,
        connections=config.workers,
        fsync=config.fsync,
        upload_checksum=config.upload_checksum,
    )
    policy = RetryPolicy(attempts=config.attempts, backoff_s=config.backoff_s, timeout_s=config.timeout_s)
    breaker = Breaker(location.shown, waiting=None)
    return ReliableStore(store, policy, limiter=Limiter(config.workers), breaker=breaker)
