"""While nothing gets through, calls wait and one at a time finds out; the log tells an operator once a minute."""

from __future__ import annotations

import asyncio
import logging

import pytest

from mirror.breaker import FIRST_PAUSE_S, MAX_PAUSE_S, REMIND_EVERY_S, THRESHOLD, Breaker, BreakerState
from mirror.errors import StoreRefusedError, TryAgainError
from tests.mirror.fake_clock import FakeClock, settled

DOWN = TryAgainError("put", "k", "connection refused")
REFUSED = StoreRefusedError("put", "k", "no such bucket")


def make(clock: FakeClock | None = None) -> tuple[Breaker, FakeClock]:
    clock = clock or FakeClock()
    return Breaker("s3://bucket/run", clock=clock), clock


def opened() -> tuple[Breaker, FakeClock]:
    breaker, clock = make()
    for _ in range(THRESHOLD):
        breaker.failed(DOWN)
    return breaker, clock


def state_of(breaker: Breaker) -> str:
    return breaker.state.value


def test_it_opens_after_failures_without_a_success_between() -> None:
    """One success shows that the store is there, and the count begins anew."""
    breaker, _ = make()
    for _ in range(THRESHOLD - 1):
        breaker.failed(DOWN)
    breaker.succeeded()
    for _ in range(THRESHOLD - 1):
        breaker.failed(DOWN)
    assert state_of(breaker) == "closed"
    breaker.failed(DOWN)
    assert state_of(breaker) == "open"
    assert breaker.reason == "connection refused"


def test_one_refusal_of_everything_opens_it() -> None:
    """What will not pass until somebody acts need not be tried five times."""
    breaker, _ = make()
    breaker.failed(REFUSED, refused=True)
    assert state_of(breaker) == "refused"
    assert breaker.reason == "no such bucket"


def test_closed_it_admits_everybody() -> None:
    """A healthy store's calls are not held up."""

    async def scenario() -> None:
        breaker, _ = make()
        await asyncio.gather(*(breaker.admit() for _ in range(100)))

    asyncio.run(scenario())


def test_open_it_holds_calls_back_and_lets_one_find_out() -> None:
    """After the pause one call is admitted; the others wait for what becomes of it."""

    async def scenario() -> None:
        breaker, clock = opened()
        early = asyncio.create_task(breaker.admit())
        await settled()
        assert not early.done()
        early.cancel()
        clock.advance(FIRST_PAUSE_S)
        callers = [asyncio.create_task(breaker.admit()) for _ in range(20)]
        await settled()
        assert sum(caller.done() for caller in callers) == 1
        breaker.succeeded()
        await asyncio.gather(*callers)
        assert state_of(breaker) == "closed"

    asyncio.run(scenario())


def test_a_failed_probe_lets_nobody_through_before_the_next_pause() -> None:
    """One call an attempt is spent on an absent store, whatever waits."""

    async def scenario() -> None:
        breaker, clock = opened()
        admitted = 0
        callers = []
        for pause_s in (FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S):
            clock.advance(pause_s)
            callers += [asyncio.create_task(breaker.admit()) for _ in range(5)]
            await settled()
            admitted += 1  # noqa: SIM113 - what is counted are calls, not rounds
            assert sum(caller.done() for caller in callers) == admitted
            breaker.failed(DOWN)
            await settled()
            assert sum(caller.done() for caller in callers) == admitted
        for caller in callers:
            caller.cancel()

    asyncio.run(scenario())


def test_the_pauses_between_probes_grow_to_a_bound() -> None:
    """A store that stays away is asked ever more rarely, though at least every half minute; success resets it."""

    async def scenario() -> None:
        breaker, clock = opened()

        async def wait_for_probe() -> float:
            began = clock.now
            while True:
                caller = asyncio.create_task(breaker.admit())
                await settled()
                if caller.done():
                    return clock.now - began
                caller.cancel()
                clock.advance(0.5)

        pauses = []
        for _ in range(8):
            pauses.append(await wait_for_probe())
            breaker.failed(DOWN)
        assert pauses == [1, 2, 4, 8, 16, MAX_PAUSE_S, MAX_PAUSE_S, MAX_PAUSE_S]
        await wait_for_probe()
        breaker.succeeded()
        for _ in range(THRESHOLD):
            breaker.failed(DOWN)
        assert await wait_for_probe() == FIRST_PAUSE_S

    asyncio.run(scenario())


