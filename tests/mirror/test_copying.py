"""A record arrives byte for byte, sidecars before the document, as one generation; what is there is not sent again."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from mirror.allowance import Allowance
from mirror.copying import MAX_ROUNDS, Copied, Copier, copy_record
from mirror.errors import (
    BadNameError,
    FileRefusedError,
    RecordChangedError,
    RecordError,
    RecordGoneError,
    StoreError,
    TryAgainError,
)
from mirror.names import KNOWN_KINDS
from mirror.receipts.receipt import Receipt
from mirror.store import PART_BYTES, WHOLE_BYTES, Data, Stored
from mirror.testing.faults import requests_to
from mirror.testing.stores import FaultyStore, MemoryStore, Raise, Stall, StoreFault
from tests.mirror.fake_clock import settled
from tests.mirror.local_records import replace_file, state_of, write_files
from tests.mirror.mirrors_in_memory import AtOnce, NobodyElses

DOWN = TryAgainError("put", "k", "connection refused")
REFUSED = FileRefusedError("put", "k", "EntityTooLarge")


@dataclass
class Bench:
    """A copier over a bucket in memory whose faults a test writes down."""

    exclude: frozenset[str] = frozenset()
    in_flight: int = 1 << 30
    memory: MemoryStore = field(default_factory=MemoryStore)
    now: float = 1_000.0

    def __post_init__(self) -> None:
        """Put it together."""
        self.faulty = FaultyStore(self.memory)
        self.allowance = Allowance(self.in_flight)

    async def copy(
        self,
        records: Path,
        record_id: str = "tr_a",
        *,
        previous: Receipt | None = None,
        kinds: Collection[str] = KNOWN_KINDS,
    ) -> Copied:
        copier = Copier(
            store=AtOnce(self.faulty),
            in_flight=self.allowance,
            exclude=self.exclude,
            writer="w",
            host="10.0.0.5",
            clock=lambda: self.now,
        )
        return await copy_record(copier, records, record_id, kinds=kinds, receipts=NobodyElses(previous))

    def copied(self, records: Path, record_id: str = "tr_a", *, previous: Receipt | None = None) -> Copied:
        return asyncio.run(self.copy(records, record_id, previous=previous))


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(bounded())


def on_disk(records: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in records.iterdir() if path.suffix == ".zst"}


def test_a_record_arrives_byte_for_byte_and_its_receipt_proves_it(tmp_path: Path) -> None:
    """Every file is one write of the very bytes on disk; the receipt has their hash, size and the store's identity."""
    names = write_files(tmp_path, "tr_a", b"\x00doc\xff" * 1000, experts=b"e" * 5000, tokens=b"t")
    bench = Bench(memory=MemoryStore(is_versioned=True))
    copied = bench.copied(tmp_path)
    assert bench.memory.objects == on_disk(tmp_path)
    assert sorted(bench.memory.keys_put) == sorted(names)
    stored = {put.key: put.stored for put in bench.memory.puts}
    receipt = copied.receipt
    assert [file.name for file in receipt.files] == ["tr_a.experts.zst", "tr_a.tokens.zst", "tr_a.json.zst"]
    for file in receipt.files:
        data, state = (tmp_path / file.name).read_bytes(), state_of(tmp_path / file.name)
        assert (file.size, file.xxh3_128) == (len(data), xxhash.xxh3_128_hexdigest(data))
        assert (file.etag, file.version_id) == (stored[file.name].etag, stored[file.name].version_id)
        assert (file.ctime_ns, file.inode) == (state.ctime_ns, state.inode)
    assert (receipt.id, receipt.at, receipt.writer, receipt.host) == ("tr_a", 1_000.0, "w", "10.0.0.5")
    assert receipt.path == str(tmp_path / "tr_a.json.zst")
    assert (copied.sent_files, copied.sent_bytes) == (3, sum(file.size for file in receipt.files))


