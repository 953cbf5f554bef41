"""What a command says: results on standard output, remarks on standard error; as JSON lines where that is asked for.

With ``json`` each line on standard output is an object with a ``type``, the last one the ``summary``. Errors are lines
of type ``error`` there, and sentences on standard error in any case.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TextIO

from mirror.redact import redact_url
from mirror.terminal.exits import Exit

# Counted in files, except for bytes and seconds; every summary has all of them.
COUNTS = {"copied": 0, "unchanged": 0, "failed": 0, "late": 0, "findings": 0, "bytes": 0}
NAMED = 20  # names given where not all can be
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_STEP = 1000.0
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_OWN_LOGGERS = ("mirror", "references")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Where one command's words go."""

    json: bool = False
    quiet: bool = False
    began: float = field(default_factory=time.monotonic)

    def line(self, kind: str, text: str | None, /, **facts: object) -> None:
        """Give one result: ``facts`` as JSON, or else ``text``, if there is any."""
        if self.json:
            _print(json.dumps({"type": kind, **facts}), sys.stdout)
        elif text is not None:
            _print(text, sys.stdout)

    def remark(self, text: str) -> None:
        """Say what helps a person and is no result."""
        if not self.quiet:
            _print(text, sys.stderr)

    def error(self, message: str, **facts: object) -> None:
        """Say in one sentence what went wrong; a URL in it loses its credentials."""
        message = redact_url(message)
        if self.json:
            self.line("error", None, message=message, **facts)
        _print(f"error: {message}", sys.stderr)

    def summary(self, text: str | None, code: Exit, **facts: object) -> int:
        """End with what came of it; returns the exit code."""
        if self.json:
            elapsed_s = round(time.monotonic() - self.began, 3)
            self.line("summary", None, **{**COUNTS, **facts, "elapsed_s": elapsed_s, "exit_code": int(code)})
        elif text is not None and (code or not self.quiet):
            _print(text, sys.stdout)
        return int(code)


def format_bytes(size_bytes: float) -> str:
    """Return a size for people: ``999 B``, ``1.2 kB``, ``3.4 GB``."""
    unit = 0
    while size_bytes >= _STEP - 0.05 and unit < len(_UNITS) - 1:
        size_bytes /= _STEP
        unit += 1
    return f"{size_bytes:.1f} {_UNITS[unit]}" if unit else f"{size_bytes:.0f} B"


def plural(count: int, noun: str) -> str:
    """Return ``1 file`` or ``2,000 files``, ``2 directories``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun.removesuffix('y')}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def name_some(names: Iterable[str]) -> str:
    """Return names on one line, whatever a disk holds, and not too many of them."""
    listed = [name if name.isprintable() else ascii(name)[1:-1] for name in islice(names, NAMED + 1)]
    return ", ".join(listed[:NAMED]) + (", ..." if len(listed) > NAMED else "")


@contextlib.contextmanager
def logging_to_stderr(*, verbose: int, quiet: bool) -> Iterator[None]:
    """Send the log to standard error: warnings, from -v what happens, from -vv each record; with ``quiet`` errors only.

    Other libraries never say more than warnings: their lines may hold what ours blank.
    """
    least = logging.ERROR if quiet else logging.WARNING
    own = logging.ERROR if quiet else {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    root = logging.getLogger()
    levels = {root: least, **{logging.getLogger(name): own for name in _OWN_LOGGERS}}
    before = {logger: logger.level for logger in levels}
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root.addHandler(handler)
    try:
        for logger, level in levels.items():
            logger.setLevel(level)
        yield
    finally:
        root.removeHandler(handler)
        for logger, level in before.items():
            logger.setLevel(level)


@contextlib.contextmanager
def told_at_the_end(*loggers: str) -> Iterator[None]:
    """Keep back what these loggers say and the command's result says too; from -v on they speak."""
    hushed = [logger for name in loggers if not (logger := logging.getLogger(name)).isEnabledFor(logging.INFO)]
    before = [logger.level for logger in hushed]
    try:
        for logger in hushed:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(hushed, before, strict=True):
            logger.setLevel(level)


class _StderrHandler(logging.Handler):
    """Writes to whatever is standard error at the moment: a progress bar puts itself in between."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _print(self.format(record), sys.stderr)
        except Exception:  # noqa: BLE001 - a log line never ends a command
            self.handleError(record)


def _print(text: str, stream: TextIO) -> None:
    """Write a line; names in it come from disks and buckets, and reach the terminal without control characters."""
    encoding = stream.encoding or "utf-8"
    shown = _CONTROL.sub("?", text).encode(encoding, "backslashreplace").decode(encoding)
    print(shown, file=stream, flush=True)
