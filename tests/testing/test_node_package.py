"""A program from npm is installed once, by whoever asks first; the registry here is a stand-in on loopback."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from mirror.testing import FaultProxy, Reply, ServerError
from mirror.testing.node_package import installed


def tarball() -> bytes:
    """Return a package as npm packs one."""
    manifest = json.dumps({"name": "tiny", "version": "1.0.0"}).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("package/package.json")
        entry.size = len(manifest)
        archive.addfile(entry, io.BytesIO(manifest))
    return packed.getvalue()


class Registry:
    """Answers as npm's registry does, and counts what it is asked for."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._packed = tarball()

    def __call__(self, _method: str, path: str, headers: Mapping[str, str], _body: bytes) -> Reply:
        self.asked[path] += 1
        if path == "/tiny-1.0.0.tgz":
            return Reply(status=200, body=self._packed)
        if path != "/tiny":
            return Reply(status=404)
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(self._packed).digest()).decode()
        dist = {"tarball": f"http://{headers['host']}/tiny-1.0.0.tgz", "integrity": integrity}
        version = {"name": "tiny", "version": "1.0.0", "dist": dist}
        told = {"name": "tiny", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        return Reply(status=200, body=json.dumps(told).encode(), headers={"Content-Type": "application/json"})


def test_two_that_ask_at_once_install_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits and gets the same; nothing half done is left, and nothing is asked for later."""
    registry = Registry()
    cache = tmp_path / "cache"
    with FaultProxy("http://127.0.0.1:9", check_request=registry) as proxy:
        monkeypatch.setenv("npm_config_registry", proxy.url)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
        found: list[Path] = []
        threads = [
            threading.Thread(target=lambda: found.append(installed("tiny", "1.0.0", cache=cache))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found.append(installed("tiny", "1.0.0", cache=cache))
    assert len(set(found)) == 1
    assert json.loads((found[0] / "package.json").read_text())["version"] == "1.0.0"
    assert registry.asked["/tiny-1.0.0.tgz"] == 1
    assert sorted(path.name for path in cache.iterdir()) == ["tiny-1.0.0", "tiny-1.0.0.lock"]


def test_what_cannot_be_installed_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error holds what npm said."""
    with FaultProxy("http://127.0.0.1:9", check_request=Registry()) as proxy:
        monkeypatch.setenv("npm_config_registry", proxy.url)
        monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
        with pytest.raises(ServerError, match=r"(?s)npm could not install absent@1\.0\.0.*404"):
            installed("absent", "1.0.0", cache=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["absent-1.0.0.lock"]
