"""A helper process as its owner sees it: a pipe to talk over, a thread that hears it, and an end in any case."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from references.calls import THREAD_NAME

LEAVE_S = 1.0  # what a process that has said its last word may need to leave
_BEGIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from references.publisher_child import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class HelperProcess:
    """Runs ``references.publisher_child``. What it imports is what its owner can import; it has no terminal."""

    def __init__(self, hear: Callable[[object], None], gone: Callable[[], None]) -> None:
        """Start it; it is heard after ``listen``.

        Args:
            hear: called with each message of its, on the thread that hears it.
            gone: called there once, when it is gone.

        Raises:
            OSError: it cannot be started.
        """
        self._hear = hear
        self._gone = gone
        self._sending = threading.Lock()
        self.is_alive = True  # as far as anybody knows; written by the thread that hears it
        self._socket, other_end = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        with other_end:
            command = [sys.executable, "-c", _BEGIN, json.dumps(sys.path), str(other_end.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the terminal is for its owner, who ends it
            )
        self._thread = threading.Thread(target=self._listen, name=f"{THREAD_NAME}-helper", daemon=True)

    def listen(self) -> None:
        """Begin to hear it."""
        self._thread.start()

    def send(self, message: object) -> None:
        """Tell it something; in vain if it is gone. Any thread may call; may block while it does not listen."""
        with contextlib.suppress(OSError), self._sending:
            self._connection.send(message)

    def end(self) -> None:
        """See it leave, or kill it; afterwards neither the process nor the thread is there."""
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a fork at a bad moment may hold the other end open
        self._thread.join()

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._hear(self._connection.recv())
        self.is_alive = False
        self._process.wait()
        with self._sending:
            self._connection.close()
            self._socket.close()
        self._gone()
