"""Which mirrors are opened for what a row names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.mirrors import REMOTE_PROTOCOLS, RefusedMirrorError, named_mirror


@pytest.mark.parametrize(
    ("uri", "base"),
    [
        ("s3://bucket/run-7/tr.json.zst", "s3://bucket/run-7"),
        ("s3://bucket/tr.json.zst", "s3://bucket"),
        ("gs://bucket/odd #?::/tr.json.zst", "gs://bucket/odd #?::"),
        ("abfs://container@account.dfs.core.windows.net/run/tr.json.zst", None),
    ],
)
def test_stores_elsewhere_may_be_named(uri: str, base: str | None) -> None:
    """The mirror is what the document's URI has above its name."""
    assert named_mirror(uri).base == (base or uri.rpartition("/")[0])


@pytest.mark.parametrize("protocol", ["file", "memory", "sftp", "http"])
def test_any_other_protocol_needs_leave(protocol: str) -> None:
    """Each by its name, and by that alone."""
    uri = f"{protocol}:///host/run/tr.json.zst"
    with pytest.raises(RefusedMirrorError, match=rf"allow its protocol \({protocol}\)"):
        named_mirror(uri, {"ftp"})
    assert named_mirror(uri, {protocol}).protocol == protocol


@given(st.text() | st.from_regex(r"[a-z:.+/]{0,12}:{1,2}/{0,3}[a-z@:/.]*", fullmatch=True))
def test_nothing_but_a_store_elsewhere_passes(uri: str) -> None:
    """Whatever a row says, it opens a remote store or is refused."""
    try:
        location = named_mirror(uri)
    except RefusedMirrorError:
        return
    assert location.protocol in REMOTE_PROTOCOLS
    assert "::" not in uri.partition("://")[0]
