"""A soak: ``python -m tests.campaign.soak --minutes 30``: six servers' traffic at this machine's limit, and an outage.

In the middle the store is away for a tenth of the time. Afterwards the lag must come back to seconds; memory,
descriptors and threads must be what they were; and the mirror must be whole. One line of JSON a minute, and a verdict.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from mirror import MirrorConfig, RecordMirror, verify
from mirror.samples import ProfileName, write_record
from tests.campaign.ground import BUCKETS, Ground
from tests.campaign.notes import Notes

ROUND = 10  # records
BUSY = 100  # records waiting; beyond them a server writes half as fast as the mirror copies, so that it catches up
AWAY_S = 1.0  # for one round while nothing is copied
KEPT = 1_000  # records on a server's disk beside those that wait; older ones are deleted, as a prune would
SAMPLE_S = 5.0
LAG_S = 20.0  # at most, once an outage is made up for
MEMORY_BYTES = 24 << 20  # that a server may have more at the end than before the outage
DESCRIPTORS = 8  # likewise
FLUSH_S = 300.0
END_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakJob:
    """One server's work."""

    url: str
    options: dict[str, Any]
    record_dir: str
    notes: str
    name: str
    lasts_s: float


def serve(order: dict[str, Any]) -> int:
    """Write records as fast as the mirror takes them, and note what it costs."""
    job = msgspec.convert(order, SoakJob)
    notes, directory, rng = Notes(job.notes), Path(job.record_dir), random.Random(job.name)  # noqa: S311 - sample data
    written: deque[tuple[str, list[str]]] = deque()
    began = sampled = time.monotonic()
    with RecordMirror.from_config(job.url, job.options) as mirror:
        number = 0
        while (now := time.monotonic()) - began < job.lasts_s:
            profile: ProfileName = rng.choices(("tiny", "text"), (95, 5))[0]
            record_id = f"tr_{job.name}_{number:07d}"
            written.append((record_id, write_record(directory, record_id, profile=profile, rng=rng)))
            mirror.submit(directory, record_id)
            number += 1
            stats = mirror.stats() if number % ROUND == 0 else None
            if stats is not None and stats["pending"] + stats["late"] > BUSY:
                _wait_for(mirror, stats["mirrored"] + 2 * ROUND)
            if stats is not None and not stats["late"]:  # what was handed over first is copied first
                while len(written) > stats["pending"] + KEPT:
                    for name in written.popleft()[1]:
                        (directory / name).unlink()
            if now - sampled >= SAMPLE_S:
                sampled = now
                notes.add("sample", at_s=now - began, written=number, **_costs(), **_some(mirror.stats()))
        is_flushed = mirror.flush(FLUSH_S)
        notes.add("end", written=number, flushed=is_flushed, **_costs(), **_some(mirror.stats()))
    return 0


def _wait_for(mirror: RecordMirror, mirrored: int) -> None:
    deadline = time.monotonic() + AWAY_S
    while mirror.stats()["mirrored"] < mirrored and time.monotonic() < deadline:
        time.sleep(0.01)


def _costs() -> dict[str, int]:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - only their number
        "threads": threading.active_count(),
    }


def _some(stats: Mapping[str, Any]) -> dict[str, Any]:
    names = ("submitted", "mirrored", "failed", "late", "pending", "lost", "lag_s", "breaker", "timed_out", "retried")
    return {name: stats[name] for name in names}


