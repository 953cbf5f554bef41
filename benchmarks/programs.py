"""A program that people use today copies the corpus: what that costs beyond its own start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import Measure, Stopwatch, Task, contend, warm_up_record
from benchmarks.peers import Call, PeerName, call_of

KIB = 1024


def run_program(task: Task) -> Measure:
    """Copy every record with the program that the options name.

    Raises:
        subprocess.CalledProcessError: it failed; why is on standard error.
    """
    name: PeerName = task.options["program"]
    with tempfile.TemporaryDirectory(prefix="benchmark-peer-") as scratch:
        with warm_up_record() as (warm_up_dir, _):
            start_s, start_cpu_s, _ = _run(call_of(name, replace(task, record_dir=warm_up_dir), Path(scratch)))
        elapsed_s, cpu_s, peak_bytes = _run(call_of(name, task, Path(scratch)))
    watch = Stopwatch(elapsed_s=elapsed_s - start_s, cpu_s=cpu_s - start_cpu_s)
    return watch.measure(task.record_dir, peak_bytes=peak_bytes)


def _run(call: Call) -> tuple[float, float, int]:
    """Return seconds elapsed, seconds of CPU time, and the peak of resident memory in bytes."""
    begun_s = time.perf_counter()
    with subprocess.Popen(call.command, env=call.environment, stdout=sys.stderr) as process:  # noqa: S603 - a benchmark's peer
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    elapsed_s = time.perf_counter() - begun_s
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, call.command)
    return elapsed_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * KIB


if __name__ == "__main__":
    contend(run_program)
