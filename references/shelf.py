"""The steps that this process took over and W&B does not have: on disk, and set aside where nothing can be done now."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from references.claims import Claims
from references.codec import decode, encode
from references.errors import IndexFormatError
from references.series import Work
from references.spool import Spool, SpoolError, StepKey, content_hash

logger = logging.getLogger(__name__)


class Shelf:
    """Used by one thread. ``parked`` waits for an active run, ``later`` until W&B is seen to work."""

    def __init__(self, spool: Spool, claims: Claims) -> None:
        """Begin with nothing set aside; what is in the spool already belongs to other processes."""
        self._spool = spool
        self._claims = claims
        self._unlogged: dict[StepKey, str] = {}
        self.parked: dict[StepKey, Work] = {}
        self.later: dict[StepKey, Work] = {}

    def count_spooled(self) -> int:
        """Count what is in the spool, of all processes."""
        return self._spool.count()

    @property
    def is_empty(self) -> bool:
        """Whether W&B, or the client of an offline run, has everything that was taken over."""
        return not self._unlogged

    def spool(self, key: StepKey, data: bytes) -> None:
        """Make a step durable; what the disk does not take is logged from memory."""
        try:
            self._spool.put(key, data)
        except SpoolError as error:
            logger.error("%s step %d is not in the spool, and lost if W&B fails too: %s", key.phase, key.step, error)  # noqa: TRY400 - the sentence says all

    def keep(self, key: StepKey, data: bytes, wait_until: float) -> Work:
        """Keep in mind that a step is to be logged."""
        content = content_hash(data)
        self._unlogged[key] = content
        return Work(key=key, content=content, data=data, wait_until=wait_until)

    def load(self, work: Work) -> bytes | None:
        """Return a step's bytes; None when they are gone, since another process logged them or a newer content came."""
        if work.data is None:
            data = self._read(work)
            work.data = data if data is not None and content_hash(data) == work.content else None
        return work.data

    def logged(self, work: Work) -> None:
        """Hear that W&B has it."""
        if self._unlogged.get(work.key) == work.content:
            del self._unlogged[work.key]

    def remove(self, work: Work) -> None:
        """Take a step that needs nothing more from the spool."""
        self._spool.remove(work.key, work.content)
        self.leave_to_others(work)

    def claim(self, work: Work, for_s: float) -> None:
        """Keep others from logging a step meanwhile; where they may have done so, W&B is to be asked first."""
        if not self._claims.hold(work.key, for_s):
            work.uncertain = True

    def leave_to_others(self, work: Work) -> None:
        """Let others log what is in the spool, unless that is a newer content by now."""
        if self._unlogged.get(work.key, work.content) == work.content:
            self._claims.release(work.key)

    def leave_all_to_others(self, but: Iterable[Work]) -> None:
        """Let others log everything, except what W&B's client may still be busy with."""
        self._claims.release_all_but({work.key for work in but})

    def discard(self, key: StepKey) -> int:
        """Drop an older content of a step, and return how many there were."""
        return sum(held.pop(key, None) is not None for held in (self.parked, self.later))

    def park(self, work: Work) -> None:
        """Set aside until there is a run."""
        self._set_aside(work)
        self.parked[work.key] = work

    def unpark(self, run_id: str) -> list[Work]:
        """Hear that this run is active, and return what waited for it, or for any, oldest first."""
        waiting = [self.parked.pop(key) for key in sorted(self.parked) if key.run in {"", run_id}]
        return [work for work in waiting if work.key.run or self._adopt(work, run_id)]

    def postpone(self, work: Work) -> None:
        """Set aside until W&B is seen to work; the second time for good, so that the spool alone keeps it."""
        self._set_aside(work)
        if not work.had_second_chance:
            work.had_second_chance = True
            work.tries = 0
            self.later[work.key] = work

    def _set_aside(self, work: Work) -> None:
        """Let the spool alone hold the bytes, if it has them: memory is for what is logged next."""
        self.leave_to_others(work)
        work.uncertain = True  # they may have logged it when it comes back
        data, work.data = work.data, None
        work.data = data if self.load(work) is None else None

    def _read(self, work: Work) -> bytes | None:
        try:
            return self._spool.get(work.key)
        except SpoolError as error:
            logger.warning("%s", error)
            return None

    def _adopt(self, work: Work, run_id: str) -> bool:
        """Give a step that had no run to this one."""
        data = self.load(work)
        try:
            index = decode(data) if data is not None else None
        except IndexFormatError as error:
            logger.warning("the spool's %s step %d is not logged: %s", work.key.phase, work.key.step, error)
            index = None
        if index is None or data is None:
            return False
        without_run = (work.key, work.content)
        adopted = encode(msgspec.structs.replace(index, run=run_id))
        key = StepKey(run_id, work.key.phase, work.key.step)
        self.spool(key, adopted)
        named = self.keep(key, adopted, work.wait_until)
        self._unlogged.pop(work.key, None)
        work.key, work.content, work.data, work.index_written = named.key, named.content, adopted, False
        self._spool.remove(*without_run)
        return True
