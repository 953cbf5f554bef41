"""What happens in one run of the campaign, all of it drawn from one number."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, replace
from typing import Any, Literal

from mirror.samples import ProfileName, Status

StoreKind = Literal["s3", "s3_versioned", "s3_rotating", "gcs", "directory"]
Profile = ProfileName | Literal["large"]  # large: one sidecar more, too large for one request
Role = Literal["server", "writer", "watch", "trainer", "pruner"]

WANDB_EVERY = 12  # seeds; starting its client takes seconds
PRUNED = 0.4  # of the seeds have somebody who frees the disks
LARGE = 0.02  # of the servers write a record that goes in parts


class Ending(enum.StrEnum):
    """How one life of a process ends."""

    CLOSE = "close"  # of its own accord: what it writes is written, then it closes
    LEAVE = "leave"  # the interpreter exits and nobody has closed
    TERM = "term"
    INT = "int"
    KILL = "kill"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlan:
    """One record, and how often it is written."""

    id: str
    profile: Profile
    writes: tuple[Status, ...] = ("finished",)  # written again under the same id; the last one is the final state
    pause_s: float = 0.0  # before each write


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of a process: from its start to its end."""

    ending: Ending
    after_requests: int | None  # of the store, counted from its start: the signal comes then; None: after ``after_s``
    after_s: float  # seconds after that, or after its first sign of life
    stopped_s: float = 0.0  # SIGSTOP so many seconds before its end; 0: never
    close_timeout_s: float = 1.0
    fork_at: int | None = None  # forks a child when it writes its n-th record
    fork_ends: Ending = Ending.CLOSE  # how that child ends


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPlan:
    """One process that is started again after each of its lives."""

    role: Role
    directory: str  # of the records
    records: tuple[RecordPlan, ...] = ()
    lives: tuple[Life, ...] = ()
    steps: int = 0  # of a trainer
    older_than_s: float = 0.0  # of a pruner: younger records stay until everything is over
    discards: bool = False  # likewise: what the mirror leaves out may go


@dataclass(frozen=True, slots=True, kw_only=True)
class Gust:
    """Something that happens to the store's requests number ``start`` to ``start + count``."""

    kind: str
    start: int
    count: int
    value: float = 0.0  # bytes, seconds or bytes a second
    writes_only: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Spell:
    """Something that lasts from one moment to another, in seconds after the start."""

    kind: Literal["down", "latency", "records_full", "mirror_full", "mirror_frozen", "expired"]
    begin_s: float
    end_s: float
    value: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One run."""

    seed: int
    store: StoreKind
    actors: tuple[ActorPlan, ...]
    gusts: tuple[Gust, ...]
    spells: tuple[Spell, ...]
    options: dict[str, Any]  # of the mirrors
    lasts_s: float  # the faulty phase, at most
    heals_alive: bool  # the weather ends before the processes do
    has_wandb: bool
    wandb_faults: tuple[str, ...] = ()


GUSTS = (
    "reset",
    "reset_within",
    "lose_reply",
    "hang",
    "stall",
    "throttle",
    "slow_down",
    "too_many",
    "internal_error",
    "bad_gateway",
    "truncate",
    "denied",
    "expired",
    "flip",
)
WANDB_FAULTS = ("down", "hang", "status", "drop", "lose_commit", "delay", "refuse")


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed: the same on any machine and day."""
    rng = random.Random(f"campaign/{seed}")  # noqa: S311 - no secrets
    store: StoreKind = rng.choices(("s3", "s3_versioned", "s3_rotating", "gcs", "directory"), (5, 2, 1, 1, 2))[0]
    has_wandb = seed % WANDB_EVERY == 0 and store != "s3_rotating"  # whose second key may only write
    shape = rng.choices(("one", "two", "shared", "watched"), (5, 2, 2, 2))[0]
    actors = [*_capture(rng, shape)]
    if has_wandb or (rng.random() < 0.2 and store != "s3_rotating"):
        actors.append(_trainer(rng))
    pruning = random.Random(f"campaign/prune/{seed}")  # noqa: S311 - no secrets
    if store != "s3_rotating" and pruning.random() < PRUNED:
        actors = [*(_writing_again(pruning, actor) for actor in actors), *_pruners(pruning, actors)]
    heals_alive = rng.random() < 0.2
    return Scenario(
        seed=seed,
        store=store,
        actors=tuple(actors),
        gusts=_fitting(store, _gusts(rng)),
        spells=tuple(_spells(rng, store)),
        options=_options(rng),
        lasts_s=rng.uniform(1.0, 2.5),
        heals_alive=heals_alive,
        has_wandb=has_wandb,
        wandb_faults=tuple(rng.choices(WANDB_FAULTS, k=rng.randint(0, 2))) if has_wandb else (),
    )


