"""The main job in a minute, on this machine alone: sample records, a mirror in a directory, damage, repair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mirror.background import RecordMirror
from mirror.errors import ConfigError, MirrorError
from mirror.judging import FindingKind
from mirror.names import document_name
from mirror.repairing.repair import repair
from mirror.samples import write_corpus
from mirror.terminal.output import format_bytes
from mirror.verify import Verification, VerifyLevel, verify

RECORDS = 40
EVERYTHING = VerifyLevel(read_back=1.0)


class DemoError(MirrorError):
    """The demonstration did not show what it promises."""


def run_demo(directory: Path, say: Callable[[str], object]) -> Verification:
    """Show the main job below ``directory``, which must be empty or absent; returns how the mirror is at its end.

    Raises:
        ConfigError: the directory is neither.
        DemoError: a step did not do what it should.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(f"{directory} is not an empty directory: name one that is, or that does not exist yet")
    records, mirror = directory / "records", directory / "mirror"
    records.mkdir(parents=True)
    ids = write_corpus(records, profile="tokens", count=RECORDS, seed=7)
    names = sorted(path.name for path in records.glob(f"{ids[0]}.*"))
    say(f"wrote {RECORDS} sample records as a capture server does, such as {' + '.join(names)}: {records}")

    with RecordMirror(mirror) as copier:
        for record_id in ids:
            copier.submit(records, record_id)
        if not copier.flush(timeout_s=60):
            raise DemoError(f"the records were not copied in time: {copier.stats()}")
        say(f"copied them in the background, {format_bytes(copier.stats()['bytes'])}, with receipts: {mirror}")

    first = verify(mirror, [records], level=EVERYTHING, grace_s=0)
    count = RECORDS * len(names)
    _expect(first.intact == count and not first.findings, f"a fresh mirror has findings: {first.findings}")
    say(f"verified: {first.intact} of {first.files} files read back, every hash is right")

    damaged = mirror / document_name(ids[0])
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    say(f"flipped one bit of {damaged.name} in the mirror, on purpose")

    found = verify(mirror, level=EVERYTHING, grace_s=0).findings
    _expect(
        [(finding.name, finding.kind) for finding in found] == [(damaged.name, FindingKind.CHANGED)],
        f"the damage was not found: {found}",
    )
    say(f"verify found it: {found[0].kind} {found[0].name}")

    mended = repair(mirror, [records], level=EVERYTHING, grace_s=0)
    _expect(mended.restored_files == 1, f"the repair restored {mended.restored_files} files instead of 1")
    last = verify(mirror, [records], level=EVERYTHING, grace_s=0)
    _expect(last.intact == count and not last.findings, f"damage is left after the repair: {last.findings}")
    say(f"repaired from the records: {mended.restored_files} file sent again, {last.intact} of {last.files} intact")
    return last


def _expect(held: bool, otherwise: str) -> None:  # noqa: FBT001 - an assertion that runs under -O too
    if not held:
        raise DemoError(otherwise)
