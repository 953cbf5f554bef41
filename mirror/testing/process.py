"""One server process on loopback: started on free ports, waited for, and stopped by its own pid."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LOOPBACK: Final = "127.0.0.1"
_LOG_TAIL_BYTES: Final = 3_000
_POLL_S: Final = 0.03


class ServerError(RuntimeError):
    """A server could not be started; the message holds the end of its log."""


def find_program(name: str, package: str) -> str:
    """Return the path of an executable that a Python package installs, this environment's own before the PATH's.

    Raises:
        ServerError: it is not there; the message names the package to install.
    """
    search = os.pathsep.join([sysconfig.get_path("scripts"), str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which(name, path=search)
    if found is None:
        msg = f"the program {name!r} is not installed: pip install {package}"
        raise ServerError(msg)
    return found


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that nobody listens on now; somebody may take one before it is used."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind((LOOPBACK, 0))
        return [int(sock.getsockname()[1]) for sock in sockets]


class ServerProcess:
    """A running server; ``stop`` ends it, and so does the death of the process that started it."""

    def __init__(self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> None:
        """Start ``command``; what it prints goes to a file in ``cwd``.

        Raises:
            OSError: the program cannot be run.
        """
        self.name = Path(command[0]).name
        self._log_path = cwd / "server.log"
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the caller's own command, no shell
                command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._watchdog = _Watchdog(self._process.pid)

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def wait_until(self, answers: Callable[[], bool], *, timeout_s: float) -> None:
        """Return once ``answers()`` is true; it says False as long as the server is not ready.

        Raises:
            ServerError: the server ended, or ``timeout_s`` seconds went by.
        """
        deadline = time.monotonic() + timeout_s
        while not answers():
            if (code := self._process.poll()) is not None:
                msg = f"{self.name} ended with exit code {code} before it answered; its log ends:\n{self.log_tail()}"
                raise ServerError(msg)
            if time.monotonic() > deadline:
                msg = f"{self.name} did not answer within {timeout_s} s; its log ends:\n{self.log_tail()}"
                raise ServerError(msg)
            time.sleep(_POLL_S)

    def log_tail(self) -> str:
        """Return the end of what the server printed."""
        return self._log_path.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")

    def stop(self) -> None:
        """End the server and wait for it; doing so twice is harmless."""
        self._watchdog.dismiss()
        self._process.kill()  # its data goes with it, so there is nothing to wind down
        self._process.wait()


class _Watchdog:
    """A shell that kills one process once our end of its pipe closes: also when we die without a word."""

    def __init__(self, pid: int) -> None:
        self._shell = subprocess.Popen(  # noqa: S603 - a fixed script and a number
            ["/bin/sh", "-c", f"read -r _; kill -KILL {pid}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the keyboard must not end the watch before its ward
        )

    def dismiss(self) -> None:
        """End the watch without harm; done before the ward ends, so that its pid cannot be another's by then."""
        self._shell.kill()
        self._shell.wait()
        stdin: IO[bytes] | None = self._shell.stdin
        if stdin is not None:
            stdin.close()
