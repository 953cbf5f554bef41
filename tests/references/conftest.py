"""Fixtures: a stand-in W&B server, and the real client talking to it alone."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb

from tests.references.wandb_standin.server import WandbServer

# The client waits whole seconds: one try and one second keep a failing call short.
CLIENT_LIMITS = {
    "WANDB_HTTP_TIMEOUT": "2",
    "WANDB_FILE_PUSHER_TIMEOUT": "2",
    "WANDB__GRAPHQL_RETRY_MAX": "1",
    "WANDB__GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
    "WANDB__GRAPHQL_RETRY_WAIT_MAX_SECONDS": "1",
    "WANDB__FILE_TRANSFER_RETRY_MAX": "1",
    "WANDB__FILE_TRANSFER_RETRY_WAIT_MIN_SECONDS": "1",
    "WANDB__FILE_TRANSFER_RETRY_WAIT_MAX_SECONDS": "1",
    "WANDB__FILE_STREAM_RETRY_MAX": "1",
    "WANDB__FILE_STREAM_TRANSMIT_INTERVAL": "1",
}


@pytest.fixture(scope="session")
def _wandb_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WandbServer]:
    """One server for all tests; the client's environment names it and nothing else."""
    scratch = tmp_path_factory.mktemp("wandb")
    server = WandbServer()
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB")]:
            patch.delenv(name)
        for name, value in {**server.environment(str(scratch)), **CLIENT_LIMITS}.items():
            patch.setenv(name, value)
        yield server
    server.stop()


@pytest.fixture
def wandb_server(_wandb_session: WandbServer) -> WandbServer:
    """The stand-in server: listening, healthy, nothing recorded. What it holds stays, so that runs can go on."""
    _wandb_session.recover()
    return _wandb_session


@pytest.fixture(scope="session")
def _wandb_shared_run(_wandb_session: WandbServer) -> Iterator[wandb.Run]:
    _wandb_session.recover()  # from what an earlier test, which needed no run, has left
    run = wandb.init(project="tests", id="shared")
    yield run
    _wandb_session.recover()
    run.finish()


@pytest.fixture
def wandb_run(wandb_server: WandbServer, _wandb_shared_run: wandb.Run) -> wandb.Run:
    """An online run that all tests share; whoever breaks or finishes a run begins their own."""
    assert wandb_server.port
    return _wandb_shared_run


@pytest.fixture
def name(wandb_server: WandbServer) -> str:
    """A run id, and so an artifact, of the test's own, which W&B does not know."""
    assert wandb_server.port
    return uuid.uuid4().hex[:12]


@pytest.fixture
def own_run(wandb_server: WandbServer, name: str) -> Iterator[wandb.Run]:
    """The run of that id, beside the shared one."""
    run = wandb.init(project="tests", id=name, reinit="create_new")
    yield run
    wandb_server.recover()  # or a test that failed in bad weather would wait for W&B's client
    run.finish()


@pytest.fixture
def artifact_name() -> str:
    """A name that no other test logs to."""
    return f"records-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def client_environment(wandb_server: WandbServer, tmp_path: Path) -> dict[str, str]:
    """The environment for a client in a process of its own, with files of its own."""
    return {**os.environ, **wandb_server.environment(str(tmp_path)), **CLIENT_LIMITS}
