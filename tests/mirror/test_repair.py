"""Plan, then apply: only what is damaged, from the records or from a second mirror."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mirror import ConfigError, FindingKind, RecordMirror, RepairPlan, Verification, VerifyLevel, prune, repair, verify
from mirror.config import MirrorConfig
from mirror.errors import EmptyMirrorError
from mirror.judging import Finding
from mirror.pruning.judging import PruneRules
from mirror.repairing.plan import plan_repair
from mirror.samples import write_corpus, write_record
from tests.mirror.local_records import write_files

LIVE = MirrorConfig(fsync=False, rescan_s=0.05)
EVERYTHING = VerifyLevel(read_back=1.0)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    directory.mkdir()
    write_corpus(directory, profile="tiny", count=20, seed=1)
    return directory


def copy(records: Path, mirror: Path) -> Path:
    with RecordMirror(mirror) as copier:
        copier.scan(records)
        assert copier.flush(30)
    return mirror


@pytest.fixture
def mirror(records: Path, tmp_path: Path) -> Path:
    return copy(records, tmp_path / "mirror")


def damage(mirror: Path) -> set[str]:
    files = sorted(mirror.glob("*.zst"))
    files[0].unlink()
    files[5].write_bytes(b"short")
    data = bytearray(files[10].read_bytes())
    data[3] ^= 1
    files[10].write_bytes(data)
    return {files[0].name, files[5].name, files[10].name}


def is_whole(mirror: Path, *records: Path) -> bool:
    return not verify(mirror, records, level=EVERYTHING, grace_s=0).findings


def test_what_is_damaged_is_put_back_and_nothing_else(mirror: Path, records: Path) -> None:
    """Every other file keeps its time of writing; a second repair finds nothing to do."""
    damaged = damage(mirror)
    before = {path.name: path.stat().st_mtime_ns for path in mirror.glob("*.zst") if path.name not in damaged}
    result = repair(mirror, [records], level=EVERYTHING, grace_s=0)
    assert (result.restored_files, result.failed, result.plan.hopeless) == (3, {}, ())
    assert {name for step in result.plan.steps for name in step.names} == damaged
    assert {name: (mirror / name).stat().st_mtime_ns for name in before} == before
    assert is_whole(mirror, records)
    again = repair(mirror, [records], level=EVERYTHING, grace_s=0)
    assert (again.restored_files, again.plan.steps) == (0, ())


def test_a_plan_that_is_not_confirmed_changes_nothing(mirror: Path, records: Path) -> None:
    """The plan is shown first."""
    damaged = damage(mirror)
    shown: list[RepairPlan] = []

    def refuse(plan: RepairPlan) -> bool:
        shown.append(plan)
        return False

    result = repair(mirror, [records], level=EVERYTHING, confirm=refuse, grace_s=0)
    assert result.restored_files == 0
    assert {name for step in shown[0].steps for name in step.names} == damaged
    assert not is_whole(mirror)


def test_from_a_second_mirror(mirror: Path, records: Path, tmp_path: Path) -> None:
    """Where the records are gone, another copy of them is as good."""
    second = copy(records, tmp_path / "second")
    shutil.rmtree(records)
    damage(mirror)
    result = repair(mirror, source_url=second, level=EVERYTHING, grace_s=0)
    assert (result.restored_files, result.failed) == (3, {})
    assert is_whole(mirror)


def test_a_second_mirror_that_is_damaged_too_is_not_copied(mirror: Path, records: Path, tmp_path: Path) -> None:
    """Each file is hashed before it is sent; the others are restored all the same."""
    second = copy(records, tmp_path / "second")
    missing, *_ = sorted(damage(mirror))
    (second / missing).write_bytes(b"x" * (second / missing).stat().st_size)
    result = repair(mirror, source_url=second, level=EVERYTHING, grace_s=0)
    assert result.restored_files == 2
    assert len(result.failed) == 1
    assert "damaged in the second mirror" in next(iter(result.failed.values()))


def test_where_there_is_no_mirror_none_is_made(mirror: Path, records: Path, tmp_path: Path) -> None:
    """A mistyped URL is no mirror that lost everything; nor is one a second mirror to mend from."""
    for url, directories, second in (
        (tmp_path / "mistyped", [records], None),
        (tmp_path / "mistyped", [], mirror),
        (mirror, [], tmp_path / "mistyped"),
    ):
        with pytest.raises(EmptyMirrorError, match="mistyped"):
            repair(url, directories, source_url=second, grace_s=0)
    assert not (tmp_path / "mistyped").exists()


def test_a_mirror_that_lost_everything_is_made_anew(mirror: Path, records: Path) -> None:
    """The receipts beside the records say that there was one."""
    shutil.rmtree(mirror)
    assert repair(mirror, [records], level=EVERYTHING, grace_s=0).restored_files == 40
    assert is_whole(mirror, records)


def test_what_no_source_has_is_said(mirror: Path, tmp_path: Path) -> None:
    """A repair that cannot help names what it cannot help."""
    damaged = damage(mirror)
    empty = tmp_path / "empty"
    empty.mkdir()
    result = repair(mirror, [empty], level=EVERYTHING, grace_s=0)
    assert {finding.name for finding in result.plan.hopeless} == damaged
    assert result.restored_files == 0


def test_records_without_receipts_get_them(mirror: Path, records: Path) -> None:
    """Files that landed without a receipt are sent again, for nothing else proves what they should be."""
    shutil.rmtree(mirror / "_receipts")
    result = repair(mirror, [records], level=EVERYTHING, grace_s=0)
    assert result.restored_files == 40
    assert is_whole(mirror, records)


def test_a_repair_is_remembered_beside_the_records(mirror: Path, records: Path) -> None:
    """The next copy of the directory sends nothing."""
    damage(mirror)
    repair(mirror, [records], level=EVERYTHING, grace_s=0)
    with RecordMirror(mirror) as copier:
        copier.scan(records)
        assert copier.flush(30)
        assert copier.stats()["files"] == 0


def test_a_repair_needs_a_source(mirror: Path) -> None:
    """Without records or a second mirror there is nothing to mend with."""
    with pytest.raises(ConfigError, match="needs a source"):
        repair(mirror)


def test_what_could_not_be_checked_is_never_sent() -> None:
    """A plan holds damage alone."""
    unchecked = Finding(kind=FindingKind.UNCHECKED, name="a.json.zst", record_id="a", detail="")
    plan = plan_repair(Verification(findings=[unchecked]), [Path("/r")], lambda _path, _id: True, None)
    assert (plan.steps, plan.hopeless) == ((), ())


def test_a_sidecar_that_no_source_has_stays_a_finding(mirror: Path, records: Path) -> None:
    """Putting a record's document back does not make its receipt forget the sidecar that is gone."""
    lost = min(mirror.glob("*.tokens.zst")).name
    document = f"{lost.removesuffix('.tokens.zst')}.json.zst"
    for name in (lost, document):
        (mirror / name).unlink()
    (records / lost).unlink()
    for restored in (1, 0):
        result = repair(mirror, [records], grace_s=0)
        assert (result.restored_files, [finding.name for finding in result.plan.hopeless]) == (restored, [lost])
    assert [(finding.kind, finding.name) for finding in verify(mirror, grace_s=0).findings] == [("missing", lost)]


