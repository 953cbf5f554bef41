"""Where in Azure a mirror is: the container, the prefix, and the account where the URL names one."""

from __future__ import annotations

import re
from typing import NamedTuple

from mirror.location import Location

PUBLIC_SUFFIX = "core.windows.net"
AZURE_PROTOCOLS = frozenset({"az", "abfs", "abfss"})
_HOST = re.compile(r"(.+)\.(?:dfs|blob)\.core\.windows\.net")  # of which adlfs takes the account
_HOST_ALONE = ".dfs.core.windows.net"  # a place that ends so is no container: that is the first part of the path


class AzurePlace(NamedTuple):
    """A prefix in a container."""

    container: str
    prefix: str  # empty, or with a slash at its end
    account: str | None  # None: the options name it


def place_of(location: Location) -> AzurePlace:
    """Take apart what adlfs would: ``container/prefix``, or ``container@account.dfs.core.windows.net/prefix``."""
    first, _, prefix = location.root.partition("/")
    container, at, host = first.partition("@")
    if not at and container.endswith(_HOST_ALONE):
        host = container
        container, _, prefix = prefix.partition("/")
    named = _HOST.fullmatch(host)
    return AzurePlace(container, f"{prefix}/" if prefix else "", named[1] if named else None)
