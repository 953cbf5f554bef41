"""What generators and trainers hand over, made small: ids, trajectories, entries, and strategies for them."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from references.batch import Batch, see_batch
from references.entry import Entry
from references.run_index import PHASES, Phase, RecordLocation, Row, StepIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Sized


@dataclass
class TrajectoryID:
    """As SkyRL has it: equal when its fields are, and without a hash."""

    instance_id: str
    repetition_id: int


def read_batch(trajectory_ids: Iterable[object], loss_masks: Sized | None = None) -> Batch:
    """See a batch, as a trainer's thread does, and read it at once, as another does later."""
    return see_batch(trajectory_ids, loss_masks).read()


def finished(name: str, *, mirror: str | None = None, reward: float = 1.0) -> SimpleNamespace:
    """Return a finished trajectory as a generator holds it."""
    record = SimpleNamespace(
        host="10.0.0.5",
        path=f"/data/record/{name}.json.zst",
        mirror=None if mirror is None else f"{mirror}/{name}.json.zst",
        files=[f"{name}.tokens.zst", f"{name}.json.zst"],
    )
    return SimpleNamespace(
        id=name, result=SimpleNamespace(status="finished", record=record), finishing={"reward": reward}
    )


def entry(name: str, *, attempt: int = 0, order: int = 0, key: tuple[str, int] = ("task", 0), **rest: Any) -> Entry:  # noqa: ANN401 - fields of an entry
    """Return an attempt of the sample ``key``."""
    return Entry(id=name, instance_id=key[0], repetition_id=key[1], attempt=attempt, order=order, **rest)


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Entry], list[tuple[TrajectoryID, int]]]:
    """Draw what a log holds after some generate calls, and each sample with the number of its attempts.

    A generate call samples distinct ``(instance_id, repetition_id)``; a later call may draw the same again. Within a
    call the attempts of different samples are logged in any order.
    """
    entries: list[Entry] = []
    samples: list[tuple[TrajectoryID, int]] = []
    keys = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2))
    for _ in range(draw(st.integers(1, 3))):
        drawn = [(TrajectoryID(*key), draw(st.integers(1, 3))) for key in draw(st.lists(keys, max_size=5, unique=True))]
        opened = [source for source, attempts in drawn for _ in range(attempts)]
        numbers: dict[int, int] = {}
        for source in draw(st.permutations(opened)):
            attempt = numbers.get(id(source), 0)
            numbers[id(source)] = attempt + 1
            order = len(entries)
            key = (source.instance_id, source.repetition_id)
            entries.append(entry(f"tr_{order}", attempt=attempt, order=order, key=key, source=source))
        samples += drawn
    return entries, samples


def masks(trained: Sequence[bool]) -> list[list[int]]:
    """Return a loss mask for each, with a trainable token or without."""
    return [[0, int(has_token), 0] for has_token in trained]


texts = st.text(max_size=12)
_scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
annotation_maps = st.dictionaries(
    texts,
    st.recursive(
        _scalars.filter(lambda value: not isinstance(value, float) or abs(value) != float("inf")),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
file_names = st.from_regex(r"[A-Za-z0-9_ü#? ][A-Za-z0-9_.ü#? %+]{0,20}\.zst", fullmatch=True)
locations = st.builds(
    RecordLocation,
    host=st.none() | texts,
    path=st.none() | texts,
    mirror=st.none() | texts.map("s3://bucket/{}".format),
    files=st.none() | st.lists(file_names, max_size=4).map(tuple),
)


@st.composite
def rows(draw: st.DrawFn, *, phase: Phase) -> Row:
    """Draw a row as this release may write it."""
    superseded = draw(st.booleans())
    return Row(
        id=draw(texts),
        instance_id=draw(texts),
        repetition_id=draw(st.integers(0, 100)),
        attempt=draw(st.integers(0, 10)),
        status=draw(st.none() | texts),
        annotations=draw(st.none() | annotation_maps),
        superseded=superseded,
        trained=False if superseded or phase == "eval" else draw(st.none() | st.booleans()),
        record=draw(st.none() | locations),
    )


@st.composite
def indexes(draw: st.DrawFn) -> StepIndex:
    """Draw a step index as this release may write it."""
    phase = draw(st.sampled_from(PHASES))
    drawn = draw(st.lists(rows(phase=phase), max_size=4))
    step = draw(st.integers(0, 10**9))
    return StepIndex(run=draw(texts), phase=phase, step=step, rows=tuple(drawn))


class KeepingPublisher:
    """A publisher that keeps what it is given; ``finishes`` is what its ``close`` answers."""

    def __init__(self, *, finishes: bool = True) -> None:
        """Begin with nothing."""
        self.published: list[tuple[StepIndex, object]] = []
        self.closed_within_s: list[float] = []
        self._finishes = finishes

    def publish(self, phase: Phase, step: int, build: Callable[[], StepIndex | None], *, run: object | None) -> None:
        """Keep the index, if there is one."""
        index = build()
        if index is not None:
            assert (index.phase, index.step) == (phase, step)
            self.published.append((index, run))

    def stats(self) -> dict[str, int]:
        """Count what was published as logged."""
        return {"logged": len(self.published)}

    def close(self, timeout_s: float) -> bool:
        """Note the deadline."""
        self.closed_within_s.append(timeout_s)
        return self._finishes

    @property
    def rows(self) -> list[dict[str, bool | None]]:
        """What trained, by trajectory id, one mapping per index."""
        return [{row.id: row.trained for row in index.rows} for index, _ in self.published]
