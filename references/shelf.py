"""The steps that this process took over and W&B does not have: in memory, on disk, and set aside for now."""

from __future__ import annotations

import logging

import msgspec

from references.codec import decode, encode
from references.errors import IndexFormatError
from references.series import Work
from references.spool import Spool, SpoolError, StepKey, content_hash

logger = logging.getLogger(__name__)


class Shelf:
    """Used by one thread. ``parked`` waits for an active run, ``later`` until W&B is seen to work."""

    def __init__(self, spool: Spool) -> None:
        """Begin with nothing set aside; what is in the spool already belongs to other processes."""
        self._spool = spool
        self._unlogged: dict[StepKey, Work] = {}
        self.parked: dict[StepKey, Work] = {}
        self.later: dict[StepKey, Work] = {}

    def count_spooled(self) -> int:
        """Count what is in the spool, of all processes."""
        return self._spool.count()

    @property
    def is_empty(self) -> bool:
        """Whether W&B, or the client of an offline run, has everything that was taken over."""
        return not self._unlogged

    def keep(self, key: StepKey, data: bytes, wait_until: float) -> Work:
        """Keep in mind that a step is to be logged."""
        work = self._unlogged[key] = Work(key=key, content=content_hash(data), data=data, wait_until=wait_until)
        return work

    def load(self, work: Work) -> bytes | None:
        """Return a step's bytes; None when they are gone, since another process logged them or a newer content came."""
        if work.data is None:
            data = self._read(work)
            work.data = data if data is not None and content_hash(data) == work.content else None
        return work.data

    def logged(self, work: Work) -> None:
        """Hear that W&B has it."""
        if self._unlogged.get(work.key) is work:
            del self._unlogged[work.key]

    def remove(self, work: Work) -> None:
        """Take a step that needs nothing more from the spool."""
        self._spool.remove(work.key, work.content)

    def leave_to_others(self, work: Work) -> None:
        """Let the spool alone have the bytes, where it takes them: memory is for what is logged next."""
        data, work.data = work.data, None
        if data is None:
            return
        if self._read(work) is None:  # it was full when the step came, or somebody has emptied it
            self._write(work.key, data)
        work.data = data if self.load(work) is None else None

    def leave_all_to_others(self) -> None:
        """Do so with all that W&B does not have."""
        for work in self._unlogged.values():
            self.leave_to_others(work)

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
        self.leave_to_others(work)
        work.uncertain = True  # they may have logged it when it comes back

    def _read(self, work: Work) -> bytes | None:
        try:
            return self._spool.get(work.key)
        except SpoolError as error:
            logger.warning("%s", error)
            return None

    def _write(self, key: StepKey, data: bytes) -> bool:
        try:
            self._spool.put(key, data)
        except SpoolError as error:
            logger.error("%s step %d is not in the spool, and lost if W&B fails too: %s", key.phase, key.step, error)  # noqa: TRY400 - the sentence says all
            return False
        return True

    def _adopt(self, work: Work, run_id: str) -> bool:
        """Give a step that had no run to this one."""
        data = self.load(work)
        try:
            index = decode(data) if data is not None else None
        except IndexFormatError as error:
            logger.warning("the spool's %s step %d is not logged: %s", work.key.phase, work.key.step, error)
            index = None
        if index is None:
            return False
        key, without_run = StepKey(run_id, work.key.phase, work.key.step), (work.key, work.content)
        self._unlogged.pop(work.key, None)
        if key in self._unlogged:  # it has come again, with its run
            self._spool.remove(*without_run)
            return False
        adopted = encode(msgspec.structs.replace(index, run=run_id))
        work.key, work.content, work.data, work.index_written = key, content_hash(adopted), adopted, False
        self._unlogged[key] = work
        if self._write(key, adopted):
            self._spool.remove(*without_run)
        return True
