"""A record is deleted as it was verified, or stays; no half of it is ever a record."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from mirror.pruning.removing import remove_record
from mirror.record import FileState, read_state
from tests.mirror.local_records import replace_file, state_of, write_files
from tests.mirror.moments import Moments


def states(directory: Path, record_id: str = "tr_a", *kinds: str) -> list[FileState]:
    names = [*(f"{record_id}.{kind}.zst" for kind in kinds or ("tokens",)), f"{record_id}.json.zst"]
    return [state_of(directory / name) for name in names]


def test_a_record_goes_with_all_its_files(tmp_path: Path) -> None:
    """And nothing else does; a second time there is nothing to delete."""
    write_files(tmp_path, "tr_a", tokens=b"t")
    write_files(tmp_path, "tr_b", tokens=b"t")
    verified = states(tmp_path)
    assert remove_record(tmp_path, verified)
    assert sorted(os.listdir(tmp_path)) == ["tr_b.json.zst", "tr_b.tokens.zst"]  # noqa: PTH208 - hidden names too
    assert not remove_record(tmp_path, verified)


@pytest.mark.parametrize("name", ["tr_a.tokens.zst", "tr_a.json.zst"])
@pytest.mark.parametrize("how", ["replaced", "written in place", "deleted", "linked"])
def test_a_record_that_is_not_as_it_was_stays(tmp_path: Path, name: str, how: str) -> None:
    """Whichever file it is, and whatever happened to it."""
    write_files(tmp_path, "tr_a", b"{}", tokens=b"tt")
    verified = states(tmp_path)
    path = tmp_path / name
    data = path.read_bytes()
    if how == "replaced":
        replace_file(path, data)
    elif how == "written in place":
        path.write_bytes(data)
        os.utime(path, ns=(1, 1))
    else:
        path.rename(tmp_path / "elsewhere")
        if how == "linked":
            path.symlink_to("elsewhere")
    before = sorted(os.listdir(tmp_path))  # noqa: PTH208 - hidden names too
    assert not remove_record(tmp_path, verified)
    assert sorted(os.listdir(tmp_path)) == before  # noqa: PTH208 - likewise


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_record_written_again_after_the_last_look_goes_back(tmp_path: Path, moments: Moments) -> None:
    """No call deletes a file only if it is a certain one: what was taken by mistake gets its name back."""
    write_files(tmp_path, "tr_a", b"old", tokens=b"old")
    verified = states(tmp_path)
    moments.before("os.rename", "tr_a.json.zst", lambda: write_files(tmp_path, "tr_a", b"new", tokens=b"new"))
    assert not remove_record(tmp_path, verified)
    assert moments.are_over
    assert contents(tmp_path) == {"tr_a.json.zst": b"new", "tr_a.tokens.zst": b"new"}


def test_a_sidecar_of_a_newer_record_stays(tmp_path: Path, moments: Moments) -> None:
    """The document went, and before it is the sidecar's turn the record is being written again."""
    write_files(tmp_path, "tr_a", b"old", tokens=b"old")
    verified = states(tmp_path)
    moments.before("os.rename", "tr_a.tokens.zst", lambda: replace_file(tmp_path / "tr_a.tokens.zst", b"new"))
    assert remove_record(tmp_path, verified)
    assert moments.are_over
    assert contents(tmp_path) == {"tr_a.tokens.zst": b"new"}


def test_a_newer_document_keeps_the_sidecars_that_are_left(tmp_path: Path, moments: Moments) -> None:
    """They may be its own."""
    write_files(tmp_path, "tr_a", b"old", tokens=b"old")
    verified = states(tmp_path)
    moments.before("os.remove", ".pruned-", lambda: replace_file(tmp_path / "tr_a.json.zst", b"new"))
    assert remove_record(tmp_path, verified)
    assert moments.are_over
    assert contents(tmp_path) == {"tr_a.json.zst": b"new", "tr_a.tokens.zst": b"old"}


def test_what_goes_back_never_replaces_a_still_newer_one(tmp_path: Path, moments: Moments) -> None:
    """Twice written again within one deletion: the last one stays."""
    write_files(tmp_path, "tr_a", b"old")
    verified = [state_of(tmp_path / "tr_a.json.zst")]
    moments.before("os.rename", "tr_a.json.zst", lambda: replace_file(tmp_path / "tr_a.json.zst", b"new"))
    moments.before("os.link", ".pruned-", lambda: replace_file(tmp_path / "tr_a.json.zst", b"newest"))
    assert not remove_record(tmp_path, verified)
    assert moments.are_over
    assert contents(tmp_path) == {"tr_a.json.zst": b"newest"}


