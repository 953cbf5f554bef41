"""An open directory: what is read and written in it, and that no link leads out of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import xxhash

from references.errors import OutDirectoryError
from references.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    opened = Folder.open(tmp_path)
    yield opened
    opened.close()


def test_a_file_is_hashed_if_it_has_the_size(folder: Folder) -> None:
    """Another size is not read; what is no file has no digest."""
    folder.write("file", b"content", begin=True)
    folder.write("empty", b"", begin=True)
    (folder.path / "directory").mkdir()
    os.mkfifo(folder.path / "pipe")
    (folder.path / "link").symlink_to(folder.path / "file")
    assert folder.digest("file", 7) == xxhash.xxh3_128_hexdigest(b"content")
    assert folder.digest("empty", 0) == xxhash.xxh3_128_hexdigest(b"")
    assert {folder.digest(name, 0) for name in ("file", "directory", "pipe", "link", "absent")} == {None}
    assert folder.digest("link", 7) is None
    assert (folder.content("file", 7), folder.content("file", 8)) == (b"content", None)


def test_a_link_is_never_written_through(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither by a write nor by a move; removed is the link, not what it leads to."""
    outside = tmp_path_factory.mktemp("outside") / "precious"
    outside.write_bytes(b"mine")
    (folder.path / "link").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic links"):
        folder.write("link", b"yours", begin=True)
    folder.write("new", b"yours", begin=True)
    folder.move("new", folder, "link")
    assert (folder.path / "link").read_bytes() == b"yours"
    (folder.path / "second").symlink_to(outside)
    folder.remove("second")
    assert outside.read_bytes() == b"mine"


def test_a_directory_is_entered_but_not_through_a_link(folder: Folder) -> None:
    """Made where it is absent, if that is wanted."""
    assert folder.enter("inner", create=False) is None
    inner = folder.enter("inner", create=True)
    assert inner is not None
    inner.write("file", b"x", begin=True)
    inner.close()
    assert (folder.path / "inner" / "file").exists()
    (folder.path / "link").symlink_to(folder.path / "inner")
    folder.write("file", b"x", begin=True)
    for name in ("link", "file"):
        for create in (True, False):
            with pytest.raises(OutDirectoryError, match="not a directory"):
                folder.enter(name, create=create)


def test_it_stays_the_directory_that_was_opened(folder: Folder) -> None:
    """Also when another one takes its name meanwhile."""
    inner = folder.enter("inner", create=True)
    assert inner is not None
    (folder.path / "inner").rename(folder.path / "moved")
    (folder.path / "inner").symlink_to("/")
    inner.write("file", b"x", begin=True)
    inner.close()
    assert (folder.path / "moved" / "file").exists()


def test_it_has_what_it_has(folder: Folder) -> None:
    """Links to nowhere included."""
    (folder.path / "link").symlink_to("nowhere")
    assert (folder.has("link"), folder.has("absent")) == (True, False)
    assert folder.names() == ["link"]
