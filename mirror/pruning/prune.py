"""Free a local disk of records that are in the mirror: only those whose remote bytes were verified in this very run.

Record by record: no record is held, and between the proof and the deletion lies as little time as can be. The mirror is
only read, and the receipts beside the records stay, so that no mirror sends anything again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.errors import EmptyMirrorError, RecordError
from mirror.judging import Finding
from mirror.location import Location, parse_location
from mirror.loop import iterate_in_loop
from mirror.place import place_id
from mirror.pruning.examining import Examiner, next_done
from mirror.pruning.hidden import settle
from mirror.pruning.judging import Keep, PruneRules, PruneStep
from mirror.pruning.removing import remove_record
from mirror.receipts.manifest import Manifest
from mirror.receipts.segments import SegmentReader
from mirror.record_directory import refuse_the_mirror
from mirror.status import has_record_files
from mirror.stores.opening import check_settings
from mirror.stores.threads import DaemonThreads


@dataclass(slots=True, kw_only=True)
class PruneResult:
    """What a run deleted, or would delete, and what it kept."""

    confirmed: bool  # False: nothing was deleted
    records: int = 0  # that were looked at
    pruned: int = 0  # records that went, or would go
    files: int = 0  # of those
    size_bytes: int = 0  # of those
    kept: Counter[Keep] = field(default_factory=Counter)  # records
    findings: list[Finding] = field(default_factory=list)  # what is wrong with the mirror's copies
    is_complete: bool = False  # nobody stopped it: everything was looked at

    @property
    def damage(self) -> int:
        """How many findings say that something is wrong."""
        return sum(finding.is_damage for finding in self.findings)

    def note(self, step: PruneStep) -> None:
        """Count a record."""
        self.records += 1
        self.findings += step.findings
        if step.keep is not None:
            self.kept[step.keep] += 1
            return
        self.pruned += 1
        self.files += len(step.files)
        self.size_bytes += step.size_bytes


def prune(
    record_dirs: Iterable[str | os.PathLike[str]],
    url: str | os.PathLike[str],
    *,
    confirmed: bool = False,
    rules: PruneRules | None = None,
    config: MirrorConfig | None = None,
    each: Callable[[PruneStep], object] = lambda _step: None,
    progress: Callable[[PruneResult], object] = lambda _result: None,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.time,
) -> PruneResult:
    """Delete the records of directories that are proved to be in a mirror; servers and mirrors there may be running.

    Args:
        record_dirs: the record directories.
        url: their mirror, which is only read.
        confirmed: delete; otherwise everything is verified all the same, and stays.
        rules: which records may go.
        config: settings, of which the storage options, workers, bytes in flight, timeout and attempts matter.
        each: called with each record when it has been deleted or kept.
        progress: called now and then with what is known so far.
        stop: asked between records, and some times a second; True ends the run, and no record is half deleted.
        clock: tells how old is what a killed prune left, in Unix seconds.

    Raises:
        StoreError: the mirror's receipts could not be read: nothing is known, and nothing was deleted.
        EmptyMirrorError: there is no mirror.
        RecordError: a directory is the mirror itself, or nothing can be deleted in it.
        OSError: a directory cannot be read.
        ConfigError: a setting is wrong.
    """
    directories = [Path(directory).absolute() for directory in record_dirs]
    location, settings = parse_location(url), config or MirrorConfig()
    check_settings(location, settings)
    for directory in directories:
        refuse_the_mirror(directory, location.directory)
        if confirmed and not os.access(directory, os.W_OK | os.X_OK):
            raise RecordError(f"nothing can be deleted in {directory}: prune it as the user that writes the records")
    hidden = {directory: settle(directory, now_s=clock(), confirmed=confirmed) for directory in directories}
    result = PruneResult(confirmed=confirmed)
    found = iterate_in_loop(_examine(directories, location, settings, rules or PruneRules()))
    with contextlib.closing(cast("Generator[list[PruneStep]]", found)) as examined:  # ends the work when we leave early
        for steps in examined:
            for step in steps:
                if stop():
                    break
                name = hidden[step.directory].get(step.record_id)
                if name is not None and step.keep is None:
                    done = replace(step, keep=Keep.HIDDEN, detail=f"a prune was killed while it deleted it, see {name}")
                else:
                    done = _apply(step) if confirmed and step.keep is None else step
                result.note(done)
                each(done)
            progress(result)
            if stop():
                return result
    result.is_complete = True
    return result


def _apply(step: PruneStep) -> PruneStep:
    """Delete a record, and say what came of it."""
    try:
        if remove_record(step.directory, step.files):
            return step
    except OSError as error:
        return replace(step, keep=Keep.FAILED, detail=f"it cannot be deleted: {error.strerror or error}")
    return replace(step, keep=Keep.CHANGED, detail="it was written again, or deleted, while it was verified")


async def _examine(
    directories: Iterable[Path], location: Location, config: MirrorConfig, rules: PruneRules
) -> AsyncGenerator[list[PruneStep], None]:
    """Yield what is to become of each record, a few at a time; an empty list now and then, so that a caller may end."""
    store, manifest, threads = connect(location, config), Manifest(), DaemonThreads(4, "record-mirror-prune")

    async def learn() -> None:
        await manifest.read(SegmentReader(store).read())
        if not len(manifest) and not await has_record_files(store):
            raise EmptyMirrorError(location.shown)

    learning = {asyncio.create_task(learn())}
    try:
        while learning:
            await next_done(learning)
            yield []
        examiner = Examiner(store, manifest, rules, config, place_id(location, config.storage_options), threads)
        for directory in directories:
            async with contextlib.aclosing(examiner.examine(directory)) as examined:
                async for steps in examined:
                    yield steps
    finally:
        for task in learning:
            task.cancel()
        await asyncio.gather(*learning, return_exceptions=True)
        threads.close()
        manifest.close()
        await store.aclose()
