"""The mirror as a server embeds it: ``submit`` for each record, then ``flush``, so that the receipts count too."""

from __future__ import annotations

import functools

from benchmarks.measure import Measure, Stopwatch, Task, contend, record_ids, warm_up_record
from mirror import RecordMirror


def run_embedded(task: Task) -> Measure:
    """Copy every record.

    Raises:
        RuntimeError: some records are not in the mirror.
    """
    with RecordMirror(task.url, storage_options=task.storage_options, **task.options) as mirror:
        with warm_up_record() as (warm_up_dir, warm_up_id):
            mirror.submit(warm_up_dir, warm_up_id)
            mirror.flush()
        ids = record_ids(task.record_dir)
        watch = Stopwatch()
        with watch.running():
            for record_id in ids:
                watch.submit(functools.partial(mirror.submit, task.record_dir), record_id)
            mirror.flush()
        stats = mirror.stats()
    if stats["mirrored"] <= len(ids) or stats["failed"]:  # more: a look at the directory had come by before us
        msg = f"not every record is in the mirror: {stats}"
        raise RuntimeError(msg)
    return watch.measure(task.record_dir)


if __name__ == "__main__":
    contend(run_embedded)
