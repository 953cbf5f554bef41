"""A pull from a real S3 server through a proxy: what it asks for, what it outlasts, what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mirror import MirrorConfig, StoreError
from mirror.testing import (
    READER,
    Answer,
    Fault,
    FaultProxy,
    FlipReplyBit,
    Hang,
    Reset,
    SeaweedS3,
    TruncateReply,
    requests_to,
    s3_error,
)
from references.pull import pull
from references.pull_plan import PullSummary, Why
from tests.mirror.local_records import tree
from tests.mirror.places import S3Place
from tests.references.whole_runs import SampleRun

pytestmark = pytest.mark.integration

TEN = [f"tr_{number}" for number in range(10)]
ROOT = Path(__file__).parents[2]
PULL = """
import json, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job is born deaf to it
from mirror import MirrorConfig
from references.pull import pull
pull(sys.argv[1], sys.argv[2], config=MirrorConfig(storage_options=json.loads(sys.argv[3])))
"""


@pytest.fixture
def run(seaweed: SeaweedS3, s3_bucket: str, tmp_path: Path) -> SampleRun:
    """A run of one step of ten records."""
    sample = SampleRun(S3Place(seaweed, s3_bucket), tmp_path / "records")
    sample.step(1, TEN)
    return sample


def pulled(run: SampleRun, proxy: FaultProxy, out: Path, **config: Any) -> PullSummary:  # noqa: ANN401 - mirror options
    """Pull through the proxy."""
    options = {"backoff_s": 0.05, "storage_options": run.place.options(via=proxy.url), **config}
    return pull(run.place.url, out, config=MirrorConfig(**options))


def bodies(proxy: FaultProxy) -> list[str]:
    """Return which record files were asked for."""
    names = [request.path.partition("?")[0].rpartition("/")[2] for request in proxy.requests if request.method == "GET"]
    return sorted(name for name in names if name.endswith(".zst"))


def test_each_file_is_asked_for_once_and_no_more_when_it_is_here(
    run: SampleRun, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """One GET a file, no HEAD; a second pull reads receipts and indexes, and no record file."""
    pulled(run, s3_proxy, tmp_path / "out")
    assert bodies(s3_proxy) == sorted(file.name for receipt in run.receipts().values() for file in receipt.files)
    assert s3_proxy.counts["HEAD"] == s3_proxy.counts["PUT"] == 0
    s3_proxy.clear()
    assert pulled(run, s3_proxy, tmp_path / "out").unchanged_records == 10
    assert bodies(s3_proxy) == []


def test_two_thousand_records_come_and_are_not_asked_for_again(
    seaweed: SeaweedS3, s3_bucket: str, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Complete and verified by hash; the second pull makes no request for a record file."""
    sample = SampleRun(S3Place(seaweed, s3_bucket), tmp_path / "records")
    for step in range(4):
        sample.step(step, [f"tr_{step}_{number}" for number in range(500)])
    summary = pulled(sample, s3_proxy, tmp_path / "out")
    assert (summary.copied_records, summary.is_complete) == (2_000, True)
    assert tree(tmp_path / "out" / "train") == sample.pulled()
    s3_proxy.clear()
    assert pulled(sample, s3_proxy, tmp_path / "out").unchanged_records == 2_000
    assert bodies(s3_proxy) == []


