"""What is known of a mirror or a record directory: in words and in JSON."""

from __future__ import annotations

import datetime as dt
from collections import Counter

from mirror.status import DirectoryStatus, MirrorStatus
from mirror.terminal.exits import Exit
from mirror.terminal.output import Output, format_bytes, name_some, plural


def report_mirror_status(status: MirrorStatus, url: str, output: Output) -> int:
    """Say what a mirror's receipts say."""
    newest = None if status.newest_at is None else _moment(status.newest_at)
    hosts = sorted(status.hosts)
    lines = [
        f"mirror   {url}",
        f"records  {status.records:,}",
        f"files    {status.files:,}",
        f"bytes    {format_bytes(status.size_bytes)}",
        f"writers  {len(status.writers):,}",
        f"hosts    {name_some(hosts) or 'none'}",
        f"newest   {newest or 'no receipt yet'}",
    ]
    facts = {"url": url, "records": status.records, "files": status.files, "bytes": status.size_bytes}
    output.line(
        "mirror", "\n".join(lines), **facts, writers=len(status.writers), hosts=hosts, newest_at=status.newest_at
    )
    return output.summary(None, Exit.COMPLETE, **facts, unchanged=status.files)


def report_directory_status(status: DirectoryStatus, output: Output) -> int:
    """Say what a record directory's receipts say."""
    output.line(
        "directory",
        f"{status.directory}: {plural(status.records, 'finished record')}",
        directory=str(status.directory),
        records=status.records,
    )
    alike = Counter(place.words for place in status.places)
    for place in status.places:
        words = place.words if alike[place.words] == 1 else f"{place.words} ({place.place})"  # no endpoint kept
        output.line(
            "place",
            f"{words}: {plural(place.receipted, 'record')} receipted, {place.uncopied:,} uncopied",
            url=place.url,
            where=place.where,
            place=place.place,
            receipted=place.receipted,
            uncopied=place.uncopied,
        )
    if not status.places and status.can_keep:
        output.remark("it was never copied to a mirror")
    elif not status.places:
        how = f"`record-mirror verify URL {status.directory}` tells"
        output.remark(f"no receipts are there, and none can be kept there: what of it a mirror has, {how}")
    return output.summary(None, Exit.COMPLETE, directory=str(status.directory), records=status.records)


def _moment(unix_s: float) -> str:
    try:
        return dt.datetime.fromtimestamp(unix_s, dt.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # whoever can write to the mirror can claim any time
        return str(unix_s)