def test_the_second_mirror_is_asked_for_what_no_directory_has(mirror: Path, records: Path, tmp_path: Path) -> None:
    """A record directory that lost the file is no source of it."""
    second = copy(records, tmp_path / "second")
    lost = min(mirror.glob("*.tokens.zst")).name
    (mirror / lost).unlink()
    (records / lost).unlink()
    assert repair(mirror, [records], source_url=second, grace_s=0).restored_files == 1
    assert is_whole(mirror, records)


def test_a_kind_that_is_left_out_is_not_restored(mirror: Path, records: Path) -> None:
    """A repair that leaves it out says so, does nothing twice, and keeps the proof of what is in the mirror already."""
    document = min(mirror.glob("*.json.zst"))
    sidecar = document.name.replace(".json.", ".tokens.")
    without = MirrorConfig(exclude=("tokens",))
    document.unlink()
    assert repair(mirror, [records], config=without, grace_s=0).restored_files == 1
    assert is_whole(mirror)
    (mirror / sidecar).unlink()
    for _ in range(2):
        result = repair(mirror, [records], config=without, grace_s=0)
        assert (result.plan.steps, [finding.name for finding in result.plan.hopeless]) == ((), [sidecar])
    assert repair(mirror, [records], grace_s=0).restored_files == 1
    assert is_whole(mirror, records)


def test_a_repair_adds_no_kind_that_was_left_out_before(tmp_path: Path, records: Path) -> None:
    """What whoever copied a record excluded stays away, without the option being given again."""
    target = tmp_path / "lean"
    with RecordMirror(target, exclude=["tokens"]) as mirror:
        mirror.scan(records)
        assert mirror.flush(60)
    before = {path.name for path in target.glob("*.zst")}
    min(target.glob("*.json.zst")).unlink()
    assert repair(target, [records], grace_s=0).restored_files == 1
    assert {path.name for path in target.glob("*.zst")} == before


