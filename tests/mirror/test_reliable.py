"""Calls go through as often as it takes and no oftener; what one file's refusal means is told from a store's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from mirror.breaker import FIRST_PAUSE_S, THRESHOLD, Breaker
from mirror.errors import (
    AccessDeniedError,
    CredentialsAbsentError,
    CredentialsError,
    DeadlineError,
    DoubtfulRefusalError,
    FileRefusedError,
    NotFoundError,
    StoreError,
    StoreRefusedError,
    ThrottledError,
    TryAgainError,
)
from mirror.limiter import Limiter
from mirror.reliable import PATIENCE_S, ReliableStore
from mirror.retry import RetryPolicy
from mirror.store import PART_BYTES, Stored
from mirror.testing.stores import (
    FaultyStore,
    FlipBit,
    MemoryStore,
    Raise,
    ShortRead,
    Stall,
    StoreFault,
    StoreThenRaise,
)
from tests.mirror.fake_clock import FakeClock, FakeSleep, settled

DOWN = TryAgainError("put", "k", "connection refused")
DENIED = AccessDeniedError("put", "k", "access denied")
NO_BUCKET = StoreRefusedError("put", "k", "no such bucket")
TOO_LONG = FileRefusedError("put", "k", "KeyTooLong")
EXPIRED = CredentialsError("put", "k", "the token has expired")


@dataclass
class Bench:
    """A reliable store over a faulty one over a bucket in memory, and time in a test's hands."""

    patient: bool = True
    attempts: int = 4
    timeout_s: float = 60.0
    probe: Callable[[], Awaitable[None]] | None = None
    essential: str | None = None
    limit: int = 64
    memory: MemoryStore = field(default_factory=MemoryStore)
    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        """Put it together."""
        self.faulty = FaultyStore(self.memory)
        self.sleep = FakeSleep()
        self.breaker = Breaker("store", clock=self.clock)
        self.limiter = Limiter(self.limit, clock=self.clock)
        self.store = ReliableStore(
            self.faulty,
            RetryPolicy(attempts=self.attempts, backoff_s=0.5, timeout_s=self.timeout_s),
            limiter=self.limiter,
            breaker=self.breaker,
            probe=self.probe,
            essential=self.essential,
            patient=self.patient,
            sleep=self.sleep,
        )

    def fail(self, *errors: BaseException) -> None:
        self.faulty.add(*(StoreFault(action=Raise(error=error)) for error in errors))

    async def put(self, key: str = "k", data: bytes = b"data") -> Stored:
        return await self.store.put(key, data, xxhash.xxh3_128_hexdigest(data))

    async def pass_by(self, seconds: float) -> None:
        """Let time pass, and whoever waits for it look at the clock."""
        self.clock.advance(seconds)
        self.breaker.abandoned()
        await settled()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(bounded())


def test_a_passing_failure_is_tried_again_and_counted() -> None:
    """The call succeeds, with growing pauses between, and the count says how often it was tried again."""

    async def scenario() -> None:
        bench = Bench()
        bench.fail(DOWN, DOWN, DOWN)
        stored = await bench.put()
        assert stored.etag == bench.memory.puts[0].stored.etag
        assert bench.store.counts.retried == 3
        assert [
            round(pause_s / mean, 0) in {0.0, 1.0, 2.0}
            for pause_s, mean in zip(bench.sleep.pauses_s, (0.5, 1, 2), strict=True)
        ]
        assert bench.store.counts.last_error == "put k: connection refused"

    run(scenario)


def test_attempts_are_bounded() -> None:
    """After the last one the failure is the caller's; every attempt was a call."""

    async def scenario() -> None:
        bench = Bench(attempts=3)
        bench.fail(DOWN, DOWN, DOWN, DOWN)
        with pytest.raises(TryAgainError, match="connection refused"):
            await bench.put()
        assert bench.store.counts.retried == 2
        assert bench.faulty.remaining == 1

    run(scenario)


def test_the_stores_wish_for_a_pause_is_honoured() -> None:
    """Retry-After makes the pause longer than the backoff would."""

    async def scenario() -> None:
        bench = Bench()
        bench.fail(ThrottledError("put", "k", "SlowDown", retry_after_s=17.0))
        await bench.put()
        assert bench.sleep.pauses_s == [17.0]

    run(scenario)