def test_sidecars_go_together_and_the_document_last(tmp_path: Path) -> None:
    """The document is not sent before every sidecar was acknowledged."""

    async def scenario() -> None:
        write_files(tmp_path, "tr_a", experts=b"e", tokens=b"t", sampling_mask=b"s")
        bench = Bench()
        stalls = {kind: Stall() for kind in ("experts", "tokens", "sampling_mask")}
        bench.faulty.add(*(StoreFault(action=stall, match=requests_to("put", kind)) for kind, stall in stalls.items()))
        copying = asyncio.create_task(bench.copy(tmp_path))
        for stall in stalls.values():
            await stall.reached.awaited()
        for stall in list(stalls.values())[:2]:
            stall.released.happen()
        await settled()
        assert len(bench.memory.puts) == 2
        assert "tr_a.json.zst" not in [call.key for call in bench.memory.calls]
        stalls["sampling_mask"].released.happen()
        await copying
        assert bench.memory.keys_put[-1] == "tr_a.json.zst"

    run(scenario)


@pytest.mark.parametrize("error", [DOWN, REFUSED])
def test_without_a_sidecar_there_is_no_document(tmp_path: Path, error: StoreError) -> None:
    """If one sidecar fails the others are given up, and no reader sees a document that lacks one."""

    async def scenario() -> None:
        write_files(tmp_path, "tr_a", experts=b"e", tokens=b"t")
        bench = Bench()
        stall = Stall()
        bench.faulty.add(
            StoreFault(action=stall, match=requests_to("put", "tokens")),
            StoreFault(action=Raise(error=error), match=requests_to("put", "experts")),
        )
        with pytest.raises(type(error)):
            await bench.copy(tmp_path)
        assert stall.cancelled.happened or not stall.reached.happened
        assert bench.memory.objects == {}
        assert bench.allowance.used == 0

    run(scenario)


def test_what_a_receipt_proves_is_not_sent_again(tmp_path: Path) -> None:
    """The same bytes under the same names cost no write; the receipt still says what the store answered then."""
    write_files(tmp_path, "tr_a", b"doc", experts=b"e", tokens=b"t")
    bench = Bench(memory=MemoryStore(is_versioned=True))
    first = bench.copied(tmp_path)
    again = bench.copied(tmp_path, previous=first.receipt)
    assert (again.sent_files, again.sent_bytes) == (0, 0)
    assert again.receipt.files == first.receipt.files
    assert len(bench.memory.puts) == 3


def test_touching_a_file_copies_nothing(tmp_path: Path) -> None:
    """Another change time with the same bytes is read once, not sent; the receipt remembers the new state."""
    write_files(tmp_path, "tr_a", b"doc", tokens=b"t")
    bench = Bench()
    first = bench.copied(tmp_path)
    replace_file(tmp_path / "tr_a.json.zst", b"doc")
    os.utime(tmp_path / "tr_a.tokens.zst")
    again = bench.copied(tmp_path, previous=first.receipt)
    assert again.sent_files == 0
    assert len(bench.memory.puts) == 2
    assert again.receipt.files[-1].inode == state_of(tmp_path / "tr_a.json.zst").inode


def test_a_record_written_again_sends_what_changed(tmp_path: Path) -> None:
    """Only other bytes are sent, also where the size is the same."""
    write_files(tmp_path, "tr_a", b"open", experts=b"same", tokens=b"one")
    bench = Bench()
    first = bench.copied(tmp_path)
    write_files(tmp_path, "tr_a", b"done", experts=b"same", tokens=b"two")
    again = bench.copied(tmp_path, previous=first.receipt)
    assert again.sent_files == 2
    assert bench.memory.objects == on_disk(tmp_path)


