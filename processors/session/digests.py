"""Session, digests: one line of at most 80 characters per turn, so that the last five cost an agent next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import regex

from processors.session.cues import cues, plain
from processors.session.said import Mask, Said, clip, sentences, shown
from schemas import Role

LONGEST: Final = 80
LAST: Final = 5
_TRIM: Final = regex.compile(r"^[\s,，。.!！?？:：]+|[\s,，。.!！?？~～]+$")
_LABELS: Final = {"zh": ("【动作】", "【对象】"), "en": ("【action】", "【object】")}
_WORDS: Final = regex.compile(r"\p{Han}|[\p{L}\p{N}]+(?:['’]\p{L}+)*")
_FEW: Final = 4
_HAN: Final = regex.compile(r"\p{Han}")


@dataclass(frozen=True, slots=True)
class TurnDigest:
    """What a turn was, in `text` of at most 80 characters, already masked."""

    turn_id: str
    turn_key: str
    revision: int
    role: Role
    said_at: datetime
    text: str


def digest_of(said: Said, mask: Mask) -> TurnDigest:
    """【动作】订【对象】周五的会议室 where a request can be taken apart, the first sentence otherwise."""
    turn = said.turn
    # Masked before it is cut: half a telephone number is not recognised as one.
    masked = mask(_telling(sentences(turn)) or shown(turn))
    text = _taken_apart(masked) if turn.role in (Role.USER, Role.ASSISTANT) else ""
    return TurnDigest(
        turn.turn_id, turn.turn_key, turn.revision, turn.role, turn.sent_at, text or clip(masked, LONGEST)
    )


def recent_digests(said: Sequence[Said], mask: Mask, *, last: int = LAST) -> tuple[TurnDigest, ...]:
    """Digests of the last turns, oldest first, of what somebody said."""
    spoken = [item for item in said if not item.nobodys]
    return tuple(digest_of(item, mask) for item in spoken[-last:]) if last else ()


def _telling(said: Sequence[str]) -> str:
    """The first sentence that says something: "Hey Mel!" stands for a turn only when it is all there is."""
    return next(
        (sentence for sentence in said if len(_WORDS.findall(sentence)) >= _FEW), max(said, key=len, default="")
    )


def _taken_apart(sentence: str) -> str:
    low = plain(sentence)
    if len(low) != len(sentence) or (match := cues().request_form.match(low)) is None:
        return ""
    verb = sentence[match.start("verb") : match.end("verb")].lower()
    thing = _TRIM.sub("", sentence[match.start("object") :])
    if not thing:
        return ""
    chinese = _HAN.search(verb) is not None
    action, object_ = _LABELS["zh" if chinese else "en"]
    if match["finished"]:
        verb = f"已{verb}" if chinese else f"did {verb}"
    return clip(f"{action}{verb}{object_}{thing}", LONGEST)
