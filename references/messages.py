"""What the training process and its helper process tell each other, over a pipe that nobody else has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mirror.config import MirrorConfig
from references.seams import Patience, PublishSettings
from references.spool import Spool, StepKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """To the helper, first of all: how to work."""

    settings: PublishSettings
    patience: Patience
    spool: Spool
    mirror: tuple[str, MirrorConfig] | None
    log_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTicket:
    """What the helper needs to log to a run of the training process.

    Attributes:
        number: which of the runs it is.
        pickled: the run as the client itself hands it to other processes; empty where it cannot.
        environment: what the client needs in the helper's environment.
    """

    number: int
    id: str
    entity: str
    project: str
    offline: bool
    disabled: bool
    pickled: bytes = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)  # with its key


@dataclass(frozen=True, slots=True)
class Step:
    """To the helper: a step to log; it is in the spool already, unless that did not take it."""

    key: StepKey
    data: bytes
    run: RunTicket | None


@dataclass(frozen=True, slots=True)
class AskIsOver:
    """From the helper: was that run finished?"""

    run: int


@dataclass(frozen=True, slots=True)
class IsOver:
    """To the helper: the answer."""

    run: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class Report:
    """From the helper, whenever something has happened.

    Attributes:
        taken: how many steps it has heard of.
        counts: what became of them, by name.
        has_logged_all: whether W&B, or the client of an offline run, has all of them.
    """

    taken: int
    counts: Mapping[str, int]
    has_logged_all: bool


@dataclass(frozen=True, slots=True)
class Remark:
    """From the helper: a line for the log."""

    logger: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Close:
    """To the helper: finish what can be finished in that time, then leave."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Closed:
    """From the helper, its last word: it leaves."""

    report: Report