def test_a_sidecar_that_is_gone_leaves_the_receipt(tmp_path: Path) -> None:
    """A newer generation without a sidecar is receipted without it."""
    write_files(tmp_path, "tr_a", b"open", tokens=b"one")
    bench = Bench()
    first = bench.copied(tmp_path)
    (tmp_path / "tr_a.tokens.zst").unlink()
    replace_file(tmp_path / "tr_a.json.zst", b"done")
    assert [file.name for file in bench.copied(tmp_path, previous=first.receipt).receipt.files] == ["tr_a.json.zst"]


def test_the_newest_receipt_stays_the_newest_when_a_clock_goes_back(tmp_path: Path) -> None:
    """A receipt is later than the one before it, whatever the clock says."""
    write_files(tmp_path, "tr_a", b"one")
    bench = Bench(now=5_000.0)
    first = bench.copied(tmp_path).receipt
    replace_file(tmp_path / "tr_a.json.zst", b"two")
    bench.now = 4_000.0
    second = bench.copied(tmp_path, previous=first).receipt
    assert first.at < second.at < first.at + 1
    bench.now = 6_000.0
    assert bench.copied(tmp_path, previous=second).receipt.at == 6_000.0


def test_excluded_kinds_are_left_out_and_the_document_is_unchanged(tmp_path: Path) -> None:
    """What is excluded is neither read nor sent; the receipt says so; taking it in later sends it alone."""
    write_files(tmp_path, "tr_a", b"doc", experts=b"e", tokens=b"t")
    bench = Bench(exclude=frozenset({"experts"}))
    first = bench.copied(tmp_path).receipt
    assert sorted(bench.memory.objects) == ["tr_a.json.zst", "tr_a.tokens.zst"]
    assert bench.memory.objects["tr_a.json.zst"] == b"doc"
    assert first.excluded == ("experts",)
    bench.exclude = frozenset()
    again = bench.copied(tmp_path, previous=first)
    assert again.sent_files == 1
    assert again.receipt.excluded == ()
    assert bench.memory.keys_put[-1] == "tr_a.experts.zst"


def test_unknown_kinds_are_copied(tmp_path: Path) -> None:
    """Whatever sidecar a record has goes along."""
    write_files(tmp_path, "tr_a", b"doc", brand_new=b"n")
    bench = Bench()
    asyncio.run(bench.copy(tmp_path, kinds=KNOWN_KINDS | {"brand_new"}))
    assert bench.memory.objects == on_disk(tmp_path)


def test_empty_files_are_copied(tmp_path: Path) -> None:
    """Nothing is also something."""
    write_files(tmp_path, "tr_a", b"", tokens=b"")
    bench = Bench()
    receipt = bench.copied(tmp_path).receipt
    assert bench.memory.objects == {"tr_a.json.zst": b"", "tr_a.tokens.zst": b""}
    assert [file.size for file in receipt.files] == [0, 0]


@pytest.mark.parametrize("record_id", ["tr #?%+ space ü [x]:y **", "中" * 70, "a.b.c", "~", "-rf"])
def test_odd_names_arrive_as_they_are(tmp_path: Path, record_id: str) -> None:
    """A name that the mirror takes is the object's name, byte for byte."""
    write_files(tmp_path, record_id, b"doc", tokens=b"t")
    bench = Bench()
    bench.copied(tmp_path, record_id)
    assert bench.memory.objects == on_disk(tmp_path)


@pytest.mark.parametrize(
    "record_id", ["a\nb", "a\\b", "a\x1b[31m", "a\udcff", "../a", "sub/a", ".hidden", "a\0b", "x" * 300]
)
def test_a_refused_name_is_named_before_anything_is_sent(tmp_path: Path, record_id: str) -> None:
    """What would leave the directory, hide or break a line is refused, whether or not there is such a file."""
    with contextlib.suppress(OSError, ValueError):
        write_files(tmp_path, record_id, b"doc", tokens=b"t")
    bench = Bench()
    with pytest.raises(BadNameError, match="is refused") as caught:
        bench.copied(tmp_path, record_id)
    assert str(caught.value).isprintable()
    assert bench.memory.calls == []


