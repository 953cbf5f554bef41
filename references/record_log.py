"""What a generator did since the last step: every attempt it opened, until the step that has it takes it away."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

from references.batch import Part, parts_of
from references.entry import Entry, read_entry
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
        self._batches: dict[str, list[int]] = {}  # per phase: the next order at each take_batch, newest last

    def free_after_fork(self) -> None:
        """Take a lock of its own in a forked child, where the thread that may hold the parent's does not exist."""
        self._lock = threading.Lock()

    def add(self, phase: str, trajectory_id: object, attempt: int, trajectory: object) -> None:
        """Log an attempt, finished or not, from the generator's own objects; never raises for what they lack.

        Args:
            phase: ``train`` or ``eval``.
            trajectory_id: has ``instance_id`` and ``repetition_id``; the batch may name its rows by this very object.
            attempt: from 0 for each sample; a retry is a new trajectory.
            trajectory: has ``id``, ``finishing`` (the annotations) and ``result``, which has ``status`` and ``record``
                (with ``host``, ``path``, ``mirror`` and ``files``); any of them may be missing or None.
        """
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
        """Log an attempt from plain values, named as in a row of the step index."""
        self.add(
            phase,
            {"instance_id": instance_id, "repetition_id": repetition_id},
            attempt,
            {"id": id, "finishing": annotations, "result": {"status": status, "record": record}},
        )

    def take(self, phase: str) -> list[Entry]:
        """Take all entries of a phase, in the order in which they were logged."""
        with self._lock:
            return self._waiting.pop(phase, [])

    def take_batch(self, phase: str, batch: Batch, *, keep_steps: int) -> tuple[list[Entry], int]:
        """Take the entries of the samples that a step's batch has; the others wait for a later batch.

        Called once per step of an asynchronous trainer, and by nobody at the same time.

        Args:
            phase: whose entries.
            batch: the step's batch.
            keep_steps: for how many further batches an entry waits that is not in the first one after it was logged.

        Returns:
            The batch's entries, and how many others had waited long enough and were dropped.
        """
        with self._lock:
            entries = self._waiting.pop(phase, [])
            boundaries = [*self._batches.get(phase, []), self._next_order][-(keep_steps + 1) :]
            self._batches[phase] = boundaries
        oldest = boundaries[0] if len(boundaries) > keep_steps else 0
        taken, left = _split(entries, batch)
        kept = [entry for entry in left if entry.order >= oldest]
        with self._lock:
            self._waiting[phase] = kept + self._waiting.get(phase, [])
        return taken, len(left) - len(kept)


def _split(entries: list[Entry], batch: Batch) -> tuple[list[Entry], list[Entry]]:
    inside: set[int] = set()
    for attempts in by_key(entries).values():
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
