"""Kinds of sidecars nobody knew are noticed without listing a directory for every record."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path, PosixPath

import pytest

from mirror.kinds import FORGET_S, GLANCED, GONE_S, MOST_PAUSE_S, PAUSE, Kinds
from mirror.names import KNOWN_KINDS
from tests.mirror.fake_clock import FakeClock
from tests.mirror.local_records import write_files
from tests.mirror.mirrors_in_memory import eventually


class SlowClock(FakeClock):
    """A clock that moves on by a second each time it is looked at, so that a listing takes some of them."""

    def __call__(self) -> float:
        """Return a later moment each time."""
        self.now += 1.0
        return self.now


def test_the_known_kinds_need_no_look(tmp_path: Path) -> None:
    """What the format names is looked for in every directory, listed or not."""
    kinds = Kinds()
    assert kinds.known(tmp_path) == KNOWN_KINDS
    assert kinds.is_due(tmp_path)
    assert kinds.unsettled() == []


def test_a_look_learns_new_kinds(tmp_path: Path) -> None:
    """Whatever sidecar lies there, its kind is known from then on, for that directory."""
    write_files(tmp_path, "tr_a", brand_new=b"x")
    kinds = Kinds()
    assert kinds.look(tmp_path) == KNOWN_KINDS | {"brand_new"}
    assert kinds.known(tmp_path) == KNOWN_KINDS | {"brand_new"}
    assert kinds.known(tmp_path / "other") == KNOWN_KINDS


def test_listings_take_a_small_share_of_the_time(tmp_path: Path) -> None:
    """After a listing the next is due after many times as long as it took."""
    clock = SlowClock()
    kinds = Kinds(clock=clock)
    kinds.look(tmp_path)
    write_files(tmp_path, "tr_a", brand_new=b"x")
    took = 0
    while not kinds.is_due(tmp_path):
        took += 1
        assert "brand_new" not in kinds.look(tmp_path)
    assert took >= PAUSE // 3  # each question costs this clock seconds too
    assert "brand_new" in kinds.look(tmp_path)


def test_kinds_seen_by_others_are_known(tmp_path: Path) -> None:
    """A look for late records tells what it saw."""
    kinds = Kinds()
    kinds.learn(tmp_path, {"brand_new"})
    assert kinds.known(tmp_path) == KNOWN_KINDS | {"brand_new"}


def test_what_was_copied_without_a_new_kind_is_named(tmp_path: Path) -> None:
    """A record that was copied before its sidecar's kind was known is copied again when it is."""
    clock = FakeClock()
    kinds = Kinds(clock=clock)
    kinds.look(tmp_path)
    write_files(tmp_path, "tr_a", brand_new=b"x")
    write_files(tmp_path, "tr_b", tokens=b"x")
    for record_id in ("tr_a", "tr_b"):
        kinds.copied(tmp_path, record_id, KNOWN_KINDS)
    assert kinds.unsettled() == [tmp_path]
    assert kinds.recheck(tmp_path) == {"tr_a"}
    assert kinds.recheck(tmp_path) == {"tr_a"}  # until it is known that it will be copied once more
    kinds.offered(tmp_path, "tr_a")
    assert kinds.unsettled() == []
    assert kinds.recheck(tmp_path) == set()


@pytest.mark.parametrize("how", ["look", "learn"])
def test_a_kind_learned_otherwise_leaves_its_records_to_be_named(tmp_path: Path, how: str) -> None:
    """Whoever learns a kind first, what was copied without it is found by the next recheck."""
    clock = FakeClock()
    kinds = Kinds(clock=clock)
    kinds.copied(tmp_path, "tr_a", KNOWN_KINDS)
    write_files(tmp_path, "tr_a", brand_new=b"x")
    if how == "look":
        kinds.look(tmp_path)
    else:
        kinds.learn(tmp_path, {"brand_new"})
    assert kinds.unsettled() == [tmp_path]
    assert kinds.recheck(tmp_path) == {"tr_a"}