def test_throttling_lowers_the_concurrency_and_it_recovers() -> None:
    """A store that asks for fewer requests gets fewer, until all goes well again."""

    async def scenario() -> None:
        bench = Bench(limit=8)
        bench.fail(ThrottledError("put", "k", "SlowDown"))
        await bench.put()
        assert bench.limiter.capacity == 4
        for _ in range(40):
            await bench.put()
        assert bench.limiter.capacity == 8

    run(scenario)


def test_no_more_calls_are_under_way_than_allowed() -> None:
    """Whoever comes later waits for a turn, and every turn comes."""

    async def scenario() -> None:
        bench = Bench(limit=3)
        stalls = [Stall() for _ in range(8)]
        bench.faulty.add(*(StoreFault(action=stall) for stall in stalls))
        calls = [asyncio.create_task(bench.put(f"k{number}")) for number in range(8)]
        for done in range(8):
            await settled()
            under_way = sum(stall.reached.happened and not stall.released.happened for stall in stalls)
            assert under_way == min(3, 8 - done)
            await stalls[done].reached.awaited()
            stalls[done].released.happen()
        await asyncio.gather(*calls)
        assert len(bench.memory.puts) == 8

    run(scenario)


def test_a_call_past_its_deadline_is_cancelled_for_real_and_tried_again() -> None:
    """The hanging call is gone before the next begins; it is counted as timed out, and fewer go at a time."""

    async def scenario() -> None:
        bench = Bench(timeout_s=0.01)
        stall = Stall()
        bench.faulty.add(StoreFault(action=stall))
        await bench.put()
        assert stall.cancelled.happened
        stall.released.happen()
        await settled()
        assert bench.memory.keys_put == ["k"]
        assert (bench.store.counts.timed_out, bench.store.counts.retried) == (1, 1)
        assert bench.limiter.capacity == 32

    run(scenario)


def test_an_attempt_after_a_timeout_gets_more_time() -> None:
    """A file that is too large for the setting's time goes through in the end; the error says how long was waited."""

    async def scenario() -> None:
        bench = Bench(timeout_s=0.01, attempts=3)
        bench.faulty.add(StoreFault(action=Stall(), times=3))
        with pytest.raises(DeadlineError, match=r"no answer within 0\.04 s"):
            await bench.put()

    run(scenario)


def test_a_large_object_has_time_for_as_many_requests_as_it_takes() -> None:
    """The deadline of a multipart upload grows with its parts."""

    async def scenario() -> None:
        bench = Bench(timeout_s=0.01, attempts=1)
        bench.faulty.add(StoreFault(action=Stall()))
        with pytest.raises(DeadlineError, match=r"no answer within 0\.07 s"):
            await bench.store.put_parts("k", lambda: pytest.fail("never read"), 5 * PART_BYTES)

    run(scenario)


def test_a_lost_reply_is_a_second_write_of_the_same_bytes() -> None:
    """Copying is idempotent: the caller has the identity of the write that is there."""

    async def scenario() -> None:
        bench = Bench(memory=MemoryStore(is_versioned=True))
        bench.faulty.add(StoreFault(action=StoreThenRaise(error=DOWN)))
        stored = await bench.put()
        assert [put.data for put in bench.memory.puts] == [b"data", b"data"]
        assert stored.version_id == "v2"

    run(scenario)


def test_a_flipped_bit_is_an_error_at_the_upload() -> None:
    """The store refuses other bytes than were hashed; the next attempt brings the right ones."""

    async def scenario() -> None:
        bench = Bench()
        bench.faulty.add(StoreFault(action=FlipBit()))
        await bench.put(data=b"precious")
        assert bench.memory.objects["k"] == b"precious"
        assert bench.store.counts.retried == 1

    run(scenario)


def test_credentials_are_refreshed_once_for_many_calls() -> None:
    """All that failed with the old ones wait for one refresh and then go through."""

    async def scenario() -> None:
        bench = Bench()
        bench.fail(*[EXPIRED] * 30)
        await asyncio.gather(*(bench.put(f"k{number}") for number in range(30)))
        assert bench.memory.refreshes == 1
        assert len(bench.memory.puts) == 30
        assert bench.breaker.away_s == 0

    run(scenario)


def test_credentials_that_expire_again_are_refreshed_again() -> None:
    """A refresh is for those that failed before it, not for ever."""

    async def scenario() -> None:
        bench = Bench()
        for _ in range(3):
            bench.fail(EXPIRED)
            await bench.put()
        assert bench.memory.refreshes == 3

    run(scenario)


