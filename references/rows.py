"""From the attempts of a step and its batch to the rows of the step index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from references.batch import part_of_lone, parts_of
from references.run_index import Phase, Row, StepIndex
from references.samples import by_key, split_samples

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from references.batch import Batch
    from references.entry import Entry

_TRAINED = (False, False, None, True)  # by Part


def build_index(entries: Iterable[Entry], *, run: str, phase: Phase, step: int, batch: Batch | None) -> StepIndex:
    """Build the index of one step.

    Args:
        entries: all attempts that the generator opened for it, in any order.
        run: the run's id.
        phase: whose step it is; nothing trains in ``eval``.
        step: the global step.
        batch: what the step trained on; None when the trainer did not say.

    Returns:
        The index. Its rows are in the order in which they were logged, those of one prompt and repetition together.
    """
    rows: list[Row] = []
    batch = None if phase == "eval" else batch
    unsaid = False if phase == "eval" else None
    for attempts in by_key(entries).values():
        if len(attempts) == 1:  # nearly all
            trained = unsaid if batch is None else _TRAINED[part_of_lone(attempts[0], batch)]
            rows.append(_row(attempts[0], superseded=False, trained=trained))
        else:
            rows += _rows(attempts, batch, unsaid=unsaid)
    return StepIndex(run=run, phase=phase, step=step, rows=tuple(rows))


def _rows(attempts: list[Entry], batch: Batch | None, *, unsaid: bool | None) -> Iterator[Row]:
    samples = split_samples(attempts)
    trained = [unsaid] * len(samples) if batch is None else [_TRAINED[part] for part in parts_of(samples, batch)]
    final = {id(sample.final): value for sample, value in zip(samples, trained, strict=True)}
    for entry in attempts:
        superseded = id(entry) not in final
        yield _row(entry, superseded=superseded, trained=final.get(id(entry), False))


def _row(entry: Entry, *, superseded: bool, trained: bool | None) -> Row:
    return Row(
        id=entry.id,
        instance_id=entry.instance_id,
        repetition_id=entry.repetition_id,
        attempt=entry.attempt,
        status=entry.status,
        annotations=entry.annotations,
        superseded=superseded,
        trained=trained,
        record=entry.record,
    )
