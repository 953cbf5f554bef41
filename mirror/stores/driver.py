"""Which library drives a store: obstore where it can do all that the options ask for, else the one of fsspec."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from mirror.config import MirrorConfig
from mirror.errors import ConfigError
from mirror.location import Location
from mirror.stores.azure_place import AZURE_PROTOCOLS
from mirror.stores.azure_settings import AzureSettings, azure_settings
from mirror.stores.s3_settings import S3Settings, s3_settings
from mirror.stores.unmappable import UnmappableError

_used_in: set[int] = set()  # processes in which obstore has run: its threads do not come along in a fork


@dataclass(frozen=True, slots=True)
class Driver:
    """What drives a store, and why."""

    name: str  # obstore, fsspec, or "files" for a directory
    reason: str
    settings: S3Settings | AzureSettings | None = None  # for obstore


def choose_driver(location: Location, config: MirrorConfig) -> Driver:
    """Decide what drives the store at ``location``.

    Raises:
        ConfigError: obstore is asked for and cannot do it; the sentence says why.
    """
    driver = _driver(location, config)
    if config.driver == "obstore" and driver.name != "obstore" and not _is_forked():
        raise ConfigError(f"driver is set to obstore and cannot be: {driver.reason}; correct that, or set it to auto")
    return driver


def _driver(location: Location, config: MirrorConfig) -> Driver:
    if location.protocol == "file":
        return Driver("files", "a directory is written by the mirror itself")
    try:
        return Driver("obstore", "it can do all that the options ask for", _settings(location, config))
    except UnmappableError as reason:
        return Driver("fsspec", str(reason))


def _settings(location: Location, config: MirrorConfig) -> S3Settings | AzureSettings:
    """Return what obstore is told.

    Raises:
        UnmappableError: it is not for this store; the text says why.
    """
    if location.protocol != "s3" and location.protocol not in AZURE_PROTOCOLS:
        raise UnmappableError(f"obstore is used for s3:// and az:// alone, not for {location.protocol}://")
    if config.driver == "fsspec":
        raise UnmappableError("it was chosen")
    if importlib.util.find_spec("obstore") is None:
        raise UnmappableError("obstore is not installed")
    if config.upload_checksum != "auto":
        raise UnmappableError(f"obstore cannot send the upload_checksum {config.upload_checksum}")
    if _is_forked():
        raise UnmappableError("this process was forked from one in which obstore had run")
    if location.protocol == "s3":
        return s3_settings(config.storage_options)
    settings = azure_settings(location, config.storage_options)
    if urlsplit(settings.endpoint).scheme != "https":
        raise UnmappableError(
            "obstore sends Azure nothing to check an upload by, and the endpoint is plain http: what changes on the "
            "way would go unnoticed without TLS"
        )
    return settings


def note_obstore_runs() -> None:
    """Take note that obstore runs in this process from now on."""
    _used_in.add(os.getpid())


def _is_forked() -> bool:
    return bool(_used_in - {os.getpid()})
