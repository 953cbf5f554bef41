"""A mirror against its receipts, its listing, its bytes and the records on disk."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mirror import FindingKind, MirrorConfig, RecordMirror, StoreError, Verification, VerifyLevel, repair, verify
from mirror.breaker import Breaker
from mirror.limiter import Limiter
from mirror.loop import run_in_loop
from mirror.receipts.manifest import Manifest
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.samples import write_corpus, write_litter
from mirror.store import ObjectInfo
from mirror.testing.faults import Answer, Fault, FlipReplyBit, requests_to, s3_error
from mirror.testing.proxy import FaultProxy
from mirror.testing.servers import SeaweedS3
from mirror.testing.stores import MemoryStore
from mirror.verify import Verifier
from tests.mirror.local_records import flip_byte, write_files
from tests.mirror.mirrors_in_memory import mirror_on

EVERYTHING = VerifyLevel(read_back=1.0)


class Mirrored:
    """A record directory and its mirror in another directory."""

    def __init__(self, root: Path) -> None:
        self.records = root / "records"
        self.mirror = root / "mirror"
        self.records.mkdir()
        self.ids = write_corpus(self.records, profile="tiny", count=30, seed=1)
        self.copy()

    def copy(self, **options: object) -> None:
        with RecordMirror(self.mirror, MirrorConfig.from_mapping(options)) as mirror:
            mirror.scan(self.records)
            assert mirror.flush(30)

    def verify(self, *directories: Path, level: VerifyLevel | None = None) -> Verification:
        return verify(self.mirror, directories, level=level, grace_s=0)

    def document(self, number: int) -> Path:
        return self.mirror / f"{self.ids[number]}.json.zst"

    def sidecar(self, number: int) -> Path:
        return self.mirror / f"{self.ids[number]}.tokens.zst"


@pytest.fixture
def mirrored(tmp_path: Path) -> Mirrored:
    return Mirrored(tmp_path)


def kinds(found: Verification) -> dict[str, FindingKind]:
    return {finding.name: finding.kind for finding in found.findings}


def test_a_whole_mirror_has_no_findings(mirrored: Mirrored) -> None:
    """By listing its files are present, read back they are intact: never the one for the other."""
    write_litter(mirrored.records)
    listed, read = mirrored.verify(mirrored.records), mirrored.verify(mirrored.records, level=EVERYTHING)
    assert (listed.records, listed.files, listed.present, listed.intact, listed.findings) == (30, 60, 60, 0, [])
    assert (read.present, read.intact, read.findings) == (0, 60, [])


def test_each_kind_of_damage_is_found_and_named(mirrored: Mirrored) -> None:
    """Deleted, truncated, flipped, never receipted, without a document: one finding a file, each with its kind."""
    mirrored.document(0).unlink()
    mirrored.sidecar(1).write_bytes(b"short")
    flip_byte(mirrored.document(2))
    shutil.copy(mirrored.document(3), mirrored.mirror / "stray.json.zst")
    shutil.copy(mirrored.sidecar(3), mirrored.mirror / "orphan.tokens.zst")
    found = mirrored.verify(level=EVERYTHING)
    assert kinds(found) == {
        mirrored.document(0).name: FindingKind.MISSING,
        mirrored.sidecar(1).name: FindingKind.WRONG_SIZE,
        mirrored.document(2).name: FindingKind.CHANGED,
        "stray.json.zst": FindingKind.NO_RECEIPT,
        "orphan.tokens.zst": FindingKind.NO_DOCUMENT,
    }
    assert (found.intact, found.damage, found.unchecked) == (57, 5, 0)


def test_what_no_receipt_explains_is_named_with_what_to_do(mirrored: Mirrored) -> None:
    """Nobody knows which it is: a record that is still on a disk can be repaired from there, a leftover be deleted."""
    shutil.copy(mirrored.document(3), mirrored.mirror / "stray.json.zst")
    shutil.copy(mirrored.sidecar(3), mirrored.mirror / "orphan.tokens.zst")
    assert [finding.detail.partition(": ")[2] for finding in mirrored.verify().findings] == [
        "repair that from its record directory, or delete this",
        "repair it from its record directory, or delete it",
    ]


def test_other_bytes_of_the_same_size_need_the_hash(mirrored: Mirrored) -> None:
    """A directory keeps no identity: by listing such a file is only present."""
    flip_byte(mirrored.document(0))
    assert not mirrored.verify().findings
    assert kinds(mirrored.verify(level=EVERYTHING)) == {mirrored.document(0).name: FindingKind.CHANGED}


def test_a_sample_reads_a_share_and_claims_no_more(mirrored: Mirrored) -> None:
    """About the asked share is intact, the rest is present; another seed draws other files."""
    half = mirrored.verify(level=VerifyLevel(read_back=0.5))
    assert 10 <= half.intact <= 50
    assert half.intact + half.present == 60
    flip_byte(mirrored.document(0))
    found = {bool(mirrored.verify(level=VerifyLevel(read_back=0.5, seed=seed)).findings) for seed in range(12)}
    assert found == {True, False}


def test_records_on_disk_that_the_mirror_does_not_have(mirrored: Mirrored) -> None:
    """Never copied, copied without a sidecar that came later, written again since: all are found."""
    late = write_corpus(mirrored.records, profile="tiny", count=1, seed=99, prefix="late_")[0]
    (mirrored.records / f"{mirrored.ids[0]}.novel.zst").write_bytes(b"new kind")
    flip_byte(mirrored.records / mirrored.document(1).name)
    assert kinds(mirrored.verify(mirrored.records)) == {
        f"{late}.json.zst": FindingKind.MISSING,
        f"{late}.tokens.zst": FindingKind.MISSING,
        f"{mirrored.ids[0]}.novel.zst": FindingKind.MISSING_SIDECAR,
        mirrored.document(1).name: FindingKind.CHANGED,
    }


@pytest.mark.parametrize("name", [b"\xff", b"new\nline", b"back\\slash"])
def test_a_record_whose_name_is_refused_is_said_to_be_missing(mirrored: Mirrored, name: bytes) -> None:
    """Such a name ends neither the check nor a repair, and comes out as plain text."""
    Path(os.fsdecode(os.fsencode(mirrored.records) + b"/" + name + b".json.zst")).write_bytes(b"{}")
    (finding,) = mirrored.verify(mirrored.records).findings
    assert (finding.kind, finding.name) == (FindingKind.MISSING, ascii(os.fsdecode(name))[1:-1] + ".json.zst")
    assert "rename the file" in finding.detail
    assert finding.name.isprintable()
    assert repair(mirrored.mirror, [mirrored.records], grace_s=0).plan.hopeless == (finding,)


def test_touched_records_are_as_they_were(mirrored: Mirrored) -> None:
    """A change time without other bytes is no difference."""
    for path in mirrored.records.glob("*.zst"):
        os.utime(path)
    assert not mirrored.verify(mirrored.records).findings


def test_excluded_kinds_are_not_missed(tmp_path: Path) -> None:
    """A sidecar left out on purpose is no finding."""
    records = tmp_path / "records"
    records.mkdir()
    write_corpus(records, profile="tiny", count=3, seed=1)
    with RecordMirror(tmp_path / "mirror", exclude=["tokens"]) as mirror:
        mirror.scan(records)
        assert mirror.flush(30)
    found = verify(tmp_path / "mirror", [records], grace_s=0)
    assert (found.files, found.findings) == (3, [])


def test_verifying_changes_nothing(mirrored: Mirrored) -> None:
    """Not the mirror, not the records, not the receipts beside them."""

    def everything() -> dict[str, tuple[int, int]]:
        files = [*mirrored.mirror.rglob("*"), *mirrored.records.rglob("*")]
        return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    mirrored.document(0).unlink()
    before = everything()
    mirrored.verify(mirrored.records, level=EVERYTHING)
    assert everything() == before


def test_a_record_that_is_copied_meanwhile_is_no_finding(mirrored: Mirrored) -> None:
    """Its files may land before its receipt: what has no receipt is looked at again before it is reported."""
    newcomer = write_corpus(mirrored.records, profile="tiny", count=1, seed=5, prefix="new_")[0]
    shutil.copytree(mirrored.mirror / "_receipts", mirrored.mirror.parent / "kept")
    mirrored.copy()
    late_receipts = mirrored.mirror.parent / "late"
    shutil.move(mirrored.mirror / "_receipts", late_receipts)
    shutil.move(mirrored.mirror.parent / "kept", mirrored.mirror / "_receipts")
    assert set(kinds(mirrored.verify())) == {f"{newcomer}.json.zst", f"{newcomer}.tokens.zst"}

    def arrive() -> None:
        shutil.copytree(late_receipts, mirrored.mirror / "_receipts", dirs_exist_ok=True)

    timer = threading.Timer(0.3, arrive)
    timer.start()
    found = verify(mirrored.mirror, grace_s=1.5)
    timer.join()
    assert (found.records, found.files, found.findings) == (31, 62, [])


def test_a_record_that_is_written_again_meanwhile_is_no_finding(mirrored: Mirrored) -> None:
    """Its newer files may land before their receipt: what the receipt explains is looked at again first."""
    rewritten = min(mirrored.records.glob("*.json.zst")).name.removesuffix(".json.zst")
    write_files(mirrored.records, rewritten, b"a newer document", tokens=b"newer tokens")
    shutil.copytree(mirrored.mirror / "_receipts", mirrored.mirror.parent / "kept")
    mirrored.copy()
    late_receipts = mirrored.mirror.parent / "late"
    shutil.move(mirrored.mirror / "_receipts", late_receipts)
    shutil.move(mirrored.mirror.parent / "kept", mirrored.mirror / "_receipts")
    assert len(mirrored.verify().findings) == 2
    arrival = threading.Timer(
        0.3, lambda: shutil.copytree(late_receipts, mirrored.mirror / "_receipts", dirs_exist_ok=True)
    )
    arrival.start()
    found = verify(mirrored.mirror, grace_s=1.5)
    arrival.join()
    assert (found.files, found.findings) == (60, [])


def test_objects_that_are_no_record_files_are_left_out(mirrored: Mirrored) -> None:
    """A mirror may share its prefix with other things."""
    (mirrored.mirror / "README.txt").write_text("hello")
    (mirrored.mirror / "index" / "train").mkdir(parents=True)
    (mirrored.mirror / "index" / "train" / "step-1.json").write_text("{}")
    found = mirrored.verify()
    assert (found.foreign, found.findings) == (1, [])


@pytest.fixture
def on_s3(tmp_path: Path, seaweed: SeaweedS3, s3_bucket: str, s3_proxy: FaultProxy) -> Callable[..., Verification]:
    """A mirror of 20 records in a bucket behind a proxy; gives a function that verifies it."""
    records = tmp_path / "records"
    records.mkdir()
    write_corpus(records, profile="tiny", count=20, seed=1)
    options = seaweed.storage_options(url=s3_proxy.url)
    config = MirrorConfig(storage_options=options, attempts=2, backoff_s=0.01)
    url = f"s3://{s3_bucket}/run"
    with RecordMirror(url, config) as mirror:
        mirror.scan(records)
        assert mirror.flush(30)
    s3_proxy.clear()

    def run(level: VerifyLevel | None = None) -> Verification:
        return verify(url, config=config, level=level, grace_s=0)

    return run


@pytest.mark.integration
def test_by_listing_costs_no_request_a_file(on_s3: Callable[..., Verification], s3_proxy: FaultProxy) -> None:
    """One LIST for a thousand objects, and the receipts: no HEAD."""
    assert on_s3().present == 40
    assert s3_proxy.counts["HEAD"] == 0
    assert s3_proxy.counts["GET"] <= 4


@pytest.mark.integration
def test_what_could_not_be_checked_is_not_missing(on_s3: Callable[..., Verification], s3_proxy: FaultProxy) -> None:
    """A server that fails on some objects leaves those unchecked, and the others are judged."""
    s3_proxy.script(
        Fault(match=requests_to("GET", "a.json.zst"), action=Answer(s3_error(500, "InternalError")), times=99)
    )
    s3_proxy.script(
        Fault(match=requests_to("GET", "b.json.zst"), action=Answer(s3_error(500, "InternalError")), times=99)
    )
    found = on_s3(EVERYTHING)
    assert set(kinds(found).values()) == {FindingKind.UNCHECKED}
    assert found.damage == 0
    assert found.intact + found.unchecked == 40


@pytest.mark.integration
def test_a_listing_that_fails_is_an_error_and_no_finding(
    on_s3: Callable[..., Verification], s3_proxy: FaultProxy
) -> None:
    """Nothing is known then, and nothing is claimed."""
    s3_proxy.script(Fault(match=requests_to("GET", "list-type=2"), action=Answer(s3_error(503, "SlowDown")), times=99))
    with pytest.raises(StoreError):
        on_s3()


@pytest.mark.integration
def test_a_byte_flipped_on_the_way_back_is_found(on_s3: Callable[..., Verification], s3_proxy: FaultProxy) -> None:
    """What was read is what is judged."""
    s3_proxy.script(Fault(match=requests_to("GET", ".json.zst"), action=FlipReplyBit(), times=1))
    assert [finding.kind for finding in on_s3(EVERYTHING).findings] == [FindingKind.CHANGED]


@pytest.mark.integration
def test_a_store_that_keeps_no_hash_leaves_everything_unchecked(on_s3: Callable[..., Verification]) -> None:
    """Asked for its hash and answering none, it has proved nothing."""
    found = on_s3(VerifyLevel(ask_store=True))
    assert (found.intact, found.unchecked, found.damage) == (0, 40, 0)


class Unordered(MemoryStore):
    """Lists in no order, as buckets for single zones do."""

    async def list_pages(self, prefix: str = "", *, after: str = "") -> AsyncIterator[list[ObjectInfo]]:
        pages = [page async for page in super().list_pages(prefix, after=after)]
        for page in reversed(pages):
            yield page[::-1]


@pytest.mark.parametrize("level", [VerifyLevel(), EVERYTHING])
def test_a_store_that_lists_in_no_order_is_verified_all_the_same(tmp_path: Path, level: VerifyLevel) -> None:
    """Each file is counted and judged once, and what is really missing is the only finding."""
    ids = write_corpus(tmp_path, profile="tiny", count=20, seed=1)
    memory = Unordered(page_size=7)
    with mirror_on(memory) as mirror:
        mirror.scan(tmp_path)
        assert mirror.flush(30)
    del memory.objects[f"{ids[3]}.tokens.zst"]

    async def check() -> Verification:
        policy = RetryPolicy(attempts=1, backoff_s=0, timeout_s=30)
        store = ReliableStore(memory, policy, limiter=Limiter(4), breaker=Breaker("memory"))
        return await Verifier(store, Manifest(), level, MirrorConfig(workers=4)).run(grace_s=0)

    found = run_in_loop(check())
    assert kinds(found) == {f"{ids[3]}.tokens.zst": FindingKind.MISSING}
    assert (found.files, found.present + found.intact) == (40, 39)
    assert found.intact == (39 if level is EVERYTHING else 0)
