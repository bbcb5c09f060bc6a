"""Extraction: JSON values out of text that is not quite JSON; linear in the length of the text."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import regex

# strict=False: models write raw line breaks inside strings. NaN and Infinity are not JSON and become null.
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
_OPENING = regex.compile(r"[{\[]")
_LITERAL_LIMIT = 100_000
# The standard decoder counts the line breaks before each fault, so a megabyte of "{" would take a minute unbounded.
_MAX_FAULTS = 1_000
_STEP_OVER = regex.compile(r"\s*,?\s*")
_NEXT_ITEM = regex.compile(r"\}\s*,\s*(?=\{)|\}\s*(?=\])")


@dataclass(frozen=True, slots=True)
class Found:
    """A value that was decoded from `text[start:end]`."""

    value: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Broken:
    """An object or list that starts at `start` and stops being JSON at `stop`."""

    start: int
    stop: int


def scan(text: str) -> Iterator[Found | Broken]:
    """The objects and lists in the text, outermost first and in order, with the places where one breaks off.

    What a broken value held up to its fault is not searched again: a whole item inside a broken list must not pass for
    an answer of its own, and the scan stays linear.
    """
    position = faults = 0
    while faults < _MAX_FAULTS and (opening := _OPENING.search(text, position)):
        start = opening.start()
        found = decode_at(text, start)
        yield found
        faults += isinstance(found, Broken)
        position = found.end if isinstance(found, Found) else max(found.stop, start + 1)


def decode_at(text: str, start: int) -> Found | Broken:
    """The value at `start`, or where it breaks; nesting beyond the interpreter's limit breaks at theend."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        return Broken(start, error.pos)
    except (RecursionError, ValueError):
        # ValueError: a number with more digits than Python converts.
        return Broken(start, len(text))
    return Found(value, start, end)


def salvage(text: str, start: int) -> tuple[list[Any], list[str], bool]:
    """Items of the list whose `[` stands before `start`: (whole values, broken pieces, whether the list is closed)."""
    whole: list[Any] = []
    broken: list[str] = []
    position = start
    while len(broken) < _MAX_FAULTS:
        step = _STEP_OVER.match(text, position)
        position = step.end() if step else position
        if position >= len(text):
            return whole, broken, False
        if text[position] == "]":
            return whole, broken, True
        if text[position] == "{":
            found = decode_at(text, position)
            if isinstance(found, Found):
                whole.append(found.value)
                position = found.end
                continue
        resume = _NEXT_ITEM.search(text, position)
        if resume is None:
            return whole, broken, False
        broken.append(text[position : resume.start() + 1])
        position = resume.end()
    return whole, broken, False


def repaired(text: str) -> str:
    """The text without trailing commas and with legal escapes; only repairs that cannot change what a string says."""
    out: list[str] = []
    inside = False
    position = 0
    while position < len(text):
        character = text[position]
        if inside:
            if character == "\\":
                following = text[position + 1 : position + 2]
                if following and following in '"\\/bfnrtu':
                    out.append(character + following)
                elif following == "'":
                    out.append("'")
                else:
                    out.append("\\\\" + following)
                position += 2
                continue
            inside = character != '"'
        elif character == '"':
            inside = True
        elif character == "," and _closes_next(text, position + 1):
            position += 1
            continue
        out.append(character)
        position += 1
    return "".join(out)


def _closes_next(text: str, position: int) -> bool:
    while position < len(text) and text[position].isspace():
        position += 1
    return position < len(text) and text[position] in "}]"


def python_literal(text: str) -> Any:
    """A value written as Python (single quotes, True, None), or None when it is not one."""
    if len(text) > _LITERAL_LIMIT:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
