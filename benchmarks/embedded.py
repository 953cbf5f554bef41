"""The mirror as a server embeds it: a record appears and is handed over; ``flush`` at the end lets receipts count too.

The records are linked into an empty directory one by one, as a server would rename them there.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from benchmarks.measure import Measure, Stopwatch, Task, contend, record_files, record_ids, warm_up_record
from mirror import RecordMirror


def run_embedded(task: Task) -> Measure:
    """Copy every record.

    Raises:
        RuntimeError: some records are not in the mirror.
    """
    corpus = Path(task.record_dir)
    with (
        tempfile.TemporaryDirectory(prefix=".embedded-", dir=corpus.parent) as record_dir,
        RecordMirror(task.url, storage_options=task.storage_options, **task.options) as mirror,
    ):
        with warm_up_record() as (warm_up_dir, warm_up_id):
            mirror.submit(warm_up_dir, warm_up_id)
            mirror.flush()
        ids = record_ids(task.record_dir)
        names = {record_id: [file.name for file in record_files(task.record_dir, record_id)] for record_id in ids}
        watch = Stopwatch()
        with watch.running():
            for record_id in ids:
                for name in names[record_id]:
                    os.link(f"{task.record_dir}/{name}", f"{record_dir}/{name}")
                watch.submit(functools.partial(mirror.submit, record_dir), record_id)
            mirror.flush()
        stats = mirror.stats()
    if stats["mirrored"] != len(ids) + 1 or stats["failed"]:  # the one to warm up
        msg = f"not every record is in the mirror: {stats}"
        raise RuntimeError(msg)
    return watch.measure(task.record_dir)


if __name__ == "__main__":
    contend(run_embedded)
