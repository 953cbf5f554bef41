"""The settings of a run's records, as a trainer's own configuration embeds them.

The dataclasses hold plain values only, so that OmegaConf, YAML or a list of ``name=value`` can fill them. They are not
frozen: OmegaConf takes that for read-only and then takes no overrides.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from mirror.config import MirrorConfig
from mirror.location import absolute_path
from mirror.settings import ServerSettings
from mirror.showing import show, suggest
from references.errors import ConfigError
from references.phases import check_phases
from references.seams import PublishSettings

if TYPE_CHECKING:
    from references.callback import SkycapRecordIndex
    from references.record_log import RecordLog
    from references.run_index import Phase, StepIndex


@dataclass(kw_only=True)
class WandbConfig:
    """Which steps are indexed in W&B, and how patiently. All times are in seconds.

    Attributes:
        enabled: whether steps are indexed; None: when the trainer logs to W&B.
        phases: what is indexed, of ``train`` and ``eval``.
        queue_size: step indexes that may wait for W&B; more wait in the spool.
        timeout: what one artifact version may take.
        attempts: how often a version is tried, the first time included.
        backoff: before the second attempt; doubled with each further one.
        shutdown_timeout: how long the end of training waits for what is under way.
        keep_steps: for an asynchronous trainer, for how many further steps an attempt waits for the batch that has it.
        spool: the directory in which steps wait until W&B has them; None: the user's own.

    Raises:
        ConfigError: a value makes no sense.
    """

    enabled: bool | None = None
    phases: list[str] = field(default_factory=lambda: ["train"])
    queue_size: int = 16
    timeout: float = 300.0
    attempts: int = 3
    backoff: float = 5.0
    shutdown_timeout: float = 120.0
    keep_steps: int | None = None
    spool: str | None = None

    def __post_init__(self) -> None:
        """Refuse at once what would only fail at the end of the first step."""
        if self.enabled is not None and not isinstance(self.enabled, bool):
            raise ConfigError(f"wandb.enabled is {self.enabled!r}: give true, false, or null for 'as the trainer logs'")
        check_phases(self.phases)
        self.publish_settings()

    def publish_settings(self) -> PublishSettings:
        """Return the publisher's part.

        Raises:
            ConfigError: a value makes no sense.
        """
        return PublishSettings(
            queue_size=self.queue_size,
            timeout_s=self.timeout,
            attempts=self.attempts,
            backoff_s=self.backoff,
            shutdown_timeout_s=self.shutdown_timeout,
        )


@dataclass(kw_only=True)
class RecordsConfig:
    """Where the records of a run are written, mirrored and indexed.

    A relative path, or one with ``~``, is made absolute here: a server on another node, which is handed the settings,
    has other working and home directories.

    Attributes:
        record_dir: the directory that each capture server writes to, on its own disk; None: nothing is recorded.
        record_mirror: the mirror's URL, ``s3://bucket/run-7`` or a shared directory; None: records stay where they are.
        record_mirror_config: the options of ``mirror.MirrorConfig`` that differ from their defaults.
        wandb: how steps are indexed in W&B.

    Raises:
        mirror.ConfigError: a mirror without a record directory, or what a mirror refuses.
    """

    record_dir: str | None = None
    record_mirror: str | None = None
    record_mirror_config: dict[str, Any] = field(default_factory=dict)
    wandb: WandbConfig = field(default_factory=WandbConfig)

    def __post_init__(self) -> None:
        """Refuse at once what no server would start with, and mean the same paths everywhere."""
        settings = self.server_settings()
        self.record_dir = absolute_path(settings.record_dir) if settings.record_dir else settings.record_dir
        if settings.record_mirror and "://" not in settings.record_mirror:
            self.record_mirror = absolute_path(settings.record_mirror)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Make and check settings from a mapping, e.g. of YAML, or from what OmegaConf made of this class.

        Raises:
            ConfigError: a name is unknown (the nearest is suggested), or a value makes no sense.
            mirror.ConfigError: likewise, where the mirror is concerned.
        """
        values = _known(cls, "", mapping)
        wandb = values.pop("wandb", {})
        if not isinstance(wandb, WandbConfig):
            wandb = WandbConfig(**_known(WandbConfig, "wandb.", wandb))
        return cls(wandb=wandb, **values)

    def server_settings(self) -> ServerSettings:
        """Return what every capture server of the run must be started with.

        Raises:
            mirror.ConfigError: a mirror without a record directory, or what a mirror refuses.
        """
        return ServerSettings.of_run(self.record_dir, self.record_mirror, self.record_mirror_config)


def make_record_index(
    config: RecordsConfig, records: RecordLog, *, logger: str | Collection[str] | None = "wandb"
) -> SkycapRecordIndex:
    """Make the training callback that a run is configured with; nothing is started, nobody is asked.

    References are made from the receipts in the run's mirror, which also gets each step's index. Call it before
    ``wandb.init``, whose retries it limits.

    Args:
        config: the run's settings.
        records: the log that the generators add to.
        logger: the trainer's ``trainer.logger``, one name or several, which decides when ``wandb.enabled`` is None.

    Returns:
        The callback; one that only empties ``records`` where W&B is not enabled.

    Raises:
        ConfigError: ``records`` is no log.
    """
    from references.callback import SkycapRecordIndex  # noqa: PLC0415 - a configuration is read without all this
    from references.publisher_process import PublisherProcess  # noqa: PLC0415 - likewise
    from references.spool import Spool  # noqa: PLC0415 - likewise

    wandb = config.wandb
    loggers = [logger] if isinstance(logger, str) else list(logger or ())
    if not ("wandb" in loggers if wandb.enabled is None else wandb.enabled):
        return SkycapRecordIndex(records, (), publisher=_Nobody())
    publisher = PublisherProcess(
        wandb.publish_settings(),
        spool=Spool(wandb.spool),
        mirror=config.record_mirror,
        mirror_config=MirrorConfig.from_mapping(config.record_mirror_config),
    )
    return SkycapRecordIndex(
        records,
        wandb.phases,
        shutdown_timeout=wandb.shutdown_timeout,
        keep_steps=wandb.keep_steps,
        publisher=publisher,
    )


class _Nobody:
    """The publisher of a run that is not indexed: nothing is published."""

    def publish(self, phase: Phase, step: int, build: Callable[[], StepIndex | None], *, run: object | None) -> None:
        """Never called: no phase is indexed."""

    def stats(self) -> Mapping[str, int]:
        """Return nothing."""
        return {}

    def close(self, timeout_s: float) -> bool:  # noqa: ARG002 - nothing to wait for
        """Say that nothing is left."""
        return True


def _known(cls: type[RecordsConfig | WandbConfig], prefix: str, mapping: object) -> dict[str, Any]:
    """Return the values of a mapping whose names are all fields of the class."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{prefix.rstrip('.') or 'the configuration'} is {show(mapping)}: give names and values")
    names = [known.name for known in fields(cls)]
    for name in mapping:
        if name not in names:
            hint = suggest(name, names, f"known are {', '.join(names)}", prefix=prefix)
            full_name = prefix + name if isinstance(name, str) else name
            raise ConfigError(f"unknown setting {show(full_name)}: {hint}")
    return dict(mapping)
