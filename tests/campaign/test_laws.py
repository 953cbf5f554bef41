"""Each law of the campaign sees its own breach, and a run's scenario is its seed's alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mirror import RecordMirror
from mirror.samples import write_corpus, write_litter
from tests.campaign import laws
from tests.campaign.poller import Poller
from tests.campaign.scenario import GUSTS, Ending, draw
from tests.mirror.local_records import flip_byte, replace_file
from tests.mirror.mirrors_in_memory import eventually
from tests.mirror.places import DirectoryPlace


@pytest.fixture
def records(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    write_corpus(directory, profile="tiny", count=5, seed=1)
    write_litter(directory)
    return directory


@pytest.fixture
def place(tmp_path: Path, records: Path) -> DirectoryPlace:
    """A mirror of the records."""
    place = DirectoryPlace(tmp_path / "mirror")
    with RecordMirror(place.url, fsync=False) as mirror:
        mirror.scan(records)
        assert mirror.flush(30)
    return place


def breaches(place: DirectoryPlace, records: Path, *, exclude: tuple[str, ...] = ()) -> list[str]:
    objects = place.objects()
    wanted = laws.wanted_files([records], exclude)
    return [
        *laws.everything_arrived(wanted, objects),
        *laws.receipts_are_true(place, objects, wanted, exclude),
        *laws.receipts_beside_are_true([records], objects),
        *laws.no_litter(place, place.path / "tmp", hard_ends=0),
    ]


def first(directory: Path, pattern: str) -> Path:
    return min(directory.glob(pattern))


def cut_a_receipt(directory: Path) -> None:
    """Take the first line out of the segment that has any."""
    segment = next(path for path in sorted(directory.rglob("_receipts/*/*.jsonl")) if path.stat().st_size)
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[1:]))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a file is gone": lambda mirror: first(mirror, "*.tokens.zst").unlink(),
    "a document is gone": lambda mirror: first(mirror, "*.json.zst").unlink(),
    "other bytes": lambda mirror: flip_byte(first(mirror, "*.json.zst")),
    "a stray": lambda mirror: (mirror / "tr_stray.json.zst").write_bytes(b"x"),
    "a receipt is gone": cut_a_receipt,
    "a temporary file": lambda mirror: (mirror / ".aa.tmp").write_bytes(b"x"),
    "a temporary file elsewhere": lambda mirror: replace_file(mirror / "tmp" / "etilqs_1", b"x"),
}


def test_a_whole_mirror_breaks_no_law(place: DirectoryPlace, records: Path) -> None:
    """Nothing is found where nothing is wrong."""
    assert breaches(place, records) == []


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_seen(place: DirectoryPlace, records: Path, damage: str) -> None:
    """Whatever is taken away, changed or left over."""
    DAMAGE[damage](place.path)
    assert breaches(place, records)


def test_what_a_kill_left_is_no_longer_there_after_days_and_a_restart(place: DirectoryPlace, records: Path) -> None:
    """Which is how a campaign tells what is removed in the end from what stays for ever."""
    left = place.path / "_receipts" / "dead-1" / ".0123456789abcdef01234567.tmp"
    replace_file(left, b"half")
    laws.age_what_kills_left(place)
    assert breaches(place, records)
    with RecordMirror(place.url, fsync=False):
        eventually(lambda: not left.exists())
    assert breaches(place, records) == []


def test_a_record_that_was_written_and_not_copied_is_seen(place: DirectoryPlace, records: Path) -> None:
    """Both that it is missing, and that there is no receipt."""
    (new,) = write_corpus(records, profile="tiny", count=1, seed=2)
    found = breaches(place, records)
    assert [line for line in found if f"{new}.json.zst is not in the mirror" in line]
    assert [line for line in found if f"{new} has no receipt" in line]


def test_what_receipts_cover_is_known_until_it_is_written_again(place: DirectoryPlace, records: Path) -> None:
    """Sent again it is found out; a record that was written again may be."""
    covered = laws.Covered(records)
    assert covered.names == laws.wanted_files([records], ()).keys()
    name = min(covered.names)
    assert list(covered.sent_again([name])) == [f"{name} was sent again"]
    (records / name).write_bytes(b"new")
    assert list(covered.sent_again([name])) == []
    assert laws.Covered(records).names < covered.names
    assert list(laws.Covered(None).sent_again(place.names())) == []


def test_what_was_pruned_wrongly_is_seen(tmp_path: Path) -> None:
    """A record with a file that is nowhere else must stay; what is safe must go; nothing hidden may be left."""
    written = {f"tr_{name}.{kind}.zst": b"x" for name in "ab" for kind in ("json", "tokens")}
    written["tr_a.experts.zst"] = b"x"
    of_a = {name: data for name, data in written.items() if name.startswith("tr_a")}
    assert list(laws.nothing_unique_was_pruned(written, of_a, ["experts"])) == []
    assert list(laws.all_that_is_safe_was_pruned(written, of_a, ["experts"])) == []
    without_experts = laws.without(of_a, ["experts"])
    assert len(list(laws.nothing_unique_was_pruned(written, without_experts, ["experts"]))) == 1
    assert len(list(laws.nothing_unique_was_pruned(written, {}, ["experts"]))) == 3
    assert list(laws.nothing_unique_was_pruned(written, {}, [])) == []
    assert len(list(laws.all_that_is_safe_was_pruned(written, written, ["experts"]))) == 2
    assert len(list(laws.all_that_is_safe_was_pruned(written, of_a, []))) == 3
    (tmp_path / ".pruned-01234567-tr_a.json.zst").write_bytes(b"x")
    assert list(laws.all_that_is_safe_was_pruned(written, of_a, [], [tmp_path])) == []
    assert list(laws.nothing_hidden_is_left([tmp_path], kills=1)) == []
    assert len(list(laws.nothing_hidden_is_left([tmp_path], kills=0))) == 1


def test_a_document_without_its_sidecars_is_seen(place: DirectoryPlace) -> None:
    """By who looks at the mirror all the time."""
    ids = [path.name.removesuffix(".json.zst") for path in place.path.glob("*.json.zst")]
    seen: list[str] = []
    poller = Poller(place, {record_id: {f"{record_id}.tokens.zst"} for record_id in ids}, seen.append)
    poller.start()
    (place.path / f"{ids[0]}.tokens.zst").unlink()
    poller.end()
    assert seen
    assert f"{ids[0]}.json.zst was visible without ['{ids[0]}.tokens.zst']" in seen[0]


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        "mirror.engine ERROR a bug kept 'tr_a' from being copied; the local file is kept",
        "asyncio ERROR Task was destroyed but it is pending!",
        "py.warnings WARNING x.py:1: ResourceWarning: unclosed file <x>",
    ],
)
def test_a_log_that_speaks_of_a_bug_is_seen(tmp_path: Path, line: str) -> None:
    """Whatever process wrote it."""
    log = tmp_path / "server.log"
    log.write_text(f"all is well\n{line}\nand so on\n")
    assert len(list(laws.logs_are_clean([log]))) == 1


def test_a_scenario_is_its_seeds_alone() -> None:
    """The same seed gives the same scenario, and a thousand of them leave nothing out."""
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    scenarios = [draw(seed) for seed in range(1_000)]
    assert {scenario.store for scenario in scenarios} == {"s3", "s3_versioned", "s3_rotating", "gcs", "directory"}
    assert {gust.kind for scenario in scenarios for gust in scenario.gusts} == {*GUSTS}
    actors = [actor for scenario in scenarios for actor in scenario.actors]
    assert {actor.role for actor in actors} == {"server", "writer", "watch", "trainer", "pruner"}
    lives = [life for actor in actors for life in actor.lives]
    assert {life.ending for life in lives} == {*Ending}
    assert {life.fork_ends for life in lives if life.fork_at is not None} == {Ending.CLOSE, Ending.LEAVE, Ending.KILL}
