"""A run's record settings: one for all servers, checked before the first one starts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mirror import ConfigError, ServerSettings
from mirror.samples import write_corpus


def test_every_server_is_handed_the_same_and_opens_the_same_mirror(tmp_path: Path) -> None:
    """The settings cross a process border as plain values and mean the same on the other side."""
    records = tmp_path / "records"
    records.mkdir()
    record_id, *_ = write_corpus(records, profile="tiny", count=1, seed=1)
    settings = ServerSettings.of_run(records, tmp_path / "mirror", {"exclude": ["tokens"], "timeout": 5, "workers": 8})
    sent = msgspec.json.decode(msgspec.json.encode(settings.as_mapping()))
    received = ServerSettings.of_run(sent["record_dir"], sent["record_mirror"], sent["record_mirror_config"])
    assert received == settings
    mirror = received.open_mirror()
    assert mirror is not None
    assert (mirror.config.exclude, mirror.config.timeout_s, mirror.config.workers) == (("tokens",), 5.0, 8)
    with mirror:
        assert mirror.submit(records, record_id)
        assert mirror.flush(30)
    assert (tmp_path / "mirror" / f"{record_id}.json.zst").exists()


def test_a_run_without_a_mirror_opens_none(tmp_path: Path) -> None:
    """Records stay where they are written."""
    assert ServerSettings.of_run(tmp_path).open_mirror() is None
    assert ServerSettings.of_run(None).open_mirror() is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((None, "s3://bucket/run", None), "record_dir"),
        (("/records", None, {"workers": 3}), "record_mirror is not"),
        (("/records", "s3://bucket/run", {"wrokers": 3}), "did you mean 'workers'"),
        (("/records", "nosuch://bucket/run", None), "nosuch"),
        (("/records", "s3://", None), "names no bucket"),
        (
            ("/records", "https://host/bucket/run", None),
            "write s3://bucket/prefix, with the option endpoint_url=https://host ",
        ),
        (("/records", "zip://run.zip", None), "can only be read"),
        (("/records", "s3://bucket/run", {"storage_options": {"endpint": "x"}}), "did you mean 'endpoint_url'"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    settings: tuple[str | None, str | None, dict[str, object] | None], words: str
) -> None:
    """In one clear sentence, before a server starts."""
    with pytest.raises(ConfigError, match=words):
        ServerSettings.of_run(*settings)