def test_credentials_that_stay_bad_are_an_outage() -> None:
    """When a refresh does not help, calls wait for somebody to act, and the log says why."""

    async def scenario() -> None:
        bench = Bench(attempts=100)
        bench.fail(*[EXPIRED] * 1000)
        calls = [asyncio.create_task(bench.put(f"k{number}")) for number in range(20)]
        await settled()
        await settled()
        assert bench.breaker.state.value == "open"
        assert bench.breaker.reason == "the token has expired"
        bench.faulty.heal()
        await bench.pass_by(60)
        await asyncio.gather(*calls)

    run(scenario)


@pytest.mark.parametrize("fault", [Stall(), Raise(error=DOWN)])
def test_a_refresh_that_fails_or_hangs_holds_nobody_up(fault: Stall | Raise) -> None:
    """The call is tried again with what there is."""

    async def scenario() -> None:
        bench = Bench(timeout_s=0.05)
        bench.faulty.add(
            StoreFault(action=Raise(error=EXPIRED)),
            StoreFault(action=fault, match=lambda operation, _: operation == "refresh"),
        )
        await bench.put()
        assert bench.memory.keys_put == ["k"]

    run(scenario)


def test_what_concerns_one_file_is_raised_at_once() -> None:
    """A name that is too long is not tried again, and shows that the store answers."""

    async def scenario() -> None:
        bench = Bench()
        for _ in range(THRESHOLD - 1):
            bench.breaker.failed(DOWN)
        bench.fail(TOO_LONG)
        with pytest.raises(FileRefusedError, match="KeyTooLong"):
            await bench.put()
        bench.breaker.failed(DOWN)
        assert bench.breaker.state.value == "closed"
        assert bench.store.counts.retried == 0

    run(scenario)


def test_access_denied_is_the_files_own_while_a_probe_gets_through() -> None:
    """Other files go on; the denied one is raised without a retry."""

    async def scenario() -> None:
        probes = 0

        async def probe() -> None:
            nonlocal probes
            probes += 1

        bench = Bench(probe=probe)
        bench.fail(DENIED)
        with pytest.raises(AccessDeniedError):
            await bench.put()
        assert probes == 1
        assert bench.breaker.state.value == "closed"
        assert bench.store.counts.retried == 0

    run(scenario)


@pytest.mark.parametrize("refusal", [DENIED, NO_BUCKET])
def test_access_denied_is_the_stores_when_a_probe_is_refused_too(refusal: StoreError) -> None:
    """Nothing is burnt through as a failure: the call waits until somebody acts, asks rarely, and then goes through."""

    async def scenario() -> None:
        refused: list[StoreError] = [refusal]

        async def probe() -> None:
            if refused:
                raise refused[0]

        bench = Bench(probe=probe)
        bench.fail(*[DENIED] * 100)
        calls = [asyncio.create_task(bench.put(f"k{number}")) for number in range(10)]
        await settled()
        assert bench.breaker.state.value == "refused"
        asked = 100 - bench.faulty.remaining
        assert asked == 10
        await bench.pass_by(FIRST_PAUSE_S)
        assert 100 - bench.faulty.remaining == asked + 1
        await bench.pass_by(60)
        assert 100 - bench.faulty.remaining == asked + 2
        refused.clear()
        bench.faulty.heal()
        await bench.pass_by(60)
        await asyncio.gather(*calls)
        assert len(bench.memory.puts) == 10

    run(scenario)


def test_a_refusal_that_nobody_knows_is_the_stores_when_a_probe_is_refused_too() -> None:
    """A server that takes no upload at all does not cost every record its copy."""

    async def scenario() -> None:
        refusal = DoubtfulRefusalError("put", "k", "MethodNotAllowed")

        async def probe() -> None:
            raise refusal

        bench = Bench(probe=probe)
        bench.fail(refusal)
        call = asyncio.create_task(bench.put())
        await settled()
        assert bench.breaker.state.value == "refused"
        await bench.pass_by(FIRST_PAUSE_S)
        await call

    run(scenario)


@pytest.mark.parametrize("patient", [True, False])
def test_credentials_that_nobody_set_are_looked_for_once_more(patient: bool) -> None:  # noqa: FBT001 - both ways
    """Then somebody has to act: a check ends, a copy goes on when there are some."""

    async def scenario() -> None:
        bench = Bench(patient=patient)
        absent = CredentialsAbsentError("put", "k", "no credentials")
        bench.faulty.add(StoreFault(action=Raise(error=absent), match=lambda operation, _: operation == "put", times=2))
        call = asyncio.create_task(bench.put())
        await settled()
        assert bench.breaker.state.value == "refused"
        assert bench.faulty.remaining == 0
        if patient:
            await bench.pass_by(FIRST_PAUSE_S)
            await call
        else:
            with pytest.raises(StoreRefusedError, match="no credentials"):
                await call

    run(scenario)


