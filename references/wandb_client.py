"""The few things that are asked of W&B's client; every call here may block, and may raise anything.

The client has no common base for its errors, changes their texts between releases, and retries for up to half an hour
by itself. What callers must know of that is said here and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from mirror.redact import redact_text
from references import plain
from references.artifact_name import ARTIFACT_TYPE
from references.errors import StepError

if TYPE_CHECKING:
    import wandb

LATEST = "latest"
SERVICE = "WANDB_SERVICE"  # in the environment: how other processes reach the client's service
ASK_TIMEOUT_S = 20
# About a minute and a half of retries instead of half an hour. Whole seconds: the client takes no others.
_CLIENT_LIMITS = {
    "WANDB_HTTP_TIMEOUT": "20",
    "WANDB__GRAPHQL_RETRY_MAX": "8",
    "WANDB__GRAPHQL_RETRY_WAIT_MIN_SECONDS": "2",
    "WANDB__GRAPHQL_RETRY_WAIT_MAX_SECONDS": "15",
    "WANDB__FILE_TRANSFER_RETRY_MAX": "8",
    "WANDB__FILE_TRANSFER_RETRY_WAIT_MIN_SECONDS": "2",
    "WANDB__FILE_TRANSFER_RETRY_WAIT_MAX_SECONDS": "15",
}
INDEX_HASH = "index_xxh3_128"  # metadata: which content of the step a version is
NUM_PENDING = "num_pending"  # metadata: how many of its records had not landed
_NOT_THERE = ("not found in", "not found under")  # the client's own words, made when the server answers null
_NO_RUN = "Could not find run"  # likewise


class Mode(Enum):
    """What W&B's client does with what it is given."""

    ONLINE = "online"
    OFFLINE = "offline"  # kept for `wandb sync`
    DISABLED = "disabled"  # ignored


class RunIsOverError(Exception):
    """The run was finished: it takes nothing more."""


class WaitedTooLongError(Exception):
    """The time was over; the client still has the version and may yet log it."""


class RunPath(Protocol):
    """Which run it is."""

    @property
    def id(self) -> str:
        """The run's id."""
        ...

    @property
    def entity(self) -> str:
        """Whose it is."""
        ...

    @property
    def project(self) -> str:
        """What it belongs to."""
        ...


class Run(RunPath, Protocol):
    """What is used of ``wandb.Run``."""

    @property
    def offline(self) -> bool:
        """Whether the client keeps everything for later."""
        ...

    @property
    def disabled(self) -> bool:
        """Whether the client ignores everything."""
        ...

    def log_artifact(self, artifact: wandb.Artifact, *, aliases: list[str]) -> Any:  # noqa: ANN401 - not used
        """Hand an artifact to the client."""
        ...


