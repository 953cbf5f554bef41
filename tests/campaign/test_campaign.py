"""A short campaign: a dozen seeds of the thousands that the long one runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mirror.testing import SeaweedS3
from tests.campaign import campaign
from tests.campaign.ground import Ground
from tests.campaign.scenario import draw

pytestmark = pytest.mark.integration

SEEDS = (10, 14, 17, 19, 39, 54, 70, 71, 77, 82, 94, 97)  # of each kind of store, server and fault some


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, seaweed: SeaweedS3) -> Iterator[Ground]:
    """What all runs share."""
    with Ground(tmp_path_factory.mktemp("campaign"), seaweed=seaweed) as ground:
        yield ground


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_nothing_is_lost(ground: Ground, seed: int) -> None:
    """Killed, stopped, cut off and refused, then restarted in health: everything is where it belongs."""
    report = campaign.run(draw(seed), ground)
    assert report.breaches == [], f"see {report.directory}"
