"""What a capture server pays for a mirror embedded or ``record-mirror watch`` beside it, for bare PUTs, for nothing.

``python -m benchmarks.beside`` from the repository's root. An aiohttp server writes a record of some 20 KB for each
request; the store is an S3 server behind a proxy that adds latency, which steps back for all others (it would be on
another machine). They take turns. Printed are medians: how long requests take at a fixed rate, how many a second
the server answers at most, and by how much its event loop is late, each also as a multiple of the server alone. Then
how long ``submit`` keeps its caller at 5,000 calls a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from benchmarks.capture_server import Lag, Serving
from benchmarks.load import BODY_BYTES, Load, Served, put_load_on
from benchmarks.measure import Task
from benchmarks.place import Endpoint, standing
from benchmarks.submitting import Submitting
from mirror.samples import write_corpus

Company = Literal["alone", "bare", "watch", "embedded"]
LATENCY_S = 0.02
SUBMITS_PER_S = 5_000
RECORD_BYTES = BODY_BYTES * 3 // 4  # compressed
SEED = 20_260


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One run: what is printed of it."""

    p50_ms: float
    p99_ms: float
    per_s: float
    lag_p50_ms: float
    lag_p99_ms: float

    @classmethod
    def of(cls, served: Served, lag: Lag) -> Beside:
        """Put together what client and server saw."""
        return cls(
            p50_ms=served.p50_s * 1e3,
            p99_ms=served.p99_s * 1e3,
            per_s=served.per_s,
            lag_p50_ms=lag.p50_s * 1e3,
            lag_p99_ms=lag.p99_s * 1e3,
        )


def run_once(company: Company, load: Load) -> Beside:
    """Put load on a server in this company."""
    with ExitStack() as stack:
        records = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-beside-")))
        store = stack.enter_context(standing("rclone", LATENCY_S, aside=True))
        url = f"{store.bucket_url}/run"
        if company == "bare":
            stack.enter_context(_putting(url, store, load))
        if company == "watch":
            stack.enter_context(_watching(records, url, store))
        serving = Serving(
            record_dir=str(records),
            url=url if company == "embedded" else None,
            storage_options=store.storage_options,
        )
        command = [sys.executable, "-m", "benchmarks.capture_server"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - ours
            assert server.stdin is not None  # noqa: S101 - they were asked for
            assert server.stdout is not None  # noqa: S101 - likewise
            server.stdin.write(json.dumps(asdict(serving)) + "\n")
            server.stdin.flush()
            served = asyncio.run(put_load_on(int(server.stdout.readline()), load))
            server.stdin.close()
            lag = Lag(**json.loads(server.stdout.readline()))
        return Beside.of(served, lag)


@contextmanager
def _watching(records: Path, url: str, store: Endpoint) -> Iterator[None]:
    environment = os.environ | {"RECORD_MIRROR_STORAGE_OPTIONS": json.dumps(store.storage_options)}
    command = [sys.executable, "-m", "references.cli", "watch", "--quiet", "--listen", "off", str(records), url]
    with subprocess.Popen(command, env=environment) as process:  # noqa: S603 - ours
        try:
            yield
        finally:
            process.terminate()


@contextmanager
def _putting(url: str, store: Endpoint, load: Load) -> Iterator[None]:
    options = {"rate_per_s": load.rate_per_s, "size_bytes": RECORD_BYTES}
    task = Task(record_dir="", url=url, storage_options=store.storage_options, options=options)
    command = [sys.executable, "-m", "benchmarks.bare_beside"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:  # noqa: S603 - ours
        assert process.stdin is not None  # noqa: S101 - it was asked for
        process.stdin.write(json.dumps(asdict(task)) + "\n")
        process.stdin.flush()
        yield


def run_submitting(records: Path) -> Submitting:
    """Hand over the records of a directory at a fixed rate."""
    with standing("rclone", LATENCY_S, aside=True) as store:
        task = Task(
            record_dir=str(records),
            url=f"{store.bucket_url}/run",
            storage_options=store.storage_options,
            options={"rate_per_s": SUBMITS_PER_S},
        )
        command = [sys.executable, "-m", "benchmarks.submitting"]
        done = subprocess.run(command, input=json.dumps(asdict(task)), stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - ours
        return Submitting(**json.loads(done.stdout))


def table(runs: dict[Company, list[Beside]]) -> Iterator[str]:
    """Yield a line of medians for each company, and one of ratios to the server alone."""
    names = ("p50_ms", "p99_ms", "per_s", "lag_p50_ms", "lag_p99_ms")
    titles = ("p50 ms", "p99 ms", "requests/s", "lag p50 ms", "lag p99 ms")
    yield f"{'':12}" + "".join(f"{title:>12}" for title in titles)
    for company, mine in runs.items():
        medians = [statistics.median(getattr(run, name) for run in mine) for name in names]
        yield f"{company:12}" + "".join(f"{value:12,.2f}" for value in medians)
        if company != "alone" and "alone" in runs:
            pairs = list(zip(mine, runs["alone"], strict=True))
            ratios = [statistics.median(getattr(a, name) / getattr(b, name) for a, b in pairs) for name in names]
            yield f"{'  / alone':12}" + "".join(f"{value:11.2f}x" for value in ratios)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--rate", type=float, default=200.0, help="requests a second for their times")
    parser.add_argument("--seconds", type=float, default=10.0, help="of that, and half of it at full speed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--companies", nargs="+", choices=get_args(Company), default=get_args(Company))
    parser.add_argument("--submits", type=int, default=25_000)
    arguments = parser.parse_args(argv)
    load = Load(rate_per_s=arguments.rate, rated_s=arguments.seconds, full_s=arguments.seconds / 2)
    companies: list[Company] = list(arguments.companies)
    runs: dict[Company, list[Beside]] = {company: [] for company in companies}
    for repeat in range(arguments.repeats):
        for company in companies if repeat % 2 == 0 else reversed(companies):
            runs[company].append(run_once(company, load))
            print(f"  {company} {repeat + 1}: {runs[company][-1]}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    print("\n".join(table(runs)))
    with tempfile.TemporaryDirectory(prefix="benchmark-submits-") as scratch:
        write_corpus(scratch, profile="tiny", count=arguments.submits, seed=SEED)
        submits = [run_submitting(Path(scratch)) for _ in range(arguments.repeats)]
    median_us = statistics.median(run.median_s for run in submits) * 1e6
    p999_us = statistics.median(run.p999_s for run in submits) * 1e6
    per_s = statistics.median(run.per_s for run in submits)
    print(f"submit, {per_s:,.0f} a second: median {median_us:.1f} us, p99.9 {p999_us:,.0f} us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
