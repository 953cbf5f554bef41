"""What must hold once everything was restarted and is healthy: each law yields a sentence for each breach."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import xxhash

from mirror.names import parse_name, sidecar_name
from mirror.receipts.receipt import Receipt, decode_lines, newest
from tests.campaign.disks import BALLAST
from tests.mirror.places import DirectoryPlace, Place, S3Place, record_files

# What nobody writes but where something of ours is wrong, or left open.
_BAD_LINES = re.compile(
    r"^Traceback|a bug kept|has a bug and ends|never retrieved|was destroyed but it is pending"
    # One that still had to send when its request was cut short is closed, and gone with its loop.
    # So is what an interrupt left open between two instructions, and a record that it cut short.
    r"|ResourceWarning: (?!unclosed (transport <_SelectorSocketTransport closing|scandir|file .*/records/))"
    r"|Unclosed c|Exception ignored|never awaited|Fatal Python error|database disk image"
)


def wanted_files(directories: Collection[Path], exclude: Collection[str]) -> dict[str, bytes]:
    """Return what the mirror is to hold: every finished record on disk, without the kinds left out."""
    return without({name: data for one in directories for name, data in record_files(one).items()}, exclude)


def without(files: Mapping[str, bytes], kinds: Collection[str]) -> dict[str, bytes]:
    """Return these files but for those of some kinds."""
    return {name: data for name, data in files.items() if (parsed := parse_name(name)) and parsed.kind not in kinds}


def nothing_unique_was_pruned(
    written: Mapping[str, bytes], on_disk: Mapping[str, bytes], only_here: Collection[str]
) -> Iterator[str]:
    """Every record with a file of a kind that is only on disk is there, as it was written last."""
    ids = _records_with(written, only_here)
    for name, data in written.items():
        if (parsed := parse_name(name)) and parsed.record_id in ids and on_disk.get(name) != data:
            yield f"{name} is no longer on disk as it was written, and its record has a file that is nowhere else"


def all_that_is_safe_was_pruned(
    written: Mapping[str, bytes],
    on_disk: Mapping[str, bytes],
    only_here: Collection[str],
    directories: Collection[Path] = (),
) -> Iterator[str]:
    """Nothing is left on disk but the records with a file of a kind that is only there, or that a killed prune hid."""
    hidden = [path.name.split("-", 2)[-1] for directory in directories for path in directory.glob(".pruned-*")]
    ids = _records_with(on_disk, only_here) | {parsed.record_id for name in hidden if (parsed := parse_name(name))}
    for name in written.keys() & on_disk.keys():
        if (parsed := parse_name(name)) and parsed.record_id not in ids:
            yield f"{name} is in the mirror, and still on disk"


def nothing_hidden_is_left(directories: Collection[Path], *, kills: int) -> Iterator[str]:
    """A prune leaves no file under its hidden name but where it was killed."""
    hidden = [path for directory in directories for path in directory.glob(".pruned-*")]
    if len(hidden) > kills:
        yield f"{hidden} are left after {kills} kills"


def _records_with(files: Mapping[str, bytes], kinds: Collection[str]) -> set[str]:
    return {parsed.record_id for name in files if (parsed := parse_name(name)) and parsed.kind in kinds}


def everything_arrived(wanted: Mapping[str, bytes], objects: Mapping[str, bytes]) -> Iterator[str]:
    """Every finished record is in the mirror, byte for byte, and nothing else is."""
    held = {name: data for name, data in objects.items() if "/" not in name and not name.startswith(".")}
    for name in wanted.keys() - held.keys():
        yield f"{name} is not in the mirror"
    for name in held.keys() - wanted.keys():
        yield f"{name} is in the mirror and is no finished record's file"
    for name in wanted.keys() & held.keys():
        if wanted[name] != held[name]:
            yield f"{name} has other bytes in the mirror ({len(held[name])}) than on disk ({len(wanted[name])})"


def receipts_are_true(
    place: Place,
    objects: Mapping[str, bytes],
    wanted: Mapping[str, bytes],
    exclude: Collection[str],
    overtaken: Collection[str] = (),
) -> Iterator[str]:
    """The newest receipt of each record says what the store holds, and each record has one."""
    lines = [
        item for name, data in sorted(objects.items()) if name.startswith("_receipts/") for item in decode_lines(data)
    ]
    receipts = newest(item for item in lines if isinstance(item, Receipt))
    for item in lines:
        if not isinstance(item, Receipt):
            yield f"a line of a segment in the mirror is no receipt: {item}"
    documents = {parsed.record_id for name in wanted if (parsed := parse_name(name)) and parsed.kind is None}
    for record_id in documents ^ receipts.keys():
        yield f"{record_id} has {'no' if record_id in documents else 'a'} receipt"
    found = _identities(place) if isinstance(place, S3Place) else {}
    identities = {name: those for name, those in found.items() if name not in overtaken}
    for record_id in documents & receipts.keys():
        yield from _is_true(receipts[record_id], objects, identities)
        names = {name for name in wanted if (parsed := parse_name(name)) and parsed.record_id == record_id}
        if names != {file.name for file in receipts[record_id].files}:
            yield f"the receipt of {record_id} lists {[file.name for file in receipts[record_id].files]}, not {names}"
        if set(receipts[record_id].excluded) != set(exclude):
            yield f"the receipt of {record_id} says that {receipts[record_id].excluded} are left out"


def receipts_of(objects: Mapping[str, bytes]) -> dict[str, Receipt]:
    """Return the newest receipt of each record in the mirror."""
    segments = [data for name, data in sorted(objects.items()) if name.startswith("_receipts/")]
    return newest(item for data in segments for item in decode_lines(data) if isinstance(item, Receipt))


def receipts_beside_are_true(directories: Collection[Path], objects: Mapping[str, bytes]) -> Iterator[str]:
    """What the receipts beside the records say last is what the store holds."""
    for directory in directories:
        journals = sorted((directory / ".mirror").rglob("*.jsonl"))
        lines = [item for journal in journals for item in decode_lines(journal.read_bytes(), may_withdraw=True)]
        for receipt in newest(item for item in lines if isinstance(item, Receipt)).values():
            yield from (f"beside the records: {breach}" for breach in _is_true(receipt, objects, {}))


def _is_true(
    receipt: Receipt, objects: Mapping[str, bytes], identities: Mapping[str, set[tuple[str, str | None]]]
) -> Iterator[str]:
    for file in receipt.files:
        data = objects.get(file.name)
        if data is None:
            yield f"the receipt of {receipt.id} lists {file.name}, which is not there"
        elif (len(data), xxhash.xxh3_128_hexdigest(data)) != (file.size, file.xxh3_128):
            yield f"the receipt of {receipt.id} has another size or hash than {file.name}"
        elif file.name in identities and (file.etag, file.version_id) not in identities[file.name]:
            yield f"the receipt of {receipt.id} has {file.etag}, {file.version_id}, not {identities[file.name]}"


def _identities(place: S3Place) -> dict[str, set[tuple[str, str | None]]]:
    """Return the ETags and versions of each object's present bytes; sent twice, they have several versions."""
    below, client = f"{place.prefix}/", place.server.client()
    where = {"Bucket": place.bucket, "Prefix": below}
    objects = [
        item for page in client.get_paginator("list_objects_v2").paginate(**where) for item in page.get("Contents", ())
    ]
    etags = {item["Key"]: item["ETag"].strip('"') for item in objects}  # the other listing has others for large ones
    identities: dict[str, set[tuple[str, str | None]]] = {}
    for page in client.get_paginator("list_object_versions").paginate(**where):
        for item in page.get("Versions", ()):
            version = None if item["VersionId"] == "null" else item["VersionId"]
            identities.setdefault(item["Key"].removeprefix(below), set()).add((etags[item["Key"]], version))
    return identities


