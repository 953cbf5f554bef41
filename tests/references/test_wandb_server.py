"""The stand-in W&B server, through the real client: if these hold, what other tests show about the client is real."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
import wandb

from tests.references.wandb_standin.faults import Delay, Drop, Hang, LoseReply, Refuse, Status

if TYPE_CHECKING:
    from tests.references.wandb_standin.server import WandbServer

TYPE = "skycap-records"


def log(run: wandb.Run, name: str, text: str, *aliases: str) -> wandb.Artifact:
    """Log one version that holds ``step.json`` with this text, and do not wait for it."""
    artifact = wandb.Artifact(name, type=TYPE, metadata={"text": text})
    with TemporaryDirectory() as folder:
        file = Path(folder, "step.json")
        file.write_text(text, encoding="utf-8")
        artifact.add_file(str(file))
    run.log_artifact(artifact, aliases=list(aliases))
    return artifact


def read(run: wandb.Run, name: str) -> wandb.Artifact:
    """Read a version back by ``name:alias``."""
    found: wandb.Artifact = wandb.Api().artifact(f"{run.entity}/{run.project}/{name}")
    return found


def test_a_version_is_logged_and_read_back(wandb_run: wandb.Run, artifact_name: str, tmp_path: Path) -> None:
    """What was logged comes back by alias: metadata, manifest, the uploaded bytes."""
    logged = log(wandb_run, artifact_name, "one", "train-step-1").wait(timeout=30)

    found = read(wandb_run, f"{artifact_name}:train-step-1")

    assert (found.version, found.digest, found.metadata) == ("v0", logged.digest, {"text": "one"})
    assert sorted(found.aliases) == ["latest", "train-step-1"]
    assert list(found.manifest.entries) == ["step.json"]
    assert (tmp_path / "out" / "step.json").exists() is False
    assert found.download(root=str(tmp_path / "out")) == str(tmp_path / "out")
    assert (tmp_path / "out" / "step.json").read_text() == "one"


def test_latest_goes_with_every_new_version(wandb_run: wandb.Run, artifact_name: str) -> None:
    """The client asks for ``latest`` itself; the older version keeps only its own alias."""
    log(wandb_run, artifact_name, "one", "train-step-1").wait(timeout=30)
    log(wandb_run, artifact_name, "two", "train-step-2").wait(timeout=30)

    assert read(wandb_run, f"{artifact_name}:train-step-1").aliases == ["train-step-1"]
    assert read(wandb_run, f"{artifact_name}:latest").version == "v1"


def test_the_same_content_is_no_second_version(wandb_run: wandb.Run, artifact_name: str) -> None:
    """Logging what the newest version holds already gives that version."""
    first = log(wandb_run, artifact_name, "one", "train-step-1").wait(timeout=30)
    second = log(wandb_run, artifact_name, "one", "train-step-1").wait(timeout=30)

    assert (first.version, second.version, second.id) == ("v0", "v0", first.id)


def test_an_alias_is_moved_through_the_api(wandb_run: wandb.Run, artifact_name: str) -> None:
    """``aliases.append`` and ``save`` take an alias from the version that had it."""
    log(wandb_run, artifact_name, "one", "train-step-1").wait(timeout=30)
    log(wandb_run, artifact_name, "two", "train-step-2").wait(timeout=30)

    first = read(wandb_run, f"{artifact_name}:train-step-1")
    first.aliases.append("latest")
    first.save()

    assert read(wandb_run, f"{artifact_name}:latest").version == "v0"
    assert read(wandb_run, f"{artifact_name}:v1").aliases == ["train-step-2"]


def test_a_version_is_deleted_and_its_number_is_not_reused(wandb_run: wandb.Run, artifact_name: str) -> None:
    """A deleted version is gone from the listing; the next one gets a new number."""
    for text in ("one", "two"):
        log(wandb_run, artifact_name, text).wait(timeout=30)
    read(wandb_run, f"{artifact_name}:v1").delete(delete_aliases=True)
    log(wandb_run, artifact_name, "three").wait(timeout=30)

    listing = wandb.Api().artifacts(TYPE, f"{wandb_run.entity}/{wandb_run.project}/{artifact_name}")

    assert [version.version for version in listing] == ["v2", "v0"]


def test_versions_are_listed_in_pages_of_fifty(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str
) -> None:
    """A listing asks for one page after the other, newest version first."""
    for number in range(51):
        log(wandb_run, artifact_name, f"text {number}").wait(timeout=30)
    listing = wandb.Api().artifacts(TYPE, f"{wandb_run.entity}/{wandb_run.project}/{artifact_name}", per_page=1000)

    assert [version.version for version in listing] == [f"v{number}" for number in reversed(range(51))]
    assert len(wandb_server.requests("ProjectArtifacts")) == 2


def test_metrics_and_requests_are_recorded(wandb_server: WandbServer, own_run: wandb.Run) -> None:
    """Every request is recorded by its operation, and a test can wait for one.

    The shared run will not do: after a fault that another test made, the client sends no more of its metrics.
    """
    own_run.log({"reward": 1.0})

    assert wandb_server.wait_for("FileStream", timeout_s=30)


@pytest.mark.parametrize("fault", [Status(code=500), Status(code=429, retry_after_s=0), Drop()], ids=str)
def test_the_client_gets_over_one_failed_call(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str, fault: Status | Drop
) -> None:
    """A passing failure of one call is the client's own affair: it asks again and the version is there."""
    wandb_server.faults.plan("CommitArtifact", fault, times=1)

    assert log(wandb_run, artifact_name, "one").wait(timeout=30).version == "v0"
    assert len(wandb_server.requests("CommitArtifact")) == 2


