"""Dead letters, end to end: mended or sent again with the command line, they have one effect, and a record of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner

from processors.exceptions import PoisonError
from sinks.truth import deadletters
from sinks.truth.deadletters import LetterFilter, LetterStatus
from streams.cli import app
from streams.cli.embedded import Embedded
from tests.doubles.model_replies import Behaviour
from tests.doubles.model_server import ModelServer
from tests.pipeline.river import Left, process, said, settings, write_log
from tests.pipeline.test_model import chat, dogs

BROKEN = said(1, "我对花生过敏", role="moderator", turn_id="broken")
FIRST = said(2, "我住在北京", turn_id="same")
SECOND = said(2, "我住在上海", turn_id="same")
CUT = b'{"tenant": "acme", "conversation_id": "c1", "turn_id": "cut", "user_id": "ann", "text": "half a wo'
UNANSWERED = chat("stubborn", "The shed is painted and the dog is called Misty.", "Which colour was on the list?")


@dataclass(slots=True)
class Seen:
    """What the commands said, by the name of the step, and the letters afterwards."""

    said: dict[str, Any] = field(default_factory=dict)
    letters: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: dict[str, list[tuple[str, int, str]]] = field(default_factory=dict)

    def remember(self, embedded: Embedded, step: str, letter: str) -> None:
        """How a letter stands now."""
        with embedded.runtime.truth.reading() as connection:
            row = deadletters.get(connection, letter)
            entries = deadletters.log(connection, letter)
        assert row is not None
        self.letters[step] = row
        self.log[step] = [(entry["action"], entry["attempt"], entry["actor"]) for entry in entries]


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    """A model that only chats, at first."""
    with ModelServer(rule=dogs, default=Behaviour.PROSE) as double:
        yield double


@pytest.fixture(scope="module")
def seen() -> Seen:
    return Seen()


def on_their_way(embedded: Embedded) -> bool:
    """Whether a letter has been sent and is neither resolved nor waiting again."""
    with embedded.runtime.truth.reading() as connection:
        return bool(deadletters.ids(connection, LetterFilter(status=LetterStatus.REDRIVEN), limit=1))


def command(embedded: Embedded) -> Callable[..., Any]:
    """`await dlq(*arguments)`: what the command prints as JSON, or the reason why it refuses."""
    environment = {
        "MEMRIVER_DATABASE_URL": embedded.settings.database_url.get_secret_value(),
        "MEMRIVER_KAFKA_BOOTSTRAP": embedded.settings.kafka_bootstrap,
        "MEMRIVER_DATA_DIR": str(embedded.settings.data_dir),
    }

    async def dlq(*arguments: str) -> Any:
        result = await asyncio.to_thread(CliRunner().invoke, app, ["dlq", *arguments, "--json"], env=environment)
        if isinstance(result.exception, PoisonError):
            return result.exception.reason
        assert result.exit_code == 0, result.output
        async with asyncio.timeout(120):
            while await asyncio.to_thread(on_their_way, embedded):  # noqa: ASYNC110 - what happens is in a database
                await asyncio.sleep(0.02)
        await embedded.drained()
        return json.loads(result.stdout)

    return dlq


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory, server: ModelServer, seen: Seen) -> Left:
    """Three turns that are broken, each in its own way, a batch without an answer, and a person who repairs them."""
    directory = tmp_path_factory.mktemp("redrive")
    log = write_log(directory / "log.jsonl", [BROKEN, FIRST, SECOND, CUT, *UNANSWERED])

    async def repair(embedded: Embedded) -> None:
        dlq, truth = command(embedded), embedded.runtime.truth
        with truth.reading() as connection:
            letters = {row["reason"]: row["dead_letter_id"] for row in deadletters.listing(connection)}
        await _mend(embedded, dlq, seen, letters["unknown_role"])
        await _conflict(embedded, dlq, seen, letters["unreadable"])
        await _ask_again(embedded, dlq, seen, server)
        seen.said["dry"] = await dlq("drop", "--because", "cut off at the gateway", "--reason", "not_json", "--dry-run")
        seen.said["drop"] = await dlq("drop", "--because", "cut off at the gateway", "--reason", "not_json")
        seen.remember(embedded, "dropped", letters["not_json"])
        seen.said["waiting"] = await dlq("list")

    return process(
        directory / "data", log, given=settings(model_base_url=server.base_url, model_name="double-1"), then=repair
    )


async def _mend(embedded: Embedded, dlq: Any, seen: Seen, letter: str) -> None:
    seen.said["as it is"] = await dlq("redrive", letter)
    seen.said["still wrong"] = await dlq("fix", letter, "--set", "role=moderators")
    seen.remember(embedded, "untouched", letter)
    seen.said["dry fix"] = await dlq("fix", letter, "--set", "role=user", "--dry-run")
    seen.said["fix"] = await dlq("fix", letter, "--set", "role=user", "--by", "eve")
    seen.remember(embedded, "mended", letter)
    seen.said["fix twice"] = await dlq("fix", letter, "--set", "role=user")
    seen.said["redrive after"] = await dlq("redrive", letter)


async def _conflict(embedded: Embedded, dlq: Any, seen: Seen, letter: str) -> None:
    seen.said["fails again"] = await dlq("redrive", letter, "--by", "eve")
    seen.remember(embedded, "failed again", letter)
    seen.said["next revision"] = await dlq("fix", letter, "--set", "revision=1", "--by", "eve")
    seen.remember(embedded, "resolved", letter)


async def _ask_again(embedded: Embedded, dlq: Any, seen: Seen, server: ModelServer) -> None:
    with embedded.runtime.truth.reading() as connection:
        rows = deadletters.listing(connection, LetterFilter(stage="extract"))
        [letter] = [row["dead_letter_id"] for row in rows if b"Misty" in row["raw"]]
    seen.said["model still chats"] = await dlq("redrive", "--stage", "extract")
    seen.remember(embedded, "asked twice", letter)
    server.default = Behaviour.OK
    seen.said["model answers"] = await dlq("redrive", "--all")
    seen.remember(embedded, "answered", letter)


def test_what_the_contract_does_not_take_is_not_sent(left: Left, seen: Seen) -> None:
    [(_letter, why)] = seen.said["as it is"]["refused"].items()
    assert "role" in why
    assert "moderator" not in why
    assert seen.said["as it is"]["redriven"] == []
    assert seen.said["still wrong"] == "invalid_field"
    assert (seen.letters["untouched"]["status"], seen.letters["untouched"]["mended"]) == ("waiting", None)


def test_a_mended_message_is_remembered_once_and_its_letter_resolved(left: Left, seen: Seen) -> None:
    assert len(seen.said["dry fix"]["would"]) == len(seen.said["fix"]["redriven"]) == 1
    assert seen.log["mended"] == [
        ("failed", 1, "import"),
        ("mended", 2, "eve"),
        ("redriven", 2, "eve"),
        ("resolved", 2, "ingest"),
    ]
    assert left.active("ann")["allergy"] == {"花生"}
    assert len([event for event in left.events if event.memory.attribute == "allergy"]) == 1


def test_repairing_it_twice_is_repairing_it_once(left: Left, seen: Seen) -> None:
    assert seen.said["fix twice"] == "not_waiting"
    assert list(seen.said["redrive after"]["left"].values()) == ["resolved"]
    assert seen.said["redrive after"]["redriven"] == []


def test_a_letter_that_fails_again_is_the_same_letter_with_one_attempt_more(left: Left, seen: Seen) -> None:
    assert seen.said["fails again"]["redriven"] == [seen.letters["failed again"]["dead_letter_id"]]
    assert (seen.letters["failed again"]["status"], seen.letters["failed again"]["attempts"]) == ("waiting", 2)
    assert seen.log["failed again"] == [("failed", 1, "ingest"), ("redriven", 2, "eve"), ("failed", 2, "ingest")]
    assert seen.letters["resolved"]["status"] == "resolved"
    assert left.active("ann")["residence"] == {"上海"}


def test_a_batch_is_asked_again_and_stays_one_letter_until_it_is_answered(left: Left, seen: Seen) -> None:
    assert (seen.letters["asked twice"]["status"], seen.letters["asked twice"]["attempts"]) == ("waiting", 2)
    assert seen.letters["answered"]["status"] == "resolved"
    assert seen.letters["answered"]["dead_letter_id"] in seen.said["model answers"]["redriven"]
    assert left.active("stubborn")["dog_name"] == {"Misty"}
    assert left.outcome("stubborn-1") == ("remembered", None)


def test_an_order_for_all_leaves_out_what_cannot_be_read_and_says_so(left: Left, seen: Seen) -> None:
    assert [why.partition(":")[0] for why in seen.said["model answers"]["refused"].values()] == ["not_json"]


def test_what_is_dropped_keeps_the_reason_and_waits_no_more(left: Left, seen: Seen) -> None:
    assert seen.said["dry"]["would"] == seen.said["drop"]["dropped"] == [seen.letters["dropped"]["dead_letter_id"]]
    assert (seen.letters["dropped"]["status"], seen.letters["dropped"]["raw"].strip()) == ("dropped", CUT)
    assert seen.said["waiting"] == []
    assert left.letters == []
