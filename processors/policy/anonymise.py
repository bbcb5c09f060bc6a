"""Policy, masking room: reduces a field to what is needed (company → industry), from a small reviewed table."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import regex

from processors.policy.catalogue import read_yaml


@lru_cache(maxsize=1)
def _table() -> tuple[tuple[str, dict[str, str]], ...]:
    """Company names, longest first, with the industry's label per language."""
    rows = read_yaml("industries.yaml")["industries"]
    pairs = [(_fold(str(name)), {"zh": row["zh"], "en": row["en"]}) for row in rows for name in row["companies"]]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold().strip()


def industry_of(company: str, language: str) -> str:
    """`阿里巴巴集团` → `互联网公司`, `Google` → `an internet company`; an unknown company → `某公司`, `a company`."""
    tongue = "zh" if language.startswith("zh") else "en"
    name = _fold(company)
    for known, labels in _table():
        if known == name or (known in name and _stands_alone(known, name)):
            return labels[tongue]
    return str(read_yaml("industries.yaml")["fallback"][tongue])


def generic_label(language: str) -> str:
    """What stands for a field that is hidden altogether."""
    return str(read_yaml("industries.yaml")["generic"]["zh" if language.startswith("zh") else "en"])


def reduce(value: str, how: str, language: str) -> str:
    """The reduced value; `how` is `industry` or `generic` (checked by PolicySettings)."""
    return industry_of(value, language) if how == "industry" else generic_label(language)


def replace_name(text: str, name: str, label: str) -> str:
    """The text with the name replaced wherever it stands, in any case."""
    return regex.sub(regex.escape(name), lambda _: label, text, flags=regex.IGNORECASE) if name else text


def _stands_alone(known: str, name: str) -> bool:
    """`arm` is not in `pharmacy`: a Latin name must be a word of its own."""
    return not known.isascii() or regex.search(rf"(?<![a-z0-9]){regex.escape(known)}(?![a-z0-9])", name) is not None
