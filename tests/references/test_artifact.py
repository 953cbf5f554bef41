"""The artifact of a step, read back from the manifest that the real client builds: ``references/artifact.py``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import wandb
from wandb.sdk.artifacts.artifact_manifest_entry import ArtifactManifestEntry
from wandb.sdk.lib.paths import LogicalPath

from references.artifact import build_artifact
from references.reference import Reference

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer

S3 = Reference(
    path="records/a.zst", uri="s3://b/a.zst", digest="e", size_bytes=3, extra={"etag": "e", "versionID": "v"}
)


@pytest.mark.usefixtures("wandb_server")
def test_many_references_are_what_the_clients_own_class_makes_of_each() -> None:
    """Each has values of its own, in the manifest, in the digest and in what the client writes of it."""
    several = [
        Reference(path=f"records/{n}.zst", uri=f"s3://b/{n}.zst", digest=f"{n}", size_bytes=n, extra={"etag": f"{n}"})
        for n in range(5)
    ]
    ours = build_artifact("name", b"{}", several, {}).manifest
    theirs = build_artifact("name", b"{}", [], {}).manifest
    for one in several:
        theirs.add_entry(
            ArtifactManifestEntry(
                path=LogicalPath(one.path), ref=one.uri, digest=one.digest, size=one.size_bytes, extra=one.extra
            )
        )

    assert ours.to_manifest_json() == theirs.to_manifest_json()
    assert ours.digest() == theirs.digest()
    written = [{path: entry.to_json() for path, entry in made.entries.items()} for made in (ours, theirs)]
    for files in written:
        del files["step.json"]["local_path"]  # each its own copy
    assert written[0] == written[1]


@pytest.mark.usefixtures("wandb_server")
def test_the_manifest_holds_what_was_put_in() -> None:
    """``step.json`` is a file of W&B's own; every field of a reference arrives."""
    manifest = build_artifact("name", b"{}", [S3], {"global_step": 3}).manifest.to_manifest_json()["contents"]

    assert set(manifest) == {"step.json", "records/a.zst"}
    assert "ref" not in manifest["step.json"]
    assert manifest["records/a.zst"] == {
        "digest": "e",
        "size": 3,
        "ref": "s3://b/a.zst",
        "extra": {"etag": "e", "versionID": "v"},
    }


def test_what_is_logged_is_what_the_manifest_held(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str
) -> None:
    """Through the client's core and back: only ``step.json`` is uploaded, the reference and the metadata are kept."""
    wandb_run.log_artifact(build_artifact(artifact_name, b"step", [S3], {"global_step": 3})).wait(timeout=30)

    [version] = wandb_server.state.versions_of(artifact_name)
    assert version.entries["records/a.zst"]["ref"] == S3.uri
    assert version.entries["records/a.zst"]["digest"] == S3.digest
    assert version.entries["records/a.zst"]["extra"] == S3.extra
    assert wandb_server.state.blob(version, "step.json") == b"step"
    assert len(wandb_server.requests("PutFile")) == 1


def test_ten_thousand_references_are_no_burden(wandb_run: wandb.Run, artifact_name: str) -> None:
    """A step of thousands of records is logged like any other."""
    many = [
        Reference(path=f"records/{n}.zst", uri=f"s3://b/{n}.zst", digest=f"{n}", size_bytes=n) for n in range(10_000)
    ]

    artifact = wandb_run.log_artifact(build_artifact(artifact_name, b"step", many, {})).wait(timeout=60)

    assert len(artifact.manifest.entries) == 10_001


def test_the_bytes_are_taken_at_once(tmp_path: Path, wandb_run: wandb.Run, artifact_name: str) -> None:
    """Nothing that the artifact needs is left to whoever made it."""
    artifact = wandb_run.log_artifact(build_artifact(artifact_name, b"the bytes", [], {})).wait(timeout=30)

    assert Path(artifact.get_entry("step.json").download(root=str(tmp_path))).read_bytes() == b"the bytes"
