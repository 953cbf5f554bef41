"""A directory that cannot be read is said so once, tried a few times, and at last not expected back."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.unreadable import LOST_AFTER_S, TRIES, Unreadable
from tests.mirror.fake_clock import FakeClock

HERE = Path("/records")
GONE = FileNotFoundError(2, "No such file or directory")


def test_it_is_said_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever finds it out; and that it is over."""
    unreadable = Unreadable(clock=FakeClock())
    for _ in range(2):
        for _ in range(TRIES):
            unreadable.tell(HERE, GONE)
            unreadable.failed(HERE, GONE)
        assert HERE in unreadable
        unreadable.was_read(HERE)
        assert HERE not in unreadable
    cannot, can = (f"{word} read the record directory {HERE}" for word in ("cannot", "can"))
    assert [message[: len(cannot)] for message in caplog.messages] == [cannot, (can + " again")[: len(cannot)]] * 2


def test_it_is_given_up_after_some_tries_and_tried_anew_for_whoever_waits_next() -> None:
    """Others are not concerned."""
    unreadable = Unreadable(clock=FakeClock())
    for _ in range(2):
        assert [unreadable.failed(HERE, GONE) for _ in range(TRIES)] == [False] * (TRIES - 1) + [True]
        assert unreadable.is_given_up(HERE)
        assert not unreadable.is_given_up(HERE / "other")
        unreadable.try_anew()
        assert not unreadable.is_given_up(HERE)


def test_who_begins_to_wait_takes_no_try_from_those_who_do() -> None:
    """Else one who asks again and again would keep the others waiting."""
    unreadable = Unreadable(clock=FakeClock())
    for _ in range(TRIES - 1):
        unreadable.try_anew()
        assert not unreadable.failed(HERE, GONE)
    unreadable.try_anew()
    assert unreadable.failed(HERE, GONE)


def test_it_is_not_expected_back_after_long() -> None:
    """Counted from when it was first found out, since it was last read."""
    clock = FakeClock()
    unreadable = Unreadable(clock=clock)
    assert not unreadable.is_away_for_long(HERE)
    unreadable.tell(HERE, GONE)
    clock.now += LOST_AFTER_S - 1
    unreadable.tell(HERE, GONE)
    assert not unreadable.is_away_for_long(HERE)
    clock.now += 1
    assert unreadable.is_away_for_long(HERE)
    unreadable.was_read(HERE)
    assert not unreadable.is_away_for_long(HERE)
