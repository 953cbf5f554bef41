"""The baseline that users have today: four threads, synchronous s3fs, a record's files one after another."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

import fsspec

from benchmarks.measure import Measure, Stopwatch, Task, contend, record_files, record_ids, warm_up_record

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

THREADS = 4


def run_baseline(task: Task) -> Measure:
    """Copy every record.

    Raises:
        ExceptionGroup: some records could not be copied.
    """
    filesystem, root = fsspec.url_to_fs(task.url, **task.storage_options)
    with warm_up_record() as (warm_up_dir, warm_up_id):
        _copy(filesystem, root, warm_up_dir, warm_up_id)
    waiting: queue.Queue[str | None] = queue.Queue()
    errors: list[Exception] = []

    def work() -> None:
        while (record_id := waiting.get()) is not None:
            try:
                _copy(filesystem, root, task.record_dir, record_id)
            except Exception as error:  # noqa: BLE001 - raised together below
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    ids = record_ids(task.record_dir)
    watch = Stopwatch()
    with watch.running():
        for record_id in ids:
            watch.submit(waiting.put, record_id)
        for _ in threads:
            waiting.put(None)
        for thread in threads:
            thread.join()
    if errors:
        msg = f"{len(errors)} of {len(ids)} records were not copied"
        raise ExceptionGroup(msg, errors)
    return watch.measure(task.record_dir)


def _copy(filesystem: AbstractFileSystem, root: str, record_dir: str, record_id: str) -> None:
    for path in record_files(record_dir, record_id):
        filesystem.put_file(str(path), f"{root}/{path.name}")


if __name__ == "__main__":
    contend(run_baseline)
