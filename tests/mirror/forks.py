"""Work done in the child of a fork, which never hangs a test."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable

from mirror.testing.stores import WAIT_S


def in_child(work: Callable[[], bool]) -> bool:
    """Run ``work`` in the child of a fork; whether it returned True there, in time.

    Raises:
        AssertionError: the child did not end.
    """
    return exit_of_child(work) == 0


def exit_of_child(work: Callable[[], bool]) -> int:
    """Run ``work`` in the child of a fork; return its exit code: 0 if it returned True, below it a signal's number.

    Raises:
        AssertionError: the child did not end in time.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads: the point
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 2
        except BaseException:  # noqa: BLE001 - the parent's frames are not ours
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    deadline = time.monotonic() + WAIT_S
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("the child hung")
        time.sleep(0.005)
