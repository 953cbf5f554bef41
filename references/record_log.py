"""What a generator did since the last step: every attempt it opened, until the step that has it takes it away."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

from references.batch import Part, part_of_lone, parts_of
from references.entry import Entry, read_entry
from references.phases import check_phase
from references.samples import by_key, split_samples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from references.batch import Batch


class RecordLog:
    """The attempts that were opened and not yet indexed, per training phase.

    Generators add from any thread or task; one trainer takes. A synchronous trainer takes all of a phase at the end of
    a step. An asynchronous one takes what its batch has and lets the rest wait for theirs.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._lock = threading.Lock()
        _logs.add(self)
        self._next_order = 0
        self._waiting: dict[str, list[Entry]] = {}
        self._batches: dict[str, list[int]] = {}  # per phase: the next order at each batch, newest last
        self._takings: dict[str, BatchTaking] = {}  # per phase: of the last batch

    def free_after_fork(self) -> None:
        """Take a lock of its own in a forked child, where the thread that may hold the parent's does not exist."""
        self._lock = threading.Lock()

    def add(self, phase: str, trajectory_id: object, attempt: int, trajectory: object) -> None:
        """Log an attempt, finished or not, from the generator's own objects; never raises for what these lack.

        Args:
            phase: ``train`` or ``eval``.
            trajectory_id: has ``instance_id`` and ``repetition_id``; the batch may name its rows by this very object.
            attempt: from 0 for each sample; a retry is a new trajectory.
            trajectory: has ``id``, ``finishing`` (the annotations) and ``result``, which has ``status`` and ``record``
                (with ``host``, ``path``, ``mirror`` and ``files``); any of them may be missing or None.

        Raises:
            ConfigError: there is no such phase: nobody would ever take the attempt.
        """
        check_phase(phase, "log an attempt in")
        with self._lock:
            order = self._next_order
            self._next_order += 1
        entry = read_entry(trajectory_id=trajectory_id, attempt=attempt, trajectory=trajectory, order=order)
        with self._lock:
            self._waiting.setdefault(phase, []).append(entry)

    def add_attempt(
        self,
        phase: str,
        *,
        id: str,  # noqa: A002 - the row's own word for it
        instance_id: str,
        repetition_id: int = 0,
        attempt: int = 0,
        status: str | None = None,
        annotations: Mapping[str, object] | None = None,
        record: Mapping[str, object] | None = None,
    ) -> None:
        """Log an attempt from plain values, named as in a row of the step index.

        Raises:
            ConfigError: there is no such phase.
        """
        self.add(
            phase,
            {"instance_id": instance_id, "repetition_id": repetition_id},
            attempt,
            {"id": id, "finishing": annotations, "result": {"status": status, "record": record}},
        )

    def take(self, phase: str) -> list[Entry]:
        """Take all entries of a phase, in the order in which they were logged."""
        with self._lock:
            taking, waiting = self._takings.pop(phase, None), self._waiting.pop(phase, [])
        return waiting if taking is None else [*taking.left, *waiting]

    def begin_batch(self, phase: str, *, keep_steps: int) -> BatchTaking:
        """Begin to take the entries of the samples that a step's batch has; the others wait for a later batch.

        Called once per step of an asynchronous trainer. Which entries are the batch's is found out later, perhaps on
        another thread: for one batch after the other, in the order in which they were begun.

        Args:
            phase: whose entries.
            keep_steps: for how many further batches an entry waits that is not in the first one after it was logged.
        """
        with self._lock:
            boundaries = [*self._batches.get(phase, []), self._next_order][-(keep_steps + 1) :]
            self._batches[phase] = boundaries
            oldest = boundaries[0] if len(boundaries) > keep_steps else 0
            taking = BatchTaking(self._waiting.pop(phase, []), self._takings.get(phase), oldest)
            self._takings[phase] = taking
        return taking


class BatchTaking:
    """What one batch chooses from: what was logged since the one before, and what that one has left."""

    def __init__(self, entries: list[Entry], earlier: BatchTaking | None, oldest: int) -> None:
        """Choose nothing yet; what is older than ``oldest`` waits no longer."""
        self._entries = entries
        self._earlier = earlier
        self._oldest = oldest

    @property
    def left(self) -> list[Entry]:
        """What waits for a later batch; everything, before this one has chosen."""
        earlier = self._earlier
        return self._entries if earlier is None else [*earlier.left, *self._entries]

    def choose(self, batch: Batch) -> tuple[list[Entry], int]:
        """Take what the batch has; return that, and how many others had waited long enough and were dropped."""
        taken, left = _split(self.left, batch)
        kept = [entry for entry in left if entry.order >= self._oldest]
        self._entries, self._earlier = kept, None
        return taken, len(left) - len(kept)


def _split(entries: list[Entry], batch: Batch) -> tuple[list[Entry], list[Entry]]:
    inside: set[int] = set()
    for attempts in by_key(entries).values():
        if len(attempts) == 1:  # nearly all
            if part_of_lone(attempts[0], batch) is not Part.ABSENT:
                inside.add(id(attempts[0]))
            continue
        samples = split_samples(attempts)
        for sample, part in zip(samples, parts_of(samples, batch), strict=True):
            if part is not Part.ABSENT:
                inside.update(map(id, sample.attempts))
    return [e for e in entries if id(e) in inside], [e for e in entries if id(e) not in inside]


_logs: WeakSet[RecordLog] = WeakSet()


def _free_all() -> None:
    for log in _logs:
        log.free_after_fork()


os.register_at_fork(after_in_child=_free_all)
