"""The mirror as a server embeds it: ``submit`` for each record, then ``flush``, so that the receipts count too."""

from __future__ import annotations

import functools
from typing import Any

from benchmarks.measure import Measure, Stopwatch, contend, record_ids, warm_up_record
from mirror import RecordMirror


def run_embedded(record_dir: str, url: str, storage_options: dict[str, Any]) -> Measure:
    """Copy every record of ``record_dir`` below ``url``.

    Raises:
        RuntimeError: some records are not in the mirror.
    """
    with RecordMirror(url, storage_options=storage_options) as mirror:
        with warm_up_record() as (warm_up_dir, warm_up_id):
            mirror.submit(warm_up_dir, warm_up_id)
            mirror.flush()
        ids = record_ids(record_dir)
        watch = Stopwatch()
        with watch.running():
            for record_id in ids:
                watch.submit(functools.partial(mirror.submit, record_dir), record_id)
            mirror.flush()
        stats = mirror.stats()
    if stats["mirrored"] != len(ids) + 1:
        msg = f"not every record is in the mirror: {stats}"
        raise RuntimeError(msg)
    return watch.measure(record_dir)


if __name__ == "__main__":
    contend(run_embedded)
