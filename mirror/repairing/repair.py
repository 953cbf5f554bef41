"""Mend what a verification found: only damage is sent, from the records on disk or a second mirror.

What could not be checked is left alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.errors import ConfigError, EmptyMirrorError
from mirror.location import Location, parse_location
from mirror.loop import run_in_loop
from mirror.names import parse_name
from mirror.place import place_id, words_for_place
from mirror.receipts.ledger import places
from mirror.receipts.manifest import Manifest
from mirror.receipts.segments import SegmentReader
from mirror.record import read_state
from mirror.reliable import ReliableStore
from mirror.repairing.mending import Mender
from mirror.repairing.plan import RepairPlan, RepairResult, plan_repair
from mirror.stores.opening import check_settings
from mirror.verify import GRACE_S, Progress, Verifier, VerifyLevel


def repair(
    url: str | os.PathLike[str],
    record_dirs: Iterable[str | os.PathLike[str]] = (),
    *,
    source_url: str | os.PathLike[str] | None = None,
    config: MirrorConfig | None = None,
    level: VerifyLevel | None = None,
    confirm: Callable[[RepairPlan], bool] = lambda _plan: True,
    progress: Progress | None = None,
    grace_s: float = GRACE_S,
) -> RepairResult:
    """Verify a mirror, then put back what is damaged.

    Args:
        url: the mirror to mend.
        record_dirs: directories that hold its records.
        source_url: a second mirror of them, opened with the same settings.
        config: settings.
        level: how closely to look for damage.
        confirm: shown the plan; False leaves everything as it is.
        progress: called now and then while looking.
        grace_s: as for ``verify``.

    Raises:
        StoreError: the mirror could not be verified.
        EmptyMirrorError: there is no mirror, and no directory has receipts of one; or there is no second one.
        ConfigError: a setting is wrong, or no source is given.
    """
    settings = config or MirrorConfig()
    directories = [Path(directory).absolute() for directory in record_dirs]
    if not directories and source_url is None:
        raise ConfigError("a repair needs a source: give the record directories, or a second mirror")
    location = parse_location(url)
    second = parse_location(source_url) if source_url is not None else None
    check_settings(location, settings)

    async def work() -> RepairResult:
        async with contextlib.AsyncExitStack() as stack:
            store, manifest = _open(stack, location, settings)
            source, elsewhere = (None, None) if second is None else _open(stack, second, settings)
            verifier = Verifier(store, manifest, level or VerifyLevel(), settings, progress)
            verification = await verifier.run(directories, grace_s=grace_s)
            place = place_id(location, settings.storage_options)
            if verification.is_empty and not any(place in places(directory) for directory in directories):
                raise EmptyMirrorError(location.shown)  # mistyped: a repair would make a mirror there
            if second is not None and source is not None and elsewhere is not None:
                await elsewhere.read(SegmentReader(source).read())
                if not len(elsewhere):
                    raise EmptyMirrorError(second.shown)
            excluded = frozenset(settings.exclude)
            plan = plan_repair(
                verification, directories, lambda place, name: _has_file(place, name, excluded), elsewhere
            )
            result = RepairResult(plan=plan)
            if plan.steps and confirm(plan):
                words = words_for_place(location, settings.storage_options)
                mender = Mender(store, source, manifest, elsewhere, place, words, settings, result)
                await mender.apply(plan.steps)
            return result

    return run_in_loop(work())


def _open(
    stack: contextlib.AsyncExitStack, location: Location, settings: MirrorConfig
) -> tuple[ReliableStore, Manifest]:
    store, manifest = connect(location, settings), Manifest()
    stack.push_async_callback(store.aclose)
    stack.callback(manifest.close)
    return store, manifest


def _has_file(directory: Path, name: str, excluded: Collection[str]) -> bool:
    parsed = parse_name(name)
    return parsed is not None and parsed.kind not in excluded and read_state(directory, name) is not None
