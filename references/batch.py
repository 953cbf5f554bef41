"""What a training batch says about the samples: which of them are in it, and which had a trainable token.

A batch is read in two steps. Seeing it takes a few milliseconds, checks all that a trainer can do wrong, and copies
what is needed; whoever sees it may change it afterwards. Reading what was seen can wait, and be done elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import chain, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from mirror.showing import show
from references import plain
from references.errors import BatchError
from references.loss_masks import trainable_rows
from references.samples import owners_by_source

if TYPE_CHECKING:
    from references.entry import Entry
    from references.samples import Key, Sample


class Part(IntEnum):
    """What a sample has to do with a batch; of several rows of one sample the greatest counts."""

    ABSENT = 0
    UNTRAINED = 1  # in the batch, without a trainable token
    UNKNOWN = 2  # the trainer did not say, or not of which of several draws of the prompt
    TRAINED = 3


T = TypeVar("T")
_pair_of = attrgetter("instance_id", "repetition_id")
_EXAMPLES = 2
_ABSENT, _UNTRAINED, _UNKNOWN, _TRAINED = Part  # looking a member up costs as much as all else done for a row


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The rows of one step's batch, by what names their trajectory.

    Attributes:
        by_record: what the rows say that are named by a trajectory's own id.
        by_key: what the rows say that are named by prompt and repetition.
        named: the latter one by one, each with the object that named it.
    """

    by_record: dict[str, Part] = field(default_factory=dict)
    by_key: dict[Key, Part] = field(default_factory=dict)
    named: list[tuple[Key, object, Part]] = field(default_factory=list)

    @property
    def num_named(self) -> int:
        """How many samples the rows name."""
        return len(self.by_record) + len(self.by_key)

    @cached_property
    def draws(self) -> dict[Key, list[tuple[object, Part]]]:
        """The rows of each prompt and repetition; made when a prompt was drawn again."""
        draws: dict[Key, list[tuple[object, Part]]] = {}
        for key, source, part in self.named:
            draws.setdefault(key, []).append((source, part))
        return draws


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBatch:
    """A batch as the trainer handed it over, checked and copied.

    Attributes:
        ids: the objects that name the rows, to know them again.
        names: what each names its row by: a trajectory's id, prompt and repetition, or None.
        trained: whether each row has a trainable token; None: the trainer did not say.
    """

    ids: Sequence[object]
    names: Sequence[str | tuple[object, object] | None]
    trained: Sequence[bool] | None

    def read(self) -> Batch:
        """Sort the rows by what names them."""
        by_record: dict[str, Part] = {}
        by_key: dict[Key, Part] = {}
        rows: list[tuple[Key, object, Part]] = []
        for source, named, part in zip(self.ids, self.names, self._parts(), strict=True):
            if isinstance(named, str):
                if named and part > by_record.get(named, 0):  # "" is an attempt that never got an id
                    by_record[named] = part
            elif named is not None:
                key = _key(*named)
                if part > by_key.get(key, 0):
                    by_key[key] = part
                rows.append((key, source, part))
        return Batch(by_record=by_record, by_key=by_key, named=rows)

    def _parts(self) -> Sequence[Part]:
        if self.trained is None:
            return [_UNKNOWN] * len(self.ids)
        return [_TRAINED if has_token else _UNTRAINED for has_token in self.trained]


def see_batch(trajectory_ids: Iterable[object], loss_masks: Sized | None = None) -> SeenBatch:
    """Take a batch's trajectory ids and loss masks from a trainer.

    Args:
        trajectory_ids: one for each row that is not padding, in the batch's order: a trajectory's own id as text, an
            object (or mapping) with ``instance_id`` and ``repetition_id``, or a pair of these. None names nothing.
            A trajectory may have several rows.
        loss_masks: the batch's loss masks, see ``trainable_rows``; None when the trainer did not hand them over.

    Raises:
        BatchError: an id is none of these, or there are fewer rows of loss masks than ids.
    """
    ids = list(trajectory_ids)
    try:
        names: list[Any] = list(map(_pair_of, ids))  # as nearly all trainers name them, at a tenth of the cost
    except AttributeError:
        names = [_name(named) for named in ids]
    return SeenBatch(ids=ids, names=names, trained=None if loss_masks is None else trainable_rows(loss_masks, len(ids)))


