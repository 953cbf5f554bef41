"""The phases of a training: checked where they are named, with the nearest name for a mistyped one."""

from __future__ import annotations

from collections.abc import Collection

from mirror.showing import show, suggest
from references.errors import ConfigError
from references.run_index import PHASES, Phase


def check_phases(phases: Collection[object]) -> frozenset[Phase]:
    """Return the phases that are named; none is possible.

    Raises:
        ConfigError: one is unknown, or it is no list.
    """
    if isinstance(phases, str | bytes) or not isinstance(phases, Collection):
        raise ConfigError(f"the phases to index are {show(phases)}: give a list of {' and '.join(map(repr, PHASES))}")
    return frozenset(check_phase(phase, "index") for phase in phases)


def check_phase(phase: object, purpose: str) -> Phase:
    """Return the phase that is named; ``purpose``: what it was named for, a verb.

    Raises:
        ConfigError: it is unknown.
    """
    if isinstance(phase, str) and phase in PHASES:
        return phase
    hint = suggest(phase, PHASES, f"known are {' and '.join(map(repr, PHASES))}")
    raise ConfigError(f"unknown phase {show(phase)} to {purpose}: {hint}")
