"""Which phases are indexed: checked where they are set, with the nearest name for a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import cast

from references.errors import ConfigError
from references.run_index import PHASES, Phase


def check_phases(phases: Collection[object]) -> frozenset[Phase]:
    """Return the phases that are named; none is possible.

    Raises:
        ConfigError: one is unknown, or it is no list.
    """
    if isinstance(phases, str | bytes) or not isinstance(phases, Collection):
        raise ConfigError(f"the phases to index are {phases!r}: give a list of {' and '.join(map(repr, PHASES))}")
    for phase in phases:
        if phase not in PHASES:
            nearest = difflib.get_close_matches(str(phase), PHASES, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {' and '.join(map(repr, PHASES))}"
            raise ConfigError(f"unknown phase {phase!r} to index: {hint}")
    return frozenset(cast("Collection[Phase]", phases))
