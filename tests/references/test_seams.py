"""Which settings ``references/seams.py`` takes."""

from __future__ import annotations

import math
from typing import Any

import pytest

from references.errors import ConfigError
from references.seams import PublishSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("queue_size", 0),
        ("timeout_s", 0),
        ("timeout_s", math.nan),
        ("timeout_s", math.inf),
        ("shutdown_timeout_s", 1e12),
        ("attempts", 0),
        ("attempts", True),
        ("backoff_s", -1),
        ("shutdown_timeout_s", "long"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(name: str, value: Any) -> None:  # noqa: ANN401 - any mistake
    """The sentence names the setting as the callback calls it."""
    with pytest.raises(ConfigError, match=name.removesuffix("_s")):
        PublishSettings(**{name: value})


def test_the_least_settings_are_taken() -> None:
    """One attempt, no pause and no wait at the end are fine."""
    PublishSettings(queue_size=1, timeout_s=0.5, attempts=1, backoff_s=0, shutdown_timeout_s=0)