def test_a_kind_learned_during_a_copy_is_missed_by_that_copy(tmp_path: Path) -> None:
    """A copy that began before a kind was known ends without it, and is named."""
    kinds = Kinds()
    write_files(tmp_path, "tr_a", brand_new=b"x")
    began_with = kinds.known(tmp_path)
    kinds.look(tmp_path)
    kinds.copied(tmp_path, "tr_a", began_with)
    assert kinds.recheck(tmp_path) == {"tr_a"}


class Listed(PosixPath):
    """A directory that does something while it is being listed."""

    meanwhile: Callable[[], object] = list  # nothing, for paths below it

    def __fspath__(self) -> str:
        """Be asked for by a listing."""
        self.meanwhile()
        return str(self)


def test_a_copy_that_ends_during_a_listing_is_named_too(tmp_path: Path) -> None:
    """What was copied while a directory was listed is compared with what that listing learned."""
    kinds = Kinds()
    write_files(tmp_path, "tr_a", brand_new=b"x")
    directory = Listed(tmp_path)
    directory.meanwhile = lambda: kinds.copied(tmp_path, "tr_a", KNOWN_KINDS)
    kinds.look(directory)
    assert kinds.recheck(tmp_path) == {"tr_a"}


def test_a_kind_that_a_look_learns_during_a_listing_is_missed_by_earlier_copies(tmp_path: Path) -> None:
    """Whoever of two that look at once learns a kind first: what was copied before is named, unsettled till then."""
    kinds = Kinds()
    kinds.copied(tmp_path, "tr_a", KNOWN_KINDS)
    write_files(tmp_path, "tr_a", brand_new=b"x")
    unsettled: list[list[Path]] = []
    directory = Listed(tmp_path)

    def meanwhile() -> None:
        unsettled.append(kinds.unsettled())
        kinds.learn(tmp_path, {"brand_new"})

    directory.meanwhile = meanwhile
    kinds.look(directory)
    assert unsettled == [[tmp_path]]
    assert kinds.recheck(tmp_path) == {"tr_a"}


def test_a_glance_lists_what_is_quick_to_list(tmp_path: Path) -> None:
    """Where a directory is small, who must not wait learns of a new kind all the same."""
    write_files(tmp_path, "tr_a", brand_new=b"x")
    assert "brand_new" in Kinds().glance(tmp_path)


def test_a_glance_leaves_a_long_listing_to_another_thread(tmp_path: Path) -> None:
    """Where a directory is large, what is known is the answer, and the next one knows more."""
    for number in range(GLANCED):
        (tmp_path / f"tr_{number}.brand_new.zst").touch()
    (tmp_path / "tr_0.json.zst").touch()
    kinds = Kinds()
    listing = threading.Event()
    directory = Listed(tmp_path)
    asked: list[str] = []

    def meanwhile() -> None:
        asked.append(threading.current_thread().name)
        if len(asked) == 2:
            listing.wait(30)

    directory.meanwhile = meanwhile
    assert kinds.glance(directory) == KNOWN_KINDS
    eventually(lambda: len(asked) == 2)
    assert kinds.glance(directory) == KNOWN_KINDS  # and does not wait for the one under way
    listing.set()
    eventually(lambda: "brand_new" in kinds.known(directory))
    assert asked == ["MainThread", "record-mirror-kinds"]


def test_a_glance_at_nothing_is_an_error(tmp_path: Path) -> None:
    """A directory that cannot be read is never taken for one without sidecars."""
    with pytest.raises(FileNotFoundError):
        Kinds().glance(tmp_path / "absent")


