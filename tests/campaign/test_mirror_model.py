"""Two mirrors on one directory and one prefix against a simple model, in any order of what servers and stores do."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import xxhash
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mirror import RecordMirror
from mirror.errors import (
    AccessDeniedError,
    FileRefusedError,
    StoreError,
    StoreRefusedError,
    ThrottledError,
    TryAgainError,
)
from mirror.names import KNOWN_KINDS, document_name, parse_name, sidecar_name
from mirror.testing.stores import FaultyStore, FlipBit, Raise, StoreFault, StoreThenRaise
from tests.campaign.shared_bucket import SharedBucket
from tests.mirror.forks import exit_of_child
from tests.mirror.local_records import write_files
from tests.mirror.mirrors_in_memory import assert_books_balance, is_put, is_record, mirror_on, on_disk, receipts_in

WAIT_S = 30.0  # far more than a healthy store in memory takes
MAX_FORKS = 2  # an example, of a process that is not small
IDS = st.sampled_from(["tr_a", "tr_b", "tr_c", "tr_d"])
CONTENTS = st.tuples(st.integers(1, 3), st.integers(1, 3))  # what is in the document, and in the sidecars
WHICH = st.sampled_from([0, 1])
KINDS = st.sets(st.sampled_from(["tokens", "experts", "novel"]), max_size=3)
PASSING = (
    TryAgainError("put", "k", "reset"),
    ThrottledError("put", "k", "SlowDown"),
    TryAgainError("put", "k", "later", retry_after_s=0.001),
)


class TwoMirrors(RuleBasedStateMachine):
    """The model is the directory itself: what is on disk when all is healthy again is what the mirror must hold."""

    def __init__(self) -> None:
        super().__init__()
        self._scratch = tempfile.TemporaryDirectory(prefix="mirror-model-")
        self.records = Path(self._scratch.name, "records")
        self.records.mkdir()
        self.bucket = SharedBucket(Path(self._scratch.name, "bucket"))
        self.store = FaultyStore(self.bucket)
        self.mirrors: list[RecordMirror | None] = [None, None]
        self.kinds: dict[str, set[str]] = {}  # that each record has on disk
        self.options: dict[str, Any] = {}
        self.first: dict[str, set[str]] = {}  # the kinds that each record has had from its first writing on
        self.outages = self.forks = 0

    @initialize(
        exclude=st.sampled_from([(), ("experts",)]),
        queue_size=st.sampled_from([1, 100]),
        workers=st.sampled_from([1, 8]),
        held=st.sampled_from([3, 1 << 20]),
    )
    def settle_on(self, exclude: tuple[str, ...], queue_size: int, workers: int, held: int) -> None:
        """Whatever the settings are, they are one for both."""
        self.options = {
            "exclude": exclude,
            "queue_size": queue_size,
            "workers": workers,
            "max_bytes_in_flight": held,
            "attempts": 2,
        }

    @rule(record_id=IDS, kinds=KINDS, content=CONTENTS, which=WHICH, hand_over=st.booleans())
    def write(self, record_id: str, kinds: set[str], content: tuple[int, int], which: int, hand_over: bool) -> None:  # noqa: FBT001 - drawn
        """A server writes a record, or writes it again, be it what was there before, and mostly hands it over."""
        self._note(record_id, kinds)
        document, sidecar = b"document %d" % content[0], b"sidecar %d" % content[1]
        write_files(self.records, record_id, document, **dict.fromkeys(sorted(self.kinds[record_id]), sidecar))
        if hand_over:
            self.submit(record_id, which)

    @rule(record_id=IDS, which=WHICH)
    def submit(self, record_id: str, which: int) -> None:
        """It hands a record over, perhaps once more, perhaps to a mirror that is closed."""
        if record_id in self.kinds:
            self._mirror(which).submit(self.records, record_id)

    @rule(record_id=IDS)
    def touch(self, record_id: str) -> None:
        """Somebody touches a document."""
        if record_id in self.kinds:
            os.utime(self.records / document_name(record_id))

    @rule(which=WHICH)
    def scan(self, which: int) -> None:
        """A mirror is told to look; a refusing store must not make that wait for ever, so only a healthy one."""
        if not self.store.remaining:
            self._mirror(which).scan(self.records)

    @rule(error=st.sampled_from(PASSING), times=st.integers(1, 3), acts=st.booleans())
    def trouble(self, error: StoreError, times: int, acts: bool) -> None:  # noqa: FBT001 - drawn
        """The store fails for a while, or does what it was asked and says that it failed."""
        action = StoreThenRaise(error=error) if acts else Raise(error=error)
        self.store.add(StoreFault(action=action, match=is_put, times=times))

    @rule()
    def flip(self) -> None:
        """A bit is flipped on the wire."""
        self.store.add(StoreFault(action=FlipBit(), match=is_record))

    @rule(record_id=IDS, denied=st.booleans())
    def refuse(self, record_id: str, denied: bool) -> None:  # noqa: FBT001 - drawn
        """The store refuses one document for good: its record is given up until it is written again or looked for."""
        error = AccessDeniedError("put", record_id, "no") if denied else FileRefusedError("put", record_id, "no")
        name = document_name(record_id)
        self.store.add(StoreFault(action=Raise(error=error), match=lambda _operation, key: key == name))

    @precondition(lambda self: self.outages < 1)  # each costs the breaker's first pause
    @rule()
    def outage(self) -> None:
        """The store refuses everything until it is healed, which opens the breaker."""
        self.outages += 1
        error = StoreRefusedError("put", "", "NoSuchBucket")
        self.store.add(StoreFault(action=Raise(error=error), match=is_put, times=3))

    @rule()
    def heal(self) -> None:
        """All is well again."""
        self.store.heal()

    @rule(which=WHICH)
    def flush(self, which: int) -> None:
        """All is well, and what was handed over to a mirror is in the store, with a receipt, unless it was given up."""
        self.store.heal()
        mirror = self._mirror(which)
        assert mirror.flush(WAIT_S), mirror.stats()
        stats = mirror.stats()
        assert (stats["pending"], stats["late"]) == (0, 0)

    @precondition(lambda self: self.forks < MAX_FORKS)
    @rule(
        record_id=IDS,
        kinds=KINDS,
        content=CONTENTS,
        which=WHICH,
        ends=st.sampled_from(["drained", "hurried", "killed"]),
    )
    def fork(self, record_id: str, kinds: set[str], content: tuple[int, int], which: int, ends: str) -> None:
        """A server forks, whatever is under way; the child writes a record and hands it over, then ends in some way.

        It works in whatever weather there is, but for one that drains. The parent goes on as if nothing had happened.
        """
        self.forks += 1
        mirror, other = self._mirror(which), self.mirrors[1 - which]
        before = mirror.stats()["submitted"]

        def live() -> bool:
            assert mirror.stats()["submitted"] == 0
            self.write(record_id, kinds, content, which=which, hand_over=True)
            if ends == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if ends == "drained":
                self.store.heal()
                mirror.scan(self.records)
                assert mirror.flush(WAIT_S), mirror.stats()
                assert mirror.close(WAIT_S), mirror.stats()
            else:
                mirror.close(0.05)
            assert other is None or other.close(0)
            assert_books_balance(mirror)
            return True

        assert exit_of_child(live) == (-signal.SIGKILL if ends == "killed" else 0)
        self.bucket.catch_up()
        self._note(record_id, kinds)  # as the child did
        assert mirror.stats()["submitted"] >= before

    @rule(which=WHICH, timeout_s=st.sampled_from([0.0, 0.05]))
    def close(self, which: int, timeout_s: float) -> None:
        """A server ends, in a hurry; another takes its place later."""
        mirror = self.mirrors[which]
        if mirror is not None:
            is_complete = mirror.close(timeout_s)
            stats = mirror.stats()
            assert not is_complete or (stats["late"], stats["pending"]) == (0, 0)
            assert stats["pending"] == 0
            self.mirrors[which] = None

    @invariant()
    def books_balance(self) -> None:
        """At any moment."""
        for mirror in self.mirrors:
            if mirror is not None:
                assert_books_balance(mirror)

    @invariant()
    def no_document_without_its_sidecars(self) -> None:
        """Nor was there any before: each document's write comes after one of each of its sidecars.

        A kind that the mirror sees for the first time may follow a moment later.
        """
        there: set[str] = set()
        for key in [put.key for put in self.bucket.written]:
            parsed = parse_name(key) if "/" not in key else None
            if parsed is not None and parsed.kind is None:
                kinds = self.first[parsed.record_id] & KNOWN_KINDS - set(self.options["exclude"])
                first = {sidecar_name(parsed.record_id, kind) for kind in kinds}
                assert first <= there, f"{key} came before {first - there}"
            there.add(key)

    def teardown(self) -> None:
        """Everything restarted, healthy: all that is on disk is in the mirror, and a second look sends nothing."""
        try:
            self._end()
        finally:
            for mirror in self.mirrors:
                if mirror is not None:
                    with contextlib.suppress(Exception):
                        mirror.close(0)
            self._scratch.cleanup()

    def _end(self) -> None:
        self.store.heal()
        for which in (0, 1):
            self.close(which, WAIT_S)
        puts_before = 0
        for _ in range(2):
            puts_before = len(self.bucket.written)
            with mirror_on(self.store, **self.options) as mirror:
                mirror.scan(self.records)
                assert mirror.flush(WAIT_S), mirror.stats()
                stats = mirror.stats()
                assert (stats["failed"], stats["lost"]) == (0, 0)
                assert mirror.close(WAIT_S)
        assert [put.key for put in self.bucket.written[puts_before:] if "_receipts/" not in put.key] == []
        excluded = {f".{kind}.zst" for kind in self.options.get("exclude", ())}
        wanted = {
            name: data for name, data in on_disk(self.records).items() if not name.endswith(tuple(excluded) or "\0")
        }
        assert self.bucket.records == wanted
        receipts = receipts_in(self.bucket)
        assert receipts.keys() == self.kinds.keys()
        latest = {put.key: put for put in self.bucket.written}
        for receipt in receipts.values():
            for file in receipt.files:
                assert file.xxh3_128 == xxhash.xxh3_128_hexdigest(wanted[file.name])
                assert file.etag == latest[file.name].stored.etag

    def _note(self, record_id: str, kinds: set[str]) -> None:
        """Enter into the model that a record is written."""
        self.kinds[record_id] = kinds | self.kinds.get(record_id, set())  # nobody takes a sidecar away
        self.first.setdefault(record_id, self.kinds[record_id])

    def _mirror(self, which: int) -> RecordMirror:
        mirror = self.mirrors[which]
        if mirror is None:
            mirror = self.mirrors[which] = mirror_on(self.store, **self.options)
            mirror.start()
        return mirror


TestTwoMirrors = TwoMirrors.TestCase
TestTwoMirrors.settings = settings(
    max_examples=25, stateful_step_count=16, deadline=None, suppress_health_check=list(HealthCheck)
)
