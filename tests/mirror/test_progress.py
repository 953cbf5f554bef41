"""Progress is a bar on a terminal, a line now and then in a log, and nothing where it is not wanted."""

from __future__ import annotations

import io

import pytest

from mirror.terminal.progress import (
    LINE_EVERY_S,
    BarProgress,
    LineProgress,
    Progress,
    Rates,
    Tally,
    describe,
    make_progress,
)
from tests.mirror.fake_clock import FakeClock


class Terminal(io.StringIO):
    """Where a person looks."""

    def isatty(self) -> bool:
        return True


def tally(done: int, *, size_bytes: int = 0, total: int | None = 500, note: str = "") -> Tally:
    return Tally(done=done, total=total, unit="records", size_bytes=size_bytes, note=note)


def test_a_log_gets_a_line_every_half_minute() -> None:
    """However often the tally changes, a line is written each LINE_EVERY_S, with the rates of the last while."""
    clock, lines = FakeClock(), list[str]()
    with LineProgress("copied", lines.append, clock=clock) as progress:
        for second in range(61):
            progress.update(tally(second * 10, size_bytes=second * 1_000_000))
            clock.advance(1)
    assert LINE_EVERY_S == 30
    assert lines == [
        "copied 300 of 500 records, 30.0 MB (10/s, 1.0 MB/s)",
        "copied 600 of 500 records, 60.0 MB (10/s, 1.0 MB/s)",
    ]


def test_rates_are_those_of_the_last_while() -> None:
    """What was fast a minute ago does not hide that nothing moves now."""
    rates = Rates()
    assert rates.add(0, 0, 0) == (0.0, 0.0)
    assert rates.add(10, 1_000, 0)[0] == 100
    assert [rates.add(now, 1_000, 0) for now in range(11, 41)][-1] == (0.0, 0.0)


def test_what_a_line_says() -> None:
    """The total is left out where it is not known, and a note comes last."""
    assert describe("checked", tally(7, total=None, note="2 findings"), 1.0, 0.0) == (
        "checked 7 records, 0 B (1/s, 0 B/s); 2 findings"
    )


def test_the_way_to_show_it_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar only where somebody looks at it and the terminal can draw it."""
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_progress("copied", quiet=False, stream=Terminal())) is BarProgress
    assert type(make_progress("copied", quiet=False, stream=io.StringIO())) is LineProgress
    assert type(make_progress("copied", quiet=True, stream=Terminal())) is Progress
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_progress("copied", quiet=False, stream=Terminal())) is LineProgress
