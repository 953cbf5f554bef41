"""The address by which other nodes reach this one: a record's ``host``."""

from __future__ import annotations

import ipaddress
import socket

from mirror.errors import ConfigError

# Documentation addresses: routed like any other, and never contacted, for connecting a datagram socket sends nothing.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def node_address() -> str:
    """Return this node's own address: the one that its traffic leaves by, else its host name."""
    for family, address in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 9))
                found = str(probe.getsockname()[0])
        except OSError:
            continue
        if not _says_nothing(found):
            return found
    return socket.gethostname()


def record_host(bound: str | None = None, setting: str | None = None) -> str:
    """Return the ``host`` to write into records: the setting, else what a server is bound to if others can reach that.

    A loopback or wildcard address is replaced by the node's own.
    """
    if setting:
        return unbracketed(setting)
    if bound and not _says_nothing(unbracketed(bound)):
        return unbracketed(bound)
    return node_address()


def host_path(host: str | None, path: str) -> str:
    """Return ``host:path`` as scp takes it, an IPv6 host in brackets; the path alone where no host is known."""
    if not host:
        return path
    return f"[{host}]:{path}" if ":" in host else f"{host}:{path}"


def unbracketed(host: str) -> str:
    """Return an address without the brackets that URLs put around IPv6.

    Raises:
        ConfigError: it holds white space or a slash, and so is no address.
    """
    host = host.strip().removeprefix("[").removesuffix("]")
    if not host or any(c.isspace() or c == "/" for c in host):
        raise ConfigError(f"host must be an address such as '10.0.0.5' or 'node-7', not {host!r}")
    return host


def _says_nothing(host: str) -> bool:
    if host in {"localhost", "localhost.localdomain", "*"}:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address  # ::ffff:127.0.0.1 is loopback too
    return address.is_loopback or address.is_unspecified
