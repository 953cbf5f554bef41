"""The address that a record says it is at can be reached from other nodes."""

from __future__ import annotations

import pytest

from mirror.address import host_path, node_address, record_host, unbracketed
from mirror.errors import ConfigError

UNREACHABLE = ["127.0.0.1", "127.8.8.8", "localhost", "0.0.0.0", "::", "::1", "[::1]", "*", "", None]  # noqa: S104 - not bound


@pytest.mark.parametrize("bound", [*UNREACHABLE, "::ffff:127.0.0.1", "[::ffff:0.0.0.0]"])
def test_a_loopback_or_wildcard_address_is_replaced_by_the_nodes_own(bound: str | None) -> None:
    """What only this node can reach is never written into a record."""
    assert record_host(bound) == node_address()


@pytest.mark.parametrize(
    ("bound", "host"),
    [
        ("10.0.0.5", "10.0.0.5"),
        ("node-7.cluster", "node-7.cluster"),
        ("[fd00::5]", "fd00::5"),
        ("fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_an_address_that_others_reach_is_kept(bound: str, host: str) -> None:
    """A server bound to one address is known by it; IPv6 stands without brackets."""
    assert record_host(bound) == host


@pytest.mark.parametrize("bound", ["10.0.0.5", *UNREACHABLE])
def test_a_setting_overrides_everything(bound: str | None) -> None:
    """Whoever sets an address knows the network better."""
    assert record_host(bound, "gateway-3") == "gateway-3"
    assert record_host(bound, "[fd00::9]") == "fd00::9"


def test_the_nodes_own_address_says_something() -> None:
    """It is never loopback or a wildcard, and has no white space."""
    address = node_address()
    assert address
    assert address not in {"localhost", "0.0.0.0", "::", "::1"}  # noqa: S104 - compared, not bound
    assert not address.startswith("127.")
    assert unbracketed(address) == address


@pytest.mark.parametrize("setting", ["http://10.0.0.5", "10.0.0.5/data", "my host", " "])
def test_what_is_no_address_is_refused(setting: str) -> None:
    """A URL, a path or a sentence is no address; the error shows what one looks like."""
    with pytest.raises(ConfigError, match=r"10\.0\.0\.5"):
        record_host(None, setting)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("10.0.0.5", "10.0.0.5:/data/x"),
        ("node", "node:/data/x"),
        ("fd00::5", "[fd00::5]:/data/x"),
        (None, "/data/x"),
        ("", "/data/x"),
    ],
)
def test_host_and_path_are_written_as_scp_takes_them(host: str | None, expected: str) -> None:
    """An IPv6 address is bracketed, an unknown one left out."""
    assert host_path(host, "/data/x") == expected
