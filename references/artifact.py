"""The W&B artifact of one step: ``step.json`` as its only uploaded file, and references to the mirrored records.

The references are put into the manifest directly: W&B's own ``add_reference`` asks the store about each file, wants its
credentials, and records a digest that its own download then refuses. ``ArtifactManifestEntry`` is no public class of
W&B's and ignores keywords that it does not know, so this is the only file that touches it, and its test reads back
what arrives in the manifest.

W&B's class takes its time to check each entry. A step has tens of thousands, all alike, so that one is made by the
class and the others are copies of it with values of their own.
"""

from __future__ import annotations

import copy
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
        ValueError: W&B refuses the name or the metadata.
    """
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged

    artifact = wandb.Artifact(name, type=ARTIFACT_TYPE, metadata=dict(metadata))
    with TemporaryDirectory() as folder:  # W&B copies the file at once
        file = Path(folder, STEP_FILE)
        file.write_bytes(step_json)
        artifact.add_file(str(file), name=STEP_FILE)
    _refer(artifact, references)
    return artifact


def _refer(artifact: wandb.Artifact, references: Iterable[Reference]) -> None:
    from wandb.sdk.artifacts.artifact_manifest_entry import ArtifactManifestEntry  # noqa: PLC0415 - heavy, as above

    entries = artifact.manifest.entries
    first: ArtifactManifestEntry | None = None
    for reference in references:
        values = {
            "path": reference.path,
            "ref": reference.uri,
            "digest": reference.digest,
            "size": reference.size_bytes,
            "extra": reference.extra,
        }
        if first is None:
            entry = first = ArtifactManifestEntry(**values)  # type: ignore[arg-type] # it makes its own of any text
        else:
            entry = copy.copy(first)
            vars(entry).update(values)
        entries[reference.path] = entry
