"""Rules, values: trims what a pattern caught to the value itself, cuts lists, and refuses what is no value."""

from __future__ import annotations

from typing import Final

import regex

_LEFT: Final = regex.compile(
    r"(?:[\s\p{P}\p{S}--[#+$¥€£\-(@《]]|(?:了|过(?!敏)|着|到|一下)(?!\p{Han}?$)|就是|的是|于是)*+", regex.V1
)
_TAIL_ZH: Final = regex.compile(
    r"(?:的人|了|的话|的(?<!目的)|啊|(?<![酒网贴水氧书咖])吧|(?<!毛)呢|哦|呀|嘛|啦|噢|喔|喽|咯|哟|呗|哈哈+|来着|"
    r"而已|谢谢|多谢|拜托|就好|就行|就可以|即可|什么的|"
    r"之类|等等|好吗|可以吗|行吗|记住|(?<=\p{Han}{2})一下|(?<=\p{Han})(?:这件事|这事|的事))$"
)
_TAIL_EN: Final = regex.compile(
    r"\b(?:(?:and |or )?(?:so on(?: and so forth)?|so forth|(?:stuff|things) like that|that (?:sort|kind) of (?:thing|stuff)|"
    r"all that (?:jazz|stuff)|the like|what ?not|etc(?:etera)?|among other things)|"
    r"(?:and|or) (?:such|stuff|things|others|more|similar|whatever)|"
    r"right now|now|these days|nowadays|at the moment|currently|by the way|btw|lol|haha+|please|thanks|"
    r"thank you|too|as well|"
    r"though|actually|so much|very much|a lot|the most|the best|more than anything|any ?more|anyway|fyi|ok|okay|"
    r"if that helps|just so you know|you know|honestly|instead|again|btw|for now|in general|since you ask\w*|"
    r"recently|lately|"
    r"originally|temporarily|at present|for the moment|for a while|all the time|"
    r"sometimes|now and then|from time to time|i think|i guess|one day|someday)$"
)
_TAIL_TIME: Final = regex.compile(
    r"(?:\s|\b)(?:(?:starting|beginning|from|as of) (?:today|tomorrow|now)|on \d{1,2}[/.-]\d{1,2}(?:[/.-]\d{2,4})?|"
    r"on the \d{1,2}(?:st|nd|rd|th)|(?:around|before|after|over|at|during) (?:christmas|easter|thanksgiving|new year's?)|"
    r"during the (?:week|weekend|day|holidays|summer|winter)|"
    r"(?:last|next|this|earlier this) (?:week|month|year|spring|summer|autumn|fall|winter|weekend|"
    r"\w+day|january|february|march|april|may|june|"
    r"july|august|september|october|november|december)|yesterday|today|tomorrow|recently|"
    r"(?:\d+|a|an|one|two|three|four|five|six|seven|eight|nine|ten|a few|a couple of|several) (?:day|week|month|"
    r"year)s? ago|"
    r"(?:back )?in (?:(?:january|february|march|april|may|june|july|august|september|october|november|"
    r"december) ?)?(?:19|20)\d\d|since .{1,20}|"
    r"on (?:mon|tues|wednes|thurs|fri|satur|sun)day|for (?:about |over |almost |the (?:past|last) )?(?:\d+|an?|one|"
    r"two|three|four|five|six|ten|many|several|a few) (?:day|week|month|year|decade)s?(?: now)?)$"
    r"|(?<=\p{Han}{2})(?:大?前年|去年|今年|上个?月|上周|昨天|前天|前几[天年]|前不久|不久前)$"
    r"|(?:了)?(?:(?:\d+|[一二两三四五六七八九十几半好多]+)(?:个)?(?:多)?(?:年|月|天|周|星期)(?:多)?(?:了)?)$"
)
# What led to a time that was cut off.
_DANGLING: Final = regex.compile(r"(?<=\S)\s(?:for|on|in|at|by|from|of|during|until|till|since|around)$")
_RIGHT: Final = regex.compile(r"[\s\p{P}\p{S}\uFE0F\u200D--[#+%)\]》°℃*]]+$", regex.V1)

