"""From what the user names to an open run: its step indexes, and the mirrors of its records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from mirror.config import MirrorConfig
from mirror.connecting import connect
from mirror.stores.opening import check_settings
from references.mirror_source import MirrorSource
from references.mirrors import Mirrors
from references.source import ArtifactRef, Source, parse_source
from references.wandb_source import WandbSource


@dataclass(frozen=True, slots=True)
class OpenRun:
    """One run, to be read on one event loop."""

    name: str  # of the source, without credentials
    source: Source
    mirrors: Mirrors


@contextlib.asynccontextmanager
async def open_run(
    source: str | os.PathLike[str], config: MirrorConfig, allow_protocols: Collection[str] = ()
) -> AsyncIterator[OpenRun]:
    """Open a run by its artifact in W&B or its mirror's URL; nothing is contacted before something is asked.

    Raises:
        ConfigError: the source is neither, or it cannot be opened with these settings.
    """
    parsed = parse_source(source)
    async with contextlib.AsyncExitStack() as stack:
        if isinstance(parsed, ArtifactRef):
            name = parsed.path if parsed.alias is None else f"{parsed.path}:{parsed.alias}"
            indexes: Source = stack.enter_context(contextlib.closing(WandbSource(parsed, timeout_s=config.timeout_s)))
            mirrors = Mirrors(config, given=None, allow_protocols=allow_protocols)
        else:
            check_settings(parsed, config)
            name, store = parsed.shown, connect(parsed, config)
            stack.push_async_callback(store.aclose)
            indexes = MirrorSource(store)
            mirrors = Mirrors(config, given=parsed, allow_protocols=())
        stack.push_async_callback(mirrors.aclose)
        yield OpenRun(name, indexes, mirrors)
