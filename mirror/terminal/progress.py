"""How far a command is: a bar on a terminal, a line every half minute in a log, nothing where quiet is asked for."""

from __future__ import annotations

import collections
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

from mirror.terminal.output import format_bytes

LINE_EVERY_S = 30.0
_WINDOW_S = 15.0  # rates are means over this long


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How far it is."""

    done: int
    total: int | None  # None: not known
    unit: str  # e.g. "records"
    size_bytes: int
    note: str = ""  # what else there is to say, e.g. "3 late"


class Progress:
    """Shows tallies, from one thread, in a ``with`` statement; this one shows nothing."""

    def update(self, tally: Tally) -> None:
        """Take the newest tally; cheap, and shown when it is time."""

    def stop(self) -> None:
        """Leave the terminal as it was; more than once is harmless."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


def make_progress(action: str, *, quiet: bool, stream: TextIO | None = None) -> Progress:
    """Choose how to show progress on ``stream``, which is standard error unless given."""
    stream = sys.stderr if stream is None else stream
    if quiet:
        return Progress()
    if stream.isatty() and os.environ.get("TERM") != "dumb":
        return BarProgress(action)
    return LineProgress(action, lambda line: print(line, file=stream, flush=True))


class Rates:
    """Units and bytes per second over the last while."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._seen: collections.deque[tuple[float, int, int]] = collections.deque()

    def add(self, now: float, done: int, size_bytes: int) -> tuple[float, float]:
        """Take a reading and return the rates."""
        self._seen.append((now, done, size_bytes))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:  # noqa: PLR2004 - two readings make a rate
            self._seen.popleft()
        began, first_done, first_bytes = self._seen[0]
        elapsed_s = now - began
        if elapsed_s <= 0:
            return 0.0, 0.0
        return (done - first_done) / elapsed_s, (size_bytes - first_bytes) / elapsed_s


def describe(action: str, tally: Tally, per_s: float, bytes_per_s: float) -> str:
    """Return one line such as ``copied 1,200 of 5,000 records, 3.4 GB (80/s, 120.0 MB/s)``."""
    of = "" if tally.total is None else f" of {tally.total:,}"
    line = f"{action} {tally.done:,}{of} {tally.unit}, {format_bytes(tally.size_bytes)}"
    line += f" ({per_s:,.0f}/s, {format_bytes(bytes_per_s)}/s)"
    return f"{line}; {tally.note}" if tally.note else line


class LineProgress(Progress):
    """Writes a line now and then, for logs."""

    def __init__(
        self, action: str, write: Callable[[str], object], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Write the first line after LINE_EVERY_S; a short run has none."""
        self._action = action
        self._write = write
        self._clock = clock
        self._rates = Rates()
        self._next = clock() + LINE_EVERY_S

    def update(self, tally: Tally) -> None:
        """Write a line if it is time."""
        now = self._clock()
        rates = self._rates.add(now, tally.done, tally.size_bytes)
        if now >= self._next:
            self._next = now + LINE_EVERY_S
            self._write(describe(self._action, tally, *rates))


class BarProgress(Progress):
    """A bar on the terminal."""

    def __init__(self, action: str) -> None:
        """Prepare; nothing is drawn before ``with``."""
        from rich.console import Console  # noqa: PLC0415 - takes longer to import than a whole short run
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - likewise
        from rich.progress import Progress as RichProgress  # noqa: PLC0415 - likewise

        self._action = action
        self._rates = Rates()
        self._bar = RichProgress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(action, total=None)

    def update(self, tally: Tally) -> None:
        """Redraw."""
        rates = self._rates.add(time.monotonic(), tally.done, tally.size_bytes)
        self._bar.update(
            self._task,
            total=tally.total,
            completed=tally.done,
            description=describe(self._action, tally, *rates).replace("[", r"\["),
        )

    def __enter__(self) -> Self:
        """Draw."""
        self._bar.start()
        return self

    def stop(self) -> None:
        """Take the bar away."""
        self._bar.stop()
