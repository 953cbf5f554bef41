"""The plan of a copy is what the copy then does, and making it writes nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mirror import MirrorConfig, RecordMirror
from mirror.location import parse_location
from mirror.planning import Planner
from tests.mirror.local_records import KINDS, write_files


def planned(directory: Path, mirror: Path, config: MirrorConfig) -> tuple[dict[str, int], Planner]:
    """Return the names and sizes that would be sent."""
    planner = Planner(parse_location(mirror), config)
    plans = list(planner.plan(directory))
    return {state.name: state.size_bytes for plan in plans for state in plan.send}, planner


def copied(directory: Path, mirror: Path, config: MirrorConfig) -> tuple[int, int]:
    """Copy, and return how many files and bytes were sent."""
    with RecordMirror(mirror, config) as copier:
        copier.scan(directory)
        assert copier.flush(60)
        stats = copier.stats()
        return stats["files"], stats["bytes"]


RECORDS = st.dictionaries(
    st.sampled_from(["tr_a", "tr_b", "tr_c"]), st.dictionaries(KINDS, st.binary(max_size=3), max_size=3), max_size=3
)


@settings(max_examples=25, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=3), st.lists(KINDS, max_size=1))
def test_whatever_is_written_the_plan_is_what_is_sent(
    generations: list[dict[str, dict[str, bytes]]], exclude: list[str]
) -> None:
    """Records appear, are written again with some, other or the same bytes: the plan names the files that are sent."""
    with tempfile.TemporaryDirectory() as scratch:
        directory, mirror = Path(scratch, "records"), Path(scratch, "mirror")
        directory.mkdir()
        config = MirrorConfig(exclude=tuple(exclude), fsync=False)
        for generation in generations:
            for record_id, sidecars in generation.items():
                write_files(directory, record_id, repr(sidecars).encode(), **sidecars)
            names, planner = planned(directory, mirror, config)
            again, _ = planned(directory, mirror, config)
            assert again == names
            assert copied(directory, mirror, config) == (planner.planned_files, planner.planned_bytes)
            assert (planner.planned_files, planner.planned_bytes) == (len(names), sum(names.values()))
            assert all((mirror / name).stat().st_size == size for name, size in names.items())
            assert planned(directory, mirror, config)[0] == {}


def test_what_one_mirror_has_says_nothing_of_another(tmp_path: Path) -> None:
    """Each mirror has a plan of its own."""
    write_files(tmp_path / "records", "tr_a", tokens=b"t")
    copied(tmp_path / "records", tmp_path / "one", MirrorConfig())
    assert planned(tmp_path / "records", tmp_path / "one", MirrorConfig())[0] == {}
    names, planner = planned(tmp_path / "records", tmp_path / "two", MirrorConfig())
    assert set(names) == {"tr_a.tokens.zst", "tr_a.json.zst"}
    assert (planner.planned_records, planner.unchanged_files) == (1, 0)
