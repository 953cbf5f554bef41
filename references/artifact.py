"""The W&B artifact of one step: ``step.json`` as its only uploaded file, and references to the mirrored records.

The references are put into the manifest directly: W&B's own ``add_reference`` asks the store about each file, wants its
credentials, and records a digest that its own download then refuses. ``ArtifactManifestEntry`` is no public class of
W&B's and ignores keywords that it does not know, so this is the only file that touches it, and its test reads back
what arrives in the manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from references.artifact_name import ARTIFACT_TYPE
from references.reference import Reference

if TYPE_CHECKING:
    import wandb

STEP_FILE = "step.json"


def build_artifact(
    name: str, step_json: bytes, references: Iterable[Reference], metadata: Mapping[str, str | int | bool]
) -> wandb.Artifact:
    """Return an artifact that is ready to be logged; nothing is asked of any store or server.

    Args:
        name: the artifact's name, without a version.
        step_json: the bytes of the one file that W&B keeps itself.
        references: what else it lists; no two with the same path.
        metadata: what is shown beside the version.

    Raises:
        ValueError: W&B refuses the name, the metadata or a path.
    """
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged
    from wandb.sdk.artifacts.artifact_manifest_entry import ArtifactManifestEntry  # noqa: PLC0415 - likewise

    artifact = wandb.Artifact(name, type=ARTIFACT_TYPE, metadata=dict(metadata))
    with TemporaryDirectory() as folder:  # W&B copies the file at once
        file = Path(folder, STEP_FILE)
        file.write_bytes(step_json)
        artifact.add_file(str(file), name=STEP_FILE)
    for reference in references:
        artifact.manifest.add_entry(
            ArtifactManifestEntry(
                path=reference.path,  # type: ignore[arg-type] # it makes its own kind of path of any text
                ref=reference.uri,
                digest=reference.digest,
                size=reference.size_bytes,
                extra=dict(reference.extra),
            )
        )
    return artifact