def test_a_directory_that_is_gone_has_nothing_to_complete(tmp_path: Path) -> None:
    """What was copied from it stays copied, and it is looked for less and less often, and in the end no more."""
    clock = FakeClock()
    kinds = Kinds(clock=clock)
    gone = tmp_path / "gone"
    write_files(gone, "tr_a", brand_new=b"x")
    kinds.copied(gone, "tr_a", KNOWN_KINDS)
    kinds.learn(gone, {"brand_new"})
    shutil.rmtree(gone)
    assert kinds.to_recheck() == [gone]
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            kinds.recheck(gone)
        assert (kinds.unsettled(), kinds.to_recheck()) == ([gone], [])
    clock.now += GONE_S
    assert kinds.to_recheck() == [gone]
    assert kinds.recheck(gone) == set()
    assert kinds.unsettled() == []
    looks = 0
    while kinds.unsettled(gone_too=True):
        clock.now += 1.0
        if kinds.to_recheck():
            looks += 1
            assert kinds.recheck(gone) == set()
            assert kinds.is_away(gone) or clock.now >= FORGET_S
    assert clock.now >= FORGET_S
    assert looks < 2 * FORGET_S / MOST_PAUSE_S


def test_a_directory_that_comes_back_after_long_is_completed_too(tmp_path: Path) -> None:
    """Nobody waited for it; what its records lack was not forgotten."""
    clock = FakeClock()
    kinds = Kinds(clock=clock)
    directory, aside = tmp_path / "records", tmp_path / "aside"
    write_files(directory, "tr_a", brand_new=b"x")
    kinds.copied(directory, "tr_a", KNOWN_KINDS)
    directory.rename(aside)
    with pytest.raises(FileNotFoundError):
        kinds.recheck(directory)
    clock.now += FORGET_S / 2
    assert kinds.recheck(directory) == set()
    aside.rename(directory)
    assert kinds.unsettled() == []
    assert kinds.recheck(directory) == {"tr_a"}
    assert kinds.unsettled() == [directory]


def test_a_directory_that_comes_back_is_completed(tmp_path: Path) -> None:
    """Somebody who moves it away and back, or exchanges it, hides nothing from the mirror."""
    clock = FakeClock()
    kinds = Kinds(clock=clock)
    directory, aside = tmp_path / "records", tmp_path / "aside"
    write_files(directory, "tr_a", brand_new=b"x")
    write_files(directory, "tr_b", other=b"x")
    kinds.copied(directory, "tr_a", KNOWN_KINDS)
    kinds.learn(directory, {"brand_new"})  # so that one is known to lack something, and the other may
    kinds.copied(directory, "tr_b", KNOWN_KINDS | {"brand_new"})
    directory.rename(aside)
    with pytest.raises(FileNotFoundError):
        kinds.recheck(directory)
    aside.rename(directory)
    assert kinds.recheck(directory) == {"tr_a", "tr_b"}


@pytest.mark.parametrize("how", ["a listing", "a copy"])
def test_two_brief_absences_are_not_a_long_one(tmp_path: Path, how: str) -> None:
    """What shows that the directory is there between them lets the second begin anew."""
    clock = FakeClock()
    kinds = Kinds(clock=clock)
    directory, aside = tmp_path / "records", tmp_path / "aside"
    write_files(directory, "tr_a", brand_new=b"x")
    kinds.copied(directory, "tr_a", KNOWN_KINDS)
    for _ in range(3):
        directory.rename(aside)
        with pytest.raises(FileNotFoundError):
            kinds.recheck(directory)
        assert kinds.unsettled() == [directory]
        aside.rename(directory)
        if how == "a listing":
            kinds.look(directory)
        else:
            kinds.copied(directory, "tr_b", KNOWN_KINDS)
        clock.now += 2 * GONE_S
    assert kinds.recheck(directory) == {"tr_a"}


def test_a_directory_that_was_away_is_looked_for_whatever_its_listing_takes(tmp_path: Path) -> None:
    """A pause after a long listing does not make two absences one."""
    clock = SlowClock()
    kinds = Kinds(clock=clock)
    directory, aside = tmp_path / "records", tmp_path / "aside"
    write_files(directory, "tr_a", b"doc")
    kinds.look(directory)
    kinds.copied(directory, "tr_a", KNOWN_KINDS)
    assert not kinds.to_recheck()
    directory.rename(aside)
    with pytest.raises(FileNotFoundError):
        kinds.recheck(directory)
    aside.rename(directory)
    assert kinds.to_recheck() == [directory]  # a second later, by this clock