_SEPARATOR: Final = regex.compile(
    r"\s*(?:、|\sas well as\b|"
    r"(?<![a-z])/|/(?![a-z])|,\s*(?:and|or)\b|,(?!\s*(?:它|他|她)?(?:的?名字)?叫|\d{3}(?!\d))|;|以及|还有|\s(?:and|or|"
    r"&)\s|(?<=\p{Han})\s(?=\p{Han}))\s*"
)
_AND_ZH: Final = regex.compile(r"\s*(?:和|与|及|跟|或者|或)\s*")
_NOT_ITEM: Final = regex.compile(
    r"(?:我|你|他|她|它|朋友|家人|大家|同学|同事|别人|孩子|老婆|老公|女友|男友|爸|妈|人|谁)"
)
_MEASURE: Final = regex.compile(
    r"(?:(?:some|a (?:little|bit)(?: bit)?(?: of)?|also|even|especially|particularly|sometimes|occasionally|basic|"
    r"maybe|to) )*+(?:一(?:点点?儿?|丢丢|些|[只条匹头](?=\p{Han}))|[两二三四五][只条匹头](?=\p{Han})|"
    r"点儿?(?=\p{Han}{1,3}[语话])|少许|流利的)?"
)
_ACTIVITY: Final = regex.compile(r"\p{L}+ing\s+\S+\s+\S+")
_GERUND: Final = regex.compile(r"(?:\w+ )?\p{L}+ing\b")
# "Italian and Thai food" is not Italian: what is named comes last.
_KIND: Final = (
    r"(?:italian|thai|indian|chinese|japanese|korean|mexican|french|spanish|greek|turkish|lebanese|vietnamese|"
    r"american|british|german|ethiopian|moroccan|mediterranean|asian|european|african|latin|middle eastern|persian|"
    r"red|white|black|green|dark|milk|hot|cold|iced|spicy|sweet|sour|salty|fried|processed|raw|indoor|outdoor|"
    r"classical|modern|contemporary|ancient|medieval|horror|action|comedy|romance|romantic|fantasy|sci-fi|crime|"
    r"historical|board|card|video|strategy|roleplaying|puzzle|water|winter|summer|team|(?:cow|goat|sheep)'s)"
)
_KINDS: Final = regex.compile(rf"{_KIND}(?:\s*,\s*{_KIND})*(?:\s*,)?\s(?:and|or|&)\s{_KIND}\s\p{{L}}.*")
_FIXED: Final = regex.compile(
    r"^(?:.*\b)?(?:mac and cheese|rock and roll|salt and vinegar|fish and chips|r and b|drum and bass|"
    r"bed and breakfast|"
    r"peanut butter and jelly|black and white|arts and crafts|friends and family|family and friends|"
    r"dungeons and dragons|"
    r"research and development|q and a|war and peace|pride and prejudice|up and down|back and forth)\b"
)
_PRONOUN_EN: Final = regex.compile(
    r"(?:it|that|this|them|him|her|you|me|us|those|these|so|how|what|when|where|the way|your|my)\b"
)

_PLACE_LOWER: Final = regex.compile(
    r"(?:a|an|the|my|your|his|her|our|their|this|that|fear|peace|hope|pain|hell|sin|harmony|denial|constant|poverty|"
    r"here|there|"
    r"one|two|it|which|such|same|different|dorm\w*|hotel|apartments?|houses?|what|where)\b"
)
_PART_OF: Final = regex.compile(
    r"(?:downtown|midtown|uptown|central|(?:north|south)(?:[ -]?(?:east|west))?(?:ern)?|(?:east|west)(?:ern)?|rural|"
    r"upstate|greater|inner|outer|suburban|mainland|metro|old) \p{Lu}"
)
_NAME_EN: Final = regex.compile(
    r"(?:(?:Dr|Mr|Mrs|Ms|Prof|Professor|Captain|Sir|Miss)\.? )?(?:\p{Lu}['’])?\p{Lu}[\p{Ll}'’-]+(?:\p{Lu}\p{Ll}+)?"
    r"(?:[ -](?:\p{Lu}\.?|(?:\p{Lu}['’])?\p{Lu}[\p{L}'’-]+|van|de|von|la|bin)){0,3}"
)


