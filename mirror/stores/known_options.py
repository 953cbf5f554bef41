"""Are storage options such as the store's library takes? Found out before anything is asked: nothing is contacted.

Options that are in use everywhere are known here. For any other the library itself is asked, which takes half a second
to import and would be needed for them anyway.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from mirror.errors import ConfigError
from mirror.importing import importing
from mirror.location import Location
from mirror.showing import show, suggest
from mirror.stores.azure_place import AZURE_PROTOCOLS
from mirror.stores.azure_settings import azure_settings
from mirror.stores.s3_settings import s3_settings
from mirror.stores.translate import raise_alone
from mirror.stores.unmappable import UnmappableError
from mirror.stores.words import about_options

_AZURE_TEXTS = ("account_name", "account_key", "connection_string", "sas_token", "client_id", "client_secret")
_TEXTS = {
    "s3": ("endpoint_url", "key", "secret", "token", "username", "password", "profile"),
    "gs": ("endpoint_url", "access"),
    **dict.fromkeys(AZURE_PROTOCOLS, (*_AZURE_TEXTS, "tenant_id", "account_host", "location_mode")),
}
_SWITCHES = {
    "s3": ("anon", "use_ssl", "requester_pays", "version_aware"),
    "gs": ("version_aware",),
    **dict.fromkeys(AZURE_PROTOCOLS, ("anon", "version_aware", "assume_container_exists")),
}
_TABLES = {"s3": ("client_kwargs", "config_kwargs", "s3_additional_kwargs"), "gs": ("session_kwargs",)}
# Numbers on a command line that are meant as text: whatever looks like one is a fine key or name.
TEXTS = frozenset(name for names in _TEXTS.values() for name in names)
_USUAL_GCS = {"project", "access", "token", "endpoint_url", "requests_timeout", "requester_pays", "timeout"}
# What every filesystem of fsspec takes, whether or not its own signature says so.
_FSSPEC = {
    *("skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths"),
    *("asynchronous", "loop", "batch_size"),
}
# What gcsfs takes out of whatever else it is given.
_UNSIGNED_GCS = {
    *("retry_timeout", "retry_initial", "retry_maximum", "retry_multiplier"),
    *("memmove_max_workers", "consistency"),
}
# What adlfs hands on to Azure's DefaultAzureCredential.
_AZURE_CREDENTIAL = re.compile(
    r"exclude_\w+_credential|\w+_(client|tenant)_id|\w+_tenant_name|authority|shared_cache_username|process_timeout|"
    r"additionally_allowed_tenants|\w+_resource_id"
)


def check_options(location: Location, options: Mapping[str, object], redact: Callable[[str], str]) -> None:
    """Make sure that the library for a location takes these options, as far as that shows without a request.

    Raises:
        ConfigError: an option has the wrong type, or the library does not know it or refuses its value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return
    if location.protocol == "file":
        _check_directory(given)
        return
    _check_types(location.protocol, given)
    with importing:
        if location.protocol == "s3":
            _check_s3(given, redact)
        elif location.protocol == "gs":
            _check_gcs(given)
        elif location.protocol in AZURE_PROTOCOLS:
            _check_azure(location, given)
        else:
            _check_other(location, given)


def _check_types(protocol: str, options: Mapping[str, object]) -> None:
    for names, wanted, words in (
        (_TEXTS, str, "text: put it in double quotes"),
        (_SWITCHES, bool, "true or false"),
        (_TABLES, Mapping, "a table of options"),
    ):
        for name in names.get(protocol, ()):
            value = options.get(name)
            if value is not None and not isinstance(value, wanted):
                raise ConfigError(f"the storage option {name!r} is {_kind(value)} and must be {words}")


def _check_directory(options: Mapping[str, object]) -> None:
    """Whoever gives one that means something most likely left out what a URL of another store begins with."""
    for name in options:
        if name not in {"auto_mkdir", *_FSSPEC}:
            raise ConfigError(
                f"a mirror in a directory takes no storage options, but {show(name)} is given: leave that out, or "
                "correct the mirror's URL, which begins like s3://bucket for any other store"
            )