def test_a_refusal_reaches_the_caller(wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str) -> None:
    """403 ends the version: ``wait`` raises, nothing is committed."""
    wandb_server.faults.plan("CommitArtifact", Status(code=403))

    with pytest.raises(ValueError, match="403"):
        log(wandb_run, artifact_name, "one").wait(timeout=30)
    assert wandb_server.state.versions_of(artifact_name) == []


def test_a_graphql_error_reaches_the_caller(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str
) -> None:
    """An error in the answer's body ends the version as well."""
    wandb_server.faults.plan("CreateArtifact", Refuse(message="quota exceeded"))

    with pytest.raises(ValueError, match="quota exceeded"):
        log(wandb_run, artifact_name, "one").wait(timeout=30)


def test_a_commit_is_done_although_its_reply_is_lost(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str
) -> None:
    """The client reports a failure, and the version exists all the same."""
    wandb_server.faults.plan("CommitArtifact", LoseReply(), times=None)

    with pytest.raises(ValueError, match="EOF"):
        log(wandb_run, artifact_name, "one", "train-step-1").wait(timeout=30)
    wandb_server.heal()

    assert read(wandb_run, f"{artifact_name}:train-step-1").version == "v0"


def test_a_slow_server_is_only_slow(wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str) -> None:
    """A delay below the client's timeout changes nothing but the time."""
    wandb_server.faults.plan("CommitArtifact", Delay(seconds=0.5))

    assert log(wandb_run, artifact_name, "one").wait(timeout=30).version == "v0"
    assert [request.fault for request in wandb_server.requests("CommitArtifact")] == [Delay(seconds=0.5)]


def test_a_hanging_call_ends_when_the_faults_are_cleared(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str
) -> None:
    """While the server hangs, so does the version; cleared, the client tries again and succeeds."""
    wandb_server.faults.plan("CommitArtifact", Hang(), times=None)
    artifact = log(wandb_run, artifact_name, "one")
    assert wandb_server.wait_for("CommitArtifact")
    assert wandb_server.state.versions_of(artifact_name) == []

    wandb_server.heal()

    assert artifact.wait(timeout=30).version == "v0"


def test_a_server_that_is_down_comes_back_on_its_port(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str
) -> None:
    """Down, connections are refused and the version fails; up again, the next one is logged."""
    log(wandb_run, artifact_name, "one").wait(timeout=30)
    wandb_server.down()
    with pytest.raises(ValueError, match="connection refused"):
        log(wandb_run, artifact_name, "two").wait(timeout=30)

    wandb_server.up()

    assert log(wandb_run, artifact_name, "three").wait(timeout=30).version == "v1"


@pytest.mark.parametrize("deduplication", ["latest", "any"])
def test_old_content_comes_back_as_a_version_or_as_an_alias(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str, deduplication: str
) -> None:
    """W&B promises only that the newest content is not repeated; whether older content is, both are possible."""
    wandb_server.state.deduplication = deduplication  # type: ignore[assignment] # one of its two values
    log(wandb_run, artifact_name, "one").wait(timeout=30)
    log(wandb_run, artifact_name, "two").wait(timeout=30)

    again = log(wandb_run, artifact_name, "one").wait(timeout=30)

    assert again.version == {"latest": "v2", "any": "v0"}[deduplication]
    assert "latest" in again.aliases
