"""How long ``submit`` keeps its caller at thousands of calls a second, while what was handed over is being copied.

Its process reads a ``Task`` as JSON from standard input, with the option ``rate_per_s``, and prints a ``Submitting``.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass

from benchmarks.measure import Task, record_ids
from mirror import RecordMirror


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitting:
    """Seconds that one call took."""

    median_s: float
    p999_s: float
    per_s: float  # calls a second that were made


def submit_all(task: Task) -> Submitting:
    """Hand over every record of a directory at a fixed rate."""
    rate_per_s = task.options["rate_per_s"]
    ids = record_ids(task.record_dir)
    times_s = []
    mirror = RecordMirror(task.url, storage_options=task.storage_options)
    mirror.start()
    begun_s = time.perf_counter()
    for number, record_id in enumerate(ids):
        left_s = begun_s + number / rate_per_s - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)
        called_s = time.perf_counter()
        mirror.submit(task.record_dir, record_id)
        times_s.append(time.perf_counter() - called_s)
    per_s = len(ids) / (time.perf_counter() - begun_s)
    mirror.close(0.0)  # what it has not copied by now does not matter here
    times_s.sort()
    return Submitting(median_s=times_s[len(times_s) // 2], p999_s=times_s[len(times_s) * 999 // 1000], per_s=per_s)


if __name__ == "__main__":
    print(json.dumps(asdict(submit_all(Task(**json.load(sys.stdin))))))
