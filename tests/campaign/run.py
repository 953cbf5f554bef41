"""The long campaign: ``python -m tests.campaign.run --seeds 0:1000 --jobs 2``; a seed is run again by its number.

Each job has servers of its own. A line of JSON per run goes to standard output; what failing runs left is kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.campaign import campaign
from tests.campaign.ground import Ground
from tests.campaign.processes import ENVIRONMENT
from tests.campaign.scenario import draw


def main() -> int:
    """Run the seeds; 0 if every law held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:20", help="e.g. 17, or 0:1000 (without the last)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--keep", type=Path, help="where failing runs are kept (default: a new temporary directory)")
    parser.add_argument("--keep-all", action="store_true", help="keep the runs that do not fail, too")
    parser.add_argument("--stride", default="0/1", help=argparse.SUPPRESS)  # which of the seeds are this job's
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything that was started is ended
    os.environ.update(ENVIRONMENT)  # what verifies a run does so in this process
    keep = given.keep or Path(tempfile.mkdtemp(prefix="campaign-"))
    if given.jobs > 1:
        command = [sys.executable, "-m", "tests.campaign.run", "--seeds", given.seeds, "--keep", str(keep)]
        jobs = [subprocess.Popen([*command, "--stride", f"{n}/{given.jobs}"]) for n in range(given.jobs)]  # noqa: S603 - ourselves
        try:
            return max([job.wait() for job in jobs])
        finally:
            for job in jobs:
                job.terminate()
            for job in jobs:
                job.wait()
    failed = 0
    with Ground(keep) as ground:
        for seed in _seeds(given.seeds, given.stride):
            try:
                report = campaign.run(draw(seed), ground)
            except Exception:  # noqa: BLE001 - the campaign's own mistake; the other seeds can be run all the same
                trace = f"the campaign itself works: {traceback.format_exc()}"
                report = campaign.Report(seed=seed, directory=keep, breaches=[trace])
            print(json.dumps(dataclasses.asdict(report), default=str), flush=True)  # noqa: T201 - its output
            failed += bool(report.breaches)
            if not (report.breaches or given.keep_all):
                campaign.forget(report)
    return int(failed > 0)


def _seeds(text: str, stride: str) -> Iterator[int]:
    first, _, last = text.partition(":")
    begin, step = map(int, stride.split("/"))
    yield from list(range(int(first), int(last) if last else int(first) + 1))[begin::step]


if __name__ == "__main__":
    sys.exit(main())
