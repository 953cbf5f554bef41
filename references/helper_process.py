"""A helper process as its owner sees it: a pipe to talk over, two threads that do so, and an end in any case."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue

from references.calls import THREAD_NAME

LEAVE_S = 1.0  # what a process that has said its last word may need to leave
_BEGIN = (  # imports nothing that a file could stand for before it looks where its owner does
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from references.publisher_child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)


class HelperProcess:
    """Runs ``references.publisher_child``. What it imports is what its owner can import; it has no terminal."""

    def __init__(self, hear: Callable[[object], None], gone: Callable[[], None]) -> None:
        """Start it; it is heard, and hears, after ``listen``.

        Args:
            hear: called with each message of its, on the thread that hears it.
            gone: called there once, when it is gone.

        Raises:
            OSError: it cannot be started.
        """
        self._hear = hear
        self._gone = gone
        self._unsent: SimpleQueue[object] = SimpleQueue()  # None: there is nobody to tell any more
        self._socket, other_end = socket.socketpair()
        self._connection = Connection(os.dup(self._socket.fileno()))
        path = [str(entry) for entry in sys.path]
        with other_end:  # -P: no file of the current directory is taken for a standard module
            command = [sys.executable, "-P", "-c", _BEGIN, str(other_end.fileno()), str(os.getpid()), *path]
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt from the terminal is for its owner, who ends it
            )
        self._speaker = threading.Thread(target=self._speak, name=f"{THREAD_NAME}-to-helper", daemon=True)
        self._listener = threading.Thread(target=self._listen, name=f"{THREAD_NAME}-helper", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the process is there; it may hang."""
        return self._process.poll() is None

    def listen(self) -> None:
        """Begin to talk with it."""
        self._speaker.start()
        self._listener.start()

    def send(self, message: object) -> None:
        """Tell it something, as soon as it listens; in vain if it is gone. Any thread may call; never blocks."""
        self._unsent.put(message)

    def end(self) -> None:
        """See it leave, or kill it; afterwards neither the process nor the threads are there."""
        try:
            self._process.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._hang_up()
        self._listener.join()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a fork at a bad moment may hold the other end open

    def _speak(self) -> None:
        with contextlib.suppress(OSError):
            while (message := self._unsent.get()) is not None:
                self._connection.send(message)

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._hear(self._connection.recv())
        self._process.wait()
        self._hang_up()
        self._unsent.put(None)
        self._speaker.join()
        self._connection.close()
        self._socket.close()
        self._gone()
