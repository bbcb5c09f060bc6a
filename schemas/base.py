"""Contracts, ground floor: the frozen base model, UTC timestamps and deterministic identities."""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict

# A fixed namespace, so that the same input gives the same id on every machine and in every replay (RFC 9562, UUIDv5).
_ID_SPACE = uuid.UUID("6f2d1c1e-7b0a-5c58-9d55-6d656d726976")


def _to_utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a timestamp needs an offset or a trailing Z")
    return value.astimezone(UTC)


UtcDatetime = Annotated[datetime, AfterValidator(_to_utc)]
"""An aware instant, normalised to UTC; a naive one is refused."""


def new_id(*parts: str) -> str:
    """UUIDv5 over the parts, joined so that no two lists of parts collide; returns the 36-character form."""
    return str(uuid.uuid5(_ID_SPACE, "".join(f"{len(part)}:{part}" for part in parts)))


def digest(*parts: str) -> str:
    """32 hex characters that stand for the parts in keys, logs and indexes.

    Fixed width and plain ASCII, so no database collation, padding rule or key length can make two ids equal.
    """
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(joined.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Contract(BaseModel):
    """A frozen message. Unknown fields are kept and written out again, so an older hop never strips a newer one's data."""

    model_config = ConfigDict(frozen=True, extra="allow", use_enum_values=False, ser_json_inf_nan="null")

    CURRENT_VERSION: ClassVar[int] = 1
    schema_version: int = 1

    def to_bytes(self) -> bytes:
        """UTF-8 JSON with sorted keys: equal messages are equal bytes."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Decode and validate.

        Raises:
            ValueError: not JSON, not an object, a wrong field, or a `schema_version` newer than this code.
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
        return cls.model_validate(data)
