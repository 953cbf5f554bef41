"""Pauses grow, are spread, and honour what the store asks for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.retry import MAX_PAUSE_S, MAX_RETRY_AFTER_S, RetryPolicy

POLICY = RetryPolicy(attempts=5, backoff_s=0.5, timeout_s=60)


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def test_pauses_double_with_each_failure() -> None:
    """The mean pause is the setting's before the second attempt, twice that before the third, and so on."""
    assert [POLICY.pause_s(failures, uniform=middle) for failures in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]


def test_pauses_are_bounded_however_many_failures() -> None:
    """Even an absurd number of attempts ends in a pause that somebody can wait for."""
    assert POLICY.pause_s(20, uniform=middle) == MAX_PAUSE_S
    assert POLICY.pause_s(100_000, uniform=middle) == MAX_PAUSE_S


def test_pauses_are_spread() -> None:
    """Calls that failed together do not come back together: half to one and a half times the mean."""
    assert POLICY.pause_s(1, uniform=lambda low, _: low) == 0.25
    assert POLICY.pause_s(1, uniform=lambda _, high: high) == 0.75
    assert len({POLICY.pause_s(3) for _ in range(50)}) > 1


@given(st.integers(1, 200), st.none() | st.floats(0, 1e6))
def test_the_stores_wish_is_honoured_within_reason(failures: int, retry_after_s: float | None) -> None:
    """A pause is never shorter than what the store asks for, up to a bound, nor longer than both bounds allow."""
    pause_s = POLICY.pause_s(failures, retry_after_s)
    assert pause_s >= min(retry_after_s or 0.0, MAX_RETRY_AFTER_S)
    assert 0 <= pause_s <= max(1.5 * MAX_PAUSE_S, MAX_RETRY_AFTER_S)


def test_no_pause_is_possible() -> None:
    """A backoff of nothing means: at once, unless the store asks for a pause."""
    policy = RetryPolicy(attempts=2, backoff_s=0.0, timeout_s=1)
    assert policy.pause_s(5) == 0
    assert policy.pause_s(5, 3.0) == 3.0


def test_an_attempt_that_ran_out_of_time_gets_more() -> None:
    """The time for the next doubles each time that it ran out, within bounds."""
    assert [POLICY.stretch(timeouts) for timeouts in (0, 1, 2, 3)] == [1, 2, 4, 8]
    assert POLICY.stretch(1000) == 64