def _capture(rng: random.Random, shape: str) -> list[ActorPlan]:
    if shape == "one":
        return [ActorPlan(role="server", directory="a", records=_records(rng, "a"), lives=_lives(rng))]
    if shape == "watched":
        writer = ActorPlan(role="writer", directory="a", records=_records(rng, "a"), lives=_lives(rng))
        return [writer, ActorPlan(role="watch", directory="a", lives=_lives(rng))]
    second = "a" if shape == "shared" else "b"
    return [
        ActorPlan(role="server", directory="a", records=_records(rng, "a"), lives=_lives(rng)),
        ActorPlan(role="server", directory=second, records=_records(rng, "b"), lives=_lives(rng)),
    ]


def _trainer(rng: random.Random) -> ActorPlan:
    return ActorPlan(role="trainer", directory="a", lives=_lives(rng, fork=False)[:2], steps=rng.randint(2, 4))


def _writing_again(rng: random.Random, actor: ActorPlan) -> ActorPlan:
    """Return an actor that writes half of its records once more: perhaps when they were pruned, or just then."""
    return replace(
        actor,
        records=tuple(
            replace(plan, writes=(*plan.writes, "finished")) if plan.profile != "large" and rng.random() < 0.5 else plan
            for plan in actor.records
        ),
    )


def _pruners(rng: random.Random, actors: list[ActorPlan]) -> list[ActorPlan]:
    """Return who frees the disks; at times two of them are at the same one."""
    directories = sorted({actor.directory for actor in actors})
    discards = rng.random() < 0.5
    return [
        ActorPlan(
            role="pruner",
            directory=directory,
            lives=tuple(_life(rng, fork=False) for _ in range(rng.randint(4, 12))),
            older_than_s=rng.choice((0.0, 0.0, 0.1)),
            discards=discards,
        )
        for directory in directories
        for _ in range(rng.choices((1, 2), (3, 1))[0])
    ]


def _records(rng: random.Random, name: str) -> tuple[RecordPlan, ...]:
    plans: list[RecordPlan] = []
    pace_s = rng.choice((0.0, 0.005, 0.03))
    for number in range(rng.randint(4, 24)):
        profile: Profile = rng.choices(("tiny", "text", "tokens", "moe"), (80, 14, 5, 1))[0]
        odd = rng.choice(("#1", " 2", "%3", "ü", "[4]", "+")) if rng.random() < 0.05 else ""
        writes: tuple[Status, ...] = rng.choices(
            (("finished",), ("open", "finished"), ("finished", "finished", "finished")), (80, 14, 6)
        )[0]
        record_id = f"tr_{name}{number:02d}{rng.getrandbits(16):04x}{odd}"
        plans.append(RecordPlan(id=record_id, profile=profile, writes=writes, pause_s=rng.uniform(0, 2 * pace_s)))
    if rng.random() < LARGE:
        plans.insert(rng.randint(0, len(plans)), RecordPlan(id=f"tr_{name}_large", profile="large"))
    return tuple(plans)


def _lives(rng: random.Random, *, fork: bool = True) -> tuple[Life, ...]:
    return tuple(_life(rng, fork=fork) for _ in range(rng.choices((1, 2, 3), (5, 4, 2))[0]))


