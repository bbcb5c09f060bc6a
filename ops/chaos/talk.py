"""Chaos, the load: people who state, correct, repeat, take back and delete, in two languages, and gateways that send rubbish.

Restricted on purpose, so that what must come of it follows from a few lines (`world.py`): each sentence below says exactly
one thing, which `tests/chaos/test_talk.py` holds against the rules and the model's double.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import orjson

from ops.chaos.lines import TENANT, Kind, Line
from processors.slots import value_key
from schemas import Command, CommandKind, OwnerKind, Role, Turn, digest, new_id

START = datetime(2026, 3, 2, 1, tzinfo=UTC)
"""Where the conversations' own time begins; it runs a second a message, whatever the clock on the wall does."""
ZONE = "Asia/Shanghai"

# attribute, channel, sentence. Those of the channel `model` mean nothing to the rules.
STATEMENTS = (
    ("residence", "rule", "I live in {value}."),
    ("residence", "rule", "I moved to {value}."),
    ("residence", "rule", "I've moved to {value}."),
    ("residence", "rule", "我住在{value}"),
    ("residence", "rule", "我搬到{value}了"),
    ("allergy", "rule", "I'm allergic to {value}."),
    ("allergy", "rule", "我对{value}过敏"),
    ("likes", "model", "No tea tops {value}, at least on desk {number}."),
    ("likes", "model", "要说茶还是{value}顺口，工位{number}"),
)
CHAT = (
    "The export job {number} failed again last night, which step broke?",
    "帮我看一下第{number}场会议能不能往后挪半个小时",
    "Could you draft a short reply to ticket {number} that says we need two more days for the review?",
    "接口返回的字段和文档对不上，第{number}行变成了别的名字，前端已经报错了",
)
ANSWERS = (
    "Step {number} failed because the disk was full; it has been started again.",
    "好的，第{number}场会议已经改到三点半，并且通知了其他人。",
)
NOISE = (("哈哈哈", "emotion"), ("thanks!", "greeting"), ("ok", "greeting"))
RETRACTIONS = ("scratch that", "刚才说错了当我没说")
VALUES = {
    "residence": ("Leeds", "Berlin", "Porto", "Oslo", "Lyon", "杭州", "上海", "成都", "厦门"),
    "allergy": ("walnuts", "pollen", "penicillin", "shellfish", "芒果", "花生", "虾", "尘螨"),
    "likes": ("oolong", "assam", "sencha", "matcha", "龙井", "普洱", "铁观音"),
}
SEGMENTS = {"residence": "profile", "allergy": "health", "likes": "preferences"}

UNKNOWN_MEMORY = "unknown_memory"
"""An order can be read, so it is known when it comes again; bytes that cannot are told apart by their place alone."""

_JUNK = (
    b"\xff\xfe\x00 no text at all",
    b"{ half a message",
    b"[1, 2, 3]",
    b"{}",
    b'{"schema_version": 99, "tenant": "chaos"}',
)


def memory_id(owner: str, attribute: str, value: str) -> str:
    """The identity that memriver gives this person's memory (ARCHITECTURE, identities); `value` as it was first spelt."""
    owner_key = digest(TENANT, OwnerKind.USER, owner)
    return new_id(owner_key, f"user/{owner}/{SEGMENTS[attribute]}", "user", attribute, value_key(value))


def sentences(attribute: str, value: str) -> list[tuple[str, str]]:
    """(channel, sentence) in the value's own language: nobody is allergic to something in two at once."""
    return [
        (channel, text) for name, channel, text in STATEMENTS if name == attribute and text.isascii() == value.isascii()
    ]


@dataclass(slots=True)
class _Person:
    name: str
    fresh: dict[str, list[str]]
    # What may still be repeated, confirmed or ended; and which turn said it.
    known: dict[tuple[str, str], Line] = field(default_factory=dict)
    # What was edited, deleted or commanded once is left alone from then on: two such fates of one value would need a
    # resolver to tell apart, and the expectation must not be one.
    done: set[tuple[str, str]] = field(default_factory=set)