def test_a_record_that_is_not_there_is_gone(tmp_path: Path) -> None:
    """Sidecars without a document are no record."""
    (tmp_path / "tr_a.tokens.zst").write_bytes(b"t")
    bench = Bench()
    with pytest.raises(RecordGoneError):
        bench.copied(tmp_path)
    assert bench.memory.calls == []


def test_links_and_pipes_are_no_sidecars_and_no_documents(tmp_path: Path) -> None:
    """What a link points at is never read, and nobody waits for a pipe's writer."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    write_files(tmp_path, "tr_a", b"doc")
    (tmp_path / "tr_a.tokens.zst").symlink_to(secret)
    os.mkfifo(tmp_path / "tr_a.experts.zst")
    (tmp_path / "tr_a.sampling_mask.zst").mkdir()
    (tmp_path / "tr_b.json.zst").symlink_to(secret)
    bench = Bench()
    bench.copied(tmp_path)
    assert bench.memory.objects == {"tr_a.json.zst": b"doc"}
    with pytest.raises(RecordGoneError):
        bench.copied(tmp_path, "tr_b")


@pytest.mark.parametrize("becomes", ["link", "pipe", "directory", "nothing"])
def test_a_file_that_is_exchanged_before_its_turn_is_not_sent(tmp_path: Path, becomes: str) -> None:
    """Between the first look and the reading anything may take a file's place: none of it gets into the mirror."""

    async def scenario() -> None:
        write_files(tmp_path, "tr_a", b"doc", experts=b"e", tokens=b"t")
        secret = tmp_path / "secret"
        secret.write_bytes(b"t")
        bench = Bench(in_flight=1)
        stall = Stall()
        bench.faulty.add(StoreFault(action=stall, match=requests_to("put", "experts")))
        copying = asyncio.create_task(bench.copy(tmp_path))
        await stall.reached.awaited()  # and `tokens` waits for room
        tokens = tmp_path / "tr_a.tokens.zst"
        tokens.unlink()
        if becomes == "link":
            tokens.symlink_to(secret)
        elif becomes == "pipe":
            os.mkfifo(tokens)
        elif becomes == "directory":
            tokens.mkdir()
        stall.released.happen()
        with contextlib.suppress(RecordError, OSError):
            await copying
        assert "tr_a.tokens.zst" not in bench.memory.objects

    run(scenario)


def write(records: Path, generation: dict[str, bytes]) -> None:
    """Write a record whose document is under ``document``."""
    sidecars = {kind: data for kind, data in generation.items() if kind != "document"}
    write_files(records, "tr_a", generation["document"], **sidecars)


def rewriting(bench: Bench, records: Path, key: str, *generations: dict[str, bytes]) -> None:
    """Have the record written again in the moment in which ``key`` reaches the store: one generation each time."""
    to_come = list(generations)

    def match(operation: str, asked: str) -> bool:
        if operation == "put" and asked == key and to_come:
            write(records, to_come.pop(0))
        return False

    bench.faulty.add(StoreFault(action=Raise(error=DOWN), match=match))


@pytest.mark.parametrize("key", ["tr_a.tokens.zst", "tr_a.experts.zst", "tr_a.json.zst"])
def test_a_record_rewritten_during_its_copy_ends_as_one_generation(tmp_path: Path, key: str) -> None:
    """Whenever the newer bytes come, mirror and receipt end with all of them, the document after its sidecars."""
    write_files(tmp_path, "tr_a", b"doc 1", experts=b"experts 1", tokens=b"tokens 1")
    bench = Bench()
    rewriting(bench, tmp_path, key, {"document": b"doc 2", "experts": b"experts 2", "tokens": b"tokens 2"})
    receipt = bench.copied(tmp_path).receipt
    assert bench.memory.objects == on_disk(tmp_path)
    for file in receipt.files:
        assert file.xxh3_128 == xxhash.xxh3_128_hexdigest(bench.memory.objects[file.name])
        assert file.inode == state_of(tmp_path / file.name).inode
    order = [put.data for put in bench.memory.puts]
    assert order.index(b"doc 2") > max(order.index(b"tokens 2"), order.index(b"experts 2"))


