"""The load of the benchmark: it has the shape that is promised, and a verdict."""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections import Counter
from itertools import islice, pairwise
from typing import Any

import psutil
import pytest

from ops.bench import __main__ as bench
from ops.bench.load import (
    BURST,
    FACT_SHARE,
    HOT,
    LONGEST,
    SEGMENTS,
    STEADY,
    WITH,
    WITHOUT,
    Run,
    Said,
    Shape,
    figures,
    lengths,
    paces,
    verdict,
)

TURNS = 20_000


def said(*, hot: bool, seed: int = 11, turns: int = TURNS) -> list[Said]:
    shape = Shape(10_000, seed=seed)
    return [shape.next(hot=hot) for _ in range(turns)]


def test_one_owner_has_a_fifth_of_the_turns_and_nobody_else_comes_near() -> None:
    owners = Counter(item.turn.user_id for item in said(hot=True))
    assert owners[HOT] / TURNS == pytest.approx(0.2, abs=0.01)
    [(_first, most), (_second, next_most)] = owners.most_common(2)
    assert next_most < most / 10


def test_without_the_hot_owner_there_is_none() -> None:
    assert HOT not in {item.turn.user_id for item in said(hot=False)}


def test_most_conversations_are_short_and_a_few_have_hundreds_of_turns() -> None:
    drawn = list(islice(lengths(random.Random(3)), 20_000))
    assert statistics.median(drawn) in (2, 3)
    assert sum(length > 20 for length in drawn) / len(drawn) == pytest.approx(0.011, abs=0.004)
    assert 100 < max(drawn) <= LONGEST


def test_a_conversation_has_one_owner_and_ends_with_its_last_turn() -> None:
    turns = [item.turn for item in said(hot=True)]
    last = {turn.conversation_id: number for number, turn in enumerate(turns)}
    ended = {turn.conversation_id: number for number, turn in enumerate(turns) if turn.conversation_end}
    assert len(ended) > 1_000
    assert all(last[conversation] == number for conversation, number in ended.items())
    assert len({(turn.conversation_id, turn.user_id) for turn in turns}) == len(last)


def test_conversations_are_had_beside_each_other() -> None:
    turns = [item.turn for item in said(hot=False)]
    assert sum(one.conversation_id == other.conversation_id for one, other in pairwise(turns)) < 400


def test_a_tenth_of_the_turns_are_facts_and_each_has_a_value_of_its_own() -> None:
    facts = [item.turn for item in said(hot=True) if item.fact]
    assert len(facts) / TURNS == pytest.approx(FACT_SHARE, abs=0.01)
    assert len({turn.text for turn in facts}) == len({turn.turn_id for turn in facts}) == len(facts)


def test_the_same_seed_says_the_same() -> None:
    assert said(hot=True, turns=500) == said(hot=True, turns=500)
    assert said(hot=True, turns=500) != said(hot=True, turns=500, seed=12)


def test_a_burst_is_ten_times_the_rate_for_as_long_as_any_other_segment() -> None:
    segments = paces(100.0, 24_000)
    assert len(segments) == SEGMENTS
    assert Counter(pace for _count, pace in segments) == {100.0: SEGMENTS - 1, 100.0 * BURST: 1}
    assert BURST == 10
    assert {count / pace for count, pace in segments} == {10.0}
    assert sum(count for count, _pace in segments) == 24_000


def test_on_the_whole_the_machine_can_keep_up() -> None:
    """Or lag at the end would be the load's fault."""
    segments = paces(STEADY, 24_000)
    mean = sum(count for count, _pace in segments) / sum(count / pace for count, pace in segments)
    assert 0.7 < mean < 0.75


def load_of(left: dict[str, int], unheard: int) -> dict[str, Any]:
    """The figures of a load at whose end so much is left of each kind, and so many facts without an event."""
    run = Run(psutil.Process(), hot_partition=0, partitions=12, published=40, ended=9.0)
    run.sent = {f"t{number}": (1.0, WITH, "others") for number in range(unheard)}
    run.lag = [(1.0, {"ingest": 30, "resolve": 4, "batches": 6}), (9.0, left)]
    run.memory = [(float(second), 300_000_000) for second in range(8)]
    for part in (WITHOUT, WITH):
        run.took[part, "others"] = [0.1, 0.3]
    return figures(run, Shape(100), 400.0)


@pytest.mark.parametrize(
    ("left", "unheard", "wrong"),
    [
        ({"ingest": 0, "resolve": 0, "batches": 0}, 0, []),
        ({"ingest": 0, "resolve": 0, "batches": 0}, 3, ["3 facts without an event"]),
        ({"ingest": 0, "resolve": 7, "batches": 1}, 0, ["resolve: 7 left over", "batches: 1 left over"]),
    ],
)
def test_the_verdict_names_what_is_missing_and_what_is_left(
    left: dict[str, int], unheard: int, wrong: list[str]
) -> None:
    found = load_of(left, unheard)
    assert verdict(found) == wrong
    assert json.loads(json.dumps(found))["worker_memory"]["last_quarter_to_second"] == 1.0


@pytest.mark.parametrize("wrong", [[], ["3 facts without an event"]])
def test_the_command_prints_its_figures_and_fails_if_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--only", "load"])
    monkeypatch.setattr(bench, "_with_servers", lambda _arguments: {"load": {"turns": 5, "wrong": wrong}})
    if wrong:
        with pytest.raises(SystemExit) as ended:
            bench.main()
        assert ended.value.code == 1
    else:
        bench.main()
    printed = capsys.readouterr()
    assert json.loads(printed.out)["load"]["turns"] == 5
    assert all(line in printed.err for line in wrong)
