"""Which version of each step counts, and what the others tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from references.versions import Newest, Version, newest_versions


def logged(*steps: tuple[int, str | None]) -> list[Version]:
    """Return versions in the order of logging, each a step and its content."""
    return [Version(number=number, step=step, content=content) for number, (step, content) in enumerate(steps)]


@st.composite
def histories(draw: st.DrawFn) -> list[Version]:
    """Draw a run's versions: any steps again and again, with numbers that ascend, some of them deleted."""
    steps = draw(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([None, "a", "b", "c"])), max_size=30))
    versions = logged(*steps)
    return draw(st.lists(st.sampled_from(versions), unique_by=lambda version: version.number)) if versions else []


@given(histories(), st.randoms())
def test_the_newest_version_of_each_step_counts_in_whatever_order_they_are_listed(
    versions: list[Version], random: object
) -> None:
    """Each step once, ascending, with the highest number; a shuffled listing says the same."""
    shuffled = list(versions)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # Hypothesis' own Random
    found = newest_versions(shuffled)
    assert found == newest_versions(versions)
    assert list(found) == sorted({version.step for version in versions})
    for step, newest in found.items():
        assert newest.number == max(version.number for version in versions if version.step == step)


@given(histories())
def test_a_run_that_only_goes_forward_leaves_nothing_behind(versions: list[Version]) -> None:
    """With each step of one content, whatever was completed when, no step is said to be run again or left behind."""
    one_content = [Version(number=version.number, step=version.step, content="same") for version in versions]
    found = newest_versions(one_content).values()
    assert all(newest.contents == 1 and not newest.is_left_behind for newest in found)


def test_a_step_that_was_only_completed_was_not_run_again() -> None:
    """A newer version with the same content has what landed late; another content is another run of the step."""
    found = newest_versions(logged((1, "a"), (2, "b"), (1, "a"), (2, "c"), (2, "c")))
    assert found[1] == Newest(number=2, contents=1, is_left_behind=False)
    assert found[2] == Newest(number=4, contents=2, is_left_behind=False)


def test_versions_that_do_not_say_their_content_are_contents_of_their_own() -> None:
    """Where nobody knows, a newer version is taken for another run of the step."""
    assert newest_versions(logged((1, None), (1, None)))[1].contents == 2


@pytest.mark.parametrize(
    ("steps", "left_behind"),
    [
        ([(3, "a"), (4, "b"), (5, "c"), (3, "d")], {4, 5}),
        ([(3, "a"), (4, "b"), (5, "c"), (3, "d"), (4, "e")], {5}),
        ([(3, "a"), (4, "b"), (5, "c"), (3, "d"), (4, "e"), (5, "f"), (6, "g")], set()),
        ([(3, "a"), (4, "b"), (3, "d"), (3, "d"), (4, "e"), (3, "d")], set()),
        ([(5, "a"), (4, "b"), (3, "c")], set()),
    ],
    ids=["back to 3", "again up to 4", "past where it was", "completed later", "logged in any order"],
)
def test_a_run_that_went_back_leaves_later_steps_behind(
    steps: list[tuple[int, str | None]], left_behind: set[int]
) -> None:
    """After a resume at a lower step, those above are of the former course until they are run again."""
    found = newest_versions(logged(*steps))
    assert {step for step, newest in found.items() if newest.is_left_behind} == left_behind
