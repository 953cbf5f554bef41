"""A program that people use today copies the corpus: what that costs beyond its own start."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.command import run_command
from benchmarks.measure import Measure, Stopwatch, Task, contend, warm_up_record
from benchmarks.peers import PeerName, call_of


def run_program(task: Task) -> Measure:
    """Copy every record with the program that the options name.

    Raises:
        subprocess.CalledProcessError: it failed; why is on standard error.
    """
    name: PeerName = task.options["program"]
    with tempfile.TemporaryDirectory(prefix="benchmark-peer-") as scratch:
        with warm_up_record() as (warm_up_dir, _):
            call = call_of(name, replace(task, record_dir=warm_up_dir), Path(scratch))
            run_command(call.command, call.environment)  # a new server is slow with its first record
            start, _ = run_command(call.command, call.environment)
        call = call_of(name, task, Path(scratch))
        cost, _ = run_command(call.command, call.environment)
    watch = Stopwatch(elapsed_s=cost.elapsed_s - start.elapsed_s, cpu_s=cost.cpu_s - start.cpu_s)
    return watch.measure(task.record_dir, peak_bytes=cost.peak_bytes)


if __name__ == "__main__":
    contend(run_program)
