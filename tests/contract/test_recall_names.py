"""Contract: of people with many memories, those are read that the question names, by slot, by value and by subject."""

from __future__ import annotations

import pytest

from processors.keywords import normalise
from sinks.truth import Truth, memories, reading
from tests.doubles.records import at, memory

OLD = (
    memory("value", attribute="likes", value="Hamburg", text="likes Hamburg", last_stated_at=at(1)),
    memory("subject", subject="王芳", attribute="note", value="住在厦门", text="王芳住在厦门", last_stated_at=at(2)),
    memory("slot", attribute="allergy", value="peanuts", text="allergic to peanuts", last_stated_at=at(3)),
    memory("self", subject="user", attribute="note", value="an old map", text="has an old map", last_stated_at=at(4)),
    memory("letter", attribute="note", value="x", text="the letter x", last_stated_at=at(5)),
    memory("long", attribute="note", value="w" * 65, text="a long one", last_stated_at=at(6)),
    memory("foreign", owner="bob", namespace="user/bob/profile", value="Hamburg", last_stated_at=at(7)),
    memory("ended", status="superseded", attribute="likes", value="Hamburg", last_stated_at=at(8)),
)
NEW = memory("new", attribute="note", value="something else", text="something else", last_stated_at=at(50))


@pytest.mark.parametrize(
    ("question", "attributes", "found"),
    [
        ("What do I think of HAMBURG?", (), {"new", "value"}),
        ("王芳最近怎么样？", (), {"new", "subject"}),
        ("What must I not eat?", ("allergy",), {"new", "slot"}),
        ("Is the user x, or " + "w" * 65 + "?", (), {"new"}),
        ("' OR 1=1 -- % _", (), {"new"}),
    ],
)
def test_what_the_question_names_is_read_beside_the_newest(
    truth: Truth, question: str, attributes: tuple[str, ...], found: set[str]
) -> None:
    rows = [(item, item.id[:32], item.id[:32]) for item in (*OLD, NEW)]
    truth.run(lambda connection: memories.save(connection, rows))
    with truth.reading() as connection:
        read = reading.candidates(
            connection,
            [NEW.owner_key],
            ["active"],
            ids=[],
            attributes=attributes,
            question=normalise(question),
            newest=1,
        )
    assert set(read) == {memory(name).id for name in found}


def test_a_hit_of_the_vector_store_is_read_only_within_its_owner(truth: Truth) -> None:
    rows = [(item, item.id[:32], item.id[:32]) for item in (*OLD, NEW)]
    truth.run(lambda connection: memories.save(connection, rows))
    wanted = [memory(name).id for name in ("letter", "foreign", "ended")]
    with truth.reading() as connection:
        read = reading.candidates(
            connection, [NEW.owner_key], ["active"], ids=wanted, attributes=(), question="nothing", newest=1
        )
    assert set(read) == {NEW.id, memory("letter").id}
