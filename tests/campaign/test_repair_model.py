"""Receipts, verify and repair against a simple model: whatever is damaged is named, mended from the disk, and no more.

The model knows of each file what its receipt says and what the mirror holds. The mirror is a directory, so that damage
is done as another program would do it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from mirror import EmptyMirrorError, FindingKind, RecordMirror, Verification, VerifyLevel, repair, verify
from mirror.names import document_name, parse_name, sidecar_name
from tests.mirror.local_records import tree, write_files

IDS = st.sampled_from(["tr_a", "tr_b", "tr_c"])
KINDS = st.sets(st.sampled_from(["tokens", "experts"]), max_size=2)
CONTENT = st.binary(min_size=2, max_size=4)
PICK = st.integers(0, 1_000)
EVERYTHING = VerifyLevel(read_back=1.0)
WAIT_S = 30.0


class Damaged(RuleBasedStateMachine):
    """A record directory and its mirror, which anybody may damage."""

    def __init__(self) -> None:
        super().__init__()
        self._scratch = tempfile.TemporaryDirectory(prefix="repair-model-")
        self.records = Path(self._scratch.name) / "records"
        self.mirror = Path(self._scratch.name) / "mirror"
        self.records.mkdir()
        self.disk: dict[str, dict[str, bytes]] = {}  # by record: its files
        self.receipts: dict[str, dict[str, bytes]] = {}  # by record: the bytes that its receipt proves
        self.held: dict[str, bytes] = {}  # by file name, in the mirror
        self.strays: dict[str, bytes] = {}  # likewise, of records that nobody here has written

    @rule(record_id=IDS, kinds=KINDS, content=CONTENT)
    def write(self, record_id: str, kinds: set[str], content: bytes) -> None:
        """A server writes a record, or writes it again with no sidecar less."""
        names = {sidecar_name(record_id, kind) for kind in kinds} | set(self.disk.get(record_id, ()))
        kinds = {str(parsed.kind) for name in names if (parsed := parse_name(name)) and parsed.kind}
        write_files(self.records, record_id, b"doc" + content, **dict.fromkeys(sorted(kinds), content))
        self.disk[record_id] = {name: (self.records / name).read_bytes() for name in _names(record_id, kinds)}

    @rule()
    def copy(self) -> None:
        """A mirror copies what no receipt covers; it looks at no file that one does."""
        with RecordMirror(self.mirror, fsync=False, backoff_s=0.001, host="10.0.0.5") as mirror:
            mirror.scan(self.records)
            assert mirror.close(WAIT_S)
        for record_id, files in self.disk.items():
            known = self.receipts.get(record_id, {})
            self.held.update({name: data for name, data in files.items() if known.get(name) != data})
            self.receipts[record_id] = dict(files)

    @precondition(lambda self: self.held)
    @rule(pick=PICK, how=st.sampled_from(["delete", "flip", "cut", "grow"]))
    def damage(self, pick: int, how: str) -> None:
        """Something happens to a file in the mirror."""
        name = sorted(self.held)[pick % len(self.held)]
        data = self.held[name]
        if how == "delete":
            (self.mirror / name).unlink()
            del self.held[name]
            return
        damaged = {"flip": bytes([data[0] ^ 1]) + data[1:], "cut": data[:-1], "grow": data + b"x"}[how]
        (self.mirror / name).write_bytes(damaged)
        self.held[name] = damaged

    @precondition(lambda self: self.receipts)
    @rule(sidecar=st.booleans())
    def stray(self, sidecar: bool) -> None:  # noqa: FBT001 - drawn
        """Somebody else puts a record's file into the mirror."""
        name = sidecar_name("tr_stray", "tokens") if sidecar else document_name("tr_stray")
        (self.mirror / name).write_bytes(b"stray")
        self.strays[name] = b"stray"

    @precondition(lambda self: self.receipts)
    @rule(at=st.integers(0, 40))
    def tear(self, at: int) -> None:
        """A crash leaves the beginning of a line at the end of a segment: it proves nothing, and spoils nothing."""
        segments = [path for path in sorted(self.mirror.rglob("_receipts/*/*.jsonl")) if path.stat().st_size]
        if segments and segments[-1].read_bytes().endswith(b"\n"):
            with segments[-1].open("ab") as file:
                file.write(segments[-1].read_bytes()[:at])

    @rule(record_id=IDS)
    def touch(self, record_id: str) -> None:
        """A touched file is the same file."""
        if record_id in self.disk:
            os.utime(self.records / document_name(record_id))

    @precondition(lambda self: self.receipts)
    @rule()
    def look(self) -> None:
        """Verify names what is damaged, with its kind, and what was written and not copied; it changes nothing."""
        before = tree(self.mirror), tree(self.records)
        found = verify(self.mirror, [self.records], level=EVERYTHING, grace_s=0)
        assert (tree(self.mirror), tree(self.records)) == before
        wanted = self.damaged() | self.stray_findings()
        named = {finding.name: finding.kind for finding in found.findings}
        assert named.items() >= wanted.items(), (named, wanted)
        behind = {name for record_id in self.disk for name in self.not_copied(record_id)}
        assert behind <= named.keys()
        assert named.keys() <= wanted.keys() | behind
        assert found.unchecked == 0
        assert found.intact == len(self.proven()) - len(self.damaged())

    @precondition(lambda self: self.receipts)
    @rule()
    def listing_tells_no_lies(self) -> None:
        """A look at the listing alone finds what has another size or is gone, and calls nothing intact."""
        found = verify(self.mirror, grace_s=0)
        named = {finding.name: finding.kind for finding in found.findings}
        assert (
            named
            == {name: kind for name, kind in self.damaged().items() if kind is not FindingKind.CHANGED}
            | self.stray_findings()
        )
        assert found.intact == 0

    @precondition(lambda self: self.receipts)
    @rule()
    def mend(self) -> None:
        """Repair puts back what the disk has, exactly that; doing it again does nothing."""
        result = repair(self.mirror, [self.records], level=EVERYTHING, grace_s=0)
        assert not result.failed
        assert {finding.name for finding in result.plan.hopeless} == self.strays.keys()
        for record_id, files in self.disk.items():
            self.held.update(files)
            self.receipts[record_id] = dict(files)
        again = repair(self.mirror, [self.records], level=EVERYTHING, grace_s=0)
        assert (again.restored_files, again.plan.steps) == (0, ())
        self.look()

    def teardown(self) -> None:
        """In the end all is mended, and the mirror is what is on disk."""
        try:
            self.copy()
            if self.receipts:
                self.mend()
                held = {name: data for name, data in tree(self.mirror).items() if not name.startswith("_receipts")}
                assert (
                    held == {name: data for files in self.disk.values() for name, data in files.items()} | self.strays
                )
            else:
                self._refuses_nothing()
        finally:
            self._scratch.cleanup()

    def _refuses_nothing(self) -> None:
        """Where nothing was ever copied there is no mirror."""
        try:
            found: Verification | None = verify(self.mirror, grace_s=0)
        except EmptyMirrorError:
            found = None
        assert found is None

    def proven(self) -> dict[str, bytes]:
        """Return the bytes that receipts prove, by file name."""
        return {name: data for files in self.receipts.values() for name, data in files.items()}

    def damaged(self) -> dict[str, FindingKind]:
        """Return what of them is not so any more."""
        found: dict[str, FindingKind] = {}
        for name, data in self.proven().items():
            held = self.held.get(name)
            if held is None:
                found[name] = FindingKind.MISSING
            elif len(held) != len(data):
                found[name] = FindingKind.WRONG_SIZE
            elif held != data:
                found[name] = FindingKind.CHANGED
        return found

    def stray_findings(self) -> dict[str, FindingKind]:
        """Return what there is to say of files without a receipt."""
        has_document = document_name("tr_stray") in self.strays
        return dict.fromkeys(self.strays, FindingKind.NO_RECEIPT if has_document else FindingKind.NO_DOCUMENT)

    def not_copied(self, record_id: str) -> set[str]:
        """Return a record's files that no receipt proves as they are on disk."""
        known = self.receipts.get(record_id, {})
        return {name for name, data in self.disk[record_id].items() if known.get(name) != data}


def _names(record_id: str, kinds: set[str]) -> list[str]:
    return [*(sidecar_name(record_id, kind) for kind in sorted(kinds)), document_name(record_id)]


TestDamaged = Damaged.TestCase
TestDamaged.settings = settings(
    max_examples=20, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)
