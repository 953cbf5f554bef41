"""The step indexes that a mirror keeps beside the records: ``index/<phase>/step-<N>.json``. W&B is not asked."""

from __future__ import annotations

import re

from mirror.errors import FileRefusedError
from mirror.reliable import ReliableStore
from mirror.store import ObjectInfo, read_whole
from references.codec import MAX_BYTES
from references.errors import SourceError
from references.run_index import MAX_STEP_DIGITS, PHASES, Phase
from references.source import Fetched, KnownStep

PREFIX = "index/"
MAX_STEPS = 10_000_000
_KEY = re.compile(rf"{PREFIX}({'|'.join(PHASES)})/step-(0|[1-9][0-9]{{0,{MAX_STEP_DIGITS - 1}}})\.json", re.ASCII)


def index_key(phase: Phase, step: int) -> str:
    """Return the key of a step's index."""
    return f"{PREFIX}{phase}/step-{step}.json"


class MirrorSource:
    """The indexes in one mirror."""

    def __init__(self, store: ReliableStore) -> None:
        """Read nothing yet."""
        self._store = store
        self._sizes: dict[str, int] = {}

    async def find(self) -> list[KnownStep]:
        """List the indexes; see ``references.source.Source``."""
        found: list[KnownStep] = []
        async for page in self._store.list_pages(PREFIX):
            found += [step for info in page if (step := self._know(info)) is not None]
            if len(found) > MAX_STEPS:
                raise SourceError(f"the mirror has more than {MAX_STEPS} step indexes: this is no run's mirror")
        return sorted(found, key=lambda known: (known.phase, known.step))

    async def fetch(self, known: KnownStep) -> Fetched:
        """Read one index; see ``references.source.Source``."""
        if self._sizes[known.origin] > MAX_BYTES:
            reason = f"the index has {self._sizes[known.origin]} bytes, more than the {MAX_BYTES} that are read"
            raise FileRefusedError("get", known.origin, reason)
        data = await self._store.repeat(lambda: read_whole(self._store, known.origin, max_bytes=MAX_BYTES))
        return Fetched(data=data)

    def _know(self, info: ObjectInfo) -> KnownStep | None:
        match = _KEY.fullmatch(info.key)
        if match is None:
            return None
        self._sizes[info.key] = info.size_bytes
        phase = next(phase for phase in PHASES if phase == match[1])
        return KnownStep(phase=phase, step=int(match[2]), origin=info.key)
