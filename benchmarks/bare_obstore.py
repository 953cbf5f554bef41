"""obstore alone: 64 tasks that read a file and ``put_async`` its bytes, in no order and without proof."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from obstore import put_async
from obstore.store import S3Store

from benchmarks.measure import Measure, Stopwatch, Task, contend, record_files, record_ids, warm_up_record

TASKS = 64


async def _put_all(files: Iterator[Path], store: S3Store) -> None:
    for file in files:
        await put_async(store, file.name, file.read_bytes(), use_multipart=False)


async def _copy(task: Task) -> Measure:
    client = task.storage_options["client_kwargs"]
    store = S3Store.from_url(
        task.url,
        endpoint=client["endpoint_url"],
        region=client["region_name"],
        access_key_id=task.storage_options["key"],
        secret_access_key=task.storage_options["secret"],
        client_options={"allow_http": True},
    )
    with warm_up_record() as (warm_up_dir, warm_up_id):
        await _put_all(iter(record_files(warm_up_dir, warm_up_id)), store)
    ids = record_ids(task.record_dir)
    watch = Stopwatch()
    with watch.running():
        files = (file for record_id in ids for file in record_files(task.record_dir, record_id))
        async with asyncio.TaskGroup() as group:
            for _ in range(TASKS):
                group.create_task(_put_all(files, store))
    return watch.measure(task.record_dir)


def run_obstore(task: Task) -> Measure:
    """Copy every record."""
    return asyncio.run(_copy(task))


if __name__ == "__main__":
    contend(run_obstore)
    sys.stdout.flush()
    os._exit(0)  # obstore's threads abort an interpreter that ends right after a call
