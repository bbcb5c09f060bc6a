"""Extraction: from a batch of turns to the two messages that the model sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import regex

from processors.extraction.prompts import PROMPT_VERSION, module_for
from processors.extraction.schema import answer_schema
from processors.slots import known_slots
from schemas import ExtractionBatch, Role, Turn

OwnWords = Callable[[str], str]
"""`processors.spans.own_words`: text of the same length in which everything the speaker did not say is blanked."""

MAX_TURNS = 20
"""Turns that one call is shown; the plan splits longer batches first, so that none is left out."""
MAX_TURN_CHARS = 4_000
"""Characters of one turn that are shown: its first three quarters and its last quarter, for pasted logs and files."""
MAX_PROMPT_CHARS = 24_000
"""Characters of all turns together; beyond it each turn gets an equal share."""
MAX_NAME_CHARS = 40

_BREAKS = regex.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")
_SPACES = regex.compile(r"[\s\x00]{2,}|\x00")
_NAME_NOISE = regex.compile(r"[\[\]():：⟨⟩\p{C}\s]+")
LINE_MARK = "⏎"
"""Stands for a line break inside a turn, so that no turn can forge the line of another one."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is sent, and what its small numbers mean.

    `aliases` maps the numbers shown to the turns behind them, `speakers` to the label shown; no real id is ever shown.
    `reminder` is appended to `user` when an answer could not be read.
    """

    system: str
    user: str
    aliases: Mapping[int, Turn]
    speakers: Mapping[int, str]
    version: str
    json_schema: Mapping[str, Any]
    reminder: str


def render(batch: ExtractionBatch, own_words: OwnWords, version: str = PROMPT_VERSION) -> Prompt:
    """The prompt for one batch of at most `MAX_TURNS` turns.

    System turns, deleted turns and turns in which nothing is the speaker's own get no number. A prompt whose `aliases`
    are empty needs no call.

    Raises:
        ValueError: more than `MAX_TURNS` turns.
    """
    if len(batch.turns) > MAX_TURNS:
        raise ValueError(f"a prompt holds {MAX_TURNS} turns, not {len(batch.turns)}; split the batch first")
    module = module_for(batch.language, version)
    shown = [(turn, words) for turn in batch.turns if (words := _words(turn, own_words))]
    share = min(MAX_TURN_CHARS, MAX_PROMPT_CHARS // max(1, len(shown)))
    labels = _labels([turn for turn, _ in shown], module)
    lines = [
        f"[{number}] {labels[number]} {_when(turn, module)}: {_cut(words, share)}"
        for number, (turn, words) in enumerate(shown, start=1)
    ]
    return Prompt(
        system=module.SYSTEM.replace("__ATTRIBUTES__", _attributes(module is module_for("zh", version))),
        user="\n".join([module.HEADER, *lines]),
        aliases=MappingProxyType({number: turn for number, (turn, _) in enumerate(shown, start=1)}),
        speakers=MappingProxyType(labels),
        version=module.VERSION,
        json_schema=answer_schema(),
        reminder=module.REMINDER,
    )


def _words(turn: Turn, own_words: OwnWords) -> str:
    if turn.role is Role.SYSTEM or turn.deleted:
        return ""
    one_line = _BREAKS.sub(f" {LINE_MARK} ", own_words(turn.text))
    text = _SPACES.sub(" ", one_line).strip(f" {LINE_MARK}")
    return text if regex.search(r"[\p{L}\p{N}]", text) else ""


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head = limit * 3 // 4
    return f"{text[:head]} … {text[len(text) - (limit - head) :]}"


def _when(turn: Turn, module: ModuleType) -> str:
    local = turn.sent_at.astimezone(ZoneInfo(turn.timezone))
    return f"{local:%Y-%m-%d} {module.WEEKDAYS[local.weekday()]} {local:%H:%M}"


def _labels(turns: Sequence[Turn], module: ModuleType) -> dict[int, str]:
    """Speaker labels by alias; people are told apart by name, and by number where names are missing or equal."""
    people = list(dict.fromkeys((turn.user_id, _name(turn)) for turn in turns if turn.role is Role.USER))
    users = list(dict.fromkeys(user for user, _ in people))
    names = {user: name for user, name in people if name}
    twice = {name for name, count in Counter(names.values()).items() if count > 1}
    labels: dict[int, str] = {}
    for number, turn in enumerate(turns, start=1):
        role: str = module.ROLES[turn.role.value]
        detail = ""
        if turn.role is Role.USER:
            name = names.get(turn.user_id, "")
            detail = name if name not in twice else ""
            if not detail and len(users) > 1:
                detail = f"{name}#{users.index(turn.user_id) + 1}"
        elif turn.role is Role.TOOL and turn.tool_name:
            detail = _clean(turn.tool_name)
        labels[number] = f"{role}({detail})" if detail else role
    return labels


def _name(turn: Turn) -> str:
    return _clean(turn.speaker_name or "")


def _clean(name: str) -> str:
    return _NAME_NOISE.sub(" ", name).strip()[:MAX_NAME_CHARS].strip()


@lru_cache(maxsize=2)
def _attributes(chinese: bool) -> str:
    if chinese:
        return "、".join(f"{slot.attribute}（{slot.label_zh}）" for slot in known_slots().values())
    return ", ".join(known_slots())