def test_many_calls_that_fail_together_are_one_outage() -> None:
    """Those under way when it opened say nothing new: the first probe comes after the first pause all the same."""

    async def scenario() -> None:
        breaker, clock = make()
        for _ in range(200):
            breaker.failed(DOWN)
        clock.advance(FIRST_PAUSE_S)
        await asyncio.wait_for(breaker.admit(), 30)

    asyncio.run(scenario())


def test_a_probe_that_was_cancelled_says_nothing_and_lets_the_next_try() -> None:
    """A call that is given up neither closes nor delays."""

    async def scenario() -> None:
        breaker, clock = opened()
        clock.advance(FIRST_PAUSE_S)
        await breaker.admit()
        waiting = asyncio.create_task(breaker.admit())
        await settled()
        assert not waiting.done()
        breaker.abandoned()
        await asyncio.wait_for(waiting, 30)
        assert state_of(breaker) == "open"

    asyncio.run(scenario())


def test_waiting_can_be_cancelled() -> None:
    """A close does not wait for a store that is away."""

    async def scenario() -> None:
        breaker, _ = opened()
        waiting = asyncio.create_task(breaker.admit())
        await settled()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(scenario())


def test_it_knows_for_how_long_the_store_is_away() -> None:
    """From the first opening to the closing, whatever happens between."""
    breaker, clock = opened()
    clock.advance(30)
    breaker.failed(REFUSED, refused=True)
    clock.advance(12)
    assert breaker.away_s == 42
    breaker.succeeded()
    assert breaker.away_s == 0
    assert breaker.reason is None


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_an_outage_is_a_line_when_it_begins_one_a_minute_and_one_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However many calls fail, an operator reads what is wrong, that it goes on, and that it is over."""
    caplog.set_level(logging.DEBUG, "mirror.breaker")
    breaker, clock = make()
    for _ in range(50):
        breaker.failed(DOWN)
    assert [(level, "does not answer (connection refused)" in text) for level, text in lines(caplog)] == [
        ("WARNING", True)
    ]
    for _ in range(int(10 * REMIND_EVERY_S)):
        clock.advance(1)
        breaker.failed(DOWN)
    assert [level for level, _ in lines(caplog)] == ["WARNING"] * 11
    breaker.succeeded()
    breaker.succeeded()
    level, text = lines(caplog)[-1]
    assert (level, len(caplog.records)) == ("INFO", 12)
    assert "answers again after 600 s" in text


def test_a_refusing_store_is_reported_once_and_loudly(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody has to act: an error, with the reason, and what happens to the records meanwhile."""
    breaker, _ = make()
    for _ in range(20):
        breaker.failed(REFUSED, refused=True)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    text = caplog.records[0].getMessage()
    assert "s3://bucket/run" in text
    assert "refuses everything (no such bucket)" in text
    assert "records wait on local disk until somebody acts" in text


def test_an_outage_that_turns_out_to_be_a_refusal_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """An operator who was told to wait learns that somebody has to act, without a line for each change of mind."""
    breaker, _ = opened()
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="mirror"):
        for error, refused in [(REFUSED, True), (DOWN, False), (REFUSED, True)]:
            breaker.failed(error, refused=refused)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "ERROR",
            "s3://bucket/run now refuses everything (no such bucket): records wait on local disk until somebody acts",
        )
    ]


def test_a_check_whose_caller_is_told_speaks_only_of_outages(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing waits on its disk, and what ends it is its caller's to say."""
    caplog.set_level(logging.WARNING)
    breaker = Breaker("s3://bucket/run", clock=FakeClock(), waiting=None)
    for _ in range(THRESHOLD):
        breaker.failed(DOWN)
    assert [record.getMessage() for record in caplog.records] == [
        "s3://bucket/run now does not answer (connection refused)"
    ]
    Breaker("s3://bucket/run", clock=FakeClock(), waiting=None).failed(REFUSED, refused=True)
    assert len(caplog.records) == 1


def test_the_states_have_plain_names() -> None:
    """They stand in stats and on health pages."""
    assert [state.value for state in BreakerState] == ["closed", "open", "refused"]
