"""A short run of W&B's own that logs versions for another run, so that the other one is never touched.

Resuming the run itself would set its state, and its metrics if it is still running, or was only run offline and is yet
to be synced.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Self

from mirror.redact import redact_text
from references.artifact_name import ARTIFACT_TYPE
from references.errors import ConfigError, LinkError
from references.wandb_client import ASK_TIMEOUT_S, in_words, limit_client_retries

if TYPE_CHECKING:
    import wandb

logger = logging.getLogger(__name__)

JOB_TYPE = "record-mirror-link"
_PATH = re.compile(r"(?:https?://[^/\s]+/)?([^/:\s]+)/([^/:\s]+)/(?:runs/)?([^/:\t\r\n?#]+)/?")


@dataclass(frozen=True, slots=True)
class RunId:
    """A run of W&B's, whether or not it is there."""

    entity: str
    project: str
    id: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``entity/project/run id``, or the address of the run's page.

        Raises:
            ConfigError: it is neither.
        """
        match = _PATH.fullmatch(text.strip())
        if match is None or match[3].startswith(f"{ARTIFACT_TYPE}-"):
            raise ConfigError(f"{text!r} is no run: write entity/project/run-id, or the address of its page in W&B")
        return cls(*match.groups())

    def __str__(self) -> str:
        """Return ``entity/project/run id``."""
        return f"{self.entity}/{self.project}/{self.id}"


@contextlib.contextmanager
def helper_run(logged_for: RunId) -> Iterator[wandb.Run]:
    """Begin a run in the project of ``logged_for``, whatever run the environment or this process may have, and end it.

    Raises:
        LinkError: W&B does not begin one.
    """
    limit_client_retries()
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged

    with TemporaryDirectory(prefix="record-mirror-") as scratch:
        try:
            run = wandb.init(
                entity=logged_for.entity,
                project=logged_for.project,
                id=f"link-{secrets.token_hex(6)}",
                name=f"link {logged_for.id}",
                job_type=JOB_TYPE,
                dir=scratch,
                mode="online",
                resume="never",
                reinit=_beside_others(),
                settings=wandb.Settings(silent=True, console="off", disable_code=True, disable_git=True),
            )
        except Exception as error:
            raise LinkError(
                f"W&B does not let {logged_for.entity}/{logged_for.project} be logged to "
                f"({in_words(error)}): check the name, and that you are logged in"
            ) from error
        try:
            yield run
        finally:
            run.finish()


def _beside_others() -> Literal["create_new"] | None:
    """Return what keeps ``wandb.init`` from ending, or returning, a run that is active in this process."""
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged

    try:
        wandb.Settings(reinit="create_new")
    except Exception as error:  # an older client knows no such choice, and has no error of its own for that
        if wandb.run is not None:
            raise LinkError(
                "a run is active in this process, and this wandb release ends it: link elsewhere"
            ) from error
        return None
    return "create_new"


def declare_output(run: RunId, name: str, alias: str) -> None:
    """Have W&B show a version among the outputs of the run, where the run is in W&B; never raises."""
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged

    try:
        api = wandb.Api(timeout=ASK_TIMEOUT_S)
        artifact = api.artifact(f"{run.entity}/{run.project}/{name}:{alias}", type=ARTIFACT_TYPE)
        api.run(str(run)).log_artifact(artifact)
    except Exception as error:  # noqa: BLE001 - the version is logged; this is for whoever looks at the run's page
        logger.info("%s is not shown on the page of %s: %s", alias, run, redact_text(str(error)))
