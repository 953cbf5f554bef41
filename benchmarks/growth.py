"""What grows with the number of records: copying, verifying, restarting, and the memory for each.

``python -m benchmarks.growth`` from the repository's root. For 1, 10 and 100 times as many records, ``record-mirror
sync`` copies them to an S3 server of their own, one that is not slower the more it has; ``verify`` compares receipts,
listing and disk; and a second ``sync`` finds that all is done. From each time is taken what the command needs for a
single record. Printed are medians with bars: those of speed should not become shorter with more records, those of
memory not longer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from benchmarks.command import Cost, run_record_mirror
from benchmarks.corpus import SEED
from benchmarks.measure import MEGABYTE
from benchmarks.place import standing
from mirror.samples import ProfileName, write_corpus

STEPS = ("copy", "verify", "restart")
FACTORS = (1, 10, 100)
BAR = 40  # characters
SHORTEST_S = 0.01  # of what can be told from the start of a command


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """What one step did with so many records."""

    files_per_s: float
    peak_megabytes: float


def run_steps(profile: ProfileName, records: int) -> dict[str, tuple[Cost, int]]:
    """Copy, verify and find all done; return what each cost, and the number of files.

    Raises:
        RuntimeError: a step did not do what it is measured for.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-growth-") as scratch, standing("seaweed", 0.0) as store:
        write_corpus(scratch, profile=profile, count=records, seed=SEED)
        files = sum(name.endswith(".zst") for name in os.listdir(scratch))  # noqa: PTH208 - names alone
        url = f"{store.bucket_url}/run"

        def step(arguments: Sequence[str], expected: Mapping[str, Any]) -> tuple[Cost, int]:
            cost, summary = run_record_mirror(arguments, store.storage_options)
            if any(summary[name] != value for name, value in expected.items()):
                msg = f"{arguments[0]} was to find {expected}: {summary}"
                raise RuntimeError(msg)
            return cost, files

        return {
            "copy": step(["sync", scratch, url], {"copied": files}),
            "verify": step(["verify", url, scratch], {"findings": 0}),
            "restart": step(["sync", scratch, url], {"copied": 0, "unchanged": files}),
        }


def grown(costs: Sequence[tuple[Cost, int]], start_s: float) -> Grown:
    """Return the medians of a step that took ``start_s`` for one record."""
    return Grown(
        files_per_s=statistics.median(files / max(SHORTEST_S, cost.elapsed_s - start_s) for cost, files in costs),
        peak_megabytes=statistics.median(cost.peak_bytes / MEGABYTE for cost, _ in costs),
    )


def chart(title: str, values: Mapping[str, float]) -> Iterator[str]:
    """Yield a line for each value, with a bar."""
    yield f"\n{title}"
    longest = max(values.values())
    yield from (
        f"  {name:>9} {value:12,.0f} {'#' * max(1, round(BAR * value / longest))}" for name, value in values.items()
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and print the charts."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--profile", choices=get_args(ProfileName), default="tiny")
    parser.add_argument("--records", type=int, default=500, help="to begin with")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args(argv)
    starts = [run_steps(arguments.profile, 1) for _ in range(arguments.repeats)]
    results: dict[str, dict[str, Grown]] = {step: {} for step in STEPS}
    for factor in FACTORS:
        records = factor * arguments.records
        runs = [run_steps(arguments.profile, records) for _ in range(arguments.repeats)]
        for step in STEPS:
            results[step][f"{records:,}"] = grown(
                [run[step] for run in runs], statistics.median(run[step][0].elapsed_s for run in starts)
            )
        print(f"  {records:,} records, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    for step, sizes in results.items():
        print("\n".join(chart(f"{step}: files/s", {name: one.files_per_s for name, one in sizes.items()})))
        print("\n".join(chart(f"{step}: peak MB", {name: one.peak_megabytes for name, one in sizes.items()})))
    return 0


if __name__ == "__main__":
    sys.exit(main())