@pytest.mark.parametrize("written_last", [None, b"newest"])
def test_a_file_system_without_hard_links_will_do(tmp_path: Path, moments: Moments, written_last: bytes | None) -> None:
    """What goes back is renamed there; twice written again within one deletion, the last one stays."""

    def refuse() -> None:
        if written_last is not None:
            replace_file(tmp_path / "tr_a.json.zst", written_last)
        raise PermissionError(errno.EPERM, "no hard links here")

    write_files(tmp_path, "tr_a", b"old")
    verified = [state_of(tmp_path / "tr_a.json.zst")]
    moments.before("os.rename", "tr_a.json.zst", lambda: replace_file(tmp_path / "tr_a.json.zst", b"new"))
    moments.before("os.link", ".pruned-", refuse)
    assert not remove_record(tmp_path, verified)
    assert moments.are_over
    assert contents(tmp_path) == {"tr_a.json.zst": written_last or b"new"}


def test_an_interrupt_in_the_middle_leaves_nothing_hidden(tmp_path: Path, moments: Moments) -> None:
    """A document that was not deleted yet is back; what was interrupted behind it was no record any more."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    write_files(tmp_path, "tr_a", b"old", tokens=b"old")
    before = contents(tmp_path)
    moments.before("os.remove", ".pruned-", interrupt)
    with pytest.raises(KeyboardInterrupt):
        remove_record(tmp_path, states(tmp_path))
    assert contents(tmp_path) == before
    moments.before("os.rename", "tr_a.tokens.zst", interrupt)
    with pytest.raises(KeyboardInterrupt):
        remove_record(tmp_path, states(tmp_path))
    assert contents(tmp_path) == {"tr_a.tokens.zst": b"old"}


@pytest.mark.parametrize(("length", "sign"), [(229, "-"), (230, "~"), (246, "~")])
def test_a_long_name_is_hidden_as_far_as_it_fits(tmp_path: Path, moments: Moments, length: int, sign: str) -> None:
    """Whole where there is room for it, which another sign tells from its beginning alone."""
    hidden: list[str] = []
    name = "x" * length + ".json.zst"
    write_files(tmp_path, "x" * length)
    moments.before("os.remove", ".pruned-", lambda: hidden.extend(contents(tmp_path)))
    assert remove_record(tmp_path, [state_of(tmp_path / name)])
    assert contents(tmp_path) == {}
    assert hidden[0][len(".pruned-01234567") :] == (sign + name)[:239]


def test_a_newer_record_is_never_deleted_whenever_it_comes(tmp_path: Path) -> None:
    """A server writes the record again, sidecar first, at any moment of its deletion: it ends whole and visible."""
    rng = random.Random(1)  # noqa: S311 - no secret
    for round_ in range(200):
        write_files(tmp_path, "tr_a", b"old", tokens=b"old")
        verified = states(tmp_path)
        start = threading.Barrier(2)

        def write_again(spins: int = rng.randrange(300), start: threading.Barrier = start) -> None:
            start.wait()
            for _ in range(spins):
                pass
            write_files(tmp_path, "tr_a", b"new", tokens=b"new")

        writing = threading.Thread(target=write_again)
        writing.start()
        start.wait()
        remove_record(tmp_path, verified)
        writing.join()
        assert contents(tmp_path) == {"tr_a.json.zst": b"new", "tr_a.tokens.zst": b"new"}, round_


def test_a_reader_never_sees_a_document_without_its_sidecars(tmp_path: Path) -> None:
    """Somebody who looks all the time sees records that are whole, or none."""
    over = threading.Event()
    torn: list[object] = []

    def seen() -> tuple[int, int] | None:
        state = read_state(tmp_path, "tr_a.json.zst")
        return (state.inode, state.ctime_ns) if state else None

    def look() -> None:
        while not over.is_set():
            before = seen()
            sidecars = [(tmp_path / f"tr_a.{kind}.zst").exists() for kind in ("experts", "tokens")]
            if before and before == seen() and not all(sidecars):
                torn.append(sidecars)

    looking = threading.Thread(target=look)
    write_files(tmp_path, "tr_a", experts=b"e", tokens=b"t")
    looking.start()
    for _ in range(300):
        assert remove_record(tmp_path, states(tmp_path, "tr_a", "experts", "tokens"))
        for kind in ("experts", "tokens"):  # the next record of that name is another, written in the right order
            replace_file(tmp_path / f"tr_a.{kind}.zst", b"x")
        replace_file(tmp_path / "tr_a.json.zst", b"{}")
    over.set()
    looking.join()
    assert torn == []
