"""What a W&B server remembers: runs, artifact collections with their versions and aliases, uploaded bytes.

Semantics that clients depend on: a version gets its number and its aliases when it is committed; an alias names one
version of a collection and moves; a digest that the collection holds already makes no second version, but takes the
aliases that were asked for.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64decode
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from tests.references.wandb_standin.graphql import AnswerError

Deduplication = Literal["latest", "any"]


@dataclass(slots=True, kw_only=True)
class Version:
    """One artifact version; pending until committed."""

    id: str
    collection: Collection
    client_id: str
    digest: str
    metadata: str  # JSON
    description: str | None
    wanted_aliases: list[str]
    state: str = "PENDING"  # COMMITTED, DELETED
    index: int | None = None
    manifest: bytes = b""
    created_at: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    @property
    def aliases(self) -> list[str]:
        """The aliases that name this version now."""
        return [alias for alias, version in self.collection.aliases.items() if version is self]

    @property
    def entries(self) -> dict[str, dict[str, Any]]:
        """The manifest's entries by path: digest, size, ref, extra."""
        contents: dict[str, dict[str, Any]] = json.loads(self.manifest)["contents"] if self.manifest else {}
        return contents


@dataclass(slots=True, kw_only=True)
class Collection:
    """The versions of one artifact name."""

    id: str
    entity: str
    project: str
    name: str
    type: str
    committed: list[Version] = field(default_factory=list)
    aliases: dict[str, Version] = field(default_factory=dict)

    @property
    def alive(self) -> list[Version]:
        """The committed versions that were not deleted, oldest first."""
        return [version for version in self.committed if version.state == "COMMITTED"]

    def find(self, alias: str) -> Version | None:
        """Return the version that ``alias`` or ``vN`` names."""
        for version in self.alive:
            if alias == f"v{version.index}":
                return version
        return self.aliases.get(alias)

    def already_holds(self, digest: str, deduplication: Deduplication) -> Version | None:
        """Return the version that has this content already: among all, or only the newest."""
        candidates = self.alive if deduplication == "any" else self.alive[-1:]
        return next((version for version in reversed(candidates) if version.digest == digest), None)


@dataclass(slots=True)
class State:
    """All that the server knows. One thread, the server's, changes it; tests read it between calls."""

    deduplication: Deduplication = "latest"
    runs: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    collections: dict[tuple[str, str, str], Collection] = field(default_factory=dict)
    versions: dict[str, Version] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)  # by MD5, hex

    def collection(self, entity: str, project: str, name: str) -> Collection | None:
        """Return the collection of that name, if any version of it was ever created."""
        return self.collections.get((entity, project, name))

    def versions_of(self, name: str) -> list[Version]:
        """Return the committed versions of every collection of that name, oldest first; for tests to look at."""
        return [version for held in self.collections.values() if held.name == name for version in held.alive]

    def version(self, artifact_id: str) -> Version:
        """Return the version of that id.

        Raises:
            AnswerError: there is none.
        """
        if artifact_id not in self.versions:
            raise AnswerError(f"artifact {artifact_id} not found")
        return self.versions[artifact_id]

    def create(self, asked: dict[str, Any]) -> Version:
        """Begin a version, or return the one that has this content or this client id already."""
        name = asked.get("artifactCollectionName") or asked["artifactCollectionNames"][0]  # older clients: a list
        key = (asked["entityName"], asked["projectName"], name)
        collection = self.collections.get(key)
        if collection is None:
            collection = Collection(
                id=new_id(), entity=key[0], project=key[1], name=key[2], type=asked["artifactTypeName"]
            )
            self.collections[key] = collection
        if collection.type != asked["artifactTypeName"]:
            raise AnswerError(f"artifact {collection.name} is of type {collection.type}")
        aliases = [alias["alias"] for alias in asked.get("aliases") or ()]
        if asked.get("enableDigestDeduplication") and (
            known := collection.already_holds(asked["digest"], self.deduplication)
        ):
            for alias in aliases:
                collection.aliases[alias] = known
            return known
        for version in self.versions.values():
            if version.client_id == asked["clientID"]:
                return version
        version = Version(
            id=new_id(),
            collection=collection,
            client_id=asked["clientID"],
            digest=asked["digest"],
            metadata=asked.get("metadata") or "{}",
            description=asked.get("description"),
            wanted_aliases=aliases,
        )
        self.versions[version.id] = version
        return version

    def commit(self, artifact_id: str) -> Version:
        """Give the version its number and its aliases; once more changes nothing."""
        version = self.version(artifact_id)
        if version.state == "PENDING":
            version.state = "COMMITTED"
            version.index = len(version.collection.committed)
            version.collection.committed.append(version)
            for alias in version.wanted_aliases:
                version.collection.aliases[alias] = version
        return version

    def add_aliases(self, artifact_id: str, aliases: list[str]) -> None:
        """Let these aliases name this version from now on."""
        version = self.version(artifact_id)
        for alias in aliases:
            version.collection.aliases[alias] = version

    def delete_aliases(self, artifact_id: str, aliases: list[str]) -> None:
        """Take these aliases from this version, where they still name it."""
        version = self.version(artifact_id)
        for alias in aliases:
            if version.collection.aliases.get(alias) is version:
                del version.collection.aliases[alias]

    def delete(self, artifact_id: str, *, with_aliases: bool) -> Version:
        """Delete a version; its number is not given again.

        Raises:
            AnswerError: it still has aliases and ``with_aliases`` is not set.
        """
        version = self.version(artifact_id)
        if version.aliases and not with_aliases:
            raise AnswerError("cannot delete an artifact that has aliases")
        self.delete_aliases(artifact_id, version.aliases)
        version.state = "DELETED"
        return version

    def blob(self, version: Version, path: str) -> bytes:
        """Return the uploaded bytes of one file of a version."""
        return self.blobs[b64decode(version.entries[path]["digest"]).hex()]


def new_id() -> str:
    """Return an id that no other object has."""
    return secrets.token_urlsafe(16)