class Talk:
    """An endless conversation of `people`, the same for the same seed and the same answers of `visible`.

    `visible(memory_id)`: whether an agent sees the memory as active; only then somebody gives an order about it.
    `acknowledged(line)`: whether the broker has it; only then it is sent twice, edited or contradicted.
    """

    def __init__(
        self,
        seed: int,
        people: int,
        *,
        visible: Callable[[str], bool],
        acknowledged: Callable[[Line], bool],
        start: datetime = START,
    ) -> None:
        self._rng = random.Random(seed)
        self._visible = visible
        self._acknowledged = acknowledged
        self._start = start
        self._number = 0
        self._said: list[Line] = []
        self._people = [
            _Person(f"u{number}", {name: self._shuffled(values) for name, values in VALUES.items()})
            for number in range(people)
        ]

    def _shuffled(self, values: tuple[str, ...]) -> list[str]:
        chosen = list(values)
        self._rng.shuffle(chosen)
        return chosen

    def __iter__(self) -> Iterator[list[Line]]:
        """Messages that belong together and are sent in this order."""
        while True:
            yield self.next()

    def next(self) -> list[Line]:
        """What somebody says or does next."""
        person = self._rng.choice(self._people)
        kind = self._rng.random()
        if kind < 0.34:
            return [self._state(person)]
        if kind < 0.40:
            return self._slip(person)
        if kind < 0.60:
            return [self._chat(person)]
        if kind < 0.72:
            return [self._answer(person)]
        if kind < 0.78:
            return [self._noise(person)]
        if kind < 0.82:
            return self._edit(person)
        if kind < 0.84:
            return self._unsay(person)
        if kind < 0.90:
            return self._command(person)
        if kind < 0.96:
            return self._again()
        return [self._junk()]

    def closing(self) -> list[Line]:
        """Everybody's last words: their conversations end, which sends what waits to the model."""
        return [
            self._turn(person, Kind.CHAT, f"That is all for today, ticket {self._number}.", where, end=True)
            for person in self._people
            for where in ("a", "b")
        ]

    def _state(self, person: _Person, *, keep: bool = True, where: str | None = None) -> Line:
        attribute = self._rng.choice([name for name, _channel, _sentence in STATEMENTS])
        value = self._value(person, attribute, repeat=keep)
        if value is None:
            return self._chat(person)
        channel, sentence = self._rng.choice(sentences(attribute, value))
        text = sentence.format(value=value, number=self._number)
        line = self._turn(
            person, Kind.STATE, text, where or self._where(), attribute=attribute, value=value, channel=channel
        )
        if keep:
            person.known[attribute, value] = line
        return line

    def _value(self, person: _Person, attribute: str, *, repeat: bool) -> str | None:
        """A new value; now and then, for what may be said again, an old one."""
        known = [value for name, value in person.known if name == attribute and (name, value) not in person.done]
        if repeat and known and self._rng.random() < 0.4:
            return self._rng.choice(known)
        fresh = person.fresh[attribute]
        return fresh.pop() if fresh else self._rng.choice(known) if repeat and known else None

    def _slip(self, person: _Person) -> list[Line]:
        """Something said and taken back in the next breath."""
        where = self._where()
        said = self._state(person, keep=False, where=where)
        if said.kind is not Kind.STATE:
            return [said]
        person.done.add((said.attribute, said.value))
        return [said, self._turn(person, Kind.RETRACT, self._rng.choice(RETRACTIONS), said.conversation[-1])]

    def _chat(self, person: _Person) -> Line:
        return self._turn(person, Kind.CHAT, self._rng.choice(CHAT).format(number=self._number), self._where())

    def _answer(self, person: _Person) -> Line:
        text = self._rng.choice(ANSWERS).format(number=self._number)
        return self._turn(person, Kind.CHAT, text, self._where(), role=Role.ASSISTANT)

    def _noise(self, person: _Person) -> Line:
        text, reason = self._rng.choice(NOISE)
        return self._turn(person, Kind.NOISE, text, self._where(), reason=reason)

    def _edit(self, person: _Person) -> list[Line]:
        """A turn's text is changed afterwards: what it said is void, what it says now counts."""
        old = self._old(person)
        value = self._value(person, old.attribute, repeat=False) if old is not None else None
        if old is None or value is None:
            return [self._chat(person)]
        person.done |= {(old.attribute, old.value), (old.attribute, value)}
        _channel, sentence = self._rng.choice(sentences(old.attribute, value))
        return [self._revised(person, old, Kind.STATE, sentence.format(value=value), value)]

    def _unsay(self, person: _Person) -> list[Line]:
        old = self._old(person)
        if old is None:
            return [self._chat(person)]
        person.done.add((old.attribute, old.value))
        return [self._revised(person, old, Kind.UNSAY, "", "")]

    def _old(self, person: _Person) -> Line | None:
        """A statement of the rule channel that was said once, has arrived and had no other fate yet."""
        once = [
            line
            for key, line in person.known.items()
            if key not in person.done
            and line.channel == "rule"
            and self._acknowledged(line)
            and sum(other.owner == line.owner and other.value == line.value for other in self._said) == 1
        ]
        return self._rng.choice(once) if once else None

    def _command(self, person: _Person) -> list[Line]:
        ready = [
            key
            for key in person.known
            if key not in person.done and self._visible(memory_id(person.name, key[0], key[1]))
        ]
        if not ready:
            return [self._chat(person)]
        attribute, value = self._rng.choice(ready)
        kind = self._rng.choice([Kind.CONFIRM, Kind.FORGET, Kind.DELETE])
        person.done.add((attribute, value))
        self._number += 1
        command = Command(
            command_id=str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
            kind=CommandKind(kind.value),
            tenant=TENANT,
            owner=person.name,
            issued_by="chaos",
            issued_at=self._when(self._number),
            memory_id=memory_id(person.name, attribute, value),
        )
        line = Line(
            kind,
            "commands",
            command.owner_key,
            command.to_bytes(),
            owner=person.name,
            at=self._number,
            attribute=attribute,
            value=value,
            command_id=command.command_id,
        )
        self._said.append(line)
        return [line]

    def _again(self) -> list[Line]:
        """A message that the broker has already."""
        old = [line for line in self._said[-400:] if self._acknowledged(line)]
        return [self._rng.choice(old)] if old else []

    def _junk(self) -> Line:
        """Bytes that are no message, a schema from the future, or an order about a memory that never was."""
        self._number += 1
        choice = self._rng.randrange(len(_JUNK) + 1)
        topic, reason = self._rng.choice(["turns", "turns", "commands"]), ""
        if choice < len(_JUNK):
            raw = _JUNK[choice] + (b"" if choice in (2, 3) else b" %d" % self._number if choice < 2 else b" ")
        else:
            topic, reason = "commands", UNKNOWN_MEMORY
            raw = Command(
                command_id=str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
                kind=CommandKind.DELETE,
                tenant=TENANT,
                owner=self._rng.choice(self._people).name,
                issued_by="chaos",
                issued_at=self._when(self._number),
                memory_id=str(uuid.UUID(int=self._rng.getrandbits(128), version=4)),
            ).to_bytes()
        return Line(Kind.JUNK, topic, digest("junk", str(self._number)), raw, reason=reason)

    def _revised(self, person: _Person, old: Line, kind: Kind, text: str, value: str) -> Line:
        self._number += 1
        data = orjson.loads(old.raw)
        data |= {
            "text": text,
            "revision": old.revision + 1,
            "deleted": kind is Kind.UNSAY,
            "edited_at": self._when(self._number).isoformat(),
        }
        line = Line(
            kind,
            "turns",
            old.key,
            Turn.from_dict(data).to_bytes(),
            owner=old.owner,
            conversation=old.conversation,
            turn_id=old.turn_id,
            revision=old.revision + 1,
            at=old.at,
            edited_at=self._number,
            attribute=old.attribute if value else "",
            value=value,
            channel=old.channel,
            text=text,
        )
        self._said.append(line)
        return line

    def _turn(
        self,
        person: _Person,
        kind: Kind,
        text: str,
        where: str,
        *,
        role: Role = Role.USER,
        attribute: str = "",
        value: str = "",
        channel: str = "",
        reason: str = "",
        end: bool = False,
    ) -> Line:
        self._number += 1
        turn = Turn(
            tenant=TENANT,
            conversation_id=f"{person.name}-{where}",
            turn_id=f"t{self._number}",
            user_id=person.name,
            role=role,
            text=text,
            sent_at=self._when(self._number),
            timezone=ZONE,
            conversation_end=end,
        )
        line = Line(
            kind,
            "turns",
            turn.conversation_key,
            turn.to_bytes(),
            owner=person.name,
            conversation=turn.conversation_id,
            turn_id=turn.turn_id,
            role=role.value,
            at=self._number,
            attribute=attribute,
            value=value,
            channel=channel,
            reason=reason,
            text=text,
        )
        self._said.append(line)
        return line

    def _where(self) -> str:
        return self._rng.choice("ab")

    def _when(self, number: int) -> datetime:
        return self._start + timedelta(seconds=number)
