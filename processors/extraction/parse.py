"""Extraction: the tolerant reader of a model's reply; nothing here trusts the text (FIELD_REPORTS 1–4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import regex

from processors.extraction.item import MAX_RAW_CHARS, read_item
from processors.extraction.json_scan import Broken, Found, python_literal, repaired, salvage, scan
from processors.extraction.outcome import Extracted, Nothing, Outcome, RawItem, Rejected, Truncated, Unparsable

MAX_REPLY_CHARS = 2_000_000
MAX_ITEMS = 100
"""Claims of one reply that are read; a reply with more is a model going round in circles."""

_CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens"})
_REFUSED = frozenset({"content_filter", "refusal"})
_THINK = regex.compile(r"<(think|thinking|reasoning)>(.*?)(?:</\1>|\Z)", regex.DOTALL | regex.IGNORECASE)
# Some chat templates open the block themselves, so that the reply holds only its end.
_THINK_END = regex.compile(r"\A(.*?)</(?:think|thinking|reasoning)>", regex.DOTALL | regex.IGNORECASE)
_FENCE = regex.compile(r"```[A-Za-z]*|~~~[A-Za-z]*")
_LIST_START = regex.compile(r"""["']memories["']\s*:\s*\[""")
_ENVELOPE_KEYS = ("memories", "memory", "facts", "items", "results")


def parse(reply: str, finish_reason: str) -> Outcome:
    """What a reply says.

    Tried in this order: the whole reply; what stands outside `<think>` blocks; what stands inside them. In each, the
    last whole answer wins; a bare list, bare items and one level of repair are accepted. An answer that begins and does
    not end is `Truncated` whatever the endpoint says about it.
    """
    if finish_reason in _REFUSED:
        return Unparsable("refused")
    if not reply.strip():
        return Truncated() if finish_reason in _CUT_OFF else Unparsable("empty_reply")
    if len(reply) > MAX_REPLY_CHARS:
        return Unparsable("too_large")
    cut_off = finish_reason in _CUT_OFF
    outside, inside = _split_thoughts(reply)
    first = _read(outside, cut_off)
    if not isinstance(first, Unparsable):
        return first
    if inside.strip():
        second = _read(inside, cut_off)
        if isinstance(second, (Extracted, Nothing)) or (isinstance(second, Truncated) and not outside.strip()):
            return second
    return Truncated() if cut_off else first


def _split_thoughts(reply: str) -> tuple[str, str]:
    whole = reply.strip()
    if whole.startswith(("{", "[")):
        # An answer from its first character on; a "<think>" in it is part of somebody's words.
        return whole, ""
    thoughts: list[str] = []

    def keep(match: regex.Match[str]) -> str:
        thoughts.append(match[2])
        return "\n"

    outside = _THINK.sub(keep, whole)
    if not thoughts and (end := _THINK_END.match(outside)):
        thoughts.append(end[1])
        outside = outside[end.end() :]
    return outside, "\n".join(thoughts)


def _read(text: str, cut_off: bool) -> Outcome:
    """Outcome of one stretch of text."""
    pieces = list(scan(text))
    values = [piece for piece in pieces if isinstance(piece, Found)]
    faults = [piece for piece in pieces if isinstance(piece, Broken)]
    fault, list_start = _broken_answer(text, faults)
    # After a broken list, items that stand alone are its remains, not an answer.
    answer, end = _last_answer(values, text, bare_items=fault is None)
    latest_is_whole = answer is not None and list_start < end
    if latest_is_whole and not (cut_off and ("{" in text[end:] or "[" in text[end:])):
        return _settle(answer or [])
    if not cut_off and (mended := _mended(text, [fault, *faults[:2]] if fault else faults[:2])) is not None:
        return _settle(mended)
    if fault is not None:
        whole, broken, closed = salvage(text, list_start)
        items, rejected = _items(whole)
        rejected += tuple(Rejected("malformed", piece[:MAX_RAW_CHARS]) for piece in broken[:MAX_ITEMS])
        return Extracted(items, rejected) if closed and not cut_off else Truncated(items, rejected)
    if cut_off:
        return Truncated()
    if answer is not None:
        return _settle(answer)
    return Unparsable(_why(values, faults))


def _broken_answer(text: str, faults: list[Broken]) -> tuple[Broken | None, int]:
    """The last broken value that holds a list of memories, and where its items begin; (None, -1) without one."""
    for fault in reversed(faults):
        start = _last(_LIST_START, text[fault.start : fault.stop + 1])
        if start is not None:
            return fault, fault.start + start
    return None, -1


def _last(pattern: regex.Pattern[str], text: str) -> int | None:
    found: int | None = None
    for match in pattern.finditer(text):
        found = match.end()
    return found


def _last_answer(values: list[Found], text: str, *, bare_items: bool = True) -> tuple[list[Any] | None, int]:
    """The claims of the last answer and where it ends: an envelope, else a list of objects, else bare items.

    A bare empty list counts only when it is all there is: "[]" in the middle of prose is no answer.
    """
    for found in reversed(values):
        listed = _enveloped(found.value)
        if listed is not None:
            return listed, found.end
    for found in reversed(values):
        if isinstance(found.value, list) and found.value and all(isinstance(entry, dict) for entry in found.value):
            inner = [listed for entry in found.value if (listed := _enveloped(entry)) is not None]
            return (inner[-1] if inner else found.value), found.end
    bare = [found for found in values if isinstance(found.value, dict) and _looks_like_item(found.value)]
    if bare and bare_items:
        return [found.value for found in bare], bare[-1].end
    if len(values) == 1 and values[0].value == [] and regex.fullmatch(r"\[\s*\]", _FENCE.sub("", text).strip()):
        return [], values[0].end
    return None, 0


def _enveloped(value: Any) -> list[Any] | None:
    if not isinstance(value, dict):
        return None
    for key in _ENVELOPE_KEYS:
        listed = value.get(key)
        if isinstance(listed, list):
            return listed
        if isinstance(listed, dict) and _looks_like_item(listed):
            return [listed]
    return None


def _looks_like_item(value: Mapping[Any, Any]) -> bool:
    return "turn" in value and ("value" in value or "quote" in value or "text" in value)


def _mended(text: str, faults: list[Broken]) -> list[Any] | None:
    end = max(text.rfind("}"), text.rfind("]")) + 1
    for start in dict.fromkeys(fault.start for fault in faults):
        region = text[start:end]
        again = [piece for piece in scan(repaired(region)) if isinstance(piece, Found)]
        if len(again) == 1 and again[0].start == 0:
            answer, _ = _last_answer(again, region)
            if answer is not None:
                return answer
        literal = python_literal(region)
        if isinstance(literal, (dict, list)):
            answer, _ = _last_answer([Found(literal, 0, len(region))], "[]")
            if answer is not None:
                return answer
    return None


def _settle(entries: list[Any]) -> Outcome:
    if not entries:
        return Nothing()
    return Extracted(*_items(entries))


def _items(entries: list[Any]) -> tuple[tuple[RawItem, ...], tuple[Rejected, ...]]:
    items: list[RawItem] = []
    rejected: list[Rejected] = []
    for entry in entries[:MAX_ITEMS]:
        item = read_item(entry)
        if isinstance(item, RawItem):
            items.append(item)
        else:
            rejected.append(item)
    if len(entries) > MAX_ITEMS:
        rejected.append(Rejected("too_many", len(entries) - MAX_ITEMS))
    return tuple(items), tuple(rejected)


def _why(values: list[Found], faults: list[Broken]) -> str:
    if any(isinstance(found.value, dict) and "error" in found.value for found in values):
        return "provider_error"
    if values:
        return "no_memories"
    return "malformed" if faults else "prose"