def count_unlogged(batch: Batch, entries: Iterable[Entry]) -> int:
    """Count what the batch names and no generator logged."""
    logged = list(entries)
    unlogged = _count_absent(batch.by_key, {entry.key for entry in logged}) if batch.by_key else 0
    if batch.by_record:
        unlogged += _count_absent(batch.by_record, {entry.id for entry in logged})
    return unlogged


def describe_mismatch(batch: Batch, logged: Sequence[Entry]) -> str:
    """Show by an example or two how a batch names its rows and what is logged, for whoever mixed them up."""
    came = [show(name) for name in islice(chain(batch.by_record, batch.by_key), _EXAMPLES)]
    known = [f"{show(entry.id)} of {show(entry.key)}" for entry in logged[:_EXAMPLES]]
    return (
        "a row is to be named by its trajectory's id, or by the (instance_id, repetition_id) that it was logged with; "
        f"here rows are named by {' and '.join(came)}, and logged is {' and '.join(known) or 'nothing'}"
    )


def part_of_lone(entry: Entry, batch: Batch) -> Part:
    """Decide what a sample has to do with a batch that is the only one of its key and was never retried."""
    return batch.by_record.get(entry.id) or batch.by_key.get(entry.key, _ABSENT)


def parts_of(samples: Sequence[Sample], batch: Batch) -> list[Part]:
    """Decide what the samples of one key have to do with a batch, one answer each.

    Where a prompt was drawn several times, a row belongs to the draw that was logged with the very object that names
    the row. A row with another object may be any draw's, and then nothing certain is said of them.
    """
    parts = [_part_by_record(sample, batch) for sample in samples]
    key = samples[0].final.key
    if len(samples) == 1:
        return [parts[0] or batch.by_key.get(key, _ABSENT)]
    owners_of = owners_by_source(samples)
    unsure: set[int] = set()  # objects that name rows and were several draws', or nobody's
    for source, part in batch.draws.get(key, ()):
        owners = owners_of.get(id(source), ())
        if len(owners) == 1:
            parts[owners[0]] = max(parts[owners[0]], part)
        else:
            unsure.add(id(source) if owners else 0)
    for identity in unsure:
        for i in owners_of.get(identity, range(len(samples))):
            parts[i] = max(parts[i], _UNKNOWN)
    return parts


def _count_absent(wanted: Mapping[T, Part], there: set[T]) -> int:
    return 0 if wanted.keys() <= there else len(wanted.keys() - there)  # mostly none, which takes no copy to see


def _part_by_record(sample: Sample, batch: Batch) -> Part:
    part = batch.by_record.get(sample.final.id)
    if part is None and any(entry.id in batch.by_record for entry in sample.attempts):
        return _UNTRAINED  # the batch has an attempt that was superseded, the final one did not train
    return part or _ABSENT


def _key(instance_id: object, repetition_id: object) -> Key:
    number = repetition_id if type(repetition_id) is int else plain.whole_number(repetition_id)
    return plain.text(instance_id) or "", number


def _name(named: Any) -> str | tuple[object, object] | None:  # noqa: ANN401 - duck typing is the point
    if named is None or isinstance(named, str):
        return named
    try:
        return named.instance_id, named.repetition_id
    except AttributeError:
        return _pair(named)


def _pair(named: object) -> tuple[object, object]:
    if isinstance(named, Mapping) and {"instance_id", "repetition_id"} <= named.keys():
        return named["instance_id"], named["repetition_id"]
    if isinstance(named, tuple) and len(named) == 2:  # noqa: PLR2004 - instance_id, repetition_id
        return named
    raise BatchError(
        f"a batch row is named by a {type(named).__name__}: give the trajectory's id, or an object or a pair with "
        "instance_id and repetition_id"
    )
