"""The campaign's processes as the driver sees them: started, signalled, waited for, each by its own number."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.campaign import zygote

ROOT = Path(__file__).parents[2]
START_S = 60.0
# Nothing in a campaign may find real credentials, profiles or services.
ENVIRONMENT = {
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # or it asks another service first
    "NO_GCE_CHECK": "true",
    "PYTHONWARNINGS": "default",
}
_FORGOTTEN = ("AWS_", "WANDB", "RECORD_MIRROR_", "GOOGLE_")


class Process:
    """One process; any thread may call its methods."""

    def __init__(self) -> None:
        """Wait to begin."""
        self._pid: Future[int] = Future()
        self._code: Future[int] = Future()

    @property
    def pid(self) -> int:
        """Its process id, also its session's."""
        return self._pid.result(START_S)

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._code.done()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            if not self.is_over:
                os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> int | None:
        """Return its exit code (negative: the signal that killed it), or None when the time was over first."""
        try:
            return self._code.result(timeout_s)
        except TimeoutError:
            return None

    def began(self, pid: int) -> None:
        """Hear that it has begun."""
        self._pid.set_result(pid)

    def ended(self, code: int) -> None:
        """Hear that it has ended."""
        self._code.set_result(code)


class Zygote:
    """Starts processes by forking one that has imported everything; ends them all when it is left."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._started: queue.SimpleQueue[Process] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._lock = threading.Lock()
        self._parent: subprocess.Popen[bytes] | None = None

    def start(self, target: str, job: Any, *, log: Path, environment: Mapping[str, str] = {}) -> Process:  # noqa: ANN401 - anything that JSON has; never changed
        """Start a process that calls ``target``, ``module:function``, with the job as JSON has it."""
        process = Process()
        with self._lock:
            assert self._parent is not None
            assert self._parent.stdin is not None
            order = {
                "number": len(self._processes),
                "target": target,
                "job": msgspec.to_builtins(job),
                "log": str(log),
                "environment": dict(environment),
            }
            self._processes.append(process)
            self._parent.stdin.write(json.dumps(order).encode() + b"\n")
            self._parent.stdin.flush()
        return process

    def __enter__(self) -> Self:
        """Start the parent of all processes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FORGOTTEN)}
        self._parent = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", zygote.__name__],
            cwd=ROOT,
            env=kept | ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._parent.stdout is not None
        assert "ready" in json.loads(self._parent.stdout.readline() or "{}"), "what runs must import did not"
        self._reader = threading.Thread(target=self._listen, name="campaign-zygote", daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process and their parent."""
        if self._parent is None or self._parent.stdin is None or self._parent.stdout is None:
            return
        self._parent.stdin.close()
        self._parent.wait(START_S)
        self._reader.join(START_S)
        self._parent.stdout.close()

    def _listen(self) -> None:
        assert self._parent is not None
        assert self._parent.stdout is not None
        for line in self._parent.stdout:
            fact = json.loads(line)
            if "began" in fact:
                self._processes[fact["began"]].began(fact["pid"])
            else:
                self._processes[fact["ended"]].ended(fact["code"])
