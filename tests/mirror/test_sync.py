"""A copy of everything that is missing ends: when it is done, when it is told to, when the store stays away."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.config import MirrorConfig
from mirror.errors import ConfigError
from mirror.location import parse_location
from mirror.sync import Ended, Limits, check_directories, sync
from mirror.terminal.progress import Tally
from mirror.terminal.stopping import Stopping
from tests.mirror.local_records import write_files
from tests.mirror.moments import Moments


@pytest.mark.parametrize(
    ("breaker", "away_s", "elapsed_s", "expected"),
    [
        ("closed", 0.0, 3_600.0, Ended.OUT_OF_TIME),
        ("closed", 0.0, 3_599.0, None),
        ("open", 59.0, 100.0, None),
        ("open", 60.0, 100.0, Ended.AWAY),
        ("refused", 0.0, 1.0, Ended.REFUSED),
        ("refused", 0.0, 3_600.0, Ended.REFUSED),
    ],
)
def test_when_a_copy_ends_before_it_is_done(
    breaker: str, away_s: float, elapsed_s: float, expected: Ended | None
) -> None:
    """A refusal at once, silence after a while, and any copy when its time is over."""
    limits = Limits(give_up_after_s=60, max_duration_s=3_600)
    assert limits.reached(breaker=breaker, away_s=away_s, elapsed_s=elapsed_s) is expected


def test_without_a_limit_it_takes_as_long_as_it_takes() -> None:
    """Only a store that is away ends it."""
    assert Limits().reached(breaker="closed", away_s=0.0, elapsed_s=1e9) is None


def test_it_counts_what_it_did(tmp_path: Path) -> None:
    """Files sent, files that were there, records, bytes; and it tells how far it is."""
    write_files(tmp_path / "records", "tr_a", tokens=b"t" * 10)
    tallies: list[Tally] = []
    first = sync([tmp_path / "records"], tmp_path / "m", MirrorConfig(), stopping=Stopping(), tell=tallies.append)
    assert (first.ended, first.copied, first.unchanged, first.records, first.size_bytes) == (Ended.DONE, 2, 0, 1, 12)
    assert (first.missing, first.left) == (0, ())
    assert tallies
    assert {tally.unit for tally in tallies} == {"records"}
    write_files(tmp_path / "records", "tr_a", b"{1}", tokens=b"t" * 10)
    second = sync([tmp_path / "records"], tmp_path / "m", MirrorConfig(), stopping=Stopping())
    assert (second.copied, second.unchanged, second.records) == (1, 1, 1)


def test_a_directory_that_vanishes_is_a_problem_of_its_own(tmp_path: Path) -> None:
    """What is in the other directories is copied all the same."""
    write_files(tmp_path / "records", "tr_a")
    summary = sync([tmp_path / "nowhere", tmp_path / "records"], tmp_path / "m", MirrorConfig(), stopping=Stopping())
    assert (summary.copied, summary.missing) == (1, 1)
    assert summary.problems == (f"{tmp_path / 'nowhere'} cannot be read: No such file or directory",)


def test_a_directory_that_vanishes_meanwhile_is_a_problem_too(tmp_path: Path, moments: Moments) -> None:
    """Nobody knows what it would have had by the end."""
    write_files(tmp_path / "records", "tr_a")
    other = tmp_path / "other"
    other.mkdir()
    moments.before("open", "tr_a.json.zst", other.rmdir)
    summary = sync([other, tmp_path / "records"], tmp_path / "m", MirrorConfig(), stopping=Stopping())
    assert moments.are_over
    assert (summary.copied, summary.missing) == (1, 1)
    assert summary.problems == (f"{other} is not there any more",)


def test_a_mirror_that_cannot_be_written_is_given_up(tmp_path: Path) -> None:
    """A file stands where the mirror's directory should be: nothing gets through until somebody acts."""
    write_files(tmp_path / "records", "tr_a", tokens=b"t")
    (tmp_path / "m").write_text("in the way")
    summary = sync([tmp_path / "records"], tmp_path / "m", MirrorConfig(backoff_s=0), stopping=Stopping())
    assert (summary.ended, summary.copied, summary.late) == (Ended.REFUSED, 0, 2)
    assert summary.reason
    assert [left.record_id for left in summary.left] == ["tr_a"]


def test_directories_are_checked_before_anything_is_done(tmp_path: Path) -> None:
    """Each once, absolute, not the mirror itself, also through a link."""
    (tmp_path / "records").mkdir()
    (tmp_path / "link").symlink_to("records")
    here = parse_location(tmp_path / "m")
    both = [str(tmp_path / "records"), str(tmp_path / "records" / ".." / "records")]
    assert check_directories(both, here, must_exist=True) == [tmp_path / "records"]
    assert check_directories([str(tmp_path / "new")], here, must_exist=False) == [tmp_path / "new"]
    with pytest.raises(ConfigError, match="does not exist"):
        check_directories([str(tmp_path / "new")], here, must_exist=True)
    with pytest.raises(ConfigError, match="cannot be its own mirror"):
        check_directories([str(tmp_path / "link")], parse_location(tmp_path / "records"), must_exist=True)