class Covered:
    """The files that receipts beside the records cover at one moment: they need not be sent after it."""

    def __init__(self, directory: Path | None) -> None:
        """Read the receipts of a record directory; None: nothing is covered."""
        self._directory = directory
        self._states = {} if directory is None else covered_files(directory)

    @property
    def names(self) -> set[str]:
        """Their names."""
        return set(self._states)

    def sent_again(self, sent: Collection[str]) -> Iterator[str]:
        """No file that a receipt covered, and that nobody wrote again, was sent again."""
        for name, state in self._states.items():
            if name in sent and self._directory is not None and state_now(self._directory / name) == state:
                yield f"{name} was sent again"


def age_what_kills_left(place: Place) -> None:
    """Let days go by for the files that a killed process was writing in a mirror's directory."""
    if isinstance(place, DirectoryPlace):
        for path in place.path.rglob(".*.tmp"):
            with contextlib.suppress(FileNotFoundError):  # somebody is not dead yet
                os.utime(path, (0, 0))


def no_litter(place: Place, scratch: Path, *, hard_ends: int) -> Iterator[str]:
    """No temporary file is left, and no upload in parts but what a kill prevented from being cleaned up."""
    left = [path for path in scratch.rglob("*") if path.is_file()]
    if left:
        yield f"temporary files are left: {left}"
    if isinstance(place, DirectoryPlace):
        dotted = [path for path in place.path.rglob(".*") if path.name != BALLAST]
        if dotted:
            yield f"copies under way are left: {dotted}"
    elif isinstance(place, S3Place):
        answer: Any = place.server.client().list_multipart_uploads(Bucket=place.bucket, Prefix=place.prefix)
        if len(answer.get("Uploads", ())) > hard_ends:
            yield f"{len(answer['Uploads'])} uploads in parts are left after {hard_ends} hard ends"


def logs_are_clean(logs: Collection[Path]) -> Iterator[str]:
    """Nothing in a log speaks of a bug, or of something left open."""
    for log in logs:
        lines = log.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            is_interrupt = any(near.startswith("KeyboardInterrupt") for near in lines[number : number + 8])
            if _BAD_LINES.search(line) and not is_interrupt:
                yield f"{log.name}:{number + 1}: {' | '.join(lines[number : number + 3])[:600]}"


def covered_files(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Return the files that receipts beside the records cover as they are on disk now, with their states."""
    journals = sorted((directory / ".mirror").rglob("*.jsonl"))
    lines = [item for journal in journals for item in decode_lines(journal.read_bytes(), may_withdraw=True)]
    states: dict[str, tuple[int, int, int]] = {}
    for receipt in newest(item for item in lines if isinstance(item, Receipt)).values():
        found = {file.name: state_now(directory / file.name) for file in receipt.files}
        if all(found[file.name] == (file.size, file.ctime_ns, file.inode) for file in receipt.files):
            states.update({name: state for name, state in found.items() if state})
    return states


def state_now(path: Path) -> tuple[int, int, int] | None:
    """Return a file's size, change time and inode, or None when it is not there."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_ctime_ns, status.st_ino


def wanted_sidecars(kinds: Mapping[str, Collection[str]], exclude: Collection[str]) -> dict[str, set[str]]:
    """Return which sidecars must be visible with each record's document."""
    return {
        record_id: {sidecar_name(record_id, kind) for kind in of_record if kind not in exclude}
        for record_id, of_record in kinds.items()
    }
