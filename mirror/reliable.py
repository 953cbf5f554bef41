"""A store that is called as often as it takes: deadline, retries, fresh credentials, fewer requests, a breaker.

It wraps any ``Store`` and is one itself. A passing failure is tried again a bounded number of times; while the breaker
is open calls wait; what the store refuses for one file is that file's error, what it refuses for all of them opens the
breaker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from mirror.breaker import Breaker, BreakerState
from mirror.errors import (
    AccessDeniedError,
    CredentialsAbsentError,
    CredentialsError,
    DeadlineError,
    DoubtfulRefusalError,
    FileRefusedError,
    StoreError,
    StoreRefusedError,
    ThrottledError,
    TryAgainError,
)
from mirror.limiter import Limiter
from mirror.retry import RetryPolicy
from mirror.store import PART_BYTES, Data, ObjectInfo, Parts, Store, Stored

logger = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE_S = 30.0  # how long a check waits for a store that is away


class _AwayError(TryAgainError):
    """The store was not asked: it is away."""


@dataclass(slots=True)
class CallCounts:
    """What happened to calls; written on the event loop, read anywhere."""

    retried: int = 0
    timed_out: int = 0
    last_error: str | None = None


class ReliableStore:
    """Applies one policy to every call of a store.

    ``patient``: calls wait while the store is away or refuses everything, for as long as it takes (a mirror's copies);
    otherwise they fail once it has been away for ``PATIENCE_S``, and at once where it refuses everything (a check that
    has to end).
    """

    def __init__(
        self,
        store: Store,
        policy: RetryPolicy,
        *,
        limiter: Limiter,
        breaker: Breaker,
        probe: Callable[[], Awaitable[None]] | None = None,
        essential: str | None = None,
        patient: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Wrap ``store``.

        ``probe`` writes something harmless, to tell one refused file from a store that refuses all; keys that begin
        with ``essential`` need none, for without them nothing else is of use.
        """
        self.counts = CallCounts()
        self._store = store
        self._policy = policy
        self._limiter = limiter
        self._breaker = breaker
        self._essential = essential
        self._probe = probe
        self._patient = patient
        self._sleep = sleep
        self._refreshing = asyncio.Lock()
        self._refreshes = 0

    @property
    def lists_by_range(self) -> bool:
        """As the store's own listings."""
        return self._store.lists_by_range

    async def put(self, key: str, data: Data, xxh3_128: str, *, before: Callable[[], None] = lambda: None) -> Stored:
        """Write an object of one request; each attempt calls ``before`` when its turn has come, which may end it."""
        tries = 0

        async def attempt() -> Stored:
            nonlocal tries
            before()
            tries += 1
            return await self._store.put(key, data, xxh3_128)

        stored = await self._call("put", key, attempt)
        return stored if tries == 1 else replace(stored, may_be_overtaken=True)

    async def put_parts(self, key: str, parts: Parts, size_bytes: int) -> Stored:
        """Write a larger object, with a deadline for as many requests as it takes."""
        requests = size_bytes // PART_BYTES + 2
        return await self._call(
            "put",
            key,
            lambda: self._store.put_parts(key, parts, size_bytes),
            timeout_s=requests * self._policy.timeout_s,
        )

    async def read(self, key: str) -> AsyncGenerator[bytes, None]:
        """Yield an object's bytes once, with a deadline for each chunk; its caller begins again when it breaks."""
        await self._admit("get", key)
        try:
            async with self._limiter.take():
                chunks = self._store.read(key)
                while (
                    chunk := await self._bounded("get", key, lambda: anext(chunks, None), self._policy.timeout_s)
                ) is not None:
                    yield chunk
        except TryAgainError as error:
            self._failed(error)
            raise
        except StoreRefusedError as error:
            self._note(error)
            self._breaker.failed(error, refused=True)
            raise
        except AccessDeniedError:
            self._breaker.abandoned()
            raise
        except StoreError as error:
            self._note(error)
            self._breaker.succeeded()
            raise
        except BaseException:  # also when the caller has read enough
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        self._limiter.succeeded()

    async def stat(self, key: str) -> ObjectInfo | None:
        """Describe one object."""
        return await self._call("stat", key, lambda: self._store.stat(key))

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        """Yield pages; a page that fails is asked for again from where the last one ended."""
        last = after
        pages: AsyncIterator[list[ObjectInfo]] | None = None

        async def advance() -> list[ObjectInfo] | None:
            nonlocal pages
            if pages is None:
                pages = self._store.list_pages(prefix, after=last)
            try:
                return await anext(pages, None)
            except BaseException:
                pages = None
                raise

        while (page := await self._call("list", prefix, advance)) is not None:
            if page:
                last = page[-1].key
            yield page

    async def refresh(self) -> None:
        """Read the credentials again."""
        await self._store.refresh()

    async def aclose(self) -> None:
        """Let connections go."""
        await self._store.aclose()

    async def repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Do something that reads an object to its end, again from the start when it breaks on the way.

        Raises:
            StoreError: as the store does, when trying again did not help.
        """
        failures = 0
        while True:
            seen = self._refreshes
            try:
                return await attempt()
            except _AwayError:
                raise
            except TryAgainError as error:
                failures += 1
                await self._pause(error, failures, seen)

    async def _call(
        self, operation: str, key: str, attempt: Callable[[], Awaitable[T]], *, timeout_s: float | None = None
    ) -> T:
        failures = timeouts = 0
        while True:
            await self._admit(operation, key)
            seen = self._refreshes
            try:
                async with self._limiter.take():
                    deadline_s = (timeout_s or self._policy.timeout_s) * self._policy.stretch(timeouts)
                    result = await self._bounded(operation, key, attempt, deadline_s)
            except TryAgainError as error:
                failures += 1
                if failures > 1 and isinstance(error, CredentialsAbsentError):  # they were read again meanwhile
                    self._refused(StoreRefusedError(operation, key, error.reason))
                    await self._refresh_once(seen)
                    continue
                timeouts += isinstance(error, DeadlineError)
                self._failed(error, expected=failures == 1 and isinstance(error, CredentialsError))
                await self._pause(error, failures, seen)
            except DoubtfulRefusalError as error:
                await self._after_denial(error)
            except StoreRefusedError as error:
                self._refused(error)
            except StoreError as error:
                self._note(error)
                self._breaker.succeeded()
                raise
            except BaseException:
                self._breaker.abandoned()
                raise
            else:
                self._breaker.succeeded()
                self._limiter.succeeded()
                return result

    async def _bounded(
        self, operation: str, key: str, attempt: Callable[[], Awaitable[T]], timeout_s: float | None
    ) -> T:
        deadline = asyncio.timeout(timeout_s)
        try:
            async with deadline:
                return await attempt()
        except TimeoutError:
            if not deadline.expired():
                raise
            self.counts.timed_out += 1
            raise DeadlineError(operation, key, f"no answer within {timeout_s:g} s") from None

    async def _admit(self, operation: str, key: str) -> None:
        """Wait until a call may be made.

        Raises:
            _AwayError: it may not, and the patience is over.
        """
        patience_s = None if self._patient else self._patience_left()
        if patience_s is None:
            await self._breaker.admit()
            return
        try:
            async with asyncio.timeout(patience_s):
                await self._breaker.admit()
        except TimeoutError:
            reason = f"not asked: the store is away ({self._breaker.reason})"
            raise _AwayError(operation, key, reason) from None

    def _patience_left(self) -> float | None:
        """Return for how long a check still waits, in seconds; None where there is nothing to wait for."""
        match self._breaker.state:
            case BreakerState.CLOSED:
                return None
            case BreakerState.OPEN:
                return max(0.0, PATIENCE_S - self._breaker.away_s)
            case BreakerState.REFUSED:
                return 0.0

    def _refused(self, error: StoreRefusedError) -> None:
        """Take note of a refusal of everything, which a patient caller waits out.

        Raises:
            StoreRefusedError: nobody waits until that changes.
        """
        self._note(error)
        self._breaker.failed(error, refused=True)
        if not self._patient:
            raise error

    def _failed(self, error: TryAgainError, *, expected: bool = False) -> None:
        """Take note of a passing failure; an expected one, such as a token's end, is no sign of an outage yet."""
        self._note(error)
        if isinstance(error, ThrottledError | DeadlineError):
            self._limiter.throttled()
        if expected and self._breaker.state is BreakerState.CLOSED:
            self._breaker.abandoned()
        else:
            self._breaker.failed(error)

    async def _pause(self, error: TryAgainError, failures: int, refreshes: int) -> None:
        if failures >= self._policy.attempts:
            raise error
        pause_s = self._policy.pause_s(failures, error.retry_after_s)
        self.counts.retried += 1
        logger.debug("retrying in %.1f s (attempt %d): %s", pause_s, failures + 1, error)
        await self._sleep(pause_s)
        if isinstance(error, CredentialsError):
            await self._refresh_once(refreshes)

    async def _refresh_once(self, seen: int) -> None:
        """Refresh unless another call did so since ours was made."""
        async with self._refreshing:
            if self._refreshes == seen:
                self._refreshes += 1
                try:
                    await self._bounded("refresh credentials", "", self._store.refresh, self._policy.timeout_s)
                except StoreError as error:
                    self._note(error)

    async def _after_denial(self, error: DoubtfulRefusalError) -> None:
        """Raise the denial if it concerns one file; open the breaker if the store denies everything.

        Raises:
            DoubtfulRefusalError: it is this file's alone.
            TryAgainError: nobody knows; another time will tell.
            StoreRefusedError: it is everybody's, and nobody waits until that changes.
        """
        self._note(error)
        try:
            await self._ask(error)
        except (FileRefusedError, StoreRefusedError) as refusal:
            self._breaker.failed(refusal, refused=True)
            if not self._patient:
                raise StoreRefusedError("probe", "", refusal.reason) from refusal
            return
        except StoreError as unknown:
            self._breaker.abandoned()
            reason = f"{error.reason} (for this file or for all: a probe could not tell: {unknown.reason})"
            raise TryAgainError(error.operation, error.key, reason) from error
        except BaseException:
            self._breaker.abandoned()
            raise
        self._breaker.succeeded()
        raise error

    async def _ask(self, denial: DoubtfulRefusalError) -> None:
        """Ask by a probe if the store takes anything, unless what it denied answers that already.

        Raises:
            StoreError: what the probe met.
        """
        if self._essential and denial.key.startswith(self._essential):
            raise denial
        if self._probe is not None:
            await self._bounded("probe", "", self._probe, self._policy.timeout_s)

    def _note(self, error: StoreError) -> None:
        self.counts.last_error = str(error)
