"""What is asked of the real client: ``references/wandb_client.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from references.artifact import build_artifact
from references.wandb_client import (
    INDEX_HASH,
    NUM_PENDING,
    Mode,
    find,
    give_latest,
    limit_client_retries,
    mode,
)
from tests.references.wandb_standin.faults import Status

if TYPE_CHECKING:
    import wandb

    from tests.references.wandb_standin.server import WandbServer

pytestmark = pytest.mark.integration


def log(run: wandb.Run, name: str, text: str, alias: str, **metadata: str | int) -> None:
    run.log_artifact(build_artifact(name, text.encode(), [], metadata), aliases=[alias]).wait(timeout=30)


def test_what_is_found_is_what_the_metadata_says(wandb_run: wandb.Run, artifact_name: str) -> None:
    """The step, which content of it, how many references and how much is pending."""
    numbers: dict[str, str | int] = {"global_step": 3, "num_referenced": 4, INDEX_HASH: "h", NUM_PENDING: 1}
    log(wandb_run, artifact_name, "one", "train-step-3", **numbers)

    for alias in ("train-step-3", "latest"):
        found = find(wandb_run, artifact_name, alias)
        assert found is not None
        assert (found.version, found.step, found.index_hash) == ("v0", 3, "h")
        assert (found.num_referenced, found.num_pending) == (4, 1)


def test_strange_metadata_says_nothing(wandb_run: wandb.Run, artifact_name: str) -> None:
    """A version that somebody else has logged is found, and claims nothing."""
    log(wandb_run, artifact_name, "one", "train-step-3", global_step="three", num_referenced="many")

    found = find(wandb_run, artifact_name, "latest")
    assert found is not None
    assert (found.version, found.step, found.index_hash) == ("v0", None, None)
    assert (found.num_referenced, found.num_pending) == (0, 0)


def test_absence_is_an_answer_and_silence_is_not(
    wandb_server: WandbServer, wandb_run: wandb.Run, artifact_name: str
) -> None:
    """No such artifact and no such alias are None; a server that refuses or is down is an error."""
    assert find(wandb_run, artifact_name, "latest") is None
    log(wandb_run, artifact_name, "one", "train-step-3")
    assert find(wandb_run, artifact_name, "train-step-4") is None

    wandb_server.faults.plan("ArtifactMembershipByName", Status(code=403), times=None)
    with pytest.raises(Exception, match=r"403|[Pp]ermission"):
        find(wandb_run, artifact_name, "latest")
    wandb_server.down()
    with pytest.raises(Exception, match="refused"):
        find(wandb_run, artifact_name, "latest")


def test_latest_is_given_to_a_version(wandb_run: wandb.Run, artifact_name: str) -> None:
    """It leaves the version that had it; where there is no such version nothing happens."""
    log(wandb_run, artifact_name, "one", "train-step-1", global_step=1)
    log(wandb_run, artifact_name, "two", "train-step-2", global_step=2)
    give_latest(wandb_run, artifact_name, "train-step-1")
    give_latest(wandb_run, artifact_name, "train-step-1")
    give_latest(wandb_run, artifact_name, "train-step-9")

    latest = find(wandb_run, artifact_name, "latest")
    assert latest is not None
    assert latest.step == 1


def test_an_online_run_is_online(wandb_run: wandb.Run) -> None:
    """The run says so itself."""
    assert mode(wandb_run) is Mode.ONLINE


def test_the_clients_retries_are_limited_where_the_user_has_not_said_so() -> None:
    """Half an hour for one version is too long; what the user has set stays."""
    environment = {"WANDB_HTTP_TIMEOUT": "99"}
    limit_client_retries(environment)

    assert environment["WANDB_HTTP_TIMEOUT"] == "99"
    assert int(environment["WANDB__GRAPHQL_RETRY_MAX"]) < 20
    assert all(value.isdigit() for value in environment.values())