def _life(rng: random.Random, *, fork: bool) -> Life:
    by_request = rng.random() < 0.5
    return Life(
        ending=rng.choices(list(Ending), (3, 1, 3, 2, 6))[0],
        after_requests=rng.randint(1, 40) if by_request else None,
        after_s=rng.uniform(0, 0.02) if by_request else rng.uniform(0.05, 1.0),
        stopped_s=rng.uniform(0.05, 1.2) if rng.random() < 0.15 else 0.0,
        close_timeout_s=rng.choice((0.0, 0.2, 1.0)),
        fork_at=rng.randint(0, 8) if fork and rng.random() < 0.15 else None,
        fork_ends=rng.choice((Ending.CLOSE, Ending.LEAVE, Ending.KILL)),
    )


def _gusts(rng: random.Random) -> list[Gust]:
    return [_gust(rng) for _ in range(rng.choices((0, 1, 2, 3, 5), (1, 3, 3, 2, 1))[0])]


def _fitting(store: StoreKind, gusts: list[Gust]) -> tuple[Gust, ...]:
    """Leave out what cannot happen to a store, or leaves there what nobody takes away: GCS has its names in bodies."""
    impossible = {"directory": {*GUSTS}, "gcs": {"flip"}}.get(store, set())
    return tuple(gust for gust in gusts if gust.kind not in impossible)


def _gust(rng: random.Random) -> Gust:
    kind = rng.choice(GUSTS)
    values = {
        "reset_within": float(rng.choice((0, 1, 100, rng.randint(0, 2_000)))),
        "stall": rng.uniform(0.1, 2.5),
        "throttle": rng.choice((2_000.0, 50_000.0)),
        "slow_down": rng.choice((0.0, 0.1, 1.0)),
        "too_many": rng.choice((0.0, 0.2)),
        "truncate": float(rng.randint(0, 60)),
        "flip": float(rng.randint(0, 300)),
    }
    return Gust(
        kind=kind,
        start=rng.randint(0, 50),
        count=rng.randint(1, 3) if kind == "hang" else rng.randint(1, 12),
        value=values.get(kind, 0.0),
        writes_only=kind != "truncate" and rng.random() < 0.8,
    )


def _spells(rng: random.Random, store: StoreKind) -> list[Spell]:
    kinds: list[Any] = ["records_full"]
    kinds += ["mirror_full", "mirror_frozen"] if store == "directory" else ["down", "down", "latency", "latency"]
    spells: list[Spell] = []
    for _ in range(rng.choices((0, 1, 2), (4, 4, 2))[0]):
        kind = rng.choice(kinds)
        begin_s = rng.uniform(0, 0.8)
        value = rng.choice((0.05, 0.2, 2.0)) if kind == "latency" else 0.0
        spells.append(Spell(kind=kind, begin_s=begin_s, end_s=begin_s + rng.uniform(0.1, 1.0), value=value))
    if store == "s3_rotating":
        begin_s = rng.uniform(0, 0.6)
        spells.append(Spell(kind="expired", begin_s=begin_s, end_s=begin_s + rng.uniform(0.0, 0.8)))
    return spells


def _options(rng: random.Random) -> dict[str, Any]:
    return {
        "workers": rng.choice((1, 4, 16)),
        "attempts": rng.choice((1, 2, 4)),
        "timeout_s": rng.choice((0.5, 1.5)),
        "backoff_s": 0.02,
        "rescan_s": rng.choice((0.1, 0.3)),
        "queue_size": rng.choice((1, 4, 100_000, 100_000)),
        "max_bytes_in_flight": rng.choice((2_000, 64 << 20)),
        "exclude": rng.choice(([], [], ["experts"], ["tokens"])),
        "fsync": rng.random() < 0.3,
        "shutdown_timeout_s": 30.0,
        "host": "10.0.0.5",
        "driver": rng.choice(("auto", "fsspec")),
    }
