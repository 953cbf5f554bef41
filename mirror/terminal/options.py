"""The options of the commands: by flag, by environment, by file; the flag wins, then the environment, then the file.

The settings of a mirror are the fields of ``MirrorConfig`` and nothing beside them; an option's names in the
environment (``RECORD_MIRROR_<OPTION>``) and in a file follow from its flag.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from mirror.config import (
    ALIASES,
    CHECKSUMS,
    DRIVERS,
    ENV_PREFIX,
    MAX_DEPTH,
    SIZES,
    TIMES,
    MirrorConfig,
    file_values,
    measured,
)
from mirror.errors import ConfigError
from mirror.location import GCS_PROTOCOLS, S3_PROTOCOLS
from mirror.measures import parse_bytes, parse_seconds, show_bytes, show_seconds
from mirror.redact import redact_url
from mirror.showing import show, suggest

F = TypeVar("F", bound=Callable[..., Any])

_STORAGE = "storage_options"
_FLAG_ALONE = "storage_option"  # one of those, on a command line; elsewhere they are one table
_STRENGTH = (ParameterSource.DEFAULT_MAP, ParameterSource.ENVIRONMENT, ParameterSource.COMMANDLINE)

# What settings are called on a command line, and what they do there.
_FLAGS: Mapping[str, tuple[str, str]] = {
    "exclude": ("--exclude", "Leave sidecars of these kinds out, e.g. experts,tokens."),
    "workers": ("--workers", "Requests under way at most."),
    "max_bytes_in_flight": ("--max-bytes-in-flight", "Bytes of file contents held in memory at most."),
    "queue_size": ("--queue-size", "Records waiting in memory at most; more wait on disk."),
    "timeout_s": ("--timeout", "Time for one attempt at one request."),
    "attempts": ("--attempts", "Attempts at one request, the first included."),
    "backoff_s": ("--backoff", "Pause before the second attempt; it doubles with each."),
    "shutdown_timeout_s": ("--shutdown-timeout", "How long to go on copying when asked to stop."),
    "rescan_s": ("--rescan", "Time between looks at the whole directory."),
    "host": ("--host", "This node's address in receipts; found out unless given."),
    "fsync": ("--fsync/--no-fsync", "Have a mirror in a directory survive a power cut."),
    "upload_checksum": ("--upload-checksum", "What an S3 store checks uploads by."),
    "driver": ("--driver", "What makes the requests to S3 or Azure."),
}
REQUESTS = ("workers", "timeout_s", "attempts", "backoff_s", "driver")  # what a command that only asks a store needs
COPIES = (*REQUESTS, "exclude", "max_bytes_in_flight", "host", "fsync", "upload_checksum")  # one that also copies
EVERYTHING = tuple(_FLAGS)
CHOICES = {"upload_checksum": CHECKSUMS, "driver": DRIVERS}


class Seconds(click.ParamType):  # type: ignore[type-arg] # generic in click's newest releases only
    """A length of time: ``90``, ``1.5``, ``90s``, ``10m``, ``2h``, ``1d``."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds."""
        try:
            return parse_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType):  # type: ignore[type-arg] # generic in click's newest releases only
    """A number of bytes: ``67108864``, ``64MiB``, ``64MB``."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Share(click.ParamType):  # type: ignore[type-arg] # generic in click's newest releases only
    """A part of a whole: ``5%`` or ``0.05``."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return a number from 0 to 1."""
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is not a share such as 5% or 0.05", param, ctx)
        return share


class Name(click.ParamType):  # type: ignore[type-arg] # generic in click's newest releases only
    """One of several names; separated by commas where only one text can be given."""

    name = "name"
    envvar_list_splitter = ","

    def convert(self, value: object, _param: click.Parameter | None, _ctx: click.Context | None) -> str:
        """Return it without spaces around it."""
        return str(value).strip()


def option(*declarations: str, **attributes: Any) -> Callable[[F], F]:  # noqa: ANN401 - click's own
    """Declare an option that can also be set in the environment, under each of its names."""

    def decorate(function: F) -> F:
        made = click.Option(declarations, **attributes)
        variables = [ENV_PREFIX + name.upper() for name in _names(made)]
        return click.option(*declarations, envvar=variables, **attributes)(function)

    return decorate


