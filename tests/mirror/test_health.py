"""A mirror's health over HTTP, for a supervisor and for Prometheus."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mirror.errors import ConfigError
from mirror.health import HealthServer, judge, parse_listen, serving
from mirror.stats import MirrorStats


def stats(*, lag_s: float = 3.0, breaker: str = "closed", breaker_reason: str | None = None) -> MirrorStats:
    """What a mirror in the middle of its work says."""
    return MirrorStats(
        url="s3://***@bucket/run",
        submitted=12,
        mirrored=5,
        failed=1,
        late=2,
        pending=4,
        late_names=["tr_a"],
        lost=0,
        timed_out=6,
        retried=7,
        files=8,
        bytes=9_000,
        kept_files=1,
        unchanged=10,
        lag_s=lag_s,
        driver="obstore",
        driver_reason="it can",
        breaker=breaker,
        breaker_reason=breaker_reason,
        last_error=None,
    )


class Asked:
    """A server whose mirror says what a test wants, and its answers."""

    def __init__(self) -> None:
        self.says = stats()
        self.server = HealthServer(("127.0.0.1", 0), lambda: self.says, max_lag_s=60)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body."""
        try:
            with urllib.request.urlopen(self.server.url + path, timeout=10) as answer:  # noqa: S310 - our own http URL
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def asked() -> Iterator[Asked]:
    made = Asked()
    yield made
    made.server.close()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (stats(), []),
        (stats(lag_s=61.0), ["the oldest uncopied record is 61 s old, which is more than 60 s"]),
        (stats(breaker="open", breaker_reason="reset"), ["the store does not answer: reset"]),
        (stats(breaker="refused", breaker_reason="no bucket"), ["the store refuses everything: no bucket"]),
    ],
)
def test_what_is_unhealthy(found: MirrorStats, expected: list[str]) -> None:
    """A store that does not take anything, and a lag beyond the limit."""
    assert judge(found, max_lag_s=60) == expected


def test_without_a_limit_no_lag_is_too_long() -> None:
    """A first copy of old records lags for days, and all is well."""
    assert judge(stats(lag_s=1e6), max_lag_s=None) == []


def test_healthz_has_the_stats_and_a_status(asked: Asked) -> None:
    """200 with the stats while all is well, 503 with the reasons while not."""
    status, body = asked.get("/healthz")
    assert status == 200
    assert json.loads(body) == {"healthy": True, "problems": [], **asked.says}
    asked.says = stats(breaker="open", breaker_reason="reset")
    status, body = asked.get("/healthz?verbose")
    assert status == 503
    assert json.loads(body)["problems"] == ["the store does not answer: reset"]


def test_metrics_are_what_prometheus_reads(asked: Asked) -> None:
    """Counters and gauges with the mirror's URL, as Prometheus's own parser reads them."""
    status, body = asked.get("/metrics")
    assert status == 200
    samples = {
        (sample.name, sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if sample.labels.get("url") == "s3://***@bucket/run"
    }
    assert samples == {
        ("record_mirror_submitted", None): 12,
        ("record_mirror_mirrored_total", None): 5,
        ("record_mirror_failed_total", None): 1,
        ("record_mirror_lost_total", None): 0,
        ("record_mirror_timed_out_total", None): 6,
        ("record_mirror_retried_total", None): 7,
        ("record_mirror_files_total", None): 8,
        ("record_mirror_bytes_total", None): 9_000,
        ("record_mirror_late", None): 2,
        ("record_mirror_pending", None): 4,
        ("record_mirror_lag_seconds", None): 3,
        ("record_mirror_breaker", "closed"): 1,
        ("record_mirror_breaker", "open"): 0,
        ("record_mirror_breaker", "refused"): 0,
    }


def test_nothing_else_is_served(asked: Asked) -> None:
    """Any other path is not found."""
    assert asked.get("/")[0] == 404


def test_addresses() -> None:
    """Host and port, also of IPv6, every interface, or none at all."""
    assert parse_listen("127.0.0.1:9119") == ("127.0.0.1", 9119)
    assert parse_listen(":80") == ("", 80)
    assert parse_listen("[::1]:0") == ("::1", 0)
    assert parse_listen("off") is None
    for wrong in ("9119", "host:", "host:http", "host:70000", ""):
        with pytest.raises(ConfigError, match="--listen takes host:port"):
            parse_listen(wrong)


def test_an_address_in_use_is_one_clear_sentence(asked: Asked) -> None:
    """Two daemons on one port: the second says so and does not start."""
    port = int(asked.server.url.rpartition(":")[2])
    with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port} \(Address already in use\)"):
        HealthServer(("127.0.0.1", port), stats)


def test_serving_is_optional() -> None:
    """Without an address nothing is served; otherwise for as long as the block."""
    with serving(None, stats) as server:
        assert server is None
    with serving(("127.0.0.1", 0), stats) as server:
        assert server is not None
        url = server.url
        with urllib.request.urlopen(url + "/healthz", timeout=10) as answer:  # noqa: S310 - our own http URL
            assert answer.status == 200
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url + "/healthz", timeout=10)  # noqa: S310 - likewise