def test_a_reader_needs_no_right_but_to_read(run: SampleRun, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """Credentials that may only read and list will do."""
    options = run.place.server.storage_options(READER, url=s3_proxy.url) if isinstance(run.place, S3Place) else {}
    assert pulled(run, s3_proxy, tmp_path / "out", storage_options=options).is_complete


@pytest.mark.parametrize(
    "action",
    [
        FlipReplyBit(at=10),
        TruncateReply(after_bytes=10),
        Reset(),
        Answer(s3_error(503, "SlowDown")),
        Answer(s3_error(500, "InternalError")),
    ],
    ids=["flipped", "cut short", "reset", "slow down", "internal error"],
)
def test_what_breaks_on_the_way_is_asked_for_again(
    run: SampleRun,
    s3_proxy: FaultProxy,
    tmp_path: Path,
    action: Any,  # noqa: ANN401 - any fault's action
) -> None:
    """A passing fault costs a request, and never lets wrong bytes in."""
    s3_proxy.script(Fault(action=action, match=requests_to("GET", "tr_3.")))
    assert pulled(run, s3_proxy, tmp_path / "out").is_complete
    assert s3_proxy.remaining_faults == 0
    assert tree(tmp_path / "out" / "train") == run.pulled()


def test_an_answer_that_never_comes_is_given_up(run: SampleRun, s3_proxy: FaultProxy, tmp_path: Path) -> None:
    """After the timeout the file is asked for again."""
    s3_proxy.script(Fault(action=Hang(), match=requests_to("GET", "tr_3.")))
    assert pulled(run, s3_proxy, tmp_path / "out", timeout_s=0.5).is_complete


def test_a_record_that_cannot_be_read_is_named_and_the_others_come(
    run: SampleRun, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Refused for good: the one record is missing as a whole, nine come."""
    s3_proxy.script(
        Fault(action=Answer(s3_error(403, "AccessDenied")), match=requests_to("GET", "tr_3.tokens"), times=9)
    )
    summary = pulled(run, s3_proxy, tmp_path / "out")
    assert [(record.record_id, record.why) for record in summary.not_pulled] == [("tr_3", Why.UNREADABLE)]
    assert tree(tmp_path / "out" / "train") == run.pulled(ids=set(TEN) - {"tr_3"})


def test_every_call_under_way_is_refused_and_the_pull_goes_on(
    run: SampleRun, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """A store that is away for a moment delays a pull, and nothing more."""
    s3_proxy.script(Fault(action=Answer(s3_error(503, "SlowDown")), match=requests_to("GET", ".zst"), times=9))
    assert pulled(run, s3_proxy, tmp_path / "out", workers=8).is_complete


def test_a_store_that_is_down_ends_the_pull_without_a_trace(
    run: SampleRun, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Nothing is known then; an error says so."""
    s3_proxy.down()
    with pytest.raises(StoreError):
        pulled(run, s3_proxy, tmp_path / "out", attempts=2)
    assert not tree(tmp_path / "out")


def pull_until_one_hangs(run: SampleRun, proxy: FaultProxy, out: Path) -> subprocess.Popen[bytes]:
    """Return a process that has pulled nine records and a sidecar of the tenth, and waits for the last document."""
    proxy.script(Fault(action=Hang(), match=requests_to("GET", "tr_3.json.zst"), times=9))
    options = json.dumps(run.place.options(via=proxy.url))
    command = [sys.executable, "-c", PULL, run.place.url, str(out), options]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command
    deadline = time.monotonic() + 60
    nine = run.pulled(ids=set(TEN) - {"tr_3"}).keys()
    while True:
        here = tree(out / "train").keys()
        scratch = {name for name in here if name.startswith(".pull/")}  # the lock, and the tenth's sidecar in the end
        if here - scratch == nine and len(scratch) == 2 and proxy.remaining_faults < 9:
            break
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_an_interrupted_pull_ends_and_leaves_whole_records_alone(
    run: SampleRun, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Ctrl-C does not wait for what hangs; no scratch is left."""
    process = pull_until_one_hangs(run, s3_proxy, tmp_path / "out")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    assert tree(tmp_path / "out" / "train") == run.pulled(ids=set(TEN) - {"tr_3"})
    assert not (tmp_path / "out" / "train" / ".pull").exists()


def test_a_killed_pull_leaves_whole_records_and_the_next_one_completes_it(
    run: SampleRun, s3_proxy: FaultProxy, tmp_path: Path
) -> None:
    """Killed while a document is under way: no record is there in part, and the next pull leaves nothing of it."""
    out = tmp_path / "out"
    process = pull_until_one_hangs(run, s3_proxy, out)
    process.kill()
    process.wait(30)
    left = tree(out / "train")
    assert {name: left[name] for name in left if not name.startswith(".pull/")} == run.pulled(ids=set(TEN) - {"tr_3"})
    assert len([name for name in left if name.startswith(".pull/")]) == 2
    s3_proxy.clear()

    summary = pulled(run, s3_proxy, out)

    assert (summary.copied_records, summary.unchanged_records) == (1, 9)
    assert bodies(s3_proxy) == ["tr_3.json.zst", "tr_3.tokens.zst"]
    assert tree(out / "train") == run.pulled()
    assert not (out / "train" / ".pull").exists()
