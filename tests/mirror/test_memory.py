"""What a mirror costs in memory: bounded by what waits, and not by what was copied."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from mirror.testing import FaultProxy

pytestmark = pytest.mark.integration

RSS = dedent("""
    import gc, json, os, sys
    from pathlib import Path

    def rss_bytes(name):
        gc.collect()
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))
""")


def run(script: str, *arguments: object) -> dict[str, Any]:
    """Run Python code in a process of its own and return the JSON that it prints."""
    command = [sys.executable, "-c", RSS + dedent(script), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)  # noqa: S603 - our own code
    assert ended.returncode == 0, ended.stderr
    facts: dict[str, Any] = json.loads(ended.stdout)
    return facts


def test_a_hundred_thousand_waiting_records_cost_less_than_100_mb(tmp_path: Path) -> None:
    """While the store is down records wait by the hundred thousand, in little memory; the rest would be late."""
    with FaultProxy("http://127.0.0.1:9") as nobody:
        url = nobody.url  # closed by now: whoever calls is refused
    script = """
        import s3fs, aiobotocore.session  # what any mirror on S3 loads
        from mirror import RecordMirror

        url, records = sys.argv[1], Path(sys.argv[2])
        for number in range(500):  # as many as can be taken up before the breaker opens
            (records / f"tr_{number:08x}.json.zst").touch()
        options = {"key": "none", "secret": "none", "client_kwargs": {"endpoint_url": url}}
        mirror = RecordMirror("s3://bucket/run-7", storage_options=options)
        mirror.start()
        mirror.scan(records)
        while mirror.stats()["breaker"] == "closed":
            os.sched_yield()
        before = rss_bytes("VmRSS")
        for number in range(100_000):
            mirror.submit(records, f"tr_{number:08x}")
        mirror.scan(records)
        stats = mirror.stats()
        print(json.dumps({"grown": rss_bytes("VmHWM") - before, **stats}))
        mirror.close(0)
    """
    facts = run(script, url, tmp_path)
    assert facts["late"] + facts["pending"] == facts["submitted"] >= 100_000
    assert facts["grown"] < 100e6


def test_memory_does_not_grow_with_what_was_copied(tmp_path: Path) -> None:
    """After thousands of records a mirror needs no more than before; their receipts are on disk and in the mirror."""
    script = """
        from mirror import RecordMirror

        records, sizes, number = Path(sys.argv[1]) / "records", [], 0
        records.mkdir()
        with RecordMirror(Path(sys.argv[1]) / "mirror", fsync=False) as mirror:
            for batch in range(14):
                for number in range(number, number + 1_000):
                    (records / f"tr_{number:08x}.json.zst").write_bytes(b"tiny")
                    mirror.submit(records, f"tr_{number:08x}")
                assert mirror.flush(60)
                number += 1
                sizes.append(rss_bytes("VmRSS"))
            print(json.dumps({"sizes": sizes, **mirror.stats()}))
    """
    facts = run(script, tmp_path)
    assert facts["mirrored"] >= 14_000
    _, _, _, settled, *later = facts["sizes"]  # caches of a fixed size are full by then
    assert max(later) - settled < 10_000 * 400  # a receipt alone would be larger


def test_large_files_cost_what_may_be_in_flight(tmp_path: Path) -> None:
    """What was sent is the system's again, whichever threads read it: the peak is the bound and little more."""
    script = """
        from random import Random
        from mirror import RecordMirror

        records, sizes = Path(sys.argv[1]) / "records", Random(0)
        records.mkdir()
        with RecordMirror(Path(sys.argv[1]) / "mirror", fsync=False, max_bytes_in_flight=32 << 20) as mirror:
            mirror.flush(60)
            before = rss_bytes("VmRSS")
            for number in range(80):
                with (records / f"tr_{number:08x}.json.zst").open("wb") as file:
                    file.truncate(sizes.randrange(2 << 20, 9 << 20))
                mirror.submit(records, f"tr_{number:08x}")
            assert mirror.flush(120)
            print(json.dumps({"grown": rss_bytes("VmHWM") - before, **mirror.stats()}))
    """
    facts = run(script, tmp_path)
    assert facts["mirrored"] == 80
    assert facts["grown"] < (32 << 20) + (24 << 20)