def test_a_newer_document_waits_for_its_own_sidecars(tmp_path: Path) -> None:
    """A record that is written again while its document waits for room is sent anew, sidecars first."""

    async def scenario() -> None:
        write_files(tmp_path, "tr_a", b"doc 1", tokens=b"tokens 1")
        bench = Bench(in_flight=1)
        stall, release = Stall(), asyncio.Event()
        bench.faulty.add(StoreFault(action=stall, match=requests_to("put", "tokens")))

        async def hold() -> None:
            async with bench.allowance.take(1):
                await release.wait()

        copying = asyncio.create_task(bench.copy(tmp_path))
        await stall.reached.awaited()
        holding = asyncio.create_task(hold())  # gets its turn between the sidecar and the document
        await settled()
        stall.released.happen()
        await settled()
        assert bench.memory.keys_put == ["tr_a.tokens.zst"]
        write_files(tmp_path, "tr_a", b"doc 2", tokens=b"tokens 2")
        release.set()
        await asyncio.gather(copying, holding)
        assert [put.data for put in bench.memory.puts] == [b"tokens 1", b"tokens 2", b"doc 2"]

    run(scenario)


def test_a_record_that_gains_a_sidecar_during_its_copy_has_it(tmp_path: Path) -> None:
    """A newer generation may have more files."""
    write_files(tmp_path, "tr_a", b"doc 1")
    bench = Bench()
    rewriting(bench, tmp_path, "tr_a.json.zst", {"document": b"doc 2", "tokens": b"tokens 2"})
    receipt = bench.copied(tmp_path).receipt
    assert [file.name for file in receipt.files] == ["tr_a.tokens.zst", "tr_a.json.zst"]
    assert bench.memory.objects == on_disk(tmp_path)


def test_a_record_that_never_rests_is_left_for_later(tmp_path: Path) -> None:
    """After a few rounds another record gets its turn; nothing is receipted."""
    write_files(tmp_path, "tr_a", b"doc")
    bench = Bench()
    rewriting(bench, tmp_path, "tr_a.json.zst", *({"document": b"doc %d" % number} for number in range(MAX_ROUNDS)))
    with pytest.raises(RecordChangedError, match="written again and again"):
        bench.copied(tmp_path)


def test_bytes_written_in_place_while_they_are_read_are_sent_again(tmp_path: Path) -> None:
    """A writer that does not rename is followed too: what is receipted is what is on disk in the end."""
    write_files(tmp_path, "tr_a", b"one")
    bench = Bench()
    path = tmp_path / "tr_a.json.zst"
    before = state_of(path)

    def match(operation: str, _: str) -> bool:
        while operation == "put" and state_of(path) == before:  # until the file system's clock has moved on
            path.write_bytes(b"two")
        return False

    bench.faulty.add(StoreFault(action=Raise(error=DOWN), match=match))
    receipt = bench.copied(tmp_path).receipt
    assert bench.memory.objects["tr_a.json.zst"] == b"two"
    assert receipt.files[0].xxh3_128 == xxhash.xxh3_128_hexdigest(b"two")


def test_the_bytes_in_flight_are_bounded(tmp_path: Path) -> None:
    """However many records are copied at once, no more of their contents is held than allowed."""

    async def scenario() -> None:
        for number in range(20):
            write_files(tmp_path, f"tr_{number}", b"d" * 100, tokens=b"t" * 300)
        bench = Bench(in_flight=700)
        most = 0

        class Watching(MemoryStore):
            """Looks at what is held whenever something arrives."""

            async def put(self, key: str, data: Data, xxh3_128: str) -> Stored:
                nonlocal most
                most = max(most, bench.allowance.used)
                return await super().put(key, data, xxh3_128)

        bench.faulty = FaultyStore(Watching())
        await asyncio.gather(*(bench.copy(tmp_path, f"tr_{number}") for number in range(20)))
        assert 300 <= most <= 700
        assert bench.allowance.used == 0

    run(scenario)


