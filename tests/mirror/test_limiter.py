"""The number of requests at a time follows what the store can take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.limiter import HALVE_EVERY_S, Limiter
from tests.mirror.fake_clock import FakeClock


def test_it_begins_at_the_limit() -> None:
    """A store that never throttles is used as far as the settings allow."""
    assert Limiter(64).capacity == 64


def test_throttling_halves_the_requests() -> None:
    """Each sign that the store cannot keep up halves what is under way, down to one."""
    clock = FakeClock()
    limiter = Limiter(20, clock=clock)
    seen = []
    for _ in range(6):
        limiter.throttled()
        seen.append(limiter.capacity)
        clock.advance(HALVE_EVERY_S)
    assert seen == [10, 5, 2, 1, 1, 1]


def test_a_burst_of_refusals_is_one_sign() -> None:
    """All requests under way are refused at once: that is one sign, not many."""
    clock = FakeClock()
    limiter = Limiter(64, clock=clock)
    for _ in range(64):
        limiter.throttled()
    assert limiter.capacity == 32


def test_it_recovers_step_by_step() -> None:
    """One more after each round that went well, up to the limit; a refusal begins the round anew."""
    clock = FakeClock()
    limiter = Limiter(4, clock=clock)
    limiter.throttled()
    assert limiter.capacity == 2
    limiter.succeeded()
    limiter.throttled()  # within the same second: no second halving, but the round begins anew
    limiter.succeeded()
    assert limiter.capacity == 2
    limiter.succeeded()
    assert limiter.capacity == 3
    for _ in range(3):
        limiter.succeeded()
    assert limiter.capacity == 4
    for _ in range(100):
        limiter.succeeded()
    assert limiter.capacity == 4


@given(st.integers(1, 100), st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=60))
def test_it_stays_between_one_and_the_limit(limit: int, events: list[tuple[bool, float]]) -> None:
    """Whatever the store answers, at least one request goes on and no more than the limit do."""
    clock = FakeClock()
    limiter = Limiter(limit, clock=clock)
    for went_well, pause_s in events:
        clock.advance(pause_s)
        if went_well:
            limiter.succeeded()
        else:
            limiter.throttled()
        assert 1 <= limiter.capacity <= limit
