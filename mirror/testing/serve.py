"""A test server, and a proxy in front of it, in a process of their own: so that a client's costs can be measured alone.

``python -m mirror.testing.serve rclone --bucket bench --latency-ms 20`` prints one line of JSON once all is ready and
serves until its standard input ends. ``serving`` is the same for Python.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from mirror.testing.process import ServerError
from mirror.testing.proxy import FaultProxy
from mirror.testing.servers import FakeGcs, RcloneS3, SeaweedS3

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ServerName = Literal["seaweed", "rclone", "gcs"]

_KINDS: Final[dict[ServerName, type[SeaweedS3 | RcloneS3 | FakeGcs]]] = {
    "seaweed": SeaweedS3,
    "rclone": RcloneS3,
    "gcs": FakeGcs,
}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9\-]{1,61}[a-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How to reach a bucket of a test server."""

    bucket_url: str  # s3://bucket or gs://bucket
    endpoint_url: str  # of the proxy
    storage_options: dict[str, Any]  # for s3fs or gcsfs


@contextlib.contextmanager
def serving(kind: ServerName, *, bucket: str, latency_s: float = 0.0) -> Iterator[Endpoint]:
    """Run a server with one empty bucket, and a proxy that adds ``latency_s`` seconds, in another process.

    Raises:
        ServerError: it did not come up; why is on standard error.
    """
    command = [sys.executable, "-m", "mirror.testing.serve", kind, "--bucket", bucket]
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [*command, "--latency-ms", str(latency_s * 1000)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            msg = f"the server process ended with exit code {process.wait()} before it was ready"
            raise ServerError(msg)
        yield Endpoint(**json.loads(line))


def _bucket_name(text: str) -> str:
    if _BUCKET.fullmatch(text) is None:
        msg = f"{text!r} is no bucket's name: 3 to 63 lowercase letters, digits and hyphens"
        raise argparse.ArgumentTypeError(msg)
    return text


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m mirror.testing.serve", description=__doc__)
    parser.add_argument("kind", choices=get_args(ServerName))
    parser.add_argument("--bucket", required=True, type=_bucket_name, help="an empty bucket to begin with")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="added to each round trip")
    arguments = parser.parse_args(argv)
    try:
        return _serve(arguments.kind, arguments.bucket, arguments.latency_ms / 1000)
    except ServerError as error:
        parser.exit(1, f"{error}\n")


def _serve(kind: ServerName, bucket: str, latency_s: float) -> int:
    with _KINDS[kind]() as server, FaultProxy(server.url, latency_s=latency_s) as proxy:
        server.make_bucket(bucket)
        endpoint = Endpoint(
            bucket_url=f"{'gs' if kind == 'gcs' else 's3'}://{bucket}",
            endpoint_url=proxy.url,
            storage_options=server.storage_options(url=proxy.url),
        )
        sys.stdout.write(json.dumps(asdict(endpoint)) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