def mirror_options(*fields: str) -> Callable[[F], F]:
    """Give a command the settings of these fields of ``MirrorConfig`` and the storage options, as argument ``config``.

    Without fields it has no such options, and gets the defaults.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(**given: Any) -> Any:  # noqa: ANN401 - whatever options the command has
            config = _take_config(click.get_current_context(), fields, given)
            return function(config=config, **given)

        decorated: Any = run
        for add in reversed(list(_declare(fields))):
            decorated = add(decorated)
        return decorated  # type: ignore[no-any-return] # the function it was, with other arguments

    return decorate


def config_file_option(function: F) -> F:
    """Give a command ``--config``, whose values stand in for options that are given nowhere else."""
    return click.option(
        "--config",
        envvar=ENV_PREFIX + "CONFIG",
        type=click.Path(dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=_read_file,
        metavar="FILE",
        help="Read options from this TOML or JSON file.",
    )(function)


def misspelt_variables(root: click.Context) -> Iterator[str]:
    """Yield a sentence for each variable of the environment that is no option's and is named almost like one."""
    known = {name.upper() for name in _known_options(root)} | {"CONFIG", _STORAGE.upper()}
    for variable in sorted(os.environ):
        name = variable.removeprefix(ENV_PREFIX)
        if name == variable or name in known:
            continue
        nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
        if nearest:  # others may be somebody else's, such as a container's that describe a service of this name
            yield f"the environment variable {variable} is no option: did you mean {ENV_PREFIX}{nearest[0]}?"


def parse_storage_option(text: str) -> tuple[list[str], object]:
    """Take ``client_kwargs.region_name=eu-1`` apart; the value is JSON where it is any, else text.

    Raises:
        ConfigError: it has no ``=``, or an empty name.
    """
    name, equals, value = text.partition("=")
    path = name.strip().split(".")
    if not equals or not all(path) or len(path) > MAX_DEPTH:
        raise ConfigError("--storage-option takes NAME=VALUE such as anon=true")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return path, value
    if isinstance(found, bool) or not isinstance(found, int | float):
        return path, found
    from mirror.stores.known_options import TEXTS  # noqa: PLC0415 - a fifth of the time that --help takes

    return path, value if path[-1] in TEXTS else found


