"""Extraction: finding the model's quote in the words that the speaker really said (FIELD_REPORTS 9, 11)."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property

import regex

from processors.extraction.render import LINE_MARK

# What a model changes when it "copies": quotation marks, dashes, full stops. Widths are NFKC's.
_SAME = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "「": '"', "」": '"', "。": ".", "—": "-", "–": "-"})
_SPACE = regex.compile(rf"[\s\x00\u200b-\u200d\ufeff{LINE_MARK}]+")
_ENDS = regex.compile(r"^[\p{P}\p{S}]+|[\p{P}\p{S}]+$")
_WORDLY = regex.compile(r"[\p{L}\p{N}]")


def folded(text: str) -> str:
    """NFKC, case-folded, plain quotation marks, no spaces: what two copies of one passage share."""
    return _SPACE.sub("", unicodedata.normalize("NFKC", text).casefold().translate(_SAME))


@dataclass(frozen=True)
class Source:
    """A turn's text and the same text with everything blanked that is not the speaker's own; equal lengths."""

    text: str
    own: str

    @cached_property
    def _folded(self) -> tuple[str, tuple[int, ...]]:
        """The folded own words, and for each of their characters the place in the text it comes from."""
        characters: list[str] = []
        places: list[int] = []
        for place, character in enumerate(self.own):
            for piece in folded(character):
                characters.append(piece)
                places.append(place)
        return "".join(characters), tuple(places)

    def locate(self, quote: str) -> tuple[int, int] | None:
        """(start, end) in the text of the first place where the quote stands wholly in own words, or None.

        Spaces, widths, case and quotation marks may differ, and punctuation at its ends may be missing; a single letter
        is no quote.
        """
        for wanted in dict.fromkeys((folded(quote), _ENDS.sub("", folded(quote)))):
            if len(_WORDLY.findall(wanted)) < 2:
                continue
            words, places = self._folded
            found = words.find(wanted)
            while found >= 0:
                start, end = places[found], places[found + len(wanted) - 1] + 1
                # Across a blanked span the text and the own words differ: that would quote somebody else.
                if self.text[start:end] == self.own[start:end]:
                    return start, end
                found = words.find(wanted, found + 1)
        return None

    def says(self, value: str) -> bool:
        """Whether the value stands in the own words, as `locate` compares; one character is enough."""
        wanted = _ENDS.sub("", folded(value))
        return bool(wanted) and wanted in self._folded[0]
