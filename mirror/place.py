"""What a mirror is called beside the records: one place has one name, however it is reached, and no other has it.

What is in one place says nothing about another; and a place under two names would be two mirrors that do not hear of
each other.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping

from mirror.location import Location, endpoint_of
from mirror.redact import redact_url
from mirror.stores.azure_place import AZURE_PROTOCOLS, PUBLIC_SUFFIX, place_of

_WHERE = ("account_host", "account_name", "host", "port")  # options of other stores that say which one it is
_AT = "\tat "  # no URL has a tab
_IN_A_CONNECTION_STRING = re.compile(r"(?:^|;)\s*(AccountName|BlobEndpoint)\s*=([^;]*)", re.IGNORECASE)


def place_id(location: Location, options: Mapping[str, object]) -> str:
    """Name a mirror: readable, and distinct for distinct places.

    The same URL at another endpoint, or in another account, is another place; a key is no part of it.
    """
    identity = _identity(location, options)
    digest = hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", redact_url(identity.partition("\n")[0])).strip("-")[:60]
    return f"{readable}-{digest}"


def words_for_place(location: Location, options: Mapping[str, object]) -> str:
    """Say on one line which place it is: the URL and, behind a tab, the endpoint or account where it has one."""
    if location.directory is not None:
        return location.shown
    more = [part for part in _identity(location, options).split("\n")[1:] if part and part not in location.base]
    return location.shown + (_AT + redact_url(", ".join(more)) if more else "")


def part_words(words: str) -> tuple[str, str | None]:
    """Take such a line apart: the URL, and where that is."""
    url, _, where = words.partition(_AT)
    return url, where or None


def _identity(location: Location, options: Mapping[str, object]) -> str:
    if location.directory is not None:
        return f"file://{os.path.realpath(location.root)}"
    if location.protocol in AZURE_PROTOCOLS:
        return _in_azure(location, options, os.environ)
    endpoint = endpoint_of(location.protocol, options, os.environ) or ""
    where = "".join(f"\n{name}={options[name]}" for name in _WHERE if options.get(name))
    return f"{location.base}\n{endpoint}{where}"


def _in_azure(location: Location, options: Mapping[str, object], environment: Mapping[str, str]) -> str:
    """Tell a container and prefix by account and endpoint, whether URL, options or environment name them."""
    container, prefix, account = place_of(location)
    string = str(options.get("connection_string") or environment.get("AZURE_STORAGE_CONNECTION_STRING") or "")
    parts = {name.lower(): value.strip() for name, value in _IN_A_CONNECTION_STRING.findall(string)}
    account = (
        parts.get("accountname")
        or account
        or str(options.get("account_name") or environment.get("AZURE_STORAGE_ACCOUNT_NAME") or "")
    )
    endpoint = (parts.get("blobendpoint") or str(options.get("account_host") or "")).rstrip("/")
    is_usual = endpoint.removeprefix("https://") == f"{account}.blob.{PUBLIC_SUFFIX}"
    return f"az://{container}/{prefix}\n{account}\n{'' if is_usual else endpoint}"
