"""What may go from disk goes, once it is proved to be in the mirror in this very run; everything else stays whole."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mirror import (
    EmptyMirrorError,
    FindingKind,
    Keep,
    MirrorConfig,
    PruneResult,
    PruneRules,
    PruneStep,
    RecordError,
    RecordMirror,
    prune,
    repair,
    verify,
)
from mirror.errors import TryAgainError
from mirror.location import parse_location
from mirror.place import place_id
from mirror.receipts.ledger import Ledger
from mirror.samples import write_corpus, write_litter
from mirror.status import read_directory
from mirror.testing.stores import FaultyStore, MemoryStore
from tests.mirror.local_records import flip_byte, receipt_of, replace_file, tree, write_files
from tests.mirror.mirrors_in_memory import eventually, failing, is_record, mirror_on, stalling
from tests.mirror.moments import Moments
from tests.mirror.places import Place, mirror_to, record_files

AT_ONCE = PruneRules(older_than_s=0)


class Disk:
    """A record directory whose records are in a mirror in another directory."""

    def __init__(self, root: Path) -> None:
        self.records = root / "records"
        self.mirror = root / "mirror"
        self.records.mkdir()
        self.ids = write_corpus(self.records, profile="tiny", count=10, seed=1)
        write_litter(self.records)
        self.steps: list[PruneStep] = []
        self.copy()

    def copy(self, mirror: Path | None = None, **options: object) -> None:
        with RecordMirror(mirror or self.mirror, MirrorConfig.from_mapping({"fsync": False, **options})) as copier:
            copier.scan(self.records)
            assert copier.flush(30)

    def prune(
        self,
        *,
        confirmed: bool = True,
        rules: PruneRules = AT_ONCE,
        each: Callable[[PruneStep], object] = lambda _step: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> PruneResult:
        self.steps.clear()

        def note(step: PruneStep) -> None:
            self.steps.append(step)
            each(step)

        return prune([self.records], self.mirror, confirmed=confirmed, rules=rules, each=note, stop=stop)

    def kept(self) -> dict[str, Keep]:
        """Why each record stayed in the last run."""
        return {step.record_id: step.keep for step in self.steps if step.keep is not None}

    def document(self, number: int) -> Path:
        return self.records / f"{self.ids[number]}.json.zst"

    def sidecar(self, number: int) -> Path:
        return self.records / f"{self.ids[number]}.tokens.zst"

    def there(self) -> set[str]:
        """The ids of the records on disk that are whole."""
        return {name for name in self.ids if all(path.exists() for path in self.files_of(name))}

    def files_of(self, record_id: str) -> list[Path]:
        return [self.records / f"{record_id}.tokens.zst", self.records / f"{record_id}.json.zst"]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_what_is_proved_to_be_in_the_mirror_goes_and_nothing_else(disk: Disk) -> None:
    """Every finished record goes; leftovers, hidden files, subdirectories and receipts stay, and so does the mirror."""
    records, mirror = tree(disk.records), tree(disk.mirror)
    of_records = record_files(disk.records)
    result = disk.prune()
    assert (result.pruned, result.files, result.size_bytes) == (10, 20, sum(map(len, of_records.values())))
    assert (result.is_complete, result.findings, dict(result.kept)) == (True, [], {})
    assert tree(disk.records) == {name: data for name, data in records.items() if name not in of_records}
    assert tree(disk.mirror) == mirror


def test_a_second_run_has_nothing_to_do(disk: Disk) -> None:
    """What is gone is not missed, and nothing else goes."""
    disk.prune()
    before = tree(disk.records)
    assert disk.prune().records == 0
    assert tree(disk.records) == before


def test_unconfirmed_everything_is_verified_and_stays(disk: Disk) -> None:
    """The plan is the same as the one that is carried out, also where the mirror is damaged."""
    flip_byte(disk.mirror / disk.document(3).name)
    before = tree(disk.records)
    planned = disk.prune(confirmed=False)
    plan = {(step.record_id, step.files, step.keep, step.detail) for step in disk.steps}
    assert tree(disk.records) == before
    assert (planned.pruned, planned.damage) == (9, 1)
    done = disk.prune()
    assert {(step.record_id, step.files, step.keep, step.detail) for step in disk.steps} == plan
    assert (done.pruned, done.files, done.size_bytes) == (planned.pruned, planned.files, planned.size_bytes)


@pytest.mark.parametrize("length", [254, 255])
def test_a_document_whose_name_just_fits_goes_too(tmp_path: Path, length: int) -> None:
    """No sidecar of it can have a name on this disk, which is no reason to keep it."""
    record_id = "a" * (length - len(".json.zst"))
    write_files(tmp_path / "records", record_id)
    with RecordMirror(tmp_path / "mirror", MirrorConfig(fsync=False)) as copier:
        copier.scan(tmp_path / "records")
        assert copier.flush(30)
    result = prune([tmp_path / "records"], tmp_path / "mirror", confirmed=True, rules=AT_ONCE)
    assert (result.pruned, result.kept.total()) == (1, 0)
    assert record_files(tmp_path / "records") == {}


def test_a_damaged_or_missing_copy_keeps_its_record(disk: Disk) -> None:
    """Each is found by hash, size or absence, and what stays on disk mends it."""
    flip_byte(disk.mirror / disk.document(0).name)
    (disk.mirror / disk.sidecar(1).name).unlink()
    (disk.mirror / disk.sidecar(2).name).write_bytes(b"short")
    result = disk.prune()
    assert disk.kept() == dict.fromkeys(disk.ids[:3], Keep.DAMAGED)
    assert {finding.name: finding.kind for finding in result.findings} == {
        disk.document(0).name: FindingKind.CHANGED,
        disk.sidecar(1).name: FindingKind.MISSING,
        disk.sidecar(2).name: FindingKind.WRONG_SIZE,
    }
    assert disk.there() == set(disk.ids[:3])
    assert repair(disk.mirror, [disk.records], grace_s=0).restored_files == 2  # what a listing sees
    assert disk.prune().pruned == 2


def test_what_was_written_again_stays(disk: Disk) -> None:
    """By the hash of what is on disk now, whatever the time stamps say."""
    status = disk.document(0).stat()
    flip_byte(disk.document(0))
    os.utime(disk.document(0), ns=(status.st_atime_ns, status.st_mtime_ns))
    replace_file(disk.sidecar(1), b"new, and its document is still to come")
    disk.prune()
    assert disk.kept() == dict.fromkeys(disk.ids[:2], Keep.CHANGED)
    assert disk.there() == set(disk.ids[:2])


def test_what_was_only_touched_goes(disk: Disk) -> None:
    """Time stamps alone make no other bytes."""
    for path in disk.records.glob("*.zst"):
        path.touch()
    assert disk.prune().pruned == 10


def test_what_was_never_copied_stays(disk: Disk) -> None:
    """Records without a receipt, and those of which a receipt does not have every file."""
    write_files(disk.records, "tr_new", tokens=b"t")
    write_files(disk.records, disk.ids[0] + "#", tokens=b"t")
    replace_file(disk.records / f"{disk.ids[1]}.rewards.zst", b"a kind that came later")
    disk.prune()
    assert disk.kept() == {
        "tr_new": Keep.NO_RECEIPT,
        disk.ids[0] + "#": Keep.NO_RECEIPT,
        disk.ids[1]: Keep.UNCOVERED,
    }
    assert (disk.records / "tr_new.json.zst").exists()
    assert disk.there() == {disk.ids[1]}


def test_a_name_that_the_mirror_refuses_stays(disk: Disk) -> None:
    """It cannot be there, and does not end the run."""
    name = b"tr_\xff.json.zst"
    (Path(os.fsdecode(os.fsencode(disk.records) + b"/" + name))).write_bytes(b"{}")
    assert disk.prune().pruned == 10
    assert list(disk.kept().values()) == [Keep.NO_RECEIPT]
    assert name in os.listdir(os.fsencode(disk.records))  # noqa: PTH208 - bytes, which no Path takes


def test_receipts_of_another_mirror_prove_nothing(disk: Disk, tmp_path: Path) -> None:
    """Neither beside the records nor in that mirror; a place without any mirror is an error."""
    with pytest.raises(EmptyMirrorError):
        prune([disk.records], tmp_path / "elsewhere", confirmed=True, rules=AT_ONCE)
    shutil.copytree(disk.mirror, tmp_path / "bare", ignore=shutil.ignore_patterns("_receipts"))
    result = prune([disk.records], tmp_path / "bare", confirmed=True, rules=AT_ONCE)
    assert result.kept == {Keep.NO_RECEIPT: 10}
    assert disk.there() == set(disk.ids)


def test_a_second_mirror_of_the_directory_is_waited_for(disk: Disk, tmp_path: Path) -> None:
    """What is on its way to another place stays until it is there; which place, and what to do, is said."""
    disk.copy(tmp_path / "second")
    write_files(disk.records, "tr_new", tokens=b"t")
    disk.copy()
    disk.ids.append("tr_new")
    assert disk.prune().pruned == 10
    assert disk.kept() == {"tr_new": Keep.ELSEWHERE}
    assert f"file://{tmp_path}/second" in next(step.detail for step in disk.steps if step.keep)
    disk.copy(tmp_path / "second", exclude=["tokens"])
    assert disk.prune().pruned == 1


def test_one_that_never_got_a_record_is_waited_for_too(disk: Disk) -> None:
    """It may be away since it was named; who has given it up, or mistyped it, deletes what the reason names."""
    with mirror_on(FaultyStore(MemoryStore(), failing(TryAgainError("put", "k", "away")))) as away:
        for record_id in disk.ids:
            away.submit(disk.records, record_id)
        eventually(lambda: away.stats()["breaker"] == "open")
        away.close(0)
    assert disk.prune().pruned == 0
    assert set(disk.kept().values()) == {Keep.ELSEWHERE}
    named = next(step.detail for step in disk.steps if step.keep).rpartition("delete ")[2].rstrip(")")
    shutil.rmtree(named)
    assert disk.prune().pruned == 10


def test_nor_is_one_that_leaves_out_what_nobody_has(disk: Disk, tmp_path: Path) -> None:
    """A mistyped kind in its settings takes nothing away from what it holds."""
    disk.copy(tmp_path / "second", exclude=["token"])
    assert all(place.uncopied == 0 for place in read_directory(disk.records).places)
    assert disk.prune().pruned == 10


def test_an_excluded_sidecar_exists_nowhere_else(tmp_path: Path) -> None:
    """Its record stays, unless its kind may be discarded; a kind that was not left out is no less covered for that."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_files(records, "tr_a", tokens=b"t", experts=b"e")
    write_files(records, "tr_b", tokens=b"t")
    with RecordMirror(mirror, exclude=["experts"]) as copier:
        copier.scan(records)
        assert copier.flush(30)
    steps: list[PruneStep] = []
    assert prune([records], mirror, confirmed=True, rules=AT_ONCE, each=steps.append).pruned == 1
    assert [(step.record_id, step.keep) for step in steps if step.keep] == [("tr_a", Keep.EXCLUDED)]
    assert "tr_a.experts.zst" in next(step.detail for step in steps if step.keep)
    assert len(record_files(records)) == 3
    replace_file(records / "tr_a.extra.zst", b"x")
    rules = PruneRules(older_than_s=0, discard=("experts", "extra"))
    assert prune([records], mirror, confirmed=True, rules=rules).kept == {Keep.UNCOVERED: 1}
    (records / "tr_a.extra.zst").unlink()
    assert prune([records], mirror, confirmed=True, rules=rules).files == 3
    assert record_files(records) == {}


