"""What starting and idling cost: the import, the command's help, a restart on a mirrored directory, an idle watch.

``python -m benchmarks.startup`` from the repository's root. Printed are medians beside their targets: of the time that
passed, and of CPU time, which other work on the machine distorts less. The restart is a ``record-mirror sync`` on a
directory of which everything is in the mirror; nothing answers at the store's address, so that a single question asked
there would fail it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import RECORD_MIRROR, Cost, run_command, run_record_mirror
from benchmarks.mirrored import write_mirrored

URL = "s3://bench/run"
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing listens there
STORAGE_OPTIONS = {"key": "bench", "secret": "bench", "client_kwargs": {"endpoint_url": NOBODY}}
SETTLE_S = 5.0  # for a watch to have looked at its directory
NANO = 1e9


def measure(command: Sequence[str], repeats: int) -> list[Cost]:
    """Run a command so many times, after once to warm the disk's cache."""
    return [run_command(command, os.environ)[0] for _ in range(repeats + 1)][1:]


def measure_restart(directory: Path, files: int, repeats: int) -> list[Cost]:
    """Run ``sync`` where all is done.

    Raises:
        RuntimeError: it did not find that all is done.
    """
    costs = []
    for _ in range(repeats + 1):
        cost, summary = run_record_mirror(["sync", str(directory), URL], STORAGE_OPTIONS)
        if (summary["copied"], summary["unchanged"]) != (0, files):
            msg = f"the restart was to find {files} files in the mirror: {summary}"
            raise RuntimeError(msg)
        costs.append(cost)
    return costs[1:]


def measure_idle(seconds: float, repeats: int) -> list[float]:
    """Return the shares of one core that a watch of an idle directory took, in percent."""
    with tempfile.TemporaryDirectory(prefix="benchmark-idle-") as scratch:
        records = Path(scratch, "records")
        records.mkdir()
        command = [
            *RECORD_MIRROR,
            "watch",
            "--quiet",
            "--listen",
            "127.0.0.1:0",
            str(records),
            str(Path(scratch, "mirror")),
        ]
        with subprocess.Popen(command) as process:  # noqa: S603 - ours
            try:
                time.sleep(SETTLE_S)
                shares = []
                for _ in range(repeats):
                    begun_s, cpu_begun_s = time.perf_counter(), _cpu_s(process.pid)
                    time.sleep(seconds)
                    shares.append((_cpu_s(process.pid) - cpu_begun_s) / (time.perf_counter() - begun_s) * 100)
            finally:
                process.terminate()
    return shares


def _cpu_s(pid: int) -> float:
    """Return what the threads of a process have run so far (Linux), finer than the clock's ticks."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text(encoding="ascii").split()[0]) for task in tasks) / NANO


def line(name: str, costs: Sequence[Cost], target_s: float) -> str:
    """Return a line of the table."""
    elapsed_ms = statistics.median(cost.elapsed_s for cost in costs) * 1e3
    cpu_ms = statistics.median(cost.cpu_s for cost in costs) * 1e3
    return f"{name:44} {elapsed_ms:9,.0f} ms {cpu_ms:9,.0f} ms   {target_s * 1e3:6,.0f} ms"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="in the directory of the restart")
    parser.add_argument("--directory", type=Path, help="keep the directory of the restart here, or use what is there")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--idle-s", type=float, default=20.0, help="how long each look at the idle watch takes")
    arguments = parser.parse_args(argv)
    lines = [f"{'':44} {'elapsed':>12} {'CPU':>12}   {'target':>9}"]
    lines.append(line("import mirror", measure([sys.executable, "-c", "import mirror"], arguments.repeats), 0.06))
    lines.append(line("record-mirror --help", measure([*RECORD_MIRROR, "--help"], arguments.repeats), 0.15))
    with tempfile.TemporaryDirectory(prefix="benchmark-restart-") as scratch:
        directory = arguments.directory or Path(scratch, "records")
        files = 2 * arguments.records
        if not directory.exists():
            directory.mkdir(parents=True)
            files = write_mirrored(directory, URL, STORAGE_OPTIONS, arguments.records)
        costs = measure_restart(directory, files, arguments.repeats)
    lines.append(line(f"sync again, {arguments.records:,} records, {files:,} files", costs, 3.0))
    share = statistics.median(measure_idle(arguments.idle_s, 3))
    lines.append(f"{'idle watch':44} {'':>12} {share:10.2f} %   {0.3:7.1f} %")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