def large(path: Path, size_bytes: int, *, last: bytes = b"z") -> None:
    """Write a sparse file with something at its end."""
    with path.open("wb") as file:
        file.seek(size_bytes - 1)
        file.write(last)


def test_a_large_file_goes_in_parts(tmp_path: Path) -> None:
    """What is larger than one request takes is sent part by part, hashed as a whole, and not again when proven."""
    write_files(tmp_path, "tr_a", b"doc")
    size = WHOLE_BYTES + PART_BYTES // 2
    large(tmp_path / "tr_a.experts.zst", size)
    bench = Bench(in_flight=1)
    first = bench.copied(tmp_path)
    put = bench.memory.puts[0]
    assert (put.key, put.parts, len(put.data)) == ("tr_a.experts.zst", 3, size)
    assert hashlib.sha256(put.data).digest() == hashlib.sha256((tmp_path / put.key).read_bytes()).digest()
    file = first.receipt.files[0]
    assert (file.size, file.xxh3_128, file.etag) == (size, xxhash.xxh3_128_hexdigest(put.data), put.stored.etag)
    again = bench.copied(tmp_path, previous=first.receipt)
    assert again.sent_files == 0
    large(tmp_path / "tr_a.experts.zst", size, last=b"y")
    replace_file(tmp_path / "tr_a.json.zst", b"doc")
    assert bench.copied(tmp_path, previous=first.receipt).sent_files == 1
    assert bench.memory.objects["tr_a.experts.zst"].endswith(b"y")


def test_a_large_file_that_shrinks_while_it_is_sent_is_sent_anew(tmp_path: Path) -> None:
    """No object of the older length is left behind a receipt."""
    write_files(tmp_path, "tr_a", b"doc 1")
    large(tmp_path / "tr_a.experts.zst", WHOLE_BYTES + 1)
    bench = Bench()

    def match(operation: str, _: str) -> bool:
        if operation == "put_parts":
            os.truncate(tmp_path / "tr_a.experts.zst", 10)
            replace_file(tmp_path / "tr_a.json.zst", b"doc 2")
        return False

    bench.faulty.add(StoreFault(action=Raise(error=DOWN), match=match))
    receipt = bench.copied(tmp_path).receipt
    assert bench.memory.objects == on_disk(tmp_path)
    assert [file.size for file in receipt.files] == [10, 5]


FILES = st.fixed_dictionaries(
    {"document": st.binary(max_size=4)}, optional={"tokens": st.binary(max_size=4), "experts": st.binary(max_size=4)}
)


@given(
    generations=st.lists(FILES, min_size=1, max_size=4),
    key=st.sampled_from(["tokens", "experts", "json"]),
    excluding=st.booleans(),
)
def test_whatever_is_written_when_the_mirror_ends_with_the_last_generation(
    tmp_path_factory: pytest.TempPathFactory, *, generations: list[dict[str, bytes]], key: str, excluding: bool
) -> None:
    """Any history of a record, any moment of rewriting, one kind left out or not: receipt, mirror and disk agree."""
    records = tmp_path_factory.mktemp("records")
    first, *later = generations
    write(records, first)
    bench = Bench(exclude=frozenset({"experts"}) if excluding else frozenset())
    rewriting(bench, records, f"tr_a.{key}.zst", *later)
    receipt = bench.copied(records).receipt
    wanted = {name: data for name, data in on_disk(records).items() if not (excluding and "experts" in name)}
    assert {file.name for file in receipt.files} == set(wanted)
    for file in receipt.files:
        assert bench.memory.objects[file.name] == wanted[file.name]
        assert file.xxh3_128 == xxhash.xxh3_128_hexdigest(wanted[file.name])
