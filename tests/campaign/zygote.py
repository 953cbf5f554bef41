"""A process that has imported everything and forks the campaign's processes: a start costs milliseconds, not seconds.

One JSON line on standard input starts a process; lines on standard output say which process began and which ended, and
how. When standard input ends, whatever still lives is killed. A started process is an ordinary one: the leader of a
session of its own, with the interpreter's normal end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import logging
import os
import select
import signal
import sys
import traceback
from typing import Any

PRELOADED = (
    "botocore.session",
    "gcsfs",
    "s3fs",
    "watchfiles",
    "mirror.running",
    "references.cli",
    "references.linking",
    "wandb",
)


def main() -> None:
    """Serve until standard input ends."""
    for name in (*PRELOADED, "tests.campaign.capture", "tests.campaign.trainer"):
        importlib.import_module(name)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the keyboard: the driver ends us
    signal.set_wakeup_fd(wake)
    _say({"ready": os.getpid()})
    children: dict[int, int] = {}  # pid -> the number that the driver gave it
    unread = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _report(children)
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                break
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    os.close(woken)
                    os.close(wake)
                    _live(order)  # returns by SystemExit alone
                children[pid] = order["number"]
                _say({"began": order["number"], "pid": pid})
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _report(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        _say({"ended": children.pop(pid), "code": os.waitstatus_to_exitcode(status)})


def _say(fact: dict[str, int]) -> None:
    os.write(1, json.dumps(fact).encode() + b"\n")


def _live(order: dict[str, Any]) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    os.environ.update(order["environment"])
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s.%(msecs)03d %(name)s %(levelname)s %(message)s")
    logging.captureWarnings(capture=True)
    module, _, function = order["target"].partition(":")
    code = 0
    try:
        code = getattr(importlib.import_module(module), function)(order["job"]) or 0
    except KeyboardInterrupt:
        code = 130
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 - the log is where the driver looks
        traceback.print_exc()
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
