"""What a command costs that is run to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RECORD_MIRROR = [sys.executable, "-m", "references.cli"]
KIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds and bytes that a process took."""

    elapsed_s: float
    cpu_s: float  # user and system time
    peak_bytes: int  # of resident memory


def run_command(command: Sequence[str], environment: Mapping[str, str]) -> tuple[Cost, str]:
    """Run a command to its end.

    Returns:
        What it cost, and its standard output.

    Raises:
        subprocess.CalledProcessError: it failed; why is on standard error.
    """
    begun_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(environment), text=True) as process:  # noqa: S603 - the benchmark's own
        output = process.stdout.read() if process.stdout is not None else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    elapsed_s = time.perf_counter() - begun_s
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    cost = Cost(elapsed_s=elapsed_s, cpu_s=usage.ru_utime + usage.ru_stime, peak_bytes=usage.ru_maxrss * KIB)
    return cost, output


def run_record_mirror(arguments: Sequence[str], storage_options: Mapping[str, object]) -> tuple[Cost, dict[str, Any]]:
    """Run one of this product's commands.

    Returns:
        What it cost, and its summary.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    environment = os.environ | {"RECORD_MIRROR_STORAGE_OPTIONS": json.dumps(storage_options)}
    cost, output = run_command([*RECORD_MIRROR, arguments[0], "--quiet", "--json", *arguments[1:]], environment)
    summary: dict[str, Any] = json.loads(output.splitlines()[-1])
    return cost, summary
