"""Which mirrors are opened for what a row names, and how their receipts are found."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror import MirrorConfig
from mirror.breaker import Breaker
from mirror.errors import AccessDeniedError
from mirror.limiter import Limiter
from mirror.location import parse_location
from mirror.reliable import ReliableStore
from mirror.retry import RetryPolicy
from mirror.testing.stores import FaultyStore, MemoryStore, Raise, StoreFault
from references.mirrors import REMOTE_PROTOCOLS, Mirrors, OpenMirror, RefusedMirrorError, named_mirror
from references.run_index import RecordLocation
from tests.mirror.places import DirectoryPlace
from tests.references.whole_runs import SampleRun


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


def test_a_records_own_mirror_comes_first(tmp_path: Path) -> None:
    """Two mirrors know the id: the one that the row names is asked before any other."""
    runs = [SampleRun(DirectoryPlace(tmp_path / f"mirror{n}"), tmp_path / f"records{n}") for n in range(2)]
    for seed, run in enumerate(runs):
        run.step(1, ["tr_a"], seed=seed)

    async def look() -> None:
        mirrors = Mirrors(MirrorConfig(), given=None, allow_protocols=["file"])
        opened = [mirrors.of(run.promised("tr_a")) for run in runs]
        for mirror in opened:
            assert mirror is not None
            await mirror.read()
        for mirror, run in zip(opened, runs, strict=True):
            assert mirrors.find("tr_a", mirror) == (mirror, run.receipts()["tr_a"])
        assert mirrors.find("tr_a") is not None
        assert mirrors.find("tr_b") is None
        assert mirrors.of(RecordLocation(path="/data/tr_c.json.zst")) is None
        await mirrors.aclose()

    asyncio.run(look())


def test_receipts_that_cannot_be_read_are_not_asked_for_with_each_record() -> None:
    """One refusal answers for all of them."""

    async def look() -> None:
        denied = AccessDeniedError("list", "_receipts/", "no")
        faulty = FaultyStore(MemoryStore(), StoreFault(action=Raise(error=denied)))
        policy = RetryPolicy(attempts=1, backoff_s=0, timeout_s=5)
        store = ReliableStore(faulty, policy, limiter=Limiter(1), breaker=Breaker("store"))
        mirror = OpenMirror(parse_location("memory://x"), store)
        for _ in range(3):
            with pytest.raises(AccessDeniedError):
                await mirror.read()
        await mirror.aclose()

    asyncio.run(look())
