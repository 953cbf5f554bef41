"""What follows from how a try ended: ``references/outcome.py``."""

from __future__ import annotations

import pytest

from references.outcome import Next, Outcome, backoff_s, decide, is_there, must_ask
from references.wandb_client import Found


@pytest.mark.parametrize(
    ("outcome", "tries", "following"),
    [
        (Outcome.LOGGED, 1, Next.DONE),
        (Outcome.THERE, 3, Next.DONE),
        (Outcome.OFFLINE, 1, Next.KEEP),
        (Outcome.DISABLED, 1, Next.KEEP),
        (Outcome.WAITING, 1, Next.WAIT),
        (Outcome.RUN_OVER, 1, Next.PARK),
        (Outcome.TIMED_OUT, 1, Next.ABANDON),
        (Outcome.FAILED, 1, Next.RETRY),
        (Outcome.FAILED, 2, Next.RETRY),
        (Outcome.FAILED, 3, Next.GIVE_UP),
    ],
)
def test_only_failures_are_retried_and_a_bounded_number_of_times(outcome: Outcome, tries: int, following: Next) -> None:
    """Of three attempts the third failure is the last; what W&B has, or may still get, is never tried again."""
    assert decide(outcome, tries=tries, attempts=3) is following


@pytest.mark.parametrize(
    ("index_hash", "num_referenced", "num_pending", "there"),
    [("h", 4, 1, True), ("h", 5, 0, True), ("h", 3, 1, False), ("h", 4, 2, False), ("other", 9, 0, False)],
)
def test_a_version_is_there_when_it_says_no_less_than_ours(
    index_hash: str, num_referenced: int, num_pending: int, *, there: bool
) -> None:
    """The same content of the step, at least as many references, at most as much pending."""
    found = Found(version="v0", step=1, index_hash=index_hash, num_referenced=num_referenced, num_pending=num_pending)

    assert is_there(found, index_hash="h", num_referenced=4, num_pending=1) is there
    assert not is_there(None, index_hash="h", num_referenced=0, num_pending=9)


@pytest.mark.parametrize(
    ("step", "newest", "uncertain", "asks"), [(5, 4, False, False), (5, 4, True, True), (4, 4, False, True)]
)
def test_a_new_step_is_logged_without_asking(step: int, newest: int, *, uncertain: bool, asks: bool) -> None:
    """W&B is asked only where it may have the version."""
    assert must_ask(step, newest, uncertain=uncertain) is asks


def test_pauses_double_up_to_a_minute() -> None:
    """The first pause is the setting's, and a longer setting stays as it is."""
    assert [backoff_s(tries, 5) for tries in (1, 2, 3, 9)] == [5, 10, 20, 60]
    assert [backoff_s(tries, 90) for tries in (1, 2)] == [90, 90]
    assert backoff_s(4, 0) == 0


def test_an_outage_of_any_length_has_pauses() -> None:
    """After a day of failures once a minute the pause is what it was after an hour."""
    assert backoff_s(1500, 5) == backoff_s(60, 5) == 60