def test_the_options_keep_what_they_say(disk: Disk) -> None:
    """The newest, the young, and what no pattern names; those are not even looked at."""
    for number in (4, 7):
        disk.document(number).touch()
    assert disk.prune(rules=PruneRules()).kept == {Keep.YOUNG: 10}
    assert disk.prune(rules=PruneRules(older_than_s=float("inf"))).kept == {Keep.YOUNG: 10}
    only = PruneRules(older_than_s=0, include=(f"{disk.ids[0]}*",))
    assert disk.prune(rules=only).records == 1
    result = disk.prune(rules=PruneRules(older_than_s=0, keep_newest=2))
    assert (result.pruned, result.kept) == (7, {Keep.NEWEST: 2})
    assert disk.there() == {disk.ids[4], disk.ids[7]}


def test_a_withdrawn_receipt_proves_nothing(disk: Disk) -> None:
    """A mirror about to replace a copy says so beside the records; until it is copied again the record stays."""
    withdrawal = replace(receipt_of(disk.records, disk.ids[0], "tokens", at=time.time() + 1), files=())
    ledger = Ledger(disk.records, place_id(parse_location(disk.mirror), {}), "another-mirror")
    ledger.append(withdrawal)
    ledger.close()
    assert disk.prune().pruned == 9
    assert disk.kept() == {disk.ids[0]: Keep.WITHDRAWN}
    disk.copy()
    assert disk.prune().pruned == 1


