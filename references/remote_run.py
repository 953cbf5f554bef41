"""A W&B run of another process, to log artifacts to.

The client's runs can be handed to other processes, which then talk to the same service of the client. Whether the run
was finished only the process knows that began it.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from references.messages import RunTicket
from references.wandb_client import RunIsOverError

if TYPE_CHECKING:
    import wandb


class RemoteRun:
    """The ``Run`` that a ticket is for. Used by one thread at a time."""

    def __init__(self, ticket: RunTicket, is_over: Callable[[], bool]) -> None:
        """Connect to nothing yet; ``is_over`` asks the run's own process."""
        self._ticket = ticket
        self._is_over = is_over
        self._attached: Any = None

    @property
    def id(self) -> str:
        """The run's id."""
        return self._ticket.id

    @property
    def entity(self) -> str:
        """Whose it is."""
        return self._ticket.entity

    @property
    def project(self) -> str:
        """What it belongs to."""
        return self._ticket.project

    @property
    def offline(self) -> bool:
        """Whether the client keeps everything for later."""
        return self._ticket.offline

    @property
    def disabled(self) -> bool:
        """Whether the client ignores everything."""
        return self._ticket.disabled

    def log_artifact(self, artifact: wandb.Artifact, *, aliases: list[str]) -> Any:  # noqa: ANN401 - not used
        """Hand an artifact to the client.

        Raises:
            RunIsOverError: the run was finished, or is none that another process can log to.
        """
        if not self._ticket.pickled:
            raise RunIsOverError("the run cannot be logged to from another process")
        if self._is_over():
            raise RunIsOverError("the run was finished")
        if self._attached is None:
            self._attached = pickle.loads(self._ticket.pickled)  # noqa: S301 - from the process that started this one
        return self._attached.log_artifact(artifact, aliases=aliases)


def use(ticket: RunTicket) -> None:
    """Let the client, which is not imported yet, find what it needs."""
    os.environ.update(ticket.environment)