def trimmed(text: str, start: int, end: int, folded: str, *, times: bool) -> tuple[int, int]:
    """The borders of the value without particles, politeness, punctuation and (when `times`) time expressions."""
    start = min(end, _end_of(_LEFT, folded, start, end))
    while True:
        before = end
        for pattern in (_RIGHT, _TAIL_ZH, _TAIL_EN):
            if (match := pattern.search(folded, start, end)) and match.start() > start:
                end = match.start()
        if times and (match := _TAIL_TIME.search(folded, start, end)) and match.start() > start:
            end = match.start()
            if (dangling := _DANGLING.search(folded, start, end)) is not None:
                end = dangling.start()
        if end == before:
            break
    # A bracket or quotation mark that lost its partner goes too.
    if start < end and text[start] in "\"'“「『(《" and text[start] not in "《" and folded[end - 1] not in ")":
        start += 1
    if folded[end : end + 1] == "”" and folded.count("“", start, end) > folded.count("”", start, end):
        end += 1
    elif folded[end : end + 1] == '"':
        # 'with "Hey boss"', '"Yesterday" and "Help"': what is quoted within the value keeps both its marks.
        marks = folded.count('"', start, end)
        if marks % 2:
            end += 1
        elif marks and folded[start - 1 : start] == '"':
            start, end = start - 1, end + 1
    return start, end


def items(start: int, end: int, folded: str) -> list[tuple[int, int]]:
    """The borders of each item when the value is a list, else of the whole."""
    parts = [(start, end)]
    if _FIXED.search(folded[start:end]) or _KINDS.fullmatch(folded, start, end):
        return parts
    if folded[start] in "在去到":
        # "在海滩、山脉和湖泊附近拍摄" is one activity.
        return parts
    cut = _cut(_SEPARATOR, folded, start, end)
    if _ACTIVITY.match(folded, *cut[0]) and not all(_GERUND.match(folded, *part) for part in cut[1:]):
        # "spending time with friends and family" is one thing.
        cut = parts
    if all(not _PRONOUN_EN.match(folded, left, right) for left, right in cut[1:]):
        parts = cut
    out: list[tuple[int, int]] = []
    for left, right in parts:
        pieces = _cut(_AND_ZH, folded, left, right)
        good = (
            len(pieces) > 1
            and all(0 < b - a <= 8 and not _NOT_ITEM.match(folded, a, b) for a, b in pieces)
            and not folded.startswith(("在", "去", "到"), left, right)
        )
        out.extend(pieces if good else [(left, right)])
    if len(out) > 1:
        # "French, some German and a little Italian": the measure is no part of the item.
        out = [(_end_of(_MEASURE, folded, left, right), right) for left, right in out]
    return [part for part in out if part[1] > part[0]]


_HAN: Final = regex.compile(r"\p{Han}")
_CAPITAL: Final = regex.compile(r"\p{Lu}(?!\b|')")
_CAPITAL_WITHIN: Final = regex.compile(r"\s\p{Lu}\p{L}")
_STATING: Final = regex.compile(r"[的了是在有不]")
_NOTED: Final = regex.compile(r"[\p{Lu}\d]")
_CAPITAL_OR_HAN: Final = regex.compile(r"\p{Lu}|.*\p{Han}")


def fits(shape: str, original: str, folded: str, clause: str) -> bool:
    """Whether the value looks like what `shape` names: a `place`, a `name`, something `proper`, or anything."""
    if not folded or len(original) > 300:
        return False
    has_han = _HAN.search(original) is not None
    if shape == "place":
        if has_han:
            return True
        if original[0].isupper() or original[0].isdigit() or _PART_OF.match(original):
            return True
        if _PLACE_LOWER.match(folded):
            return _CAPITAL_WITHIN.search(original) is not None
        # Somebody who writes no capitals at all still lives somewhere.
        return _CAPITAL.search(clause) is None and len(folded.split()) <= 3
    if shape == "name":
        if has_han:
            return len(original) <= 8 and _STATING.search(folded) is None
        if _NAME_EN.fullmatch(original):
            return True
        return _CAPITAL.search(clause) is None and len(folded.split()) <= 2 and folded.isascii()
    if shape == "proper":
        return has_han or _NOTED.search(original) is not None
    if shape == "capital":
        # "I'm 李雷" names somebody, "I'm allergic to 芒果" does not.
        return _NAME_EN.fullmatch(original) is not None or (
            has_han and all(map(_CAPITAL_OR_HAN.match, original.split()))
        )
    return True


def _cut(pattern: regex.Pattern[str], folded: str, start: int, end: int) -> list[tuple[int, int]]:
    parts: list[tuple[int, int]] = []
    left = start
    for match in pattern.finditer(folded, start, end):
        parts.append((left, match.start()))
        left = match.end()
    parts.append((left, end))
    return parts


def _end_of(pattern: regex.Pattern[str], folded: str, start: int, end: int) -> int:
    match = pattern.match(folded, start, end)
    return match.end() if match else start