def test_links_stay(disk: Disk, tmp_path: Path) -> None:
    """A link in a record's place is none, and a file that has a second name frees nothing."""
    (tmp_path / "snapshot").hardlink_to(disk.document(0))
    real = tmp_path / "real"
    disk.sidecar(1).rename(real)
    disk.sidecar(1).symlink_to(real)
    other = tmp_path / "other"
    disk.document(2).rename(other)
    disk.document(2).symlink_to(other)
    disk.prune()
    assert disk.kept() == dict.fromkeys(disk.ids[:2], Keep.LINKED)
    assert disk.there() == set(disk.ids[:3])
    assert real.exists()
    assert other.exists()


def test_a_directory_is_never_its_own_mirror(disk: Disk, tmp_path: Path) -> None:
    """By whatever name: there is no second copy."""
    (tmp_path / "alias").symlink_to(disk.mirror)
    before = tree(disk.mirror)
    with pytest.raises(RecordError, match="own mirror"):
        prune([tmp_path / "alias"], disk.mirror, confirmed=True, rules=AT_ONCE)
    assert tree(disk.mirror) == before


def test_a_directory_that_cannot_be_changed_keeps_its_records(disk: Disk, tmp_path: Path, moments: Moments) -> None:
    """Said at once where it is known at once, else of each record; the next one goes on."""
    with pytest.raises(RecordError, match="prune it as the user that writes the records"):
        prune([tmp_path / "none"], disk.mirror, confirmed=True)

    def refuse() -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    moments.before("os.rename", disk.document(4).name, refuse)
    assert disk.prune().pruned == 9
    assert disk.kept() == {disk.ids[4]: Keep.FAILED}
    assert "it cannot be deleted: Read-only file system" in {step.detail for step in disk.steps}
    assert disk.there() == {disk.ids[4]}


