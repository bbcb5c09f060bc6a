"""Times, numerals: small Chinese and English numbers as they are written in dates."""

from __future__ import annotations

_DIGITS = {char: value for value, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_TENS = {"十": 10, "百": 100, "千": 1000}

ZH = r"(?:\d{1,4}|[一二两三四五六七八九十百千零〇]{1,6})"
"""A Chinese number, in digits or characters."""

_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_ENGLISH = {word: value for value, word in enumerate(_WORDS)} | {
    "a": 1, "an": 1, "another": 1, "thirty": 30, "forty": 40, "forty-five": 45, "fifty": 50, "sixty": 60, "ninety": 90,
}  # fmt: skip

EN = rf"(?:\d{{1,4}}|{'|'.join(sorted(_ENGLISH, key=len, reverse=True))})"
"""An English number, in digits or words; "a" is one."""


def chinese(text: str) -> int | None:
    """The value of 十二, 一百零五, 二〇二六 or 12; None for 三四 ("three or four") and other non-numbers."""
    if text.isdecimal():
        return int(text)
    if all(char in _DIGITS for char in text):
        # Digit by digit is how years are written; two or three of them are an estimate or a mistake.
        return int("".join(str(_DIGITS[char]) for char in text)) if len(text) in (1, 4) else None
    total, current = 0, None
    lowest = 10_000
    for char in text:
        if char in _TENS:
            unit = _TENS[char]
            if unit >= lowest:
                return None
            total += (1 if current is None else current) * unit
            lowest, current = unit, None
        elif current not in (None, 0):
            return None
        else:
            current = _DIGITS[char]
    return total + (current or 0)


def english(text: str) -> int:
    """The value of "twelve", "a" or "12"."""
    return int(text) if text.isdecimal() else _ENGLISH[text.lower()]
