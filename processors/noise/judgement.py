"""Noise, the judgement: one verdict per turn, from cheap and certain tests to the phrase lists."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, Self

import regex

from processors.documents import parse
from processors.noise.machine import is_machine_text
from processors.noise.normal import information, normal_text
from processors.noise.phrases import Phrases
from processors.noise.tools import ToolWhitelist
from schemas import Role, Turn, digest

_FILES: Final = ("zh.yaml", "en.yaml", "tools.yaml")
# Two letters, two digits or one Chinese character say nothing by themselves.
_LEAST_INFORMATION: Final = 3
# A turn that is nothing but a block which a framework put there: recalled memories must not feed on themselves.
_INJECTED: Final = regex.compile(
    r"(?is)\s*<(memory|memories|recalled[\w-]*|relevant[_-]memories|user[_-](?:memory|memories|profile)|system[\w-]*|context)"
    r"\b[^>\n]{0,200}>.*</\1\s*>\s*"
    r"|\s*[\[【(（#]*\s*(?:(?:recalled|relevant|retrieved|stored|long[- ]term|user) memor(?:y|ies)"
    r"|(?:相关|长期|历史|召回的?|用户)记忆)"
    r"[^\n]{0,40}(?:\n\s*(?:[-*•]|\d{1,3}[.)、]|\[)[^\n]*+)++\s*"
)


@dataclass(frozen=True, slots=True)
class NoiseVerdict:
    """`reason` is None for a turn that is kept, otherwise one of: too_short, emotion, greeting, log_noise, ephemeral,
    duplicate, tool_output, system, assistant_boilerplate, deleted, attachment_only, no_consent, injected."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class NoiseFilter:
    """Says which turns are never sent to a model; they stay readable in the session. `version` stands for its data."""

    phrases: Phrases
    tools: ToolWhitelist
    version: str

    @classmethod
    def load(cls) -> Self:
        """The packaged data."""
        texts = _packaged()
        chinese, english, tools = (parse(text) for text in texts)
        return cls(Phrases.from_data([chinese, english]), ToolWhitelist.from_data(tools), digest(*texts)[:12])

    def judge(self, turn: Turn, recent_texts: Collection[str] = ()) -> NoiseVerdict:
        """The verdict on one turn; `recent_texts` are the latest texts of the same speaker and conversation."""
        return NoiseVerdict(self._certain(turn) or self._of_text(turn, recent_texts))

    def reduce_tool_output(self, turn: Turn) -> str | None:
        """The whitelisted fields of a tool's JSON answer, as compact JSON; None when nothing of it is to be read."""
        return self.tools.reduce(turn.tool_name, turn.text)

    def _certain(self, turn: Turn) -> str | None:
        if turn.deleted:
            return "deleted"
        if turn.consent is False:
            return "no_consent"
        if turn.role is Role.SYSTEM:
            return "system"
        if not turn.text.strip():
            return "attachment_only" if turn.attachments else "too_short"
        if turn.role is Role.TOOL and self.reduce_tool_output(turn) is None:
            return "tool_output"
        return None

    def _of_text(self, turn: Turn, recent_texts: Collection[str]) -> str | None:
        text = turn.text
        if recent_texts and normal_text(text) in {normal_text(recent) for recent in recent_texts}:
            return "duplicate"
        if turn.role is Role.TOOL:
            return None
        if _INJECTED.fullmatch(text):
            return "injected"
        if is_machine_text(text):
            return "log_noise"
        reason = self.phrases.reason(text, assistant=turn.role is Role.ASSISTANT)
        if reason is None and sum(map(str.isalnum, text[:64])) < _LEAST_INFORMATION > information(text):
            return "attachment_only" if turn.attachments else "too_short"
        return reason


@lru_cache(maxsize=1)
def _packaged() -> tuple[str, ...]:
    return tuple(files("processors.noise").joinpath(name).read_text(encoding="utf-8") for name in _FILES)


def examples(name: str) -> Any:
    """The reviewed examples of one data file ("zh.yaml"), for the tests."""
    return parse(_packaged()[_FILES.index(name)])["examples"]