def main() -> int:
    """Run the soak; 0 if everything stayed flat, came back and arrived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--servers", type=int, default=6)
    parser.add_argument("--driver", default="auto", help="what makes the requests: auto, obstore or fsspec")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # everything that was started is ended
    lasts_s = given.minutes * 60
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch, Ground(Path(scratch)) as ground:
        url = f"s3://{BUCKETS['s3']}/soak"
        options = {"storage_options": ground.options("s3"), "rescan_s": 5.0, "host": "10.0.0.5", "driver": given.driver}
        all_notes: list[Notes] = []
        processes = []
        for number in range(given.servers):
            job = SoakJob(
                url=url,
                options=options,
                record_dir=f"{scratch}/records-{number}",
                notes=f"{scratch}/{number}.notes",
                name=str(number),
                lasts_s=lasts_s,
            )
            all_notes.append(Notes(job.notes))
            processes.append(ground.zygote.start("tests.campaign.soak:serve", job, log=Path(f"{scratch}/{number}.log")))
        weather = threading.Thread(target=_outage, args=(ground, lasts_s), daemon=True)
        weather.start()
        began, deadline = time.monotonic(), time.monotonic() + lasts_s + END_S
        while not all(process.is_over for process in processes) and time.monotonic() < deadline:
            time.sleep(min(60.0, lasts_s / 10))
            _tell(all_notes, time.monotonic() - began)
        direct = MirrorConfig.from_mapping({"storage_options": ground.seaweed.storage_options()})
        verdict = [
            *_breaches(all_notes, lasts_s),
            *(f"{one.kind}: {one.name}" for one in verify(url, config=direct).findings),
        ]
        for path in sorted(Path(scratch).glob("*.log")):
            print(path.read_text(errors="replace")[-2_000:], file=sys.stderr)  # noqa: T201 - its output
    print(json.dumps({"type": "verdict", "breaches": verdict}))  # noqa: T201 - likewise
    return int(bool(verdict))


def _outage(ground: Ground, lasts_s: float) -> None:
    time.sleep(0.45 * lasts_s)
    ground.proxy("s3").down()
    time.sleep(0.1 * lasts_s)
    ground.proxy("s3").up()


def _tell(all_notes: list[Notes], at_s: float) -> None:
    latest = [samples[-1] for notes in all_notes if (samples := list(notes.read("sample")))]
    if latest:
        facts = {
            "at_s": round(at_s),
            "written": sum(one["written"] for one in latest),
            "mirrored": sum(one["mirrored"] for one in latest),
            "late": sum(one["late"] for one in latest),
            "pending": sum(one["pending"] for one in latest),
            "lag_s": round(max(one["lag_s"] for one in latest), 1),
            "rss_mib": [round(one["rss"] / (1 << 20)) for one in latest],
            "descriptors": [one["descriptors"] for one in latest],
            "threads": [one["threads"] for one in latest],
        }
        print(json.dumps(facts), flush=True)  # noqa: T201 - its output


def _breaches(all_notes: list[Notes], lasts_s: float) -> Iterator[str]:
    for number, notes in enumerate(all_notes):
        samples = list(notes.read("sample"))
        ends = list(notes.read("end"))
        if not ends:
            yield f"server {number} never came to its end"
            continue
        end = ends[-1]
        if not end["flushed"] or end["mirrored"] != end["submitted"] or end["failed"] or end["lost"]:
            yield f"server {number} did not bring everything over: {end}"
        before = [one for one in samples if 0.2 * lasts_s < one["at_s"] < 0.45 * lasts_s]
        after = [one for one in samples if one["at_s"] > 0.8 * lasts_s]
        if not any(one["late"] + one["pending"] > BUSY for one in samples if 0.45 < one["at_s"] / lasts_s < 0.6):
            yield f"server {number} did not feel the outage"
        if max(one["lag_s"] for one in after) > LAG_S:
            yield f"server {number} lags {max(one['lag_s'] for one in after):.0f} s behind long after the outage"
        growth = statistics.median(one["rss"] for one in after) - statistics.median(one["rss"] for one in before)
        if growth > MEMORY_BYTES:
            yield f"server {number} has {growth / (1 << 20):.0f} MiB more than before the outage"
        for what in ("descriptors", "threads"):
            if max(one[what] for one in after) > max(one[what] for one in before) + DESCRIPTORS:
                yield f"server {number} has {max(one[what] for one in after)} {what}"


if __name__ == "__main__":
    sys.exit(main())
