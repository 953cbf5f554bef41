"""What the runs of one driver share: stores behind proxies, W&B's stand-in, and the parent of all processes."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mirror.testing import ADMIN, WRITER, FakeGcs, FaultProxy, Reply, SeaweedS3, s3_error
from tests.campaign.processes import Zygote
from tests.references.wandb_standin.server import WandbServer

BUCKETS = {"s3": "campaign", "s3_rotating": "campaign", "s3_versioned": "campaign-versioned"}
GCS_BUCKET = "campaign"
_KEY = re.compile(r"Credential=([^/]+)/")


class Expiry:
    """Answers ``ExpiredToken`` to who signs with a key that has expired, as a proxy's ``check_request``."""

    def __init__(self) -> None:
        """Let every key pass."""
        self.expired: str | None = None

    def __call__(self, _method: str, _path: str, headers: Mapping[str, str], _body: bytes) -> Reply | None:
        """Look at who asks."""
        found = _KEY.search(headers.get("authorization", ""))
        return s3_error(400, "ExpiredToken") if found and found[1] == self.expired else None


class Ground:
    """Started by ``with``; one run at a time uses it. A server that is given is shared with others."""

    def __init__(self, scratch: Path, *, seaweed: SeaweedS3 | None = None) -> None:
        """Start nothing yet."""
        self.scratch = scratch
        self.expiry = Expiry()
        self.zygote = Zygote()
        self._seaweed = seaweed
        self._gcs: FakeGcs | None = None
        self._wandb: WandbServer | None = None
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()

    @property
    def seaweed(self) -> SeaweedS3:
        """The S3 server."""
        assert self._seaweed is not None
        return self._seaweed

    @property
    def wandb(self) -> WandbServer:
        """W&B's stand-in, started when it is first asked for."""
        if self._wandb is None:
            self._wandb = WandbServer()
            self._wandb.start()
            self._stack.callback(self._wandb.stop)
        return self._wandb

    @property
    def gcs(self) -> FakeGcs:
        """The GCS server, started when it is first asked for."""
        if self._gcs is None:
            self._gcs = self._stack.enter_context(FakeGcs())
            self._gcs.make_bucket(GCS_BUCKET)
            self._before_gcs = self._stack.enter_context(FaultProxy(self._gcs.url))
        return self._gcs

    def proxy(self, store: str) -> FaultProxy:
        """Return the proxy in front of a store; one URL for ever, for it is part of what receipts are kept under."""
        if store == "gcs":
            assert self.gcs.url
            return self._before_gcs
        return self._rotating if store == "s3_rotating" else self._plain

    def options(self, store: str) -> dict[str, Any]:
        """Return what the store's library needs to reach it through its proxy."""
        if store == "gcs":
            return self.gcs.storage_options(url=self.proxy(store).url)
        options: dict[str, Any] = self.seaweed.storage_options(ADMIN, url=self.proxy(store).url)
        if store == "s3_rotating":  # from the file that the environment names
            del options["key"], options["secret"]
        return options

    def wandb_environment(self, scratch: Path) -> dict[str, str]:
        """Return the environment in which W&B's client talks to the stand-in alone, and soon gives up."""
        from tests.references.conftest import CLIENT_LIMITS  # noqa: PLC0415 - imports W&B's client

        return {**self.wandb.environment(str(scratch)), **CLIENT_LIMITS}

    def write_credentials(self, path: Path, *, rotated: bool) -> None:
        """Write the credentials of the present identity, or of the next."""
        identity = WRITER if rotated else ADMIN
        temporary = path.with_suffix(".new")
        temporary.write_text(
            f"[default]\naws_access_key_id = {identity.access_key}\naws_secret_access_key = {identity.secret_key}\n"
        )
        temporary.replace(path)

    def expire(self) -> None:
        """Let the first identity's key expire."""
        self.expiry.expired = ADMIN.access_key

    def __enter__(self) -> Self:
        """Start what every run needs."""
        if self._seaweed is None:
            self._seaweed = self._stack.enter_context(SeaweedS3())
        self._plain = self._stack.enter_context(FaultProxy(self.seaweed.url))
        self._rotating = self._stack.enter_context(FaultProxy(self.seaweed.url, check_request=self.expiry))
        self._stack.enter_context(self.zygote)
        existing = {found["Name"] for found in self.seaweed.client().list_buckets()["Buckets"]}
        for bucket in {*BUCKETS.values()} - existing:
            self.seaweed.make_bucket(bucket, versioned=bucket.endswith("versioned"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything."""
        self._stack.close()
