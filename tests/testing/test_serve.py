"""A server in a process of its own serves until it is no longer wanted."""

from __future__ import annotations

import urllib.error
import urllib.request

import fsspec
import pytest

from mirror.testing import ServerError
from mirror.testing.serve import serving


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
