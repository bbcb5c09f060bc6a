"""Extraction: from a model's claim to a candidate; every field is checked against the turn (SPEC W6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo

import regex

from processors.extraction.attribution import ABOUT_OTHERS, SELF, subject_named, subject_spoken_of
from processors.extraction.outcome import RawItem, Rejected
from processors.extraction.quote import Source
from processors.extraction.render import OwnWords, Prompt
from processors.extraction.script import language_of, same_language
from processors.slots import Slot, known_slots, namespace_of, normal_attribute, slot_for, value_key
from processors.times import Resolver, Span, times_of
from schemas import (
    Candidate,
    Cardinality,
    Category,
    Channel,
    Evidence,
    MemoryType,
    OwnerKind,
    Provenance,
    Role,
    SourceKind,
    Turn,
    new_id,
)

MAX_TEXT = 300
MAX_VALUE = 200
MAX_QUOTE = 500
MAX_SUBJECT = 64
INFERRED_CEILING = 0.6
"""Confidence that a value can have at most when the turn does not say it in these words."""

_SOURCES = {
    Role.USER: SourceKind.USER_STATEMENT,
    Role.ASSISTANT: SourceKind.ASSISTANT,
    Role.TOOL: SourceKind.TOOL_RESULT,
}
# An attribute nobody reviewed is an open single fact; what is not a fact goes to the slot of its category instead.
_SLOT_OF_CATEGORY = {
    Category.EVENT: "event",
    Category.TASK: "task",
    Category.LESSON: "lesson",
    Category.GOAL: "goal",
    Category.INSTRUCTION: "instruction",
    Category.NOTE: "note",
}
_SLOT_OF_TYPE = {MemoryType.EPISODIC: "event", MemoryType.PROCEDURAL: "instruction"}
_PLACEHOLDER = regex.compile(r"[⟨⟩]")
_LONG_NUMBER = regex.compile(r"\d{5,}")
_SPACES = regex.compile(r"[\s⏎]+")
_ISO_DATE = regex.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class _When:
    start: datetime
    method: str
    until: datetime | None = None


class Judge:
    """Judges the claims of one reply against the prompt that asked for it."""

    def __init__(self, prompt: Prompt, model: str, own_words: OwnWords, resolve_times: Resolver) -> None:
        self._prompt = prompt
        self._writer = f"model:{model}:{prompt.version}"
        self._resolve = resolve_times
        self._sources = {alias: Source(turn.text, own_words(turn.text)) for alias, turn in prompt.aliases.items()}

    def judge_all(self, items: Iterable[RawItem]) -> tuple[tuple[Candidate, ...], tuple[Rejected, ...]]:
        """Candidates with distinct ids, and what was kept out and why; of two equal claims the surer one stays."""
        kept: dict[str, Candidate] = {}
        rejected: list[Rejected] = []
        for item in items:
            result = self.judge(item)
            if isinstance(result, Rejected):
                rejected.append(result)
                continue
            twin = kept.get(result.candidate_id)
            if twin is None or result.confidence > twin.confidence:
                kept[result.candidate_id] = result
            if twin is not None:
                rejected.append(_reject("duplicate", item))
        return tuple(kept.values()), tuple(rejected)

    def judge(self, item: RawItem) -> Candidate | Rejected:
        """The candidate, or the first reason against it as a short code."""
        turn = self._prompt.aliases.get(item.turn)
        if turn is None:
            return _reject("alias_not_offered", item)
        if self._speaker_is_another(item):
            return _reject("wrong_speaker", item)
        if _PLACEHOLDER.search(item.value + item.quote):
            return _reject("placeholder", item)
        source = self._sources[item.turn]
        place = source.locate(item.quote)
        if place is None:
            return _reject("quote_not_in_turn", item)
        quote = turn.text[place[0] : place[1]]
        if len(quote) > MAX_QUOTE:
            return _reject("quote_too_long", item)

        slot = _slot(item)
        value = _plain(item.value)
        said = source.says(value)
        if not said and any(number not in source.own for number in _LONG_NUMBER.findall(value)):
            return _reject("value_not_in_turn", item)
        if not same_language(quote, value) and not said:
            if slot.cardinality is Cardinality.SINGLE:
                return _reject("value_wrong_language", item)
            value, said = _plain(quote), True
        if len(value) > MAX_VALUE:
            return _reject("value_too_long", item)
        text = _plain(item.text) or _plain(quote)
        if not same_language(quote, text) or len(text) > MAX_TEXT or _PLACEHOLDER.search(text):
            text = _plain(quote)
        if len(text) > MAX_TEXT:
            return _reject("text_too_long", item)

        subject = self._subject(item, turn, quote, value, slot)
        if subject is None:
            return _reject("subject_unnamed", item)
        if len(subject) > MAX_SUBJECT:
            return _reject("subject_too_long", item)
        kind = _SOURCES[turn.role]
        if subject != SELF and kind is SourceKind.USER_STATEMENT:
            kind = SourceKind.THIRD_PARTY
        when = self._when(item, turn, source, place, quote, slot)
        confidence = item.confidence if said else min(item.confidence, INFERRED_CEILING)
        return Candidate(
            # Without anything that differs between two runs of the model, so a second extraction repeats the first.
            candidate_id=new_id(
                "model", turn.turn_key, str(turn.revision), subject, slot.attribute, value_key(value), item.operation
            ),
            tenant=turn.tenant,
            owner_kind=OwnerKind.USER,
            owner=turn.user_id,
            namespace=namespace_of(OwnerKind.USER, turn.user_id, slot.namespace),
            conversation_id=turn.conversation_id,
            source_turn_ids=(turn.turn_id,),
            turn_key=turn.turn_key,
            turn_revision=turn.revision,
            agent_id=turn.agent_id,
            trace_id=turn.trace_id,
            channel=Channel.MODEL,
            writer=self._writer,
            operation=item.operation,
            type=slot.type,
            category=slot.category,
            subject=subject,
            attribute=slot.attribute,
            value=value,
            cardinality=slot.cardinality,
            text=text,
            language=language_of(quote, language_of(turn.text, "und")),
            evidence=(Evidence(turn_id=turn.turn_id, turn_key=turn.turn_key, quote=quote),),
            source_kind=kind,
            event_time=when.start,
            stated_at=turn.sent_at,
            timezone=turn.timezone,
            valid_to=when.until,
            ttl_days=slot.ttl_days,
            confidence=confidence,
            sensitivity=slot.sensitivity,
            consent=turn.consent,
            provenance={
                "value": _from(kind, turn, "model:quoted" if said else "model:inferred", confidence),
                "text": _from(kind, turn, "model:written" if text != _plain(quote) else "model:quoted", confidence),
                "attribute": _from(kind, turn, f"model:{'slot' if slot.label_en else 'open'}", confidence),
                "subject": _from(kind, turn, "model:speaker" if subject == SELF else "model:named", confidence),
                "event_time": _from(kind, turn, when.method, 1.0 if when.method == "turn:sent_at" else confidence),
            },
        )

    def _speaker_is_another(self, item: RawItem) -> bool:
        """Whether the claim says that somebody spoke who did speak, but not in the cited turn."""
        if not item.speaker:
            return False
        labels = {alias: label.casefold() for alias, label in self._prompt.speakers.items()}
        said = item.speaker.casefold()
        return said != labels[item.turn] and said in labels.values()

    def _subject(self, item: RawItem, turn: Turn, quote: str, value: str, slot: Slot) -> str | None:
        own_names = (turn.speaker_name or "", self._prompt.speakers[item.turn]) if turn.role is Role.USER else ()
        subject = subject_named(_plain(item.subject), *own_names)
        # An attribute of its own name may well be a relation: "my manager is …" says who the user's manager is.
        reviewed = slot.attribute in known_slots() and slot.attribute not in ABOUT_OTHERS
        if subject == SELF and turn.role is Role.USER and reviewed:
            return subject_spoken_of(quote, value)
        return subject

    def _when(self, item: RawItem, turn: Turn, source: Source, place: tuple[int, int], quote: str, slot: Slot) -> _When:
        """The one time that the claim's words name, else the time of the turn; any other date is invented."""
        moments = times_of(turn, source.own, language_of(quote, "en"), self._resolve)
        chosen: list[Span] = []
        if item.time:
            named = source.locate(item.time)
            if named is not None:
                chosen = [moment for moment in moments if _touches(moment, named)]
            elif iso := _ISO_DATE.match(item.time):
                chosen = [moment for moment in moments if _local_day(moment.start, turn.timezone) == iso[0]]
        if not chosen:
            chosen = [moment for moment in moments if _touches(moment, place)]
        if len(chosen) != 1:
            return _When(turn.sent_at, "turn:sent_at")
        moment = chosen[0]
        if slot.type is MemoryType.PROCEDURAL:
            # "Keep it short this week": in force from now, and only until then.
            ends = moment.end if moment.end is not None and moment.end > turn.sent_at else None
            return _When(max(moment.start, turn.sent_at), f"times:{moment.kind}", ends)
        return _When(moment.start, f"times:{moment.kind}")


def _slot(item: RawItem) -> Slot:
    name = normal_attribute(item.attribute)
    if name in known_slots():
        return slot_for(name)
    for slot in known_slots().values():
        if name and name in (slot.label_zh, normal_attribute(slot.label_en)):
            return slot
    fallback = _SLOT_OF_CATEGORY.get(item.category) if item.category else None
    fallback = fallback or (_SLOT_OF_TYPE.get(item.type) if item.type else None)
    return slot_for(fallback or name or "note")


def _touches(moment: Span, place: tuple[int, int]) -> bool:
    return moment.offset < place[1] and moment.offset + len(moment.quote) > place[0]


def _local_day(instant: datetime, zone: str) -> str:
    day: date = instant.astimezone(ZoneInfo(zone)).date()
    return day.isoformat()


def _plain(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def _from(kind: SourceKind, turn: Turn, method: str, confidence: float) -> Provenance:
    return Provenance(source=kind, turn_id=turn.turn_id, method=method, confidence=confidence)


def _reject(reason: str, item: RawItem) -> Rejected:
    return Rejected(reason, item.model_dump(mode="json"))