def test_a_receipt_from_the_future_is_overcome(mirror: Path, records: Path) -> None:
    """A clock that went back, or a forged time, keeps no damage in the mirror for ever."""
    for segment in mirror.glob("_receipts/*/*.jsonl"):
        lines = [json.loads(line) for line in segment.read_text().splitlines()]
        segment.write_text("".join(json.dumps({**line, "at": 4e9}) + "\n" for line in lines))
    sorted(mirror.glob("*.zst"))[3].write_bytes(b"other bytes")
    shutil.rmtree(records / ".mirror")
    write_record(records, "tr_00000", profile="tiny", rng=random.Random(9))  # noqa: S311 - no secrets
    assert repair(mirror, [records], grace_s=0).restored_files > 0
    assert is_whole(mirror, records)
    assert repair(mirror, [records], grace_s=0).plan.steps == ()


def generation(records: Path, number: int) -> None:
    """Write a record; that of another number has as many bytes."""
    records.mkdir(exist_ok=True)
    write_files(records, "tr_a", b"document %d" % number, tokens=b"tokens of %d" % number)


def held(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.zst")}


@contextmanager
def lacking_its_document(records: Path, mirror: Path) -> Iterator[RecordMirror]:
    """Have a mirror at work from which somebody has just deleted the record's document."""
    with RecordMirror(mirror, LIVE) as live:
        live.scan(records)
        assert live.flush(30)
        (mirror / "tr_a.json.zst").unlink()
        yield live


def test_what_a_live_mirror_copied_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """A second mirror may have an older one: it stays away, the repair says so, and verify finds nothing wrong."""
    records, first, second = (tmp_path / name for name in ("records", "first", "second"))
    generation(records, 1)
    copy(records, second)
    with lacking_its_document(records, first) as live:

        def meanwhile(_plan: RepairPlan) -> bool:
            generation(records, 2)
            live.submit(records, "tr_a")
            return live.flush(30)

        result = repair(first, source_url=second, confirm=meanwhile, grace_s=0)
        assert "meanwhile" in result.failed["tr_a"]
    assert held(first) == held(records)
    assert is_whole(first, records)


def test_what_was_copied_and_pruned_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    """It exists nowhere else by then."""
    records, first, second = (tmp_path / name for name in ("records", "first", "second"))
    generation(records, 1)
    copy(records, second)
    shutil.rmtree(records / ".mirror")  # the second copy was made elsewhere
    wanted: dict[str, bytes] = {}
    with lacking_its_document(records, first) as live:

        def meanwhile(_plan: RepairPlan) -> bool:
            generation(records, 2)
            wanted.update(held(records))
            live.submit(records, "tr_a")
            assert live.flush(30)
            return prune([records], first, confirmed=True, rules=PruneRules(older_than_s=0)).pruned == 1

        repair(first, source_url=second, confirm=meanwhile, grace_s=0)
    assert held(first) == wanted


def test_a_file_that_is_there_again_is_not_replaced_before_its_receipt_comes(tmp_path: Path) -> None:
    """A mirror writes receipts a little later than files."""
    records, first, second = (tmp_path / name for name in ("records", "first", "second"))
    generation(records, 1)
    copy(records, second)
    copy(records, first)
    (first / "tr_a.json.zst").unlink()

    def meanwhile(_plan: RepairPlan) -> bool:
        generation(records, 2)
        return bool(shutil.copy(records / "tr_a.json.zst", first))

    result = repair(first, source_url=second, confirm=meanwhile, grace_s=0)
    assert (result.restored_files, list(result.failed)) == (0, ["tr_a"])
    assert (first / "tr_a.json.zst").read_bytes() == b"document 2"


def test_receipts_of_before_are_not_believed_when_the_disk_is_copied(tmp_path: Path) -> None:
    """What was intact for the plan was replaced since, and the disk has the first one again: all of it is sent."""
    records, first = tmp_path / "records", tmp_path / "first"
    generation(records, 1)
    with lacking_its_document(records, first) as live:

        def meanwhile(_plan: RepairPlan) -> bool:
            generation(records, 2)
            live.submit(records, "tr_a")
            assert live.flush(30)
            generation(records, 1)
            return True

        repair(first, [records], confirm=meanwhile, grace_s=0)
        live.submit(records, "tr_a")
        assert live.flush(30)
    assert held(first) == held(records)
    assert is_whole(first, records)
