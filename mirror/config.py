"""The settings of a mirror, from keyword arguments, a mapping, the environment or a file; checked when made."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self, TypedDict

from mirror.errors import ConfigError
from mirror.measures import parse_bytes, parse_seconds
from mirror.redact import redact_url
from mirror.showing import show, suggest

ENV_PREFIX = "RECORD_MIRROR_"
# Names that configurations already use.
ALIASES = {
    "timeout": "timeout_s",
    "backoff": "backoff_s",
    "shutdown_timeout": "shutdown_timeout_s",
    "rescan": "rescan_s",
}
TIMES = ("timeout_s", "backoff_s", "shutdown_timeout_s", "rescan_s")
SIZES = ("max_bytes_in_flight",)
CHECKSUMS = ("auto", "xxh3_128", "md5")
DRIVERS = ("auto", "fsspec", "obstore")
MAX_COUNT = (1 << 31) - 1
MAX_BYTES = (1 << 63) - 1
MAX_TIME_S = 1e9  # some thirty years; threads cannot wait for much longer
MAX_FILE_BYTES = 1 << 16  # of a configuration
MAX_DEPTH = 32  # of tables within tables
_KIND = re.compile(r"[^\s.,;/\\\x00-\x1f\x7f-\x9f]{1,200}")
_HOST = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,255}")


class MirrorOptions(TypedDict, total=False):
    """The options of ``MirrorConfig`` as keyword arguments, with the older names."""

    exclude: Collection[str]
    workers: int
    max_bytes_in_flight: int
    queue_size: int
    timeout_s: float
    timeout: float
    attempts: int
    backoff_s: float
    backoff: float
    shutdown_timeout_s: float
    shutdown_timeout: float
    rescan_s: float
    host: str | None
    fsync: bool
    upload_checksum: str
    driver: str
    storage_options: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorConfig:
    """How a mirror copies. All times are in seconds, all sizes in bytes.

    Raises:
        ConfigError: a value has the wrong type or is out of range.
    """

    exclude: tuple[str, ...] = ()  # sidecar kinds that are not copied
    workers: int = 128  # requests under way at most
    max_bytes_in_flight: int = 64 << 20  # of file contents held in memory at most
    queue_size: int = 100_000  # records waiting at most; more are late, and found again on disk
    timeout_s: float = 60.0  # of one attempt at one request; doubled for the next when it ran out
    attempts: int = 5  # at one request, the first included
    backoff_s: float = 0.5  # before the second attempt; doubles with each
    shutdown_timeout_s: float = 30.0  # how long close() drains unless told otherwise
    rescan_s: float = 60.0  # between looks for late records on disk
    host: str | None = None  # this node's address in receipts and records; None: found out
    fsync: bool = True  # a mirror in a directory survives a power cut
    upload_checksum: str = "auto"  # what an S3 store checks an upload by: xxh3_128 (AWS), md5 (elsewhere)
    driver: str = "auto"  # what asks S3 or Azure: obstore (faster), fsspec's (s3fs, adlfs), or what fits the options
    storage_options: Mapping[str, object] = field(default_factory=dict, repr=False)  # handed to fsspec untouched

    def __post_init__(self) -> None:
        """Check every value, and make them immutable."""
        object.__setattr__(self, "exclude", _kinds(self.exclude))
        object.__setattr__(self, "storage_options", _options(self.storage_options))
        for name in ("workers", "queue_size", "attempts"):
            _check_int(name, getattr(self, name), MAX_COUNT)
        _check_int("max_bytes_in_flight", self.max_bytes_in_flight, MAX_BYTES)
        for name in TIMES:
            object.__setattr__(self, name, _seconds(name, getattr(self, name)))
        if not self.timeout_s:
            raise ConfigError("timeout_s must be more than 0 seconds")
        if not isinstance(self.fsync, bool):
            raise ConfigError(f"fsync must be true or false, not {show(self.fsync)}")
        if self.host is not None and (not isinstance(self.host, str) or not _HOST.fullmatch(self.host)):
            raise ConfigError(f"host must be an address such as '10.0.0.5', not {show(self.host)}")
        for name, known in (("upload_checksum", CHECKSUMS), ("driver", DRIVERS)):
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, not {show(getattr(self, name))}")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object] | None = None, /, **more: object) -> Self:
        """Make settings from a mapping, e.g. a run's ``record_mirror_config``; keyword arguments win.

        Raises:
            ConfigError: a name is unknown (the nearest is suggested), or a value is wrong.
        """
        if mapping is not None and not isinstance(mapping, Mapping):
            raise ConfigError(f"record_mirror_config must be a mapping of options, not {type(mapping).__name__}")
        values: dict[str, Any] = {}
        for name, value in [*(mapping or {}).items(), *more.items()]:
            values[_known(str(name))] = value
        return cls(**values)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Make settings from ``RECORD_MIRROR_<OPTION>`` variables; lists are comma-separated, storage options JSON.

        Raises:
            ConfigError: a value cannot be read.
        """
        given = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for option in fields(cls):
            variable = ENV_PREFIX + option.name.upper()
            if variable in given:
                values[option.name] = _from_text(variable, option.name, given[variable])
        return cls(**values)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Make settings from a TOML or JSON file with the options at its top.

        Raises:
            ConfigError: the file cannot be read, or an option is unknown or wrong.
        """
        return cls.from_mapping({name: measured(name, value) for name, value in file_values(path).items()})

    def as_mapping(self) -> dict[str, object]:
        """Return the options that differ from their defaults, as ``from_mapping`` takes them."""
        plain = MirrorConfig()
        return {
            option.name: list(value) if isinstance(value, tuple) else value
            for option in fields(self)
            if (value := getattr(self, option.name)) != getattr(plain, option.name)
        }


def file_values(path: str | os.PathLike[str]) -> dict[str, object]:
    """Read the options of a TOML or JSON file.

    Raises:
        ConfigError: it cannot be read.
    """
    file = Path(path)
    if file.suffix in {".yaml", ".yml"}:
        raise ConfigError(f"the configuration file {file} must be TOML or JSON, not YAML")
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(f"the configuration file {file} is longer than the {MAX_FILE_BYTES} bytes that are read")
        text = data.decode()
        values = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"the configuration file {file} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration file {file} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"the configuration file {file} must hold a table of options")
    return values


def measured(name: str, value: object) -> object:
    """Return an option's value from a file: a time or a size may be written with its unit, such as ``"10m"``.

    Raises:
        ConfigError: it is neither.
    """
    field_name = ALIASES.get(name, name)
    if not isinstance(value, str) or field_name not in TIMES + SIZES:
        return value
    try:
        return parse_seconds(value) if field_name in TIMES else parse_bytes(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None


def _from_text(variable: str, option: str, text: str) -> object:
    default = getattr(MirrorConfig(), option)
    try:
        if isinstance(default, bool):
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        if option in TIMES + SIZES:
            return parse_seconds(text) if option in TIMES else parse_bytes(text)
        if isinstance(default, int):
            return int(text)
        if isinstance(default, tuple):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if isinstance(default, Mapping):
            return json.loads(text)
    except (ValueError, KeyError, RecursionError):
        kind = "JSON" if isinstance(default, Mapping) else type(default).__name__
        kind = "time such as 10m" if option in TIMES else "size such as 64MiB" if option in SIZES else kind
        raise ConfigError(f"the environment variable {variable} must hold a valid {kind}") from None
    return text


def _known(name: str) -> str:
    name = ALIASES.get(name, name)
    known = [option.name for option in fields(MirrorConfig)]
    if name in known:
        return name
    hint = suggest(name, [*known, *ALIASES], f"known are {', '.join(known)}")
    raise ConfigError(f"unknown mirror option {show(name)}: {hint}")


def _kinds(value: object) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Collection):
        raise ConfigError(f"exclude must be a list of sidecar kinds such as ['experts'], not {show(value)}")
    for kind in value:
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise ConfigError(f"exclude must list sidecar kinds such as 'experts', not {show(kind)}")
        if kind == "json":
            raise ConfigError("exclude lists 'json', which is the document itself: it is always copied")
    return tuple(sorted(set(value)))


def _options(value: object) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"storage_options must be a mapping that fsspec takes, not {type(value).__name__}")
    options = {str(name): _plain(inner) for name, inner in value.items()}
    client = options.get("client_kwargs")
    for endpoint in (options.get("endpoint_url"), client.get("endpoint_url") if isinstance(client, dict) else None):
        if isinstance(endpoint, str) and "://" not in endpoint:
            shown = redact_url(f"http://{endpoint}")
            raise ConfigError(f"the endpoint_url has no protocol: write {shown} or the same with https://")
    return options


def _plain(value: object, depth: int = 1) -> object:
    """Turn a configuration library's containers into plain ones, which the stores' libraries expect."""
    if depth > MAX_DEPTH:
        raise ConfigError(f"storage_options nests tables more than {MAX_DEPTH} deep: no store takes such")
    if isinstance(value, Mapping):
        return {str(name): _plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, Collection) and not isinstance(value, str | bytes | tuple | set | frozenset):
        return [_plain(inner, depth + 1) for inner in value]
    return value


def _check_int(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be a whole number, not {show(value)}")
    if value < 1:
        raise ConfigError(f"{name} must be at least 1, not {show(value)}")
    if value > most:
        raise ConfigError(f"{name} must be at most {most}, not more")


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN alone
        raise ConfigError(f"{name} must be a number of seconds, not {show(value)}")
    if value < 0:
        raise ConfigError(f"{name} must not be negative, not {show(value)}")
    if value > MAX_TIME_S:
        raise ConfigError(f"{name} must be a number of seconds, at most {MAX_TIME_S:.0f}")
    return float(value)