def test_a_record_written_again_while_it_is_verified_stays(disk: Disk, moments: Moments) -> None:
    """Hashed and found in the mirror, and then it is another."""

    def write_again() -> None:
        write_files(disk.records, disk.ids[0], b"new", tokens=b"new")

    moments.before("open", disk.document(0).name, lambda: None)  # on disk
    moments.before("open", disk.document(0).name, write_again)  # in the mirror
    assert disk.prune().pruned == 9
    assert moments.are_over
    assert disk.kept() == {disk.ids[0]: Keep.CHANGED}
    assert {step.detail for step in disk.steps} >= {"it was written again, or deleted, while it was verified"}
    assert disk.document(0).read_bytes() == disk.sidecar(0).read_bytes() == b"new"


def test_a_run_that_is_stopped_leaves_records_whole(disk: Disk) -> None:
    """What was deleted is, what was not is whole, and the next run goes on."""
    result = disk.prune(stop=lambda: len(disk.steps) >= 3)
    assert (result.pruned, result.is_complete) == (3, False)
    assert len(disk.there()) == 7
    assert disk.prune().pruned == 7


def test_two_runs_at_once_delete_each_record_once(disk: Disk) -> None:
    """Neither trips over the other, and together they leave nothing."""
    barrier = threading.Barrier(2)
    results: list[PruneResult] = []

    def run() -> None:
        barrier.wait()
        results.append(prune([disk.records], disk.mirror, confirmed=True, rules=AT_ONCE))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.pruned for result in results) == 10
    assert all(set(result.kept) <= {Keep.CHANGED} for result in results)
    assert record_files(disk.records) == {}


