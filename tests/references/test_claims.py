"""Who may be logging a step of the spool: ``references/claims.py``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from references.claims import By, Claim, Claims
from references.spool import Spool, StepKey

KEY = StepKey("run", "train", 3)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A spool with one step."""
    made = Spool(tmp_path)
    made.put(KEY, b"{}")
    return made


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Another process, which does nothing."""
    made = subprocess.Popen(["/bin/sleep", "600"])
    yield made
    made.kill()
    made.wait()


def test_a_claim_is_seen_by_others_until_it_is_released(spool: Spool) -> None:
    """Not by its holder; and the spool still holds one step."""
    holder, other = Claims(spool, By.TRAINING), Claims(spool, By.LINK)
    assert other.other(KEY) is None
    assert holder.hold(KEY, 60)

    claim = other.other(KEY)
    assert claim is not None
    assert (claim.by, claim.process) == (By.TRAINING, os.getpid())
    assert holder.other(KEY) is None
    assert list(spool.steps()) == [KEY]

    holder.release(KEY)
    assert other.other(KEY) is None
    assert [path.name for path in spool.folder(KEY).iterdir()] == ["step-3.json"]


def test_a_claim_ends_with_its_time_and_with_its_process(spool: Spool, process: subprocess.Popen[bytes]) -> None:
    """Whichever comes first; a later process of the same number claims nothing."""
    holder, other = Claims(spool, By.TRAINING, process=process.pid), Claims(spool, By.LINK)
    holder.hold(KEY, 0)
    assert other.other(KEY) is None
    holder.hold(KEY, 60)
    claim = other.other(KEY)
    assert claim is not None

    again = msgspec.structs.replace(claim, began="another moment")
    assert not again.is_alive(claim.until_s - 1)
    process.kill()
    process.wait()
    assert other.other(KEY) is None


def test_of_another_host_only_the_time_tells() -> None:
    """Nobody can see whether its process lives."""
    claim = Claim(by=By.TRAINING, host="elsewhere.invalid", process=1, began="x", until_s=100)
    assert claim.is_alive(99)
    assert not claim.is_alive(100)


def test_a_break_is_told(spool: Spool) -> None:
    """Whoever held a claim that had run out must look what others did meanwhile."""
    holder = Claims(spool, By.TRAINING)
    assert holder.hold(KEY, 60)
    assert holder.hold(KEY, 0)
    assert not holder.hold(KEY, 60)


def test_all_but_some_are_released(spool: Spool) -> None:
    """What is still under way stays claimed."""
    late = StepKey("run", "train", 4)
    holder, other = Claims(spool, By.TRAINING), Claims(spool, By.LINK)
    for key in (KEY, late):
        holder.hold(key, 60)
    holder.release_all_but({late})
    assert other.other(KEY) is None
    assert other.other(late) is not None


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'{"by": "nobody"}', b"x" * 100_000])
def test_what_is_no_claim_claims_nothing(spool: Spool, data: bytes) -> None:
    """Anybody may have written it."""
    (spool.folder(KEY) / ".step-3.claim").write_bytes(data)
    assert Claims(spool, By.LINK).other(KEY) is None


def test_a_spool_that_takes_no_claim_costs_no_step(tmp_path: Path) -> None:
    """The step is logged all the same."""
    absent = Claims(Spool(tmp_path / "absent"), By.TRAINING)
    assert absent.hold(KEY, 60)
    absent.release(KEY)