def check_run(run: object | None) -> None:
    """Refuse what is no run of W&B's client, such as a run's name: no step could ever be logged to it.

    Raises:
        StepError: it has no id.
    """
    try:
        is_run = run is None or hasattr(run, "id")
    except Exception:  # noqa: BLE001 - a run that is over may raise anything, and it is one
        return
    if not is_run:
        raise StepError(
            f"the run to log to is a {type(run).__name__}: give what wandb.init returned, or None while there is none"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A version that W&B has, as its metadata describes it; None where it says nothing of use."""

    version: str
    step: int | None
    index_hash: str | None
    num_referenced: int
    num_pending: int
    created_at_s: float | None = None  # Unix time, by W&B's clock


def in_words(error: BaseException) -> str:
    """Return what the client raised, without secrets; many of its texts say little without their type."""
    return redact_text(f"{type(error).__name__}: {error}")


def limit_client_retries(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let W&B's client give up within minutes, in runs begun after this; what the user has set stays."""
    for name, value in _CLIENT_LIMITS.items():
        environment.setdefault(name, value)


def mode(run: Run) -> Mode:
    """Say what the client does with what is logged to this run."""
    if run.disabled:
        return Mode.DISABLED
    return Mode.OFFLINE if run.offline else Mode.ONLINE


def is_over(run: object) -> bool:
    """Say whether a run of this process was finished; the client has no public word for it."""
    return plain.field(run, "_is_finished") is True


def environment(run: object) -> dict[str, str]:
    """Return what the client in another process needs in its environment to log to a run of this one.

    Its connection to the client's service, and what ``wandb.init`` may have been given in other ways.
    """
    names = {name: value for name, value in os.environ.items() if name.startswith("WANDB")}
    settings = plain.field(run, "settings")
    for name, setting in (("WANDB_API_KEY", "api_key"), ("WANDB_BASE_URL", "base_url")):
        value = plain.field(settings, setting)
        if isinstance(value, str):
            names.setdefault(name, value)
    return names


def is_running(run: RunPath) -> bool:
    """Say whether W&B takes a run for going on; one that it does not know is not."""
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged

    api = wandb.Api(timeout=ASK_TIMEOUT_S)
    try:
        return bool(api.run(f"{run.entity}/{run.project}/{run.id}").state == "running")
    except Exception as error:
        if _NO_RUN in str(error):
            return False
        raise


def find(run: RunPath, name: str, alias: str) -> Found | None:
    """Return the version of ``name`` that ``alias`` names, or None when W&B answers that there is none."""
    artifact = _fetch(run, name, alias)
    return None if artifact is None else _describe(artifact)


def find_all(run: RunPath, name: str) -> list[Found]:
    """Return every version of ``name``, oldest first; none when W&B answers that there is no such artifact."""
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged

    if _fetch(run, name, LATEST) is None:  # a listing does not tell an absent artifact from a broken answer
        return []
    api = wandb.Api(timeout=ASK_TIMEOUT_S)
    listed = api.artifacts(ARTIFACT_TYPE, f"{run.entity}/{run.project}/{name}")
    return [_describe(artifact) for artifact in sorted(listed, key=lambda one: int(one.version.removeprefix("v")))]


def hand_over(run: Run, artifact: wandb.Artifact, aliases: Iterable[str]) -> None:
    """Give an artifact to the client, which logs it in the background.

    Raises:
        RunIsOverError: the run was finished.
        Exception: whatever the client raises; the version was not taken.
    """
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged

    try:
        run.log_artifact(artifact, aliases=list(aliases))
    except wandb.errors.UsageError as error:
        raise RunIsOverError(str(error)) from error


def await_commit(artifact: wandb.Artifact, timeout_s: float) -> None:
    """Wait until W&B has committed what was handed over. To be called once.

    Raises:
        RunIsOverError: the client had not taken it, since the run was finished (older releases only print a warning).
        WaitedTooLongError: it was not committed within ``timeout_s``; it may still be.
        Exception: whatever the client raises; W&B may have committed it all the same.
    """
    from wandb.sdk.artifacts.exceptions import ArtifactNotLoggedError, WaitTimeoutError  # noqa: PLC0415 - heavy

    try:
        artifact.wait(timeout=max(1, round(timeout_s)))
    except ArtifactNotLoggedError as error:
        raise RunIsOverError(str(error)) from error
    except WaitTimeoutError as error:
        raise WaitedTooLongError(str(error)) from error


def give_latest(run: RunPath, name: str, alias: str) -> None:
    """Let ``latest`` name the version that ``alias`` names, if there is one."""
    artifact = _fetch(run, name, alias)
    if artifact is not None and LATEST not in artifact.aliases:
        artifact.aliases = [*artifact.aliases, LATEST]
        artifact.save()


def _fetch(run: RunPath, name: str, alias: str) -> wandb.Artifact | None:
    import wandb  # noqa: PLC0415 - heavy, and only where something is logged

    api = wandb.Api(timeout=ASK_TIMEOUT_S)
    try:
        found: wandb.Artifact = api.artifact(f"{run.entity}/{run.project}/{name}:{alias}", type=ARTIFACT_TYPE)
    except (wandb.errors.CommError, ValueError) as error:
        if any(words in str(error) for words in _NOT_THERE):
            return None
        raise
    return found


def _describe(artifact: wandb.Artifact) -> Found:
    metadata = artifact.metadata
    step, index_hash = metadata.get("global_step"), metadata.get(INDEX_HASH)
    return Found(
        version=str(artifact.version),
        step=step if isinstance(step, int) else None,
        index_hash=index_hash if isinstance(index_hash, str) else None,
        num_referenced=_count(metadata.get("num_referenced")),
        num_pending=_count(metadata.get(NUM_PENDING)),
        created_at_s=_unix_time(artifact.created_at),
    )


def _unix_time(text: object) -> float | None:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
