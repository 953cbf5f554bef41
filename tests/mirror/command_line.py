"""The command ``record-mirror`` as its users run it: a process with arguments, an environment, streams and a code."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
import pytest

import mirror
from mirror.cli import commands
from mirror.terminal.commands import run

WAIT_S = 60.0


@dataclass(frozen=True)
class Ran:
    """What a finished command said."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines, of which each must be one."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def summary(self) -> dict[str, Any]:
        """The last JSON line, which must be a summary that agrees with the exit code."""
        last = self.lines[-1]
        assert last["type"] == "summary"
        assert last["exit_code"] == self.code
        return last

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """Return the JSON lines of a type."""
        return [line for line in self.lines if line["type"] == kind]


def run_command(*args: str | Path, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command to its end."""
    with Running(*args, env=env) as running:
        return running.wait()


def storage_env(options: Mapping[str, object]) -> dict[str, str]:
    """Return the environment that hands storage options to a command."""
    return {"RECORD_MIRROR_STORAGE_OPTIONS": json.dumps(options)}


class Running:
    """A command that runs; whatever becomes of it, it has ended after the ``with`` statement."""

    def __init__(self, *args: str | Path, env: Mapping[str, str] | None = None) -> None:
        """Start it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RECORD_MIRROR_")}
        environment |= {"PYTHONPATH": str(Path(mirror.__file__).parents[1]), **(env or {})}
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "references.cli", *map(str, args)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._news: queue.Queue[str | None] = queue.Queue()
        self._err: list[str] = []
        self._out = ""
        self._readers = [threading.Thread(target=self._read_err), threading.Thread(target=self._read_out)]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def say(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait_for(self, text: str) -> str:
        """Wait for a line on standard error that holds ``text``, and return it."""
        while (line := self._news.get(timeout=WAIT_S)) is not None:
            if text in line:
                return line
        raise AssertionError(f"it ended without saying {text!r}: {''.join(self._err)}")

    def has_ended(self, within_s: float) -> bool:
        """Say whether it ends within so many seconds."""
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, while it runs."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline, f"it did not come to pass: {''.join(self._err)}"
            assert not self.has_ended(0.05), f"it ended too soon: {''.join(self._err)}"

    def wait(self) -> Ran:
        """Wait for its end."""
        code = self._process.wait(WAIT_S)
        for reader in self._readers:
            reader.join()
        return Ran(code, self._out, "".join(self._err))

    def __enter__(self) -> Self:
        """Let it run."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _read_err(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._err.append(line)
            self._news.put(line)
        self._news.put(None)

    def _read_out(self) -> None:
        assert self._process.stdout is not None
        self._out = self._process.stdout.read()


class Line:
    """Runs commands in this process."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, group: click.Group = commands
    ) -> None:
        """Take what they say from ``capsys``; nothing in the environment sets anything."""
        self._capsys = capsys
        self._group = group
        for name in [name for name in os.environ if name.startswith("RECORD_MIRROR_")]:
            monkeypatch.delenv(name)

    def __call__(self, *args: str | Path) -> Ran:
        """Run one to its end; it may be refused, but has no traceback."""
        self._capsys.readouterr()
        code = run(self._group, [str(arg) for arg in args])
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return Ran(code, said.out, said.err)
