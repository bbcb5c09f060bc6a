"""Session, cues: the reviewed patterns of `cues.yaml`, compiled once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import regex

from processors.documents import parse

_APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'"})


@dataclass(frozen=True, slots=True)
class Cues:
    """One pattern per kind of sentence; `request_form` takes a request apart into verb and object."""

    patterns: Mapping[str, regex.Pattern[str]]
    request_form: regex.Pattern[str]

    def hit(self, kind: str, sentence: str) -> bool:
        """Whether the sentence, in the form of `plain`, has a cue of this kind."""
        return self.patterns[kind].search(sentence) is not None

    def asks(self, sentence: str) -> bool:
        """Whether it is a question that wants an answer."""
        marked = regex.search(r"[?？][\s!！?？”\"')）~～]*$", sentence) is not None
        return (marked or self.hit("question", sentence)) and not self.hit("rhetorical", sentence)

    def settles(self, sentence: str) -> bool:
        """Whether it says that something was decided."""
        return self.hit("decision", sentence) and not self.hit("unsettled", sentence) and not self.asks(sentence)

    def matter(self, sentence: str) -> str:
        """The sentence without the words that only say how things stand."""
        return self.patterns["standing"].sub(" ", sentence)

    def finishes(self, sentence: str) -> bool:
        """Whether it says that something is done or not wanted any more."""
        return self.hit("done", sentence) and not self.hit("not_done", sentence)


def plain(sentence: str) -> str:
    """The sentence as cues see it: lower case, straight apostrophes; of the same length for Chinese and English."""
    return sentence.translate(_APOSTROPHES).lower()


@lru_cache(maxsize=1)
def cues() -> Cues:
    """The packaged cues."""
    data: dict[str, Any] = parse(files("processors.session").joinpath("cues.yaml").read_text(encoding="utf-8"))
    joined = {kind: "|".join(patterns) for kind, patterns in data.items() if isinstance(patterns, list)}
    form = regex.compile(
        rf"^(?P<finished>{joined['finished']})?\s*(?:(?:{joined['polite']})[\s,，]*){{0,4}}"
        rf"(?P<verb>{joined['verb']})(?:ed|ing)?(?![a-z])\s*(?:{joined['after_verb']})?\s*(?P<object>\S.*)$"
    )
    return Cues({kind: regex.compile(pattern) for kind, pattern in joined.items()}, form)
