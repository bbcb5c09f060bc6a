"""Contracts, ground floor: the frozen base model, UTC timestamps and deterministic identities."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, field_validator

# A fixed namespace, so that the same input gives the same id on every machine and in every replay (RFC 9562, UUIDv5).
_ID_SPACE = uuid.UUID("6f2d1c1e-7b0a-5c58-9d55-6d656d726976")


def _to_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a timestamp needs an offset or a trailing Z")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("a timestamp must lie in the years 1 to 9999, in UTC") from error


UtcDatetime = Annotated[datetime, AfterValidator(_to_utc)]
"""An aware instant, normalised to UTC; a naive one is refused."""

MessageId = Annotated[str, StringConstraints(min_length=1, max_length=36, pattern=r"^[!-~]+$")]
"""An id that a database compares: visible ASCII, since MySQL takes "x" and "x " for one key. A UUID is one."""

Digest = Annotated[str, StringConstraints(min_length=1, max_length=32, pattern=r"^[!-~]+$")]
"""What `digest` returns."""


def new_id(*parts: str) -> str:
    """UUIDv5 over the parts, joined so that no two lists of parts collide; returns the 36-character form."""
    return str(uuid.uuid5(_ID_SPACE, "".join([f"{len(part)}:{part}" for part in parts])))


def digest(*parts: str) -> str:
    """32 hex characters that stand for the parts in keys, logs and indexes.

    Fixed width and plain ASCII, so no database collation, padding rule or key length can make two ids equal.
    """
    joined = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Contract(BaseModel):
    """A frozen message. Unknown fields are kept and written out again, so an older hop never strips a newer one's data."""

    model_config = ConfigDict(frozen=True, extra="allow", use_enum_values=False, ser_json_inf_nan="null")

    CURRENT_VERSION: ClassVar[int] = 1
    # Containers inside one another. Serialisers stop at about 250, so a deeper message could be read and never written.
    MAX_NESTING: ClassVar[int] = 32
    schema_version: int = 1

    @field_validator("schema_version")
    @classmethod
    def _known_version(cls, value: int) -> int:
        if value < 1:
            raise ValueError("schema_version must be a positive integer")
        if value > cls.CURRENT_VERSION:
            raise ValueError(f"schema_version {value} is newer than {cls.CURRENT_VERSION}, the newest known here")
        return value

    def to_bytes(self) -> bytes:
        """UTF-8 JSON with sorted keys: equal messages are equal bytes."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Decode and validate.

        Raises:
            ValueError: not JSON, not an object, a wrong field, nested too deeply, or a `schema_version` newer than this code.
        """
        data: Any = orjson.loads(raw)
        return cls.from_dict(data)

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Validate a decoded object; see `from_bytes` for errors."""
        if not isinstance(data, dict):
            raise ValueError(f"{cls.__name__} must be a JSON object, not {type(data).__name__}")
        version = data.get("schema_version", 1)
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ValueError("schema_version must be a positive integer")
        if version > cls.CURRENT_VERSION:
            raise ValueError(f"schema_version {version} is newer than {cls.CURRENT_VERSION}, the newest known here")
        if _deeper_than(data, cls.MAX_NESTING):
            raise ValueError(f"a {cls.__name__} must not be nested deeper than {cls.MAX_NESTING}")
        return cls.model_validate(data)


def _deeper_than(data: Any, limit: int) -> bool:
    level = [data]
    for _depth in range(limit):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True