def test_nobody_misses_what_was_pruned(disk: Disk) -> None:
    """Neither a copy, nor a check, nor a repair takes it for lost or damaged; nothing is sent or written again."""
    disk.prune()
    before = tree(disk.mirror)
    with RecordMirror(disk.mirror, fsync=False) as copier:
        assert copier.scan(disk.records).records == 0
        for record_id in disk.ids:  # as a server that is told so twice
            copier.submit(disk.records, record_id)
        assert copier.flush(30)
        stats = copier.stats()
    assert (stats["mirrored"], stats["lost"], stats["failed"], stats["files"]) == (10, 0, 0, 0)
    assert {name: data for name, data in tree(disk.mirror).items() if data} == {
        name: data for name, data in before.items() if data
    }
    assert verify(disk.mirror, [disk.records], grace_s=0).findings == []
    assert repair(disk.mirror, [disk.records], grace_s=0).plan.steps == ()
    status = read_directory(disk.records)
    assert (status.records, [(place.receipted, place.uncopied) for place in status.places]) == (0, [(10, 0)])


def test_a_record_that_comes_back_is_copied_and_pruned_again(disk: Disk) -> None:
    """The same id with other bytes is a record like any other, whatever was pruned before."""
    disk.prune()
    write_files(disk.records, disk.ids[0], b"{} once more", tokens=b"others")
    assert disk.prune().kept == {Keep.CHANGED: 1}
    disk.copy()
    assert disk.prune().pruned == 1
    assert (disk.mirror / disk.sidecar(0).name).read_bytes() == b"others"


