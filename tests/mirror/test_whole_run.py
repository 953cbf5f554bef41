"""A run's record directory through the command line, on each kind of store: copied, verified, damaged, repaired."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest

from mirror.samples import ProfileName, write_corpus, write_litter, write_record
from mirror.testing import FakeGcs, FaultProxy, SeaweedS3
from tests.mirror.places import DirectoryPlace, GcsPlace, Place, S3Place, record_files

pytestmark = pytest.mark.integration

RECORDS = 2_000
PROFILES: dict[ProfileName, int] = {"tokens": 120, "moe": 20}  # the rest are text
SMALL = 1_000_000  # bytes; what the libraries that damage objects here write without a warning
ODD_NAMES = ["tr 1+1=2", "tr#?%25", "tr[ü]::*", "tr_\U0001f600"]


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    findings: dict[str, str]  # file name -> kind
    summary: dict[str, Any]


def record_mirror(place: Place, command: str, *arguments: str, via: str | None = None) -> Answer:
    """Run a command as a user does, with JSON lines."""
    environment = {**os.environ, "RECORD_MIRROR_STORAGE_OPTIONS": json.dumps(place.options(via=via))}
    line = [sys.executable, "-m", "references.cli", command, *arguments, "--json"]
    run = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=170, check=False)  # noqa: S603 - our own command
    facts = [json.loads(text) for text in run.stdout.splitlines()]
    assert facts, run.stderr
    assert facts[-1]["type"] == "summary", run.stderr
    findings = {fact["name"]: fact["kind"] for fact in facts if fact["type"] == "finding"}
    return Answer(run.returncode, findings, facts[-1])


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 records of the three profiles, odd names and litter."""
    directory = tmp_path_factory.mktemp("records")
    for profile, count in PROFILES.items():
        write_corpus(directory, profile=profile, count=count, seed=count, prefix=f"tr_{profile}_")
    texts = RECORDS - sum(PROFILES.values()) - len(ODD_NAMES)
    write_corpus(directory, profile="text", count=texts, seed=3)
    for name in ODD_NAMES:
        write_record(directory, name, profile="tiny", rng=random.Random(name))  # noqa: S311 - sample data
    write_litter(directory)
    return directory


@pytest.fixture(params=["directory", "s3", "gcs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Each kind of store."""
    if request.param == "directory":
        return DirectoryPlace(tmp_path / "mirror")
    if request.param == "s3":
        seaweed: SeaweedS3 = request.getfixturevalue("seaweed")
        return S3Place(seaweed, request.getfixturevalue("s3_bucket"))
    fake_gcs: FakeGcs = request.getfixturevalue("fake_gcs")
    return GcsPlace(fake_gcs, request.getfixturevalue("gcs_bucket"))


def damage(place: Place, names: list[str], originals: dict[str, bytes]) -> dict[str, str]:
    """Delete 5 objects, flip a byte of 3, truncate 2; returns what verify has to say."""
    protocol, _, root = place.url.partition("://") if "://" in place.url else ("file", "", place.url)
    store = fsspec.filesystem(protocol, **{**place.options(), "skip_instance_cache": True})
    picked = random.Random(11).sample(names, 10)  # noqa: S311 - which files are damaged is no secret
    for name in picked[:5]:
        store.rm_file(f"{root}/{name}")
    for name in picked[5:8]:
        flipped = bytearray(originals[name])
        flipped[len(flipped) // 2] ^= 0x10
        store.pipe_file(f"{root}/{name}", bytes(flipped))
    for name in picked[8:]:
        store.pipe_file(f"{root}/{name}", originals[name][:-1])
    kinds = ["missing"] * 5 + ["changed"] * 3 + ["wrong_size"] * 2
    return dict(zip(picked, kinds, strict=True))


def test_two_thousand_records(place: Place, records: Path) -> None:
    """Copied once and whole; exactly what was damaged is found, put back, and found no more."""
    originals = record_files(records)
    copied = record_mirror(place, "sync", str(records), place.url)
    assert copied.code == 0
    assert (copied.summary["copied"], copied.summary["failed"]) == (len(originals), 0)
    clean = record_mirror(place, "verify", place.url, str(records), "--download")
    assert (clean.code, clean.findings) == (0, {})

    plain = sorted(
        name for name in originals if name.startswith("tr_") and len(originals[name]) < SMALL and name.isascii()
    )
    damaged = damage(place, plain, originals)
    found = record_mirror(place, "verify", place.url, "--download")
    assert (found.code, found.findings) == (4, damaged)

    mended = record_mirror(place, "repair", place.url, str(records), "--download", "--yes")
    assert (mended.code, mended.summary["copied"]) == (0, 10)
    assert record_mirror(place, "repair", place.url, str(records), "--download", "--yes").summary["copied"] == 0
    last = record_mirror(place, "verify", place.url, str(records), "--download")
    assert (last.code, last.findings) == (0, {})


def test_a_second_sync_writes_nothing(seaweed: SeaweedS3, s3_bucket: str, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """Not a record, nor a receipt: it asks the store nothing at all."""
    records = tmp_path / "records"
    records.mkdir()
    write_corpus(records, profile="text", count=300, seed=1)
    place = S3Place(seaweed, s3_bucket)
    first = record_mirror(place, "sync", str(records), place.url, via=s3_proxy.url)
    # Each record, the receipts, and once a question: does the store compare checksums?
    assert (first.code, s3_proxy.counts["PUT"]) == (0, 302)
    s3_proxy.clear()
    again = record_mirror(place, "sync", str(records), place.url, via=s3_proxy.url)
    assert (again.code, again.summary["copied"], again.summary["unchanged"]) == (0, 0, 300)
    assert s3_proxy.requests == []
