"""Is what a run's steps list there? Step indexes and W&B's references against receipts and the mirror's listing."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from mirror.config import MirrorConfig
from mirror.errors import EmptyMirrorError
from mirror.loop import run_in_loop
from mirror.verify import GRACE_S, Progress, Verification, Verifier, VerifyLevel
from references.mirrors import OpenMirror
from references.opening import open_run
from references.selection import Selection
from references.verifying import RunVerification, RunVerifier


def verify_run(
    source: str | os.PathLike[str],
    record_dirs: Iterable[str | os.PathLike[str]] = (),
    *,
    selection: Selection | None = None,
    config: MirrorConfig | None = None,
    allow_protocols: Collection[str] = (),
    level: VerifyLevel | None = None,
    progress: Progress | None = None,
    grace_s: float = GRACE_S,
) -> RunVerification:
    """Check that the records which a run's steps list are in their mirror, and that W&B's references lead to them.

    A mirror that is given as ``source`` is looked at as a whole, whether or not it has step indexes.

    Args:
        source: a mirror's URL or path, or an artifact in W&B, as for ``pull``. W&B's references are compared with the
            receipts only in the latter case.
        record_dirs: directories where a record may still be that is not in the mirror; all their finished records
            must be in the mirror that is given as ``source``.
        selection: which steps and rows matter.
        config: settings, of which the storage options, workers, bytes in flight, timeout and attempts matter.
        allow_protocols: as for ``pull``.
        level: how closely to look at the files of each mirror.
        progress: called on another thread while a mirror is looked at, with what is known of that mirror so far.
        grace_s: how long to wait for the receipts of records that are being copied just now, in seconds.

    Raises:
        SourceError: the steps cannot be listed, or not one of those that are chosen is there.
        StoreError: likewise.
        EmptyMirrorError: the mirror that is given has nothing in it, not even an index of a step.
        OSError: a record directory cannot be read.
        ConfigError: a setting or the source is wrong; of this package or of ``mirror``.
    """
    settings = config or MirrorConfig()
    directories = [Path(directory).absolute() for directory in record_dirs]

    async def work() -> RunVerification:
        async with open_run(source, settings, allow_protocols) as run:
            copied = directories if run.mirrors.given is not None else []

            async def look(mirror: OpenMirror) -> Verification:
                verifier = Verifier(mirror.store, mirror.manifest, level or VerifyLevel(), settings, progress)
                return await verifier.run(copied, grace_s=grace_s)

            found = await RunVerifier(run, directories, selection or Selection(), look).run()
            given = run.mirrors.given
            if given is not None and not found.has_steps and any(mirror.is_empty for mirror in found.mirrors.values()):
                raise EmptyMirrorError(given.location.shown)
            return found

    return run_in_loop(work())