def test_a_record_handed_to_one_mirror_and_copied_by_another_is_not_lost(tmp_path: Path) -> None:
    """A mirror that comes to a record only after it was pruned looks for others' receipts before it says "lost"."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    write_files(records, "tr_first")
    with RecordMirror(mirror) as one, RecordMirror(mirror) as other:
        one.submit(records, "tr_first")
        assert one.flush(30)
        write_files(records, "tr_a", tokens=b"t")
        other.submit(records, "tr_a")
        assert other.flush(30)
        assert prune([records], mirror, confirmed=True, rules=AT_ONCE).pruned == 2
        one.submit(records, "tr_a")
        assert one.flush(30)
        assert (one.stats()["mirrored"], one.stats()["lost"]) == (2, 0)


def test_a_late_record_that_another_mirror_copied_is_not_lost(tmp_path: Path) -> None:
    """Also when it is copied and pruned while this one is looking for what is late."""
    memory = MemoryStore()
    stall, stalled = stalling(lambda operation, key: is_record(operation, key) and key.startswith("tr_a."))
    failed = failing(TryAgainError("put", "", "503"), lambda _operation, key: key.startswith("tr_z."))
    slow = mirror_on(FaultyStore(memory, stalled, failed), queue_size=2, workers=1, attempts=1, rescan_s=1_000)
    with slow, mirror_on(memory) as other:
        slow.scan(tmp_path)
        write_files(tmp_path, "tr_z")
        slow.submit(tmp_path, "tr_z")
        eventually(lambda: slow.stats()["late"] == 1)
        for record_id in ("tr_a", "tr_b", "tr_c"):
            write_files(tmp_path, record_id)
        slow.submit(tmp_path, "tr_a")
        stall.reached.wait()
        looking = threading.Thread(target=slow.scan, args=(tmp_path,))
        looking.start()
        eventually(lambda: slow.stats()["submitted"] == 3, "the look, which has room for one of the others")
        other.submit(tmp_path, "tr_z")
        assert other.flush(30)
        (tmp_path / "tr_z.json.zst").unlink()
        stall.released.happen()
        looking.join()
        assert slow.flush(30)
        stats = slow.stats()
    assert (stats["failed"], stats["lost"], len(memory.records)) == (0, 0, 4)


@pytest.mark.integration
def test_on_each_kind_of_store(place: Place, records: Path) -> None:
    """What is in the mirror by its bytes goes, small files and large, records and odd names; the mirror stays."""
    with mirror_to(place, exclude=["experts"]) as copier:
        copier.scan(records)
        assert copier.flush(60)
    wanted = record_files(records)
    mirrored = place.objects()
    config = MirrorConfig.from_mapping({"driver": place.driver, "storage_options": place.options()})
    rules = PruneRules(older_than_s=0, discard=("experts",))
    steps: list[PruneStep] = []
    planned = prune([records], place.url, rules=rules, config=config, each=steps.append)
    assert (planned.pruned, planned.files, [step for step in steps if step.keep]) == (46, len(wanted), [])
    assert record_files(records) == wanted
    assert prune([records], place.url, confirmed=True, rules=rules, config=config).files == len(wanted)
    assert record_files(records) == {}
    assert place.objects() == mirrored


def test_beside_a_live_mirror_nothing_is_lost(tmp_path: Path) -> None:
    """Records are written, written again, mirrored and pruned all at once; each ends in the mirror as written last."""
    records, mirror = tmp_path / "records", tmp_path / "mirror"
    records.mkdir()
    written: dict[str, bytes] = {}
    over = threading.Event()
    problems: list[object] = []
    pruned: list[int] = []

    def run_prunes() -> None:
        try:
            while not over.is_set():
                result = prune([records], mirror, confirmed=True, rules=AT_ONCE)
                problems.extend(result.findings)
                pruned.append(result.pruned)
        except EmptyMirrorError:
            run_prunes()  # nothing was copied yet
        except Exception as error:  # noqa: BLE001 - whatever it is, the test says so
            problems.append(error)

    pruning = threading.Thread(target=run_prunes)
    with RecordMirror(mirror, fsync=False) as copier:
        pruning.start()
        for generation in range(6):
            for number in range(60):
                document, tokens = f"{{{number}: {generation}}}".encode(), f"{number}.{generation}".encode()
                names = write_files(records, f"tr_{number}", document, tokens=tokens)
                written |= dict(zip(names, (tokens, document), strict=True))
                copier.submit(records, f"tr_{number}")
            assert copier.flush(60)  # with the receipts: this generation may go while the next is written
        eventually(lambda: problems or sum(pruned), "a record that was pruned beside the mirror")
        over.set()
        pruning.join()
        copier.scan(records)
        assert copier.flush(60)
        stats = copier.stats()
    assert (stats["lost"], stats["failed"]) == (0, 0)
    assert [problem for problem in problems if isinstance(problem, Exception)] == []
    assert {path.name: path.read_bytes() for path in mirror.glob("*.zst")} == written
    assert {name: data for name, data in record_files(records).items() if data != written[name]} == {}
    prune([records], mirror, confirmed=True, rules=AT_ONCE)
    assert record_files(records) == {}
    assert verify(mirror, grace_s=0).findings == []