def test_access_denied_that_no_probe_can_judge_is_left_for_later() -> None:
    """A probe that meets an outage says nothing about the file: it is neither given up nor held for the store's."""

    async def scenario() -> None:
        async def probe() -> None:
            raise DOWN

        bench = Bench(probe=probe)
        bench.fail(DENIED)
        with pytest.raises(TryAgainError, match=r"access denied .*could not tell"):
            await bench.put()

    run(scenario)


def test_a_probe_that_hangs_is_ended() -> None:
    """A probe has a deadline like every call."""

    async def scenario() -> None:
        bench = Bench(probe=asyncio.Event().wait, timeout_s=0.01)  # type: ignore[arg-type] # what it answers is not looked at
        bench.fail(DENIED)
        with pytest.raises(TryAgainError, match="no answer within"):
            await bench.put()

    run(scenario)


def test_a_denied_receipt_needs_no_probe() -> None:
    """Where a writer may not put receipts nothing else is of use: that refuses the store at once."""

    async def scenario() -> None:
        async def probe() -> None:
            pytest.fail("what a probe would write was denied already")

        bench = Bench(probe=probe, essential="_receipts/")
        key = "_receipts/w/00000001.jsonl"
        bench.fail(AccessDeniedError("put", key, "access denied"))
        call = asyncio.create_task(bench.put(key))
        await settled()
        assert bench.breaker.state.value == "refused"
        await bench.pass_by(FIRST_PAUSE_S)
        await call

    run(scenario)


def test_a_refusing_store_is_waited_for_by_the_patient() -> None:
    """A missing bucket costs no record: the copy waits until it is there."""

    async def scenario() -> None:
        bench = Bench()
        bench.fail(NO_BUCKET)
        call = asyncio.create_task(bench.put())
        await settled()
        assert bench.breaker.state.value == "refused"
        await bench.pass_by(FIRST_PAUSE_S)
        await call

    run(scenario)


def test_a_refusing_store_ends_a_check() -> None:
    """A check does not wait for somebody to act: this call and those after it fail at once."""

    async def scenario() -> None:
        bench = Bench(patient=False)
        bench.fail(NO_BUCKET)
        with pytest.raises(StoreRefusedError):
            await bench.put()
        with pytest.raises(TryAgainError, match="not asked: the store is away"):
            await bench.put()
        assert bench.memory.puts == []

    run(scenario)


def test_a_check_is_told_when_everything_is_denied() -> None:
    """With a probe that is refused too, the denial is the store's."""

    async def scenario() -> None:
        async def probe() -> None:
            raise DENIED

        bench = Bench(patient=False, probe=probe)
        bench.fail(DENIED)
        with pytest.raises(StoreRefusedError, match="access denied"):
            await bench.put()

    run(scenario)


def test_a_check_waits_for_a_short_outage_only() -> None:
    """While the store has been away for less than the patience a check waits; then each call fails at once."""

    async def scenario() -> None:
        bench = Bench(patient=False)
        for _ in range(THRESHOLD):
            bench.breaker.failed(DOWN)
        call = asyncio.create_task(bench.put())
        await settled()
        assert not call.done()
        await bench.pass_by(FIRST_PAUSE_S)
        await call
        for _ in range(THRESHOLD):
            bench.breaker.failed(DOWN)
        bench.clock.advance(PATIENCE_S)
        await bench.breaker.admit()  # somebody else asks; the answer is still out
        with pytest.raises(TryAgainError, match="not asked"):
            await bench.put()

    run(scenario)


def test_while_the_store_is_away_calls_wait_and_one_at_a_time_asks() -> None:
    """A long outage costs an attempt now and then, not one a file; afterwards everything goes through."""

    async def scenario() -> None:
        bench = Bench(attempts=100)
        outage = 10_000
        bench.fail(*[DOWN] * outage)
        calls = [asyncio.create_task(bench.put(f"k{number}")) for number in range(50)]
        await settled()
        assert bench.breaker.state.value == "open"
        before = bench.faulty.remaining
        for _ in range(20):
            await bench.pass_by(60)
        assert before - bench.faulty.remaining == 20
        bench.faulty.heal()
        await bench.pass_by(60)
        await asyncio.gather(*calls)
        assert sorted(bench.memory.keys_put) == sorted(f"k{number}" for number in range(50))

    run(scenario)


