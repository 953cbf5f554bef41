"""From a mirror's URL and the user's storage options to a store."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping

from mirror.config import MirrorConfig
from mirror.errors import ConfigError
from mirror.location import CONTAINER_PROTOCOLS, Location
from mirror.receipts.segments import PREFIX
from mirror.redact import Redactor
from mirror.store import Store
from mirror.stores.azure import AzureStore
from mirror.stores.azure_place import AZURE_PROTOCOLS
from mirror.stores.azure_settings import AzureSettings, secrets_in
from mirror.stores.driver import choose_driver
from mirror.stores.gcs import GcsStore
from mirror.stores.known_options import check_options
from mirror.stores.local import LocalStore
from mirror.stores.obstore_azure import ObstoreAzureStore
from mirror.stores.obstore_s3 import ObstoreS3Store
from mirror.stores.s3 import S3Store
from mirror.stores.s3_settings import S3Settings

_MODULES = {"s3": "s3fs", "gs": "gcsfs", **dict.fromkeys(AZURE_PROTOCOLS, "adlfs")}
_EXTRAS = {"s3": "s3", "gs": "gcs", "abfs": "azure", "abfss": "azure", "az": "azure"}
_WEB = frozenset({"http", "https"})
# What fsspec opens and no mirror can be written to: repositories, archives, and data within a URL.
_READ_ONLY = frozenset({"github", "git", "gist", "dvc", "zip", "tar", "libarchive", "reference", "data"})

StoreOpener = Callable[[Location, MirrorConfig], Store]  # makes a store as ``open_store`` does


def _check_protocol(location: Location) -> None:
    """Make sure that this kind of store can be a mirror, and that something installed can open it.

    Raises:
        ConfigError: it cannot be one, or nothing can; the sentence says what to write or to install.
    """
    if location.protocol == "file":
        return
    if location.protocol in _WEB:
        service = "/".join(location.shown.split("/")[:3])
        raise ConfigError(
            f"{location.shown} is a web address, which can only be read: write s3://bucket/prefix, with the option "
            f"endpoint_url={service} if that is an S3 service"
        )
    if location.protocol in _READ_ONLY:
        raise ConfigError(
            f"{location.shown} can only be read: give a mirror that can be written, such as s3://bucket/prefix, "
            "gs://bucket/prefix or a path"
        )
    module = _MODULES.get(location.protocol)
    if module is not None and importlib.util.find_spec(module) is not None:
        return  # importing it takes half a second: only unusual options and requests need that
    import fsspec  # noqa: PLC0415 - a tenth of a second, where nothing else needs it

    try:
        fsspec.get_filesystem_class(location.protocol)
    except ImportError as error:
        extra = _EXTRAS.get(location.protocol)
        advice = f"pip install 'record-mirror[{extra}]'" if extra else str(error)
        raise ConfigError(f"{location.base} needs a package that is not installed: {advice}") from error
    except (ValueError, AttributeError) as error:  # the latter for what fsspec lists and its package has no more
        raise ConfigError(
            f"no store is known for {location.protocol}:// ({location.base}): use s3://, gs://, a path, or a protocol "
            "that fsspec lists"
        ) from error


def check_settings(location: Location, config: MirrorConfig) -> None:
    """Make sure that a mirror can be opened as its settings say, as far as that shows without contacting anything.

    Raises:
        ConfigError: nothing installed can open it, or its library does not take the storage options.
    """
    _check_protocol(location)
    check_options(location, config.storage_options, _redactor(location, config.storage_options))


def open_store(location: Location, config: MirrorConfig) -> Store:
    """Make the store for a location, as a mirror's settings say; nothing is contacted.

    Raises:
        ConfigError: nothing installed can open it.
    """
    _check_protocol(location)
    options = config.storage_options
    redact = _redactor(location, options)
    if location.protocol == "file":
        return LocalStore(location, redact=redact, threads=config.workers, fsync=config.fsync)
    chosen = choose_driver(location, config).settings
    if location.protocol == "s3":
        checksum = config.upload_checksum
        s3fs = S3Store(location, options, redact=redact, connections=config.workers, upload_checksum=checksum)
        if isinstance(chosen, S3Settings):
            return ObstoreS3Store(location, chosen, redact=redact, asks_before=PREFIX, slow=s3fs)
        return s3fs
    if location.protocol == "gs":
        return GcsStore(location, options, redact=redact)
    if location.protocol in AZURE_PROTOCOLS:
        adlfs = AzureStore(location, options, redact=redact)
        return ObstoreAzureStore(chosen, redact=redact, slow=adlfs) if isinstance(chosen, AzureSettings) else adlfs
    from mirror.stores.generic import FsspecStore  # noqa: PLC0415 - it imports fsspec, which no other store needs at once

    return FsspecStore(location, options, redact=redact, threads=config.workers)


def _redactor(location: Location, options: Mapping[str, object]) -> Redactor:
    user_info = location.root.partition("/")[0].rpartition("@")[0]
    given = [] if location.protocol in CONTAINER_PROTOCOLS else [user_info, user_info.partition(":")[2]]
    given += secrets_in(options) if location.protocol in AZURE_PROTOCOLS else []
    return Redactor({"options": options, "credentials": given})  # some libraries name a place without its protocol
