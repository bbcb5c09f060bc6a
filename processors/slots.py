"""Slots: which attributes exist, whether they hold one value or many, and when two values are the same value."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import regex

from processors.documents import parse
from schemas import Cardinality, Category, MemoryType, OwnerKind, Sensitivity


@dataclass(frozen=True, slots=True)
class Slot:
    """How one attribute behaves. `namespace` is the segment after the owner; `ttl_days` None means no expiry."""

    attribute: str
    cardinality: Cardinality
    namespace: str
    type: MemoryType
    category: Category
    sensitivity: Sensitivity
    ttl_days: int | None = None
    opposite: str | None = None
    label_zh: str = ""
    label_en: str = ""


@lru_cache(maxsize=1)
def known_slots() -> dict[str, Slot]:
    """The reviewed attributes of `slots.yaml`, by name."""
    data = parse(files("processors").joinpath("slots.yaml").read_text(encoding="utf-8"))
    return {
        name: Slot(
            attribute=name,
            cardinality=Cardinality(row["cardinality"]),
            namespace=row["namespace"],
            type=MemoryType(row["type"]),
            category=Category(row["category"]),
            sensitivity=Sensitivity(row["sensitivity"]),
            ttl_days=row.get("ttl_days"),
            opposite=row.get("opposite"),
            label_zh=row["zh"],
            label_en=row["en"],
        )
        for name, row in data["attributes"].items()
    }


def slot_for(attribute: str) -> Slot:
    """The known slot, or an open one: any other "my … is …" holds a single fact in the profile."""
    name = normal_attribute(attribute)
    known = known_slots().get(name)
    if known is not None:
        return known
    return Slot(name, Cardinality.SINGLE, "profile", MemoryType.SEMANTIC, Category.FACT, Sensitivity.PERSONAL)


_SEPARATORS = regex.compile(r"[\s\-_]+")
# A sign at the edge belongs to the value: A+ and A-, C++ and C#, -5 and 5 are different things.
_EDGE = regex.compile(r"^[\s[\p{P}\p{S}]--[+#%&$€£¥°/-]]+|[\s[\p{P}\p{S}]--[+#%&$€£¥°-]]+$", regex.V1)
_SPACE = regex.compile(r"\s+")


def normal_attribute(attribute: str) -> str:
    """Lower snake case, NFKC, at most 64 characters: "Favourite Color" and "favourite_color" are one attribute."""
    folded = unicodedata.normalize("NFKC", attribute).casefold().strip()
    return _SEPARATORS.sub("_", folded).strip("_")[:64]


def value_key(value: str) -> str:
    """What two spellings of one value share: NFKC, case-folded, single spaces, no punctuation at the edges."""
    folded = _SPACE.sub(" ", unicodedata.normalize("NFKC", value).casefold())
    return _EDGE.sub("", folded) or folded.strip()


def namespace_of(owner_kind: OwnerKind, owner: str, segment: str) -> str:
    """`user/{id}/profile`. A slash or percent sign in an id is escaped, so no id can name another owner's namespace."""
    safe = owner.replace("%", "%25").replace("/", "%2F")
    return f"{owner_kind}/{safe}/{segment}"
