"""Bring a run's records back: from its mirror into a record directory per phase, each file checked by its receipt."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection

from mirror.config import MirrorConfig
from mirror.location import Location
from mirror.loop import run_in_loop
from references.opening import open_run
from references.out_directory import open_out, refuse_mirror
from references.pull_plan import PullSummary
from references.pulling import Puller
from references.selection import Selection
from references.source import find_steps, parse_source

Progress = Callable[[PullSummary], None]


def pull(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    config: MirrorConfig | None = None,
    allow_protocols: Collection[str] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
) -> PullSummary:
    """Bring the records of a run's steps to ``<out>/<phase>/``, and their indexes to ``<out>/<phase>/index/``.

    Args:
        source: a mirror's URL or path, or an artifact in W&B, ``entity/project/skycap-records-<phase>-<run>[:alias]``:
            with an alias that version, without one the newest of each step.
        out: a directory; it may hold what was pulled before.
        selection: which records and files are wanted; everything by default.
        config: settings, of which the storage options, workers, bytes in flight, timeout and attempts matter.
        allow_protocols: protocols that an artifact's rows may name besides S3, Google Cloud Storage and Azure, e.g.
            ``file``. A mirror that is given as ``source`` needs none.
        dry_run: compare, and change nothing.
        progress: called on another thread after each record and each step, with what is known so far.

    Raises:
        SourceError: there are no step indexes, or they cannot be listed.
        StoreError: the step indexes of the mirror cannot be listed.
        OutDirectoryError: ``out`` cannot be used.
        OSError: ``out`` cannot be written, e.g. since the disk is full; a later pull goes on from there.
        ConfigError: a setting or the source is wrong, or ``out`` is a mirror; of this package or of ``mirror``.
    """
    settings, chosen, parsed = config or MirrorConfig(), selection or Selection(), parse_source(source)
    refuse_mirror(out, parsed.directory if isinstance(parsed, Location) else None)
    with open_out(out, write=False):  # what cannot be used is said before anything is asked
        pass

    async def work() -> PullSummary:
        async with open_run(source, settings, allow_protocols) as run:
            steps = chosen.choose(await find_steps(run.source, run.name))
            with open_out(out, write=not dry_run) as folder:
                puller = Puller(run, folder, chosen, settings, dry_run=dry_run, progress=progress or _no_progress)
                with contextlib.closing(puller):
                    return await puller.run(steps)

    return run_in_loop(work())


def _no_progress(_summary: PullSummary) -> None:
    pass