def test_a_cancelled_call_leaves_nothing_behind() -> None:
    """Whether it runs, waits for its turn or for the store: its place is free and the breaker knows nothing."""

    async def scenario() -> None:
        bench = Bench(limit=1)
        stall = Stall()
        bench.faulty.add(StoreFault(action=stall))
        running, waiting = asyncio.create_task(bench.put("a")), asyncio.create_task(bench.put("b"))
        await stall.reached.awaited()
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        assert stall.cancelled.happened
        assert bench.limiter.used == 0
        await bench.put("c")
        assert bench.memory.keys_put == ["c"]

    run(scenario)


def test_a_bug_is_not_tried_again() -> None:
    """What is no store's error passes as it is."""

    async def scenario() -> None:
        bench = Bench()
        bench.fail(TypeError("a bug"))
        with pytest.raises(TypeError, match="a bug"):
            await bench.put()
        assert bench.store.counts.retried == 0

    run(scenario)


def test_an_absent_object_is_an_answer() -> None:
    """None for a description, an error for a read, and no retry for either."""

    async def scenario() -> None:
        bench = Bench()
        assert await bench.store.stat("absent") is None
        with pytest.raises(NotFoundError):
            await anext(bench.store.read("absent"))
        assert bench.store.counts.retried == 0

    run(scenario)


async def read_all(store: ReliableStore, key: str) -> bytes:
    return b"".join([chunk async for chunk in store.read(key)])


def test_a_read_is_repeated_from_its_start_when_it_breaks() -> None:
    """Whoever reads to the end gets every byte once, however the store breaks off."""

    async def scenario() -> None:
        bench = Bench(timeout_s=0.05)
        bench.memory.keep("k", b"0123456789")
        bench.faulty.add(
            StoreFault(action=ShortRead()), StoreFault(action=Raise(error=DOWN)), StoreFault(action=Stall())
        )
        assert await bench.store.repeat(lambda: read_all(bench.store, "k")) == b"0123456789"
        assert (bench.store.counts.retried, bench.store.counts.timed_out) == (3, 1)

    run(scenario)


def test_a_repeated_read_ends_too() -> None:
    """It is tried as often as any call."""

    async def scenario() -> None:
        bench = Bench(attempts=3)
        bench.memory.keep("k", b"0123456789")
        bench.faulty.add(StoreFault(action=ShortRead(), times=10))
        with pytest.raises(TryAgainError, match="ended early"):
            await bench.store.repeat(lambda: read_all(bench.store, "k"))
        assert bench.faulty.remaining == 7

    run(scenario)


def test_a_read_that_is_left_early_frees_its_place() -> None:
    """Whoever has seen enough holds nobody up."""

    async def scenario() -> None:
        bench = Bench(limit=1)
        bench.memory.keep("k", b"0123456789")
        reading = bench.store.read("k")
        await anext(reading)
        await reading.aclose()
        assert bench.limiter.used == 0
        await bench.put()

    run(scenario)


@given(st.integers(0, 30), st.integers(1, 7), st.lists(st.booleans(), max_size=20))
def test_a_listing_that_breaks_goes_on_where_it_was(count: int, page_size: int, breaks: list[bool]) -> None:
    """Whichever pages fail, each object is listed once, in order."""

    async def scenario() -> None:
        bench = Bench(attempts=100, memory=MemoryStore(page_size=page_size))
        for number in range(count):
            bench.memory.keep(f"k{number:03d}", b"")
        script = [StoreFault(action=Raise(error=DOWN) if fails else FlipBit()) for fails in breaks]
        bench.faulty.add(*script)
        listing = asyncio.create_task(list_all(bench.store))
        while not listing.done():
            await bench.pass_by(60)
        assert await listing == [f"k{number:03d}" for number in range(count)]

    run(scenario)


async def list_all(store: ReliableStore) -> list[str]:
    return [info.key async for page in store.list_pages("k") for info in page]


def test_closing_closes_the_store_below() -> None:
    """Connections are let go."""

    async def scenario() -> None:
        bench = Bench()
        await bench.store.refresh()
        await bench.store.aclose()
        assert (bench.memory.refreshes, bench.memory.closes) == (1, 1)

    run(scenario)
