"""What a process of the campaign sees of itself: whether it was asked to stop, its threads, its open files."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

# What the runtime of a library of compiled code keeps for the rest of the process.
RUNTIMES = ("anon_inode:[eventpoll]", "anon_inode:[eventfd]")
SETTLE_S = 8.0  # for what ends by itself after a close; only a leak takes so long


class Stop:
    """SIGTERM, as a server hears it; SIGINT stays the interpreter's own."""

    def __init__(self) -> None:
        """Listen; belongs on the main thread."""
        self.asked = False
        signal.signal(signal.SIGTERM, self._take)

    def wait(self, seconds: float) -> bool:
        """Wait for so long or until asked; say whether asked."""
        deadline = time.monotonic() + seconds
        while not self.asked and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.01))
        return self.asked

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True


def own_threads() -> list[str]:
    """Return the names of our packages' threads that are alive."""
    prefixes = ("record-mirror", "record-publisher", "references")
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(prefixes)]


def open_files() -> dict[int, str]:
    """Return what each descriptor is open on."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        with contextlib.suppress(OSError):  # the listing's own
            what = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - a socket's is no path
            found[int(name)] = f"{what} {_peers(what)}".strip()
    return found


def _peers(what: str) -> str:
    """Return the addresses of a TCP socket, in the kernel's own form, and its state."""
    inode = what.removeprefix("socket:[").removesuffix("]")
    for line in Path("/proc/net/tcp").read_text().splitlines():
        fields = line.split()
        if inode != what and fields[9] == inode:
            return " ".join(fields[1:4])
    return ""


def settles(holds: Callable[[], bool], timeout_s: float = SETTLE_S) -> bool:
    """Return True as soon as it holds, False when it does not come to."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
