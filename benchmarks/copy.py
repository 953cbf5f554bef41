"""The mirror against what users have today: the same records to the same kind of S3 server, in turns.

``python -m benchmarks.copy`` from the repository's root. For each profile of records and each latency, every contender
copies the whole corpus ``--repeats`` times, in a process of its own, to a fresh server behind a proxy that adds the
latency to each round trip; server and proxy share a process of their own. Which contender goes first alternates.
Printed are the medians, and the medians of the ratios within each repeat.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from benchmarks.corpus import make_corpus
from benchmarks.measure import MEGABYTE, Measure, Task, run_contender
from mirror.samples import ProfileName
from mirror.testing.serve import serving

if TYPE_CHECKING:
    from collections.abc import Sequence

# Name -> module; the first is what the others are compared with.
CONTENDERS = {"baseline": "benchmarks.baseline", "mirror": "benchmarks.embedded"}
PROFILES: tuple[ProfileName, ...] = ("text", "tokens", "moe")
LATENCIES_MS = (0.0, 20.0, 50.0)
TIMEOUT_S = 900.0
HEADER = (
    f"{'profile':8} {'latency':>8} {'contender':10} {'records/s':>10} {'MB/s':>8} {'CPU s/1k files':>15} "
    f"{'peak MB':>8} {'submit us':>10}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one line of the table is about."""

    profile: ProfileName
    latency_ms: float
    contender: str


def run_once(corpus: Path, setting: Setting) -> Measure:
    """Let one contender copy a corpus to a fresh server."""
    with serving("rclone", bucket="bench", latency_s=setting.latency_ms / 1000) as endpoint:
        task = Task(record_dir=str(corpus), url=f"{endpoint.bucket_url}/run", storage_options=endpoint.storage_options)
        return run_contender(CONTENDERS[setting.contender], task, timeout_s=TIMEOUT_S)


def run_in_turns(
    corpus: Path, profile: ProfileName, latency_ms: float, contenders: Sequence[str], repeats: int
) -> dict[str, list[Measure]]:
    """Let the contenders take turns; in every other repeat in reverse order."""
    measures: dict[str, list[Measure]] = {name: [] for name in contenders}
    for repeat in range(repeats):
        for name in contenders if repeat % 2 == 0 else list(reversed(contenders)):
            measure = run_once(corpus, Setting(profile=profile, latency_ms=latency_ms, contender=name))
            measures[name].append(measure)
            print(f"  {name} {repeat + 1}/{repeats}: {measure.records_per_s:.1f} records/s", file=sys.stderr)
    return measures


def table_lines(profile: ProfileName, latency_ms: float, measures: dict[str, list[Measure]]) -> list[str]:
    """Return a line of medians for each contender, and a line of ratios for each but the first."""

    def line(name: str, values: Sequence[float], form: str = "") -> str:
        speed, megabytes, cpu_s, peak, submit = (f"{value:.3g}{form}" if form else f"{value:,.1f}" for value in values)
        return (
            f"{profile:8} {latency_ms:5.0f} ms {name:10} {speed:>10} {megabytes:>8} {cpu_s:>15} {peak:>8} {submit:>10}"
        )

    def columns(measure: Measure) -> tuple[float, ...]:
        return (
            measure.records_per_s,
            measure.megabytes_per_s,
            measure.cpu_s_per_1000_files,
            measure.peak_rss_bytes / MEGABYTE,
            measure.submit_s * 1e6,
        )

    lines = []
    first, *others = ([columns(measure) for measure in runs] for runs in measures.values())
    for name, runs in zip(measures, (first, *others), strict=True):
        lines.append(line(name, [statistics.median(column) for column in zip(*runs, strict=True)]))
    for runs in others:
        ratios = [
            [mine / theirs for mine, theirs in zip(run, first_run, strict=True)]
            for run, first_run in zip(runs, first, strict=True)
        ]
        lines.append(line("  ratio", [statistics.median(column) for column in zip(*ratios, strict=True)], form="x"))
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.copy", description=__doc__)
    parser.add_argument("--profiles", nargs="+", choices=get_args(ProfileName), default=PROFILES)
    parser.add_argument("--latencies-ms", nargs="+", type=float, default=LATENCIES_MS)
    parser.add_argument("--contenders", nargs="+", choices=tuple(CONTENDERS), default=tuple(CONTENDERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--records", type=int, help="per corpus, instead of the usual number for its profile")
    parser.add_argument("--corpus-dir", type=Path, help="keep the corpora here and use those that are there")
    parser.add_argument("--json", type=Path, help="write every measure here, one JSON object to a line")
    arguments = parser.parse_args(argv)
    lines = [HEADER]
    raw = []
    with (
        nullcontext(arguments.corpus_dir)
        if arguments.corpus_dir
        else tempfile.TemporaryDirectory(prefix="benchmark-corpus-") as root
    ):
        for profile in arguments.profiles:
            corpus = make_corpus(root, profile, arguments.records)
            for latency_ms in arguments.latencies_ms:
                print(f"{profile}, {latency_ms:g} ms", file=sys.stderr)
                measures = run_in_turns(corpus, profile, latency_ms, arguments.contenders, arguments.repeats)
                lines += table_lines(profile, latency_ms, measures)
                for name, runs in measures.items():
                    setting = Setting(profile=profile, latency_ms=latency_ms, contender=name)
                    raw += [json.dumps(asdict(setting) | asdict(measure)) for measure in runs]
    print("\n".join(lines))
    if arguments.json:
        arguments.json.write_text("".join(f"{entry}\n" for entry in raw), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
