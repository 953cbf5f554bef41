"""The server's state as the GraphQL objects that clients select from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote

from tests.references.wandb_standin.graphql import Node
from tests.references.wandb_standin.state import Collection, State, Version, new_id

ENTITY = "team"
ARTIFACT_FIELDS = (  # older clients leave out of their queries what is not among these
    "aliases",
    "artifactSequence",
    "artifactType",
    "createdAt",
    "currentManifest",
    "description",
    "digest",
    "fileCount",
    "id",
    "metadata",
    "size",
    "state",
    "tags",
    "ttlDurationSeconds",
    "ttlIsInherited",
    "updatedAt",
    "versionIndex",
)
MAX_PAGE = 50  # versions to a page, whatever the client asks for
Arguments = dict[str, Any]


class Nodes:
    """Builds the tree. Links in it begin with what ``base_url`` returns, e.g. ``http://127.0.0.1:4711``."""

    def __init__(self, state: State, base_url: Callable[[], str]) -> None:
        """Read and change ``state``."""
        self._state = state
        self._base_url = base_url

    def root(self) -> Node:
        """Return the fields of all queries and mutations."""
        state = self._state
        team = {"id": ENTITY, "name": ENTITY, "xxhashDigestsEnabled": False}
        return {
            "__type": lambda a: _describe(a["name"]),
            "viewer": {
                "id": "viewer",
                "entity": ENTITY,
                "username": "tester",
                "email": "tester@example.com",
                "admin": False,
                "flags": "{}",
                "teams": _connection([{"node": team}]),
            },
            "serverInfo": {"features": [], "cliVersionInfo": {"max_cli_version": "1.0.0"}},
            "entity": lambda _: team,
            "project": lambda a: self._project(a.get("entityName") or ENTITY, a["name"]),
            "model": lambda a: self._project(a.get("entityName") or ENTITY, a["name"]),
            "upsertBucket": lambda a: self._upsert_bucket(a["input"]),
            "createRunFiles": lambda a: self._create_run_files(a["input"]),
            "markRunFilesUploaded": lambda _: {"success": True},
            "artifact": lambda a: self._version(state.version(a["id"])),
            "createArtifactType": lambda a: {"artifactType": {"id": a["input"]["name"]}},
            "createArtifact": lambda a: {"artifact": self._version(state.create(a["input"]))},
            "createArtifactManifest": lambda a: self._manifest(a["input"]["artifactID"]),
            "updateArtifactManifest": lambda a: self._manifest(a["input"]["artifactManifestID"]),
            "createArtifactFiles": lambda a: self._create_files(a["input"]["artifactFiles"]),
            "commitArtifact": lambda a: {"artifact": self._version(state.commit(a["input"]["artifactID"]))},
            "updateArtifact": lambda a: self._update(a["input"]),
            "addAliases": lambda a: self._add_aliases(a["input"]),
            "deleteAliases": lambda a: self._delete_aliases(a["input"]),
            "deleteArtifact": lambda a: self._delete(a["input"]),
        }

    def _project(self, entity: str, name: str) -> Node:
        def collection(arguments: Arguments) -> Node | None:
            found = self._state.collection(entity, name, arguments["name"])
            return self._collection(found) if found else None

        def membership(arguments: Arguments) -> Node | None:
            collection_name, _, alias = arguments["name"].partition(":")
            found = self._state.collection(entity, name, collection_name)
            version = found.find(alias or "latest") if found else None
            return self._membership(version) if version else None

        def artifact(arguments: Arguments) -> Node | None:
            member = membership(arguments)
            return member["artifact"] if member else None

        def artifact_type(arguments: Arguments) -> Node:
            return {"id": arguments["name"], "name": arguments["name"], "artifactCollection": collection}

        def run(arguments: Arguments) -> Node | None:
            return self._state.runs.get((entity, name, arguments["name"]))

        return {
            **_project_info(entity, name),
            "run": run,
            "bucket": run,
            "artifact": artifact,
            "artifactType": artifact_type,
            "artifactCollection": collection,
            "artifactCollectionMembership": membership,
        }

    def _collection(self, collection: Collection) -> Node:
        def artifacts(arguments: Arguments) -> Node:
            newest_first = list(reversed(collection.alive))
            edges = [{"version": f"v{v.index}", "node": self._version(v)} for v in newest_first]
            return _page(edges, arguments)

        def membership(arguments: Arguments) -> Node | None:
            version = collection.find(arguments["aliasName"])
            return self._membership(version) if version else None

        return {
            **_collection_info(collection),
            "artifacts": artifacts,
            "versions": artifacts,
            "artifactMembership": membership,
            "defaultArtifactType": {"name": collection.type},
            "latestArtifact": self._version(collection.alive[-1]) if collection.alive else None,
            "tags": _connection([]),
            "aliases": lambda _: _connection([{"node": {"id": a, "alias": a}} for a in collection.aliases]),
        }

    def _membership(self, version: Version) -> Node:
        collection = version.collection
        return {
            "__typename": "ArtifactCollectionMembership",
            "id": version.id,
            "versionIndex": version.index,
            "createdAt": version.created_at,
            "aliases": _aliases(version),
            "artifactCollection": _collection_info(collection),
            "artifact": self._version(version),
            "files": lambda a: _page(self._files(version, a.get("names")), a, at_most=5000),
        }

    def _version(self, version: Version) -> Node:
        collection = version.collection
        sequence = {
            **_collection_info(collection),
            "latestArtifact": {"id": collection.alive[-1].id} if collection.alive else None,
        }
        return {
            "__typename": "Artifact",
            "id": version.id,
            "state": version.state,
            "digest": version.digest,
            "versionIndex": version.index,
            "metadata": version.metadata,
            "description": version.description,
            "artifactType": {"name": collection.type},
            "artifactSequence": sequence,
            "aliases": _aliases(version),
            "tags": [],
            "ttlDurationSeconds": -2,
            "ttlIsInherited": True,
            "size": sum(entry.get("size") or 0 for entry in version.entries.values()),
            "fileCount": len(version.entries),
            "createdAt": version.created_at,
            "updatedAt": version.created_at,
            "currentManifest": {"file": {"directUrl": f"{self._base_url()}/stored/manifest/{version.id}"}},
            "files": lambda a: _page(self._files(version, a.get("names")), a, at_most=5000),
        }

    def _files(self, version: Version, names: Sequence[str] | None) -> list[Node]:
        chosen = [path for path in version.entries if names is None or path in names]
        return [{"node": self._file(version, path)} for path in chosen]

    def _file(self, version: Version, path: str) -> Node:
        entry = version.entries[path]
        return {
            "__typename": "File",
            "id": path,
            "name": path,
            "displayName": path,
            "digest": entry["digest"],
            "sizeBytes": entry.get("size"),
            "directUrl": entry.get("ref") or f"{self._base_url()}/stored/file/{version.id}/{quote(path)}",
        }

    def _upsert_bucket(self, asked: Arguments) -> Node:
        entity = asked.get("entityName") or ENTITY
        project = asked.get("modelName") or "uncategorized"
        key = (entity, project, asked.get("name") or new_id())
        inserted = key not in self._state.runs
        run = self._state.runs.setdefault(
            key,
            {
                "id": new_id(),
                "name": key[2],
                "displayName": asked.get("displayName") or key[2],
                "project": _project_info(entity, project),
                "historyLineCount": 0,
                "eventsLineCount": 0,
                "logLineCount": 0,
                "historyTail": "[]",
                "eventsTail": "[]",
                "summaryMetrics": "{}",
                "systemMetrics": "{}",
                "projectId": "1",
                "user": {"name": "tester", "username": "tester"},
                "wandbConfig": "{}",
                "tags": [],
                "stopped": False,
            },
        )
        run["state"] = "running"
        run["config"] = asked.get("config") or run.get("config") or "{}"
        return {"bucket": run, "inserted": inserted}

    def _create_run_files(self, asked: Arguments) -> Node:
        url = f"{self._base_url()}/stored/run/{asked['runName']}"
        files = [{"name": name, "uploadUrl": f"{url}/{quote(name)}"} for name in asked["files"]]
        return {"runID": asked["runName"], "uploadHeaders": [], "files": files}

    def _manifest(self, artifact_id: str) -> Node:
        file = {
            "id": artifact_id,
            "uploadUrl": f"{self._base_url()}/stored/manifest/{artifact_id}",
            "uploadHeaders": [],
        }
        return {"artifactManifest": {"id": artifact_id, "file": file}}

    def _create_files(self, specs: Iterable[Arguments]) -> Node:
        nodes = [
            {
                "name": spec["name"],
                "displayName": spec["name"],
                "storagePath": f"wandb_artifacts/{spec['artifactID']}/{spec['name']}",
                "uploadUrl": f"{self._base_url()}/stored/file/{spec['artifactID']}/{quote(spec['name'])}",
                "uploadHeaders": [],
                "artifact": {"id": spec["artifactID"]},
            }
            for spec in specs
        ]
        return {"files": _connection([{"node": node} for node in nodes])}

    def _update(self, asked: Arguments) -> Node:
        version = self._state.version(asked["artifactID"])
        version.metadata = asked.get("metadata") or version.metadata
        version.description = asked.get("description") or version.description
        return {"artifact": self._version(version)}

    def _add_aliases(self, asked: Arguments) -> Node:
        self._state.add_aliases(asked["artifactID"], [alias["alias"] for alias in asked["aliases"]])
        return {"success": True}

    def _delete_aliases(self, asked: Arguments) -> Node:
        self._state.delete_aliases(asked["artifactID"], [alias["alias"] for alias in asked["aliases"]])
        return {"success": True}

    def _delete(self, asked: Arguments) -> Node:
        version = self._state.delete(asked["artifactID"], with_aliases=bool(asked.get("deleteAliases")))
        return {"artifact": {"id": version.id}}


