"""The rights that the README gives to a writer, a reader and whoever repairs: enough for the work, and no more."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

import mirror
from mirror.samples import write_corpus
from mirror.store import WHOLE_BYTES
from mirror.terminal.commands import run
from mirror.testing import Identity, SeaweedS3
from references.cli import commands
from tests.mirror.command_line import storage_env
from tests.mirror.places import S3Place, mirrored_files, record_files
from tests.mirror.store_kinds import kind_of, parts_of

pytestmark = pytest.mark.integration

README = Path(mirror.__file__).parents[1] / "README.md"
BUCKET = "bucket"  # as the README calls it
ROLES = ("writer", "reader", "repairer")


@dataclass(frozen=True)
class Roles:
    """A server on which each role has the rights that the README says, for one prefix of one bucket."""

    server: SeaweedS3
    identities: dict[str, Identity]
    place: S3Place  # as the administrator sees it

    def as_role(self, role: str, driver: str) -> S3Place:
        """Return the place as somebody in a role sees it."""
        return replace(self.place, identity=self.identities[role], driver=driver)

    def client(self, role: str) -> Any:  # noqa: ANN401 - botocore makes its clients' classes at run time
        """Return another client than ours."""
        return self.server.client(self.identities[role])


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[SeaweedS3, dict[str, Identity]]]:
    """The server, and who may use it."""
    text = README.read_text(encoding="utf-8")
    blocks = re.findall(r"<!-- policy: (\w+) -->\s*```json\n(.*?)```", text, re.DOTALL)
    documents = {role: json.loads(block) for role, block in blocks}
    assert tuple(documents) == ROLES
    identities = {role: Identity(access_key=f"AKIA{role.upper()}", secret_key=f"{role}-key") for role in ROLES}
    with SeaweedS3({identities[role]: documents[role] for role in ROLES}) as server:
        server.make_bucket(BUCKET)
        server.make_bucket("another")
        yield server, identities


@pytest.fixture
def roles(server: tuple[SeaweedS3, dict[str, Identity]]) -> Roles:
    """The same, with a prefix that nobody used before: the README's own is the beginning of its name."""
    return Roles(*server, S3Place(server[0], BUCKET, f"run-7/{uuid.uuid4().hex}"))


def is_denied(call: Any, **arguments: object) -> bool:  # noqa: ANN401 - a method of botocore's
    """Say whether the server denies a call, and does nothing else to it."""
    try:
        call(**arguments)
    except ClientError as error:
        return bool(error.response["ResponseMetadata"]["HTTPStatusCode"] == 403)
    return False


def command(monkeypatch: pytest.MonkeyPatch, place: S3Place, *words: str | Path) -> int:
    """Run a command as the place's identity."""
    for name, value in storage_env(place.options()).items():
        monkeypatch.setenv(name, value)
    patience = ["--give-up-after", "2s"] if words[0] == "sync" else []
    return run(commands, [*map(str, words), "--driver", place.driver, "--attempts", "2", *patience])


def filled(roles: Roles, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy records with a step index, as a writer does."""
    write_corpus(directory, profile="tokens", count=5, seed=1)
    assert command(monkeypatch, roles.as_role("writer", "auto"), "sync", directory, roles.place.url) == 0
    index = {"format_version": 1, "run": "r", "phase": "train", "step": 1, "rows": []}
    roles.client("writer").put_object(
        Bucket=BUCKET, Key=f"{roles.place.prefix}/index/train/step-1.json", Body=json.dumps(index).encode()
    )


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_a_writer_copies_everything_and_can_do_nothing_else(
    roles: Roles, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files and large ones, again and again; neither reading, listing nor deleting, nor another place."""
    place = roles.as_role("writer", driver)
    write_corpus(tmp_path / "records", profile="tokens", count=5, seed=1)
    for _ in range(2):
        assert command(monkeypatch, place, "sync", tmp_path / "records", place.url) == 0
    assert mirrored_files(roles.place) == record_files(tmp_path / "records")
    size = WHOLE_BYTES + 1
    kind_of(place, driver=driver).run(lambda store: store.put_parts("tr_l.tokens.zst", parts_of(size), size))
    client = roles.client("writer")
    inside = {"Bucket": BUCKET, "Key": f"{place.prefix}/tr_l.tokens.zst"}
    assert is_denied(client.get_object, **inside)
    assert is_denied(client.delete_object, **inside)
    assert is_denied(client.list_objects_v2, Bucket=BUCKET, Prefix=place.prefix)
    assert is_denied(client.put_object, Bucket=BUCKET, Key="run-8/tr_a.json.zst", Body=b"")
    assert is_denied(client.put_object, Bucket="another", Key="run-7/tr_a.json.zst", Body=b"")
    assert "tr_l.tokens.zst" in roles.place.names()


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_a_reader_checks_and_pulls_and_can_write_nothing(
    roles: Roles, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``verify``, ``status``, ``ls`` and ``pull`` work; an upload and a deletion are denied, and so is another run."""
    records = tmp_path / "records"
    filled(roles, records, monkeypatch)
    before = roles.place.objects()
    place = roles.as_role("reader", driver)
    for words in (
        ("verify", "--download", place.url, records),
        ("status", place.url),
        ("ls", place.url),
        ("pull", place.url, tmp_path / "out"),
    ):
        assert command(monkeypatch, place, *words) == 0
    write_corpus(tmp_path / "more", profile="tiny", count=1, seed=2)
    assert command(monkeypatch, place, "sync", tmp_path / "more", place.url) == 1
    client = roles.client("reader")
    assert is_denied(client.delete_object, Bucket=BUCKET, Key=f"{place.prefix}/index/train/step-1.json")
    assert is_denied(client.list_objects_v2, Bucket=BUCKET)
    assert is_denied(client.list_objects_v2, Bucket=BUCKET, Prefix="run-8/")
    assert is_denied(client.get_object, Bucket=BUCKET, Key="run-8/tr_a.json.zst")
    assert roles.place.objects() == before


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_who_prunes_needs_to_read_only(
    roles: Roles, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a reader's rights ``prune`` deletes what is in the mirror from the disk, and keeps what is missing there."""
    records = tmp_path / "records"
    filled(roles, records, monkeypatch)
    lost = min(record_files(records))
    roles.server.client().delete_object(Bucket=BUCKET, Key=f"{roles.place.prefix}/{lost}")
    before = roles.place.objects()
    place = roles.as_role("reader", driver)
    prune = ("prune", "--older-than", "0", "--yes", records, place.url)
    assert command(monkeypatch, place, *prune) == 4
    assert {name.partition(".")[0] for name in record_files(records)} == {lost.partition(".")[0]}
    assert command(monkeypatch, roles.as_role("writer", driver), *prune) == 5
    assert len(record_files(records)) == 3
    assert roles.place.objects() == before


@pytest.mark.parametrize("driver", ["obstore", "fsspec"])
def test_who_repairs_restores_and_cannot_delete(
    roles: Roles, driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was lost is put back, with the rights of a reader and a writer together."""
    records = tmp_path / "records"
    filled(roles, records, monkeypatch)
    place = roles.as_role("repairer", driver)
    lost = next(iter(record_files(records)))
    roles.server.client().delete_object(Bucket=BUCKET, Key=f"{place.prefix}/{lost}")
    assert command(monkeypatch, place, "repair", place.url, records) == 0
    assert lost in roles.place.names()
    assert command(monkeypatch, place, "verify", "--download", place.url, records) == 0
    assert is_denied(roles.client("repairer").delete_object, Bucket=BUCKET, Key=f"{place.prefix}/{lost}")
    assert lost in roles.place.names()
