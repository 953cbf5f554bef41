"""An artifact that somebody else wrote: whatever its manifest and its metadata say, a pull ends in what it promises."""

from __future__ import annotations

import contextlib
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import wandb

from mirror import MirrorConfig
from references.artifact_name import artifact_name
from references.errors import ReferencesError
from references.pull import pull
from references.verify_run import verify_run
from tests.mirror.local_records import tree
from tests.mirror.places import DirectoryPlace
from tests.references.publishing import versions
from tests.references.whole_runs import SampleRun, artifact_path, log_step

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer
    from tests.references.wandb_standin.state import Version

pytestmark = pytest.mark.integration


@pytest.fixture
def sample(tmp_path: Path) -> SampleRun:
    """A run of one step in a directory."""
    run = SampleRun(DirectoryPlace(tmp_path / "mirror"), tmp_path / "records", name=uuid.uuid4().hex[:12])
    run.step(1, ["tr_a"])
    return run


@pytest.fixture
def ref(sample: SampleRun, wandb_run: wandb.Run) -> str:
    """Its artifact in W&B."""
    name = artifact_name("train", sample.name)
    log_step(wandb_run, sample.steps["train", 1], sample.receipts(), name=name)
    return artifact_path(wandb_run, name)


def version_of(server: WandbServer, sample: SampleRun) -> Version:
    """Return the one version, as the server holds it."""
    (version,) = versions(server, sample.name)
    return version


def assert_harmless(ref: str, sample: SampleRun, tmp_path: Path) -> None:
    """Pull and verify; fail if anything but an error of ours comes of it, or anything is written elsewhere."""
    before = {name: data for name, data in tree(tmp_path).items() if not name.startswith("out/")}
    impatient = MirrorConfig(timeout_s=5)
    for use in (
        lambda: pull(ref, tmp_path / "out", config=impatient, allow_protocols=["file"]),
        lambda: verify_run(ref, config=impatient, allow_protocols=["file"]),
    ):
        with contextlib.suppress(ReferencesError):
            use()
    after = tree(tmp_path)
    assert {name: data for name, data in after.items() if not name.startswith("out/")} == before
    pulled = {name.removeprefix("out/train/") for name in after if name.startswith("out/")}
    assert pulled <= set(sample.pulled())


EVIL_ENTRIES: list[dict[str, Any]] = [
    {"../../evil.json.zst": {"digest": "x", "ref": "s3://bucket/evil", "size": 1}},
    {"/etc/passwd": {"digest": "x", "ref": "file:///etc/passwd", "size": 1}},
    {"records/\x00\n": {"digest": "x", "ref": "s3://bucket/\x00", "size": 1}},
    {"records/tr_a.json.zst": {"digest": "x", "ref": "file:///etc/passwd", "size": 2**70, "extra": {"etag": [1]}}},
    {"records/tr_a.json.zst": {"digest": 5, "ref": 5, "size": "many", "extra": []}},
    {"records/tr_a.json.zst": {"digest": None, "ref": None, "size": -1}},
    {"records/tr_a.json.zst": {}},
    {"records/tr_a.json.zst": None},
    {"step.json": {"digest": "x", "ref": "file:///etc/passwd", "size": 1}},
    {"step.json": {"digest": "AAAAAAAAAAAAAAAAAAAAAA==", "birthArtifactID": "../../..", "size": 1}},
    {"step.json": {"digest": "../../../evil", "birthArtifactID": "x", "size": 2**70}},
    {f"records/{number}": {"digest": "x", "ref": f"gs://b/{number}", "size": 1} for number in range(20_000)},
]


@pytest.mark.parametrize("entries", EVIL_ENTRIES, ids=range(len(EVIL_ENTRIES)))
def test_entries_of_a_manifest(
    ref: str, sample: SampleRun, wandb_server: WandbServer, tmp_path: Path, entries: dict[str, Any]
) -> None:
    """Names and references of any kind, or a file that W&B does not have: nothing but the step's own records comes."""
    version = version_of(wandb_server, sample)
    manifest = json.loads(version.manifest)
    manifest["contents"] |= entries
    version.manifest = json.dumps(manifest).encode()
    assert_harmless(ref, sample, tmp_path)


@pytest.mark.parametrize("manifest", [b"", b"{", b"null", b"[]", b"[" * 100_000, b'{"version": 1e400}', b"\xff\x00"])
def test_what_is_no_manifest(
    ref: str, sample: SampleRun, wandb_server: WandbServer, tmp_path: Path, manifest: bytes
) -> None:
    """Bombs included."""
    version_of(wandb_server, sample).manifest = manifest
    assert_harmless(ref, sample, tmp_path)


@pytest.mark.parametrize(
    "metadata",
    [
        *("null", "[]", "{", '"x"', "5", '{"global_step": 1e400}', '{"global_step": "1"}', '{"global_step": true}'),
        *('{"global_step": -1}', '{"global_step": 1e300}', '{"global_step": NaN}', '{"global_step": [1]}', "{}"),
        '{"global_step": ' + "9" * 5_000 + "}",
        '{"global_step": 1180591620717411303424}',
        '{"global_step": 1, "index_xxh3_128": {"a": [1]}}',
        '{"global_step": 2}',
        '{"a":' * 2_000 + "1" + "}" * 2_000,
    ],
    ids=lambda metadata: metadata[:30],
)
def test_metadata(ref: str, sample: SampleRun, wandb_server: WandbServer, tmp_path: Path, metadata: str) -> None:
    """Steps that are no numbers, or no step's."""
    version_of(wandb_server, sample).metadata = metadata
    assert_harmless(ref, sample, tmp_path)
