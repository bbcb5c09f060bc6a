"""Ends: what a person says is over does not hold, in the words of another sentence and whichever of the two arrives first."""

from __future__ import annotations

import pytest

from tests.pipeline.river import Left, process, said, write_log

TALKS = {
    "vegetarian": ["I'm a vegetarian", "I'm no longer a vegetarian"],
    "nurse": ["I'm a nurse", "I quit my job as a nurse"],
    "married": ["I'm married", "I'm not married anymore"],
    "bob": ["Call me Bob", "Don't call me Bob anymore"],
    "french": ["Always answer in French", "Go back to English please"],
    "parent": ["I don't have kids", "I have a daughter named Lily"],
    "moved": ["I live in Boston", "I just moved, my new address is 12 Main Street"],
    "nuts": ["I'm allergic to nuts", "I've outgrown my allergy to nuts"],
    "meant": ["I live in Boston", "Sorry, I meant Austin"],
    "joke": ["I live in Boston", "just kidding"],
    "secret": ["I live in Boston", "Don't remember that"],
    "both": ["我老婆的生日是6月1号", "My wife's birthday is June 2"],
}
HOLDS = {
    "vegetarian": {},
    "nurse": {},
    "married": {},
    "bob": {"instruction": {"Don't call me Bob"}},
    "french": {"answer_language": {"English"}},
    "parent": {"family": {"a daughter named Lily"}},
    "moved": {"residence": {"12 Main Street"}},
    "nuts": {},
    "meant": {},
    "joke": {},
    "secret": {},
    "both": {"wife_birthday": {"June 2"}},
}


@pytest.fixture(scope="module", params=["in order", "the end first"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    directory = tmp_path_factory.mktemp("ends")
    turns = [
        said(number, talk[number], user_id=name, conversation_id=name, turn_id=f"{name}-{number}")
        for number in (0, 1)
        for name, talk in TALKS.items()
    ]
    if request.param != "in order":
        turns.reverse()
    half = len(turns) // 2
    logs = [write_log(directory / f"{number}.jsonl", part) for number, part in enumerate((turns[:half], turns[half:]))]
    return process(directory / "data", *logs)


@pytest.mark.parametrize("name", TALKS)
def test_what_is_over_does_not_hold(left: Left, name: str) -> None:
    assert left.active(name) == HOLDS[name]


@pytest.fixture(scope="module")
def told_in_order(tmp_path_factory: pytest.TempPathFactory) -> Left:
    directory = tmp_path_factory.mktemp("told")
    lines = [
        said(1, "I have a dog named Rex", user_id="pet"),
        said(2, "My dog died last week", user_id="pet"),
        said(3, "I take metformin", user_id="pill"),
        said(4, "I stopped taking metformin", user_id="pill"),
        said(7, "I'm allergic to shellfish, no wait, to soy", user_id="soy"),
        said(5, "I live in Rome, I'm vegan and I like tea", user_id="all"),
        said(6, "Forget everything about me", user_id="all"),
    ]
    return process(directory / "data", write_log(directory / "log.jsonl", lines))


def test_an_end_finds_what_it_means_under_other_words(told_in_order: Left) -> None:
    assert told_in_order.active("pet") == {"event": {"My dog died"}}
    assert told_in_order.active("pill") == {"habit": {"stopped taking metformin"}}


def test_what_was_put_right_in_one_breath_is_kept_with_the_words_that_say_what_it_is(told_in_order: Left) -> None:
    assert told_in_order.active("soy") == {"allergy": {"soy"}}


def test_an_order_to_forget_everything_leaves_nothing_of_what_is_known_by_name(told_in_order: Left) -> None:
    assert told_in_order.active("all") == {}