def test_a_directory_that_goes_away_during_a_look_hides_nobody(tmp_path: Path) -> None:
    """A kind counts as known only once it is clear who lacks it."""
    kinds = Kinds(clock=FakeClock())
    directory, aside = tmp_path / "records", tmp_path / "aside"
    write_files(directory, "tr_a", brand_new=b"x")
    kinds.copied(directory, "tr_a", KNOWN_KINDS)
    directory.rename(aside)
    with pytest.raises(FileNotFoundError):
        kinds.learn(directory, {"brand_new"})  # by a listing that ended just before
    aside.rename(directory)
    assert kinds.recheck(directory) == {"tr_a"}


def test_an_id_that_leaves_no_room_for_a_sidecar_hides_nobody(tmp_path: Path) -> None:
    """No file can have the name that its sidecar would have; others have theirs."""
    kinds = Kinds()
    long = "x" * 240
    write_files(tmp_path, long, b"doc")
    write_files(tmp_path, "tr_a", brand_new_kind=b"x")
    for record_id in (long, "tr_a"):
        kinds.copied(tmp_path, record_id, KNOWN_KINDS)
    assert kinds.recheck(tmp_path) == {"tr_a"}


def test_a_look_that_fails_of_a_bug_hides_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends a listing, the next one is about the same records."""
    kinds = Kinds()
    write_files(tmp_path, "tr_a", brand_new=b"x")
    kinds.copied(tmp_path, "tr_a", KNOWN_KINDS)

    def fail(_directory: Path) -> set[str]:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("mirror.kinds.find_kinds", fail)
        with pytest.raises(MemoryError):
            kinds.recheck(tmp_path)
    assert kinds.unsettled() == [tmp_path]
    assert kinds.recheck(tmp_path) == {"tr_a"}


def test_a_directory_of_which_nothing_was_copied_is_settled(tmp_path: Path) -> None:
    """It cannot be read, which is an error and never taken for no sidecars."""
    kinds = Kinds()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("absent", "loop"):
        with pytest.raises(OSError, match=name):
            kinds.look(tmp_path / name)
    assert kinds.unsettled() == []


def test_a_listing_that_fails_forgets_nobody(tmp_path: Path) -> None:
    """What is to be completed waits until the directory can be read again, and is asked for no more often than that."""
    clock = FakeClock()
    kinds = Kinds(clock=clock)
    directory = tmp_path / "records"
    write_files(tmp_path / "aside", "tr_a", brand_new=b"x")
    kinds.copied(directory, "tr_a", KNOWN_KINDS)
    directory.symlink_to(directory)  # nobody can list it, whatever his rights
    for _ in range(2):
        with pytest.raises(OSError, match="symbolic links"):
            kinds.recheck(directory)
        assert kinds.unsettled() == [directory]
        assert not kinds.is_due(directory)
    directory.unlink()
    (tmp_path / "aside").rename(directory)
    assert kinds.recheck(directory) == {"tr_a"}


def test_threads_may_ask_at_once(tmp_path: Path) -> None:
    """Servers ask where records are while the mirror copies: nobody sees half a set, and nothing is missed."""
    kinds = Kinds()
    seen: list[frozenset[str]] = []

    def work(number: int) -> None:
        write_files(tmp_path, f"tr_{number}", **{f"kind{number}": b"x"})
        kinds.copied(tmp_path, f"tr_{number}", KNOWN_KINDS)
        seen.append(kinds.look(tmp_path))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds.recheck(tmp_path) == {f"tr_{number}" for number in range(8)}
    assert all(found >= KNOWN_KINDS for found in seen)
    assert kinds.known(tmp_path) == KNOWN_KINDS | {f"kind{number}" for number in range(8)}