def _check_s3(options: Mapping[str, object], redact: Callable[[str], str]) -> None:
    try:
        s3_settings(options)
    except UnmappableError:
        pass
    else:
        return
    from aiobotocore.config import AioConfig  # noqa: PLC0415 - heavy, and seldom needed
    from aiobotocore.session import AioSession  # noqa: PLC0415 - likewise
    from botocore.session import Session  # noqa: PLC0415 - likewise
    from s3fs import S3FileSystem  # noqa: PLC0415 - likewise

    # s3fs hands what it does not know to the session of its client.
    own, of_session = _parameters(S3FileSystem.__init__), _parameters(AioSession.__init__)
    _check_names(options, {*own, *of_session, *_FSSPEC}, "s3fs")
    client, config, extras = (dict(_table(options, name)) for name in _TABLES["s3"])
    _check_names(client, set(_parameters(Session.create_client)) - {"service_name", "config"}, "client_kwargs")
    if extras:
        # s3fs gives each request what it takes of them: they may be shared with who makes others.
        service = Session().get_service_model("s3")
        shapes = [service.operation_model(request).input_shape for request in service.operation_names]
        accepted = {name for shape in shapes if shape is not None for name in shape.members}
        _check_names(extras, {*accepted, "acl"}, "s3_additional_kwargs")
    try:
        AioConfig(**config)
        S3FileSystem(**{**options, "asynchronous": True, "skip_instance_cache": True})
    except Exception as error:  # noqa: BLE001 - whatever they say, it is about these options
        said = " ".join(str(error.args[0] if error.args else error).split())
        raise_alone(ConfigError(about_options(redact(said))))


def _check_gcs(options: Mapping[str, object]) -> None:
    if set(options) <= _USUAL_GCS:
        return
    from gcsfs import GCSFileSystem  # noqa: PLC0415 - heavy, and seldom needed

    # It ignores what it does not know, and making one asks for credentials.
    _check_names(options, {*_parameters_of_class(GCSFileSystem), *_UNSIGNED_GCS, *_FSSPEC}, "gcsfs")


def _check_azure(location: Location, options: Mapping[str, object]) -> None:
    try:
        azure_settings(location, options)
    except UnmappableError:
        pass
    else:
        return
    from adlfs import AzureBlobFileSystem  # noqa: PLC0415 - heavy, and seldom needed

    own = [name for name in options if not _AZURE_CREDENTIAL.fullmatch(name)]
    _check_names(own, {*_parameters_of_class(AzureBlobFileSystem), *_FSSPEC}, "adlfs")


def _check_other(location: Location, options: Mapping[str, object]) -> None:
    """Ask what is known only by fsspec's interface; one that takes anything keeps to itself what it knows."""
    import fsspec  # noqa: PLC0415 - a tenth of a second, where nothing else needs it

    made = inspect.signature(fsspec.get_filesystem_class(location.protocol).__init__)
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in made.parameters.values()):
        _check_names(options, {*made.parameters, "skip_instance_cache"}, location.protocol)


def _check_names(given: Iterable[str], known: Collection[str], where: str) -> None:
    for name in given:
        if name not in known:
            hint = suggest(name, sorted(known), "correct its name, or leave it out")
            raise ConfigError(f"{where} has no storage option {show(name)}: {hint}")


def _parameters(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the names that a function takes, without those that stand for any other."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY} and parameter.name != "self":
            yield parameter.name


def _parameters_of_class(filesystem: type) -> Iterator[str]:
    for base in filesystem.__mro__:
        if "__init__" in vars(base) and base is not object:
            yield from _parameters(vars(base)["__init__"])


def _table(options: Mapping[str, object], name: str) -> Mapping[str, object]:
    table = options.get(name)
    return table if isinstance(table, Mapping) else {}


def _kind(value: object) -> str:
    """Say what a wrong value is, and not what it says: it may be a secret."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    return "a table" if isinstance(value, Mapping) else f"a {type(value).__name__}"
