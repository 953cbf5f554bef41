"""A process that mirrors a directory is killed, again and again, and started again until it is done."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from mirror.receipts.receipt import Receipt, decode_lines
from mirror.samples import write_corpus
from mirror.testing import FaultProxy, Reply
from tests.mirror.places import DirectoryPlace, Place, S3Place, mirrored_files, receipts_in, record_files

pytestmark = pytest.mark.integration

SCRIPT = dedent("""
    import json, sys
    from mirror import RecordMirror
    url, options, records = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    with RecordMirror(url, storage_options=options, workers=4, backoff_s=0.05) as mirror:
        mirror.scan(records)
        assert mirror.flush(60)
""")


class Killer:
    """Kills a process when it makes the request that a test chose, as a proxy's ``check_request``."""

    def __init__(self) -> None:
        self.sent: list[Counter[str]] = []  # by each process: files and how often
        self._choose: Callable[[str], bool] = lambda _path: False
        self._pid = 0

    def watch(self, pid: int, choose: Callable[[str], bool]) -> None:
        """From now on requests are this process's."""
        self.sent.append(Counter())
        self._pid, self._choose = pid, choose

    def __call__(self, method: str, path: str, _headers: Mapping[str, str], _body: bytes) -> Reply | None:
        if method != "PUT":
            return None
        if "_receipts/" not in path:
            self.sent[-1][path.rpartition("/")[2]] += 1
        if not self._choose(path):
            return None
        os.kill(self._pid, signal.SIGKILL)
        # Every other file lands without a receipt; receipts never do.
        return Reply(status=503) if "_receipts/" in path or len(self.sent) % 2 else None


@pytest.fixture
def records(tmp_path: Path) -> Path:
    directory = tmp_path / "records"
    write_corpus(directory, profile="tiny", count=90, seed=1)
    write_corpus(directory, profile="moe", count=3, seed=2)
    return directory


def start(place: Place, records: Path, *, via: str | None = None) -> subprocess.Popen[bytes]:
    options = json.dumps(place.options(via=via))
    return subprocess.Popen([sys.executable, "-c", SCRIPT, place.url, options, str(records)])  # noqa: S603 - our own code


def journals(records: Path) -> list[Path]:
    return sorted((records / ".mirror").rglob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)


def receipted_on_disk(records: Path) -> set[str]:
    """Return the files that whole lines beside the records cover."""
    found = [item for path in journals(records) for item in decode_lines(path.read_bytes())]
    return {file.name for item in found if isinstance(item, Receipt) for file in item.files}


def run_until_done(
    place: S3Place, records: Path, moments: Iterator[Callable[[str], bool]], after_kill: Callable[[], None]
) -> tuple[list[set[str]], list[Counter[str]]]:
    """Start the process again and again while ``moments`` kills it.

    Returns:
        What was receipted on disk when each process began, and what each one sent.
    """
    killer = Killer()
    covered: list[set[str]] = []
    with FaultProxy(place.server.url, check_request=killer) as proxy:
        for moment in moments:
            covered.append(receipted_on_disk(records))
            process = start(place, records, via=proxy.url)
            killer.watch(process.pid, moment)
            if process.wait(60) == 0:
                return covered, killer.sent
            assert process.returncode == -signal.SIGKILL
            after_kill()
    raise AssertionError("it was never let live")


def assert_all_is_well(place: Place, records: Path, covered: list[set[str]], sent: list[Counter[str]]) -> None:
    assert mirrored_files(place) == record_files(records)
    for before, files in zip(covered, sent, strict=True):
        assert not before & files.keys()
    ids = {name.removesuffix(".json.zst") for name in record_files(records) if name.endswith(".json.zst")}
    assert {receipt.id for receipt in receipts_in(place)} == ids


def test_killed_at_any_moment_it_ends_complete_and_sends_nothing_that_was_receipted(
    s3_place: S3Place, records: Path
) -> None:
    """Killed ten times in the middle of an upload, with torn receipts left, the mirror is completed in the end.

    No start sends again what a whole line beside the records covers.
    """
    rng = random.Random(7)  # noqa: S311 - no secrets

    def moments() -> Iterator[Callable[[str], bool]]:
        for _ in range(10):
            left = iter(range(rng.randint(5, 25)))
            yield lambda _path, left=left: next(left, None) is None  # type: ignore[misc] # the default binds it
        yield lambda _path: False

    def tear() -> None:
        """Cut the last line of the latest journal anywhere, every third time."""
        if rng.random() < 1 / 3 and (found := journals(records)):
            content = found[-1].read_bytes()
            last = content[:-1].rfind(b"\n") + 1
            found[-1].write_bytes(content[: rng.randint(last, max(last, len(content) - 1))])

    covered, sent = run_until_done(s3_place, records, moments(), tear)
    assert len(sent) == 11
    assert covered[-1]
    assert_all_is_well(s3_place, records, covered, sent)


def test_killed_while_receipts_are_flushed_it_loses_none(s3_place: S3Place, records: Path) -> None:
    """Receipts that were only beside the records when the process died reach the mirror with the next one."""
    only_on_disk: list[bool] = []

    def moments() -> Iterator[Callable[[str], bool]]:
        for _ in range(2):
            yield lambda path: "_receipts/" in path and not path.endswith("/00000000.jsonl")
        yield lambda _path: False

    def compare() -> None:
        only_on_disk.append(bool(receipted_on_disk(records)) and not receipts_in(s3_place))

    covered, sent = run_until_done(s3_place, records, moments(), compare)
    assert only_on_disk == [True, True]
    assert_all_is_well(s3_place, records, covered, sent)


def test_killed_while_it_writes_a_directory_it_ends_complete(tmp_path: Path, records: Path) -> None:
    """On a directory nothing half-written ever has a final name, and the next start completes the mirror."""
    place = DirectoryPlace(tmp_path / "mirror")
    expected = record_files(records)

    def visible() -> set[str]:
        return {name for name in place.names() if name in expected}

    for wanted in (1, 60, 120):
        process = start(place, records)
        while process.poll() is None and len(visible()) < wanted:
            pass
        process.kill()
        process.wait()
        assert {name: (place.path / name).read_bytes() for name in visible()}.items() <= expected.items()
    assert start(place, records).wait(60) == 0
    assert {name: content for name, content in mirrored_files(place).items() if name[0] != "."} == expected