def merge(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Return ``base`` with the values of ``over``, table by table."""
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def with_endpoint(options: Mapping[str, object], endpoint_url: str, url: str | None) -> dict[str, object]:
    """Return a mirror's storage options with this endpoint in place of any other; ``url``: the mirror's, where known.

    Raises:
        ConfigError: this kind of store has no such option.
    """
    if url is not None and url.partition("://")[0].lower() not in S3_PROTOCOLS | GCS_PROTOCOLS:
        raise ConfigError(
            f"--endpoint-url is for s3:// and gs:// only, and {redact_url(url)!r} is neither: correct the URL, leave "
            "the endpoint (or RECORD_MIRROR_ENDPOINT_URL) out, or give another store a --storage-option"
        )
    changed = {**options, "endpoint_url": endpoint_url}
    client = changed.get("client_kwargs")
    if isinstance(client, Mapping):
        changed["client_kwargs"] = {name: value for name, value in client.items() if name != "endpoint_url"}
    return changed


def _declare(fields: tuple[str, ...]) -> Iterator[Callable[[F], F]]:
    if not fields:
        return
    plain = MirrorConfig()
    for field in fields:
        flag, text = _FLAGS[field]
        default = getattr(plain, field)
        attributes: dict[str, Any] = {"default": None, "help": text + _shown(field, default)}
        if isinstance(default, tuple):
            attributes |= {"multiple": True, "type": Name()}
        elif field in TIMES:
            attributes |= {"type": Seconds()}
        elif field in SIZES:
            attributes |= {"type": Size()}
        elif field in CHOICES:
            attributes |= {"type": click.Choice(CHOICES[field])}
        elif not isinstance(default, bool):
            attributes |= {"type": type(default) if default is not None else str}
        yield option(flag, field, **attributes)
        if field == "attempts":
            text = "Attempts at one request after the first."
            yield option("--retries", type=click.IntRange(min=0), default=None, help=text)
    # Not by `option`: in the environment these are RECORD_MIRROR_STORAGE_OPTIONS, as JSON.
    text = "An option for the store's library; dots nest: client_kwargs.region_name=eu-1. May be repeated."
    yield click.option("--storage-option", multiple=True, metavar="NAME=VALUE", help=text)
    text = "Where an S3 or GCS service answers that is not at the usual place."
    yield option("--endpoint-url", metavar="URL", default=None, help=text)


def _shown(field: str, default: object) -> str:
    if isinstance(default, bool):
        return f"  [default: {'on' if default else 'off'}]"
    if isinstance(default, float) and field in TIMES:
        return f"  [default: {show_seconds(default)}]"
    if isinstance(default, int) and field in SIZES:
        return f"  [default: {show_bytes(default)}]"
    return f"  [default: {default}]" if isinstance(default, int | str) else ""


def _take_config(ctx: click.Context, fields: tuple[str, ...], given: dict[str, Any]) -> MirrorConfig:
    """Take the mirror's settings out of what a command was given."""
    if not fields:
        return MirrorConfig()
    if "attempts" in fields:
        retries = given.pop("retries")
        if retries is not None and _strength(ctx, "retries") >= _strength(ctx, "attempts"):
            given["attempts"] = retries + 1
    values = {name: value for name in fields if (value := given.pop(name)) not in {None, ()}}
    if "exclude" in values:
        values["exclude"] = [kind for kinds in values["exclude"] for kind in _listed(kinds)]
    storage: dict[str, object] = dict(ctx.meta.get(_STORAGE, {}))
    variable = ENV_PREFIX + _STORAGE.upper()
    if variable in os.environ:
        storage = merge(storage, MirrorConfig.from_environment({variable: os.environ[variable]}).storage_options)
    for text in given.pop("storage_option"):
        path, value = parse_storage_option(text)
        storage = merge(storage, functools.reduce(lambda inner, name: {name: inner}, reversed(path), value))  # type: ignore[arg-type] # each round wraps it into a table
    endpoint_url = given.pop("endpoint_url")
    if endpoint_url is not None:
        storage = with_endpoint(storage, endpoint_url, given.get("url"))
    return MirrorConfig.from_mapping(values, storage_options=storage)


def _listed(text: str) -> list[str]:
    return [stripped for part in text.split(",") if (stripped := part.strip())]


def _strength(ctx: click.Context, name: str) -> int:
    source = ctx.get_parameter_source(name)
    return _STRENGTH.index(source) if source in _STRENGTH else -1


def _read_file(ctx: click.Context, _parameter: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    known = _known_options(ctx.find_root())
    settings = MirrorConfig.__dataclass_fields__
    values: dict[str, object] = {}
    mirror_values: dict[str, object] = {}
    for name, value in file_values(path).items():
        plain = name.replace("-", "_")
        field = ALIASES.get(plain, plain)
        if field in settings:
            listed = field == "exclude" and isinstance(value, str)
            mirror_values[field] = _listed(str(value)) if listed else measured(name, value)
        elif plain in known:
            one = known[plain].multiple and isinstance(value, str)
            values[str(known[plain].name)] = [value] if one else value
        else:
            hint = suggest(plain, [*known, *settings], "`--help` lists the options")
            raise ConfigError(f"unknown option {show(name)} in {path}: {hint}")
    config = MirrorConfig.from_mapping(mirror_values)
    ctx.meta[_STORAGE] = config.storage_options
    ctx.default_map = values | {name: getattr(config, name) for name in mirror_values if name != _STORAGE}


def _known_options(root: click.Context) -> dict[str, click.Option]:
    """Return the options of every command by their names in a file: one file serves them all."""
    group = root.command
    commands = [group]
    if isinstance(group, click.Group):
        commands = [command for name in group.list_commands(root) if (command := group.get_command(root, name))]
    options = [found for command in commands for found in command.params if isinstance(found, click.Option)]
    names = {name: found for found in options if found.expose_value for name in _names(found)}
    names.pop(_FLAG_ALONE, None)
    return names


def _names(made: click.Option) -> list[str]:
    """Return the names of an option in a file: of its setting, and of its flags."""
    flags = [flag[2:].replace("-", "_") for flag in made.opts if flag.startswith("--")]
    return list(dict.fromkeys([str(made.name), *flags]))