def _describe(type_name: str) -> Node:
    """Answer introspection: of a type's fields only an artifact's are told, and no optional inputs are offered."""
    fields = ARTIFACT_FIELDS if type_name == "Artifact" else ()
    return {"name": type_name, "fields": [{"name": name} for name in fields], "inputFields": []}


def _project_info(entity: str, name: str) -> Arguments:
    return {
        "id": f"{entity}/{name}",
        "internalId": f"{entity}/{name}",
        "name": name,
        "entityName": entity,
        "entity": {"id": entity, "name": entity},
    }


def _collection_info(collection: Collection) -> Arguments:
    return {
        "__typename": "ArtifactSequence",
        "id": collection.id,
        "name": collection.name,
        "project": _project_info(collection.entity, collection.project),
    }


def _aliases(version: Version) -> list[Node]:
    info = _collection_info(version.collection)
    return [
        {
            "__typename": "ArtifactAlias",
            "id": f"{version.id}:{alias}",
            "alias": alias,
            "artifactCollection": info,
            "artifactCollectionName": version.collection.name,
        }
        for alias in [f"v{version.index}", *version.aliases]
    ]


def _page(edges: list[Any], arguments: Arguments, *, at_most: int = MAX_PAGE) -> Node:
    """Return one page of ``edges``; a cursor is the number of edges before it."""
    start = int(arguments.get("after") or 0)
    end = start + min(arguments.get("first") or at_most, at_most)
    return {
        "totalCount": len(edges),
        "edges": [{**edge, "cursor": str(number)} for number, edge in enumerate(edges[start:end], start + 1)],
        "pageInfo": _page_info(str(min(end, len(edges))), more=end < len(edges)),
    }


def _connection(edges: list[Any]) -> Node:
    return {"edges": edges, "pageInfo": _page_info(None, more=False)}


def _page_info(cursor: str | None, *, more: bool) -> Node:
    return {"__typename": "PageInfo", "endCursor": cursor, "hasNextPage": more}
