"""Rules, passage: one turn as the rules see it, with the cuts that every reader needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import regex

from processors.rules.fold import fold
from processors.rules.late import Pattern
from processors.rules.loading import RuleSet
from processors.rules.model import Rule
from processors.slots import normal_attribute
from processors.spans import own_words
from processors.times import Resolver, Span, times_of
from schemas import Turn

_MAX_TEXT: Final = 4_000
_SHORT: Final = 48
"""Characters up to which no pattern of ours can take long."""
_TIMEOUT: Final = 0.05
"""Seconds one pattern may take on one clause. Clauses are short and patterns possessive, so only a hostile text meets it."""

_HAN: Final = regex.compile(r"\p{Han}")
_EDGE: Final = regex.compile(r"[\s\p{P}\p{S}\uFE0F\u200D--[+#%)\]》\"”」』]]+$", regex.V1)
_EMOJI: Final = regex.compile(r"\p{Emoji_Presentation}")
# What leads to a time and belongs to it: "Berlin in March".
_TO_TIME: Final = regex.compile(
    r"(?:\s+(?:in|on|at|since|from|by|around|about|until|till|starting|as of|the|early|late|mid))*\s*$"
)
_NEW: Final = regex.compile(r"(?:(?:brand[- ])?new|latest) ")
_OWNED: Final = regex.compile(r"(?P<who>.+?)(?:'s |的)(?P<what>.+)")
_SPACES: Final = regex.compile(r"\s+")
_GENITIVE: Final = regex.compile(r"'s\b")
_FAVORITE: Final = regex.compile(r"^(?:favou?rite?|fave|fav)\b")
_BULLET: Final = regex.compile(r"\s*(?:\d{1,2}[.)、](?!\d)|[①-⑳])\s*")
# What may trail a statement without belonging to it. Words that a Chinese sentence ends with belong to its patterns.
_FILLER: Final = regex.compile(
    r"(?<=\S)\s(?:btw|by the way|lol|haha+|pls|plz|thx|ty|tho|though|as well|too|thanks(?: a lot| in advance)?|thank you|fyi|"
    r"honestly|actually|anyway|"
    r"if that helps|just so you know|you know|i think|i guess|i suppose|to be honest|tbh|in case you(?:'re|"
    r" are)? wonder\w*|in fact|ok|okay|(?<!\bnow and )then)$"
)


class Passage:
    """The speaker's own words of a turn and their folded copy; positions are the same in both and in the turn's text."""

    def __init__(self, rules: RuleSet, turn: Turn, resolver: Resolver) -> None:
        self.rules = rules
        self.words = rules.lexicon
        self.turn = turn
        owned = own_words(turn.text)
        self.text = owned[: len(owned) - len(owned.lstrip()) + _MAX_TEXT]
        self.folded = fold(self.text)
        self._resolver = resolver

    def quote(self, start: int, end: int) -> str:
        """What the turn says there, verbatim."""
        return self.turn.text[start:end]

    def body(self, start: int, end: int) -> tuple[int, int]:
        """The borders of a clause without bullets, fillers and trailing punctuation."""
        folded, leads = self.folded, self.words.leads
        bullet = _BULLET.match(folded, start, end)
        begin = bullet.end() if bullet else start
        lead = leads.match(folded, begin, end)
        begin = lead.end() if lead else begin
        while begin < end and (folded[begin] in " \n\t\"'“”「『·*#-~)\ufe0f" or _EMOJI.match(folded, begin)):
            begin += 1
            lead = leads.match(folded, begin, end)
            begin = lead.end() if lead else begin
        while (tail := _EDGE.search(folded, begin, end) or _FILLER.search(folded, begin, end)) is not None:
            end = tail.start()
        return begin, end

    def times(self, start: int, end: int, language: str) -> Sequence[Span]:
        """The times named there. The text as sent, since a resolver reads capitals and full-width digits by itself."""
        return times_of(self.turn, self.text[start:end], language, self._resolver)

    def untimed(self, start: int, end: int, language: str) -> int:
        """Where the text at `start`..`end` stops when the times that it ends with are left out; `end` if it is only a time."""
        if self.words.timely.search(self.folded, start, end) is None:
            return end
        stop = end
        for span in reversed(self.times(start, end, language)):
            left = start + span.offset
            if self.folded[left + len(span.quote) : stop].strip(" ,") or left >= stop:
                break
            lead = _TO_TIME.search(self.folded, start, left)
            stop = lead.start() if lead else left
        return stop if stop > start else end

    def attribute(self, raw: str, suffix: str | None = None) -> str:
        """The attribute that the speaker's own word for it names; with a suffix, the name of somebody or something."""
        name = _SPACES.sub(" ", raw.strip(" 的'\"“”")).removeprefix("the ").removeprefix("my ")
        aliases = self.rules.aliases
        if suffix:
            name = _GENITIVE.sub("", aliases.get(name + "~", name))
            return normal_attribute(f"{name}_name")
        if name not in aliases:
            # "My new address" is the address from now on.
            name = _NEW.sub("", name, count=1)
        if (owned := _OWNED.fullmatch(name)) is not None and (who := aliases.get(owned["who"] + "~")) is not None:
            # 老婆的生日 and "my wife's birthday" are one thing.
            return normal_attribute(f"{who}_{aliases.get(owned['what'], owned['what'])}")
        if name not in aliases:
            # 老婆生日 without its 的.
            for cut in range(len(name) - 1, 0, -1):
                if (who := aliases.get(name[:cut] + "~")) is not None and name[cut:] in aliases:
                    return normal_attribute(f"{who}_{aliases[name[cut:]]}")
        name = _GENITIVE.sub("", name).replace("colour", "color")
        name = _FAVORITE.sub("favorite", name)
        return aliases.get(name) or normal_attribute(name)


def language_of(text: str) -> str:
    """`zh` when it has a Chinese character, else `en`."""
    return "zh" if _HAN.search(text) else "en"


def found(pattern: Pattern, piece: str, *, how: str = "fullmatch") -> regex.Match[str] | None:
    """The match of `pattern`; none when it takes too long. `how` is fullmatch, match or search."""
    if pattern.lacks(piece):
        return None
    try_it: Callable[..., regex.Match[str] | None] = getattr(pattern, how)
    if len(piece) <= _SHORT:
        # Looking at the clock costs more than most patterns do.
        return try_it(piece)
    try:
        return try_it(piece, timeout=_TIMEOUT)
    except TimeoutError:
        return None


def searched(rule: Rule, piece: str) -> bool:
    """Whether one of the rule's patterns occurs in the folded `piece`."""
    return any(found(pattern, piece, how="search") is not None for pattern in rule.patterns)
