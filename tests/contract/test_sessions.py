"""Contract: sessions on every backend — what stands, summaries that fall with their turns, checkpoints, contexts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from processors.exceptions import ConflictError, PoisonError, TransientError
from processors.ports import ChatReply
from processors.session import NoteKind, Summary
from recall.coldstart import ColdStart, guide
from recall.context import ContextBuilder, ContextQuestion, Documents, KeywordMemories, Passage
from recall.session import MAX_STATE_BYTES, SessionMemory
from schemas import Memory, Outcome, OwnerKind, Turn, digest
from sinks.truth import Truth, checkpoints, memories, questions, sessions, tables, turns
from sinks.truth.checkpoints import Thread
from sinks.truth.turns import Conversation
from tests.doubles.records import at, memory, turn, turn_row

KEY = turn().conversation_key
NOW = at(600)


def same(text: str) -> str:
    return text


def say(truth: Truth, *said: Turn, **fields: Any) -> None:
    """Store turns as ingest does; each arrives when it was said."""

    def work(connection: Any) -> None:
        held = turns.lock_conversations(connection, [item.conversation_key for item in said])
        for item in said:
            key = item.conversation_key
            row = held.setdefault(key, Conversation(key, item.tenant, item.conversation_id, item.sent_at))
            row.turn_count += 1
        turns.save_conversations(connection, held.values())
        turns.insert_turns(connection, [turn_row(item, **fields) for item in said])

    truth.run(work)


def said_ids(truth: Truth, key: str = KEY) -> list[tuple[str, str | None]]:
    with truth.reading() as connection:
        return [(item.turn.turn_id, item.filtered) for item in sessions.said(connection, key)]


def open_session(truth: Truth, **fields: Any) -> SessionMemory:
    return SessionMemory(truth, **({"mask": same, "now": lambda: NOW} | fields))


class Model:
    """Answers what it was given, and notes what it was asked."""

    name = "double"

    def __init__(self, *replies: str | Exception) -> None:
        self.replies = list(replies)
        self.asked: list[str] = []

    async def complete(self, system: str, user: str, *, max_tokens: int) -> ChatReply:
        self.asked.append(user)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return ChatReply(reply, "stop", "double-1", 1, 1)


# turns that stand


def test_filtered_turns_are_read_and_marked_and_what_was_taken_back_is_not_there(truth: Truth) -> None:
    say(truth, turn(1), turn(4))
    say(truth, turn(2, text="hi"), outcome=Outcome.FILTERED, reason="greeting", pending=False)
    say(truth, turn(3, deleted=True, text=""), outcome=Outcome.FILTERED, reason="deleted", pending=False)
    truth.run(lambda connection: turns.take_back(connection, turn(4).turn_key))
    assert said_ids(truth) == [("t1", None), ("t2", "greeting")]


def test_a_reason_why_a_batch_waits_does_not_filter_its_turns(truth: Truth) -> None:
    say(truth, turn(1), outcome=Outcome.BATCHED, reason="model_off", pending=False)
    assert said_ids(truth) == [("t1", None)]


def test_turns_since_a_cursor_come_by_arrival_late_and_edited_ones_included(truth: Truth) -> None:
    say(truth, turn(5), turn(6))
    with truth.reading() as connection:
        first, cursor = sessions.said_since(connection, KEY, None, limit=10)
    assert [item.turn.turn_id for item in first] == ["t5", "t6"]
    say(truth, turn(2), arrived_at=at(50))
    edited = turn(5, text="edited", revision=1)
    truth.run(lambda connection: turns.replace_turns(connection, [turn_row(edited, arrived_at=at(51))]))
    with truth.reading() as connection:
        since, reached = sessions.said_since(connection, KEY, cursor, limit=10)
        again = sessions.said_since(connection, KEY, reached, limit=10)
    assert [item.turn.text for item in since] == ["turn 2", "edited"]
    assert again == ([], reached)


def test_turns_that_arrived_together_are_not_lost_between_two_readings(truth: Truth) -> None:
    say(truth, *(turn(number) for number in range(1, 8)), arrived_at=at(9))
    seen: list[str] = []
    cursor = None
    with truth.reading() as connection:
        for _ in range(4):
            some, cursor = sessions.said_since(connection, KEY, cursor, limit=2)
            seen += [item.turn.turn_id for item in some]
    assert sorted(seen) == [f"t{number}" for number in range(1, 8)]


def test_one_conversation_never_shows_anothers_turns(truth: Truth) -> None:
    say(truth, turn(1), turn(2, conversation_id="c2"), turn(3, tenant="other"))
    assert said_ids(truth) == [("t1", None)]
    view = open_session(truth).view("acme", "c2", "ann")
    assert [item.turn.turn_id for item in view.recent] == ["t2"]


def test_a_session_is_empty_for_somebody_who_takes_no_part_in_it(truth: Truth) -> None:
    say(truth, turn(1))
    mine, other = (open_session(truth).view("acme", "c1", owner) for owner in ("ann", "bob"))
    assert len(mine.recent) == 1
    assert (other.recent, other.digests, other.loops) == ((), (), ())
    for owner in ("ann ", "ANN", ""):
        assert open_session(truth).view("acme", "c1", owner).recent == ()


# summaries


async def test_a_summary_comes_when_it_is_due_and_not_before(truth: Truth) -> None:
    memory_ = open_session(truth)
    say(truth, *(turn(number, text=f"I have {number} cats") for number in range(1, 10)))
    assert await memory_.refresh("acme", "c1") is None
    say(truth, turn(10, text="We decided on Friday"))
    made = await memory_.refresh("acme", "c1")
    assert made is not None
    assert (made.method, made.fallback, made.turns) == ("extractive", "off", 10)
    assert [note.text for note in made.of_kind(NoteKind.DECISION)] == ["We decided on Friday"]
    assert await memory_.refresh("acme", "c1") == made


async def test_a_clock_finds_what_is_due(truth: Truth) -> None:
    say(truth, *(turn(number) for number in range(1, 11)), turn(1, conversation_id="c2"))
    with truth.reading() as connection:
        assert sessions.due(connection) == [KEY]
    await open_session(truth).refresh_key(KEY, force=True)
    with truth.reading() as connection:
        assert sessions.due(connection) == []


async def test_a_long_import_is_summarised_in_steps_to_its_end(truth: Truth) -> None:
    say(truth, *(turn(number, text=f"I have {number} cats") for number in range(1, 101)))
    made = await open_session(truth).refresh("acme", "c1")
    assert made is not None
    assert made.turns == 100
    assert made.of_kind(NoteKind.FACT)[-1].text == "I have 100 cats"


async def test_the_model_writes_the_summary_and_is_shown_only_what_it_may_see(truth: Truth) -> None:
    say(truth, turn(1, text="I live in Leeds"))
    say(truth, turn(2, text="lol"), outcome=Outcome.FILTERED, reason="emotion", pending=False)
    model = Model(json.dumps({"facts": [{"text": "lives in Leeds", "from": [1]}], "decisions": [], "open": []}))
    paid: list[ChatReply] = []
    made = await open_session(truth, model=model, spent=paid.append).refresh("acme", "c1", force=True)
    assert made is not None
    assert [reply.model for reply in paid] == ["double-1"]
    assert (made.method, made.model, made.prompt_version) == ("model", "double-1", "summarise_v1_en")
    assert [note.text for note in made.notes] == ["lives in Leeds"]
    assert "lol" not in model.asked[0]


@pytest.mark.parametrize(
    ("reply", "fallback"),
    [
        (TransientError("away"), "unavailable"),
        (PoisonError("content_policy", "no"), "refused"),
        ("Once upon a time", "unparsable"),
    ],
)
async def test_a_model_that_fails_leaves_an_extract_that_says_why(
    truth: Truth, reply: str | Exception, fallback: str
) -> None:
    say(truth, turn(1, text="I live in Leeds"))
    paid: list[ChatReply] = []
    made = await open_session(truth, model=Model(reply), spent=paid.append).refresh("acme", "c1", force=True)
    assert made is not None
    assert bool(paid) == (fallback == "unparsable"), "what could not be read has been paid for too"
    assert (made.method, made.fallback) == ("extractive", fallback)
    assert [note.text for note in made.notes] == ["I live in Leeds"]


async def test_small_talk_costs_no_call(truth: Truth) -> None:
    say(truth, *(turn(n, text="hi") for n in range(1, 12)), outcome=Outcome.FILTERED, reason="greeting", pending=False)
    model = Model()
    await open_session(truth, model=model).refresh("acme", "c1")
    assert model.asked == []


async def test_what_is_taken_back_after_it_was_summarised_is_gone_at_once(truth: Truth) -> None:
    session = open_session(truth)
    say(truth, turn(1, text="I live in Leeds"), turn(2, text="I have two cats"))
    await session.refresh("acme", "c1", force=True)
    truth.run(lambda connection: turns.take_back(connection, turn(1).turn_key))
    assert [note.text for note in session.view("acme", "c1", "ann").facts] == ["I have two cats"]
    made = await session.refresh("acme", "c1")
    assert made is not None
    assert [note.text for note in made.notes] == ["I have two cats"]
    with truth.reading() as connection:
        stored = sessions.summary(connection, KEY)
    assert stored is not None
    assert stored.summary == made


def test_of_two_writers_the_second_does_not_overwrite_the_first(truth: Truth) -> None:
    say(truth, turn(1))
    for expected, done in ((0, True), (0, False), (1, True), (1, False), (5, False)):
        made = Summary(method="extractive", turns=expected)
        assert done is truth.run(
            lambda connection, made=made, expected=expected: sessions.save_summary(
                connection, KEY, made, through=None, expected_version=expected, now=NOW
            )
        )


async def test_a_conversation_that_is_erased_while_a_model_thinks_gets_no_summary(truth: Truth) -> None:
    assert await open_session(truth).refresh("acme", "nowhere", force=True) is None
    made = Summary(method="extractive")
    assert not truth.run(
        lambda connection: sessions.save_summary(
            connection, digest("gone"), made, through=None, expected_version=0, now=NOW
        )
    )


async def test_erasing_a_person_finds_every_summary_with_their_words_also_without_the_turns(truth: Truth) -> None:
    session = open_session(truth)
    say(truth, turn(1, text="I live in Leeds"), turn(2, user_id="bob", text="I have two cats"))
    say(truth, turn(1, conversation_id="c2", user_id="bob", text="I live in York"))
    for conversation in ("c1", "c2"):
        await session.refresh("acme", conversation, force=True)
    thread = Thread("acme", "mail", turn().owner_key, "th")
    session.save_state("mail", thread, {"step": 1}, expected_version=0)
    truth.run(lambda connection: connection.execute(tables.turns.delete()))
    counts = truth.run(lambda connection: sessions.erase_owner(connection, turn().owner_key))
    assert counts == {"session_summaries": 1, "session_people": 2, "session_states": 1}
    with truth.reading() as connection:
        assert sessions.summary(connection, KEY) is None
        assert sessions.summary(connection, turn(conversation_id="c2").conversation_key) is not None


async def test_erasing_a_conversation_takes_its_summary_and_states(truth: Truth) -> None:
    session = open_session(truth)
    say(truth, turn(1))
    await session.refresh("acme", "c1", force=True)
    thread = Thread("acme", "mail", turn().owner_key, "th")
    session.save_state("mail", thread, {}, expected_version=0, conversation_id="c1")
    counts = truth.run(lambda connection: sessions.erase_conversation(connection, KEY))
    assert counts == {"session_summaries": 1, "session_people": 1, "session_states": 1}


# checkpoints

THREAD = Thread("acme", "mail", turn().owner_key, "th-1")


def test_an_interrupted_task_resumes_where_it_stood(truth: Truth) -> None:
    session = open_session(truth)
    assert session.load_state("mail", THREAD) is None
    saved = session.save_state("mail", THREAD, {"step": 2, "草稿": "您好"}, expected_version=0)
    assert open_session(truth).load_state("mail", THREAD) == saved
    assert session.save_state("mail", THREAD, {"step": 3}, expected_version=saved.version).version == 2


@pytest.mark.parametrize("expected", [0, 2, 99])
def test_a_stale_writer_never_wins(truth: Truth, expected: int) -> None:
    session = open_session(truth)
    session.save_state("mail", THREAD, {"by": "first"}, expected_version=0)
    with pytest.raises(ConflictError):
        session.save_state("mail", THREAD, {"by": "second"}, expected_version=expected)
    found = session.load_state("mail", THREAD)
    assert found is not None
    assert found.data == {"by": "first"}


def test_a_state_is_private_to_its_agent(truth: Truth) -> None:
    session = open_session(truth)
    session.save_state("mail", THREAD, {"secret": 1}, expected_version=0)
    for agent in ("crm", "", "MAIL"):
        with pytest.raises(PoisonError, match="private"):
            session.load_state(agent, THREAD)
        with pytest.raises(PoisonError, match="private"):
            session.save_state(agent, THREAD, {}, expected_version=1)
        with pytest.raises(PoisonError, match="private"):
            session.end_state(agent, THREAD, expected_version=1)


def test_the_same_thread_of_another_agent_person_or_tenant_is_another_state(truth: Truth) -> None:
    session = open_session(truth)
    session.save_state("mail", THREAD, {}, expected_version=0)
    others = (
        Thread("acme", "crm", THREAD.owner_key, "th-1"),
        Thread("acme", "mail", digest("bob"), "th-1"),
        Thread("other", "mail", THREAD.owner_key, "th-1"),
        Thread("acme", "mail", THREAD.owner_key, "th-1 "),
    )
    assert all(session.load_state(thread.agent_id, thread) is None for thread in others)


def test_after_a_task_ended_nothing_is_resumed_and_a_late_writer_is_refused(truth: Truth) -> None:
    session = open_session(truth)
    session.save_state("mail", THREAD, {"step": 1}, expected_version=0)
    session.end_state("mail", THREAD, expected_version=1)
    assert session.load_state("mail", THREAD) is None
    with pytest.raises(ConflictError):
        session.save_state("mail", THREAD, {"step": 2}, expected_version=1)
    # The next task starts from 0, and the numbers go on, so that version 1 never means two things.
    assert session.save_state("mail", THREAD, {"step": 1}, expected_version=0).version == 3


@pytest.mark.parametrize(
    "data",
    [{"x": "y" * MAX_STATE_BYTES}, {"x": object()}, {"x": "\ud800"}, {"x": {1, 2}}],
    ids=["large", "object", "surrogate", "set"],
)
def test_a_state_that_is_too_large_or_no_json_is_refused_without_being_quoted(truth: Truth, data: Any) -> None:
    with pytest.raises(PoisonError) as caught:
        open_session(truth).save_state("mail", THREAD, data, expected_version=0)
    assert "yyy" not in str(caught.value)


def test_states_nobody_writes_any_more_are_purged(truth: Truth) -> None:
    open_session(truth).save_state("mail", THREAD, {}, expected_version=0)
    assert truth.run(lambda connection: checkpoints.purge(connection, NOW)) == 0
    assert truth.run(lambda connection: checkpoints.purge(connection, NOW + timedelta(seconds=1))) == 1


# contexts


def hold(truth: Truth, *held: Memory) -> None:
    truth.run(lambda connection: memories.save(connection, [(item, digest(item.id), digest(item.id)) for item in held]))


def allergy(**fields: Any) -> Memory:
    return memory(
        "allergy",
        attribute="allergy",
        namespace="user/ann/health",
        value="peanuts",
        text="allergic to peanuts",
        **fields,
    )


def build(truth: Truth, question: str, documents: Documents | None = None, **fields: Any) -> Any:
    asked = ContextQuestion("acme", "ann", question, **({"conversation_id": "c1"} | fields))
    held = KeywordMemories(truth, "acme", "ann", lambda: NOW)
    return ContextBuilder(open_session(truth), same, lambda: NOW).build(asked, held, documents)


def test_a_context_holds_the_session_the_memories_and_what_nobody_asked_for(truth: Truth) -> None:
    say(
        truth,
        turn(1, text="We decided on the Italian place", timezone="Asia/Shanghai"),
        turn(2, role="assistant", text="Fine.", timezone="Asia/Shanghai"),
        turn(3, text="The guest list is still to be confirmed", timezone="Asia/Shanghai"),
        turn(4, text="Where should we have dinner?", timezone="Asia/Shanghai"),
    )
    hold(truth, allergy(), memory("home", text="lives in Leeds"))
    built = build(truth, "Where should we have dinner?")
    text = built.context.text
    assert "decision · this session · 2026-01-05) user: “We decided on the Italian place”" in text
    assert "to be confirmed · this session" in text
    assert "allergy: “allergic to peanuts”" in text
    assert text.count("Where should we have dinner?") == 1
    (number,) = [n for n, found in built.memories.items() if found.attribute == "allergy"]
    assert built.context.citations[number].id == allergy().id
    assert built.surfaced[0].why == "scene:food"
    assert built.context.text == build(truth, "Where should we have dinner?").context.text


def test_what_is_superseded_expired_foreign_or_restricted_is_in_no_context(truth: Truth) -> None:
    hold(
        truth,
        memory("old", status="superseded", text="lives in OLDTOWN"),
        memory("over", expires_at=NOW, text="lives in OVERTOWN"),
        memory("bad", status="quarantined", text="lives in BADTOWN"),
        memory("bob", owner="bob", text="lives in BOBTOWN"),
        memory("other", tenant="other", text="lives in OTHERTOWN"),
        memory("hidden", sensitivity="restricted", text="lives in HIDDENTOWN"),
        memory("now", text="lives in Leeds"),
    )
    built = build(truth, "Where do I live?")
    assert "TOWN" not in built.context.text
    assert [found.text for found in built.memories.values()] == ["lives in Leeds"]


def test_a_context_of_another_person_holds_neither_session_nor_memories(truth: Truth) -> None:
    say(truth, turn(1, user_id="bob", text="I live in York"))
    hold(truth, memory("bob", owner="bob", text="lives in York"))
    assert "York" not in build(truth, "Where do I live?").context.text


def test_the_frame_follows_the_question_and_the_dates_the_users_zone(truth: Truth) -> None:
    hold(truth, memory("home", text="住在上海", timezone="Asia/Shanghai", intervals=({"start": at(8 * 60)},)))
    assert "2026-01-06 · 可信度 0.95) 住址：“住在上海”" in build(truth, "我住在哪里？").context.text
    assert "residence: “住在上海”" in build(truth, "Where do I live?").context.text
    assert "2026-01-05" in build(truth, "我住在哪里？", timezone="UTC").context.text


def test_documents_share_the_five_places_of_what_is_retrieved(truth: Truth) -> None:
    class Shelf:
        def passages(self, question: str, limit: int) -> Sequence[Passage]:
            return [Passage(f"d{n}", n, "handbook", f"rule {n} about dinner") for n in range(limit)]

    events = [
        memory(f"e{n}", type="episodic", category="event", attribute="event", text=f"dinner in week {n}")
        for n in range(6)
    ]
    hold(truth, *events)
    built = build(truth, "What was the dinner?", Shelf())
    kinds = [c.kind.value for c in built.context.citations.values() if c.layer.value == "retrieved"]
    assert kinds == ["memory", "memory", "document", "memory", "memory"]


def test_standing_orders_and_who_the_person_is_are_in_every_context(truth: Truth) -> None:
    order = memory("order", type="procedural", category="instruction", attribute="answer_length", text="回答简短一点")
    hold(truth, order, memory("name", attribute="nickname", text="叫我小王"))
    text = build(truth, "量子力学是什么？").context.text
    assert "回答长度：“回答简短一点”" in text
    assert "称呼：“叫我小王”" in text


# cold start


def test_a_stranger_is_asked_at_most_three_things_and_never_twice(truth: Truth) -> None:
    start = ColdStart(truth, lambda: NOW)
    first = start.offer("acme", "ann", [], "zh")
    assert [name for name, _ in first.questions] == ["nickname", "answer_language", "answer_length"]
    assert first.questions[0][1] == "我该怎么称呼您？"
    second = start.offer("acme", "ann", [], "en")
    assert len(second.questions) == 3
    assert not {name for name, _ in first.questions} & {name for name, _ in second.questions}
    assert len(start.offer("acme", "ann", [], "en").questions) == 2
    assert start.offer("acme", "ann", [], "en").questions == ()
    assert start.offer("acme", "bob", [], "en").questions[0][1] == "What should I call you?"


def test_after_a_month_an_unanswered_question_may_be_put_again(truth: Truth) -> None:
    for _ in range(3):
        ColdStart(truth, lambda: NOW).offer("acme", "ann", [], "zh")
    early, late = NOW + guide().ask_again - timedelta(seconds=1), NOW + guide().ask_again
    assert ColdStart(truth, lambda: early).offer("acme", "ann", [], "zh").questions == ()
    assert len(ColdStart(truth, lambda: late).offer("acme", "ann", [], "zh").questions) == 3


def test_what_is_known_is_not_asked_and_who_is_known_is_not_asked_at_all(truth: Truth) -> None:
    known = [memory("name", attribute="name"), memory("style", attribute="answer_style")]
    offer = ColdStart(truth, lambda: NOW).offer("acme", "ann", known, "zh")
    assert "nickname" not in {name for name, _ in offer.questions}
    assert [key for key, _, _ in offer.procedures] == ["ask_before_acting"]
    many = [memory(f"m{n}") for n in range(guide().cold_below)]
    offer = ColdStart(truth, lambda: NOW).offer("acme", "bob", many, "zh")
    assert (offer.questions, offer.procedures) == ((), ())


def test_the_questions_of_an_erased_person_are_forgotten(truth: Truth) -> None:
    ColdStart(truth, lambda: NOW).offer("acme", "ann", [], "zh")
    key = digest("acme", OwnerKind.USER, "ann")
    assert truth.run(lambda connection: questions.erase(connection, [key])) == 3
    with truth.reading() as connection:
        assert questions.asked(connection, key) == {}
