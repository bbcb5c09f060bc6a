"""Truth, columns: what MySQL and MariaDB say of a result's columns is taken apart once, not with each answer.

Before its rows an answer describes each of its columns: database, table, name, type. A group asks the same few questions
as the one before it, so nearly always the bytes are those of last time; taking them apart anew, in Python, was two thirds
of reading an answer of a row or two.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pymysql.connections import TEXT_TYPES, Connection, MySQLResult
from pymysql.constants import FIELD_TYPE
from pymysql.converters import through
from pymysql.protocol import FieldDescriptorPacket, MysqlPacket

_Column = tuple[FieldDescriptorPacket, tuple[Any, ...], str | None]


class Answer(MySQLResult):  # type: ignore[misc]
    """The driver's result of a statement, which is read to its end at once."""

    def _get_descriptions(self) -> None:
        """As the driver's, from what is known of these bytes; the text types' encoding and converters are the connection's."""
        connection: Connection = self.connection
        packets = [connection._read_packet() for _ in range(self.field_count)]
        columns = [_column(packet.get_all_data(), connection.encoding, connection.use_unicode) for packet in packets]
        eof: MysqlPacket = connection._read_packet()
        assert eof.is_eof_packet(), "Protocol error, expecting EOF"
        decoders = connection.decoders
        self.fields = [field for field, _description, _encoding in columns]
        self.converters = [(encoding, _known(decoders.get(field.type_code))) for field, _, encoding in columns]
        self.description = tuple([description for _field, description, _encoding in columns])


def _known(converter: Any) -> Any:
    return None if converter is through else converter


@lru_cache(maxsize=2048)
def _column(raw: bytes, encoding: str, use_unicode: bool) -> _Column:
    """The column, its DB-API description, and how its values are decoded (None: they stay bytes)."""
    field = FieldDescriptorPacket(raw, encoding)
    how: str | None = "ascii"
    if not use_unicode or (field.type_code in TEXT_TYPES and field.charsetnr == _BINARY):
        how = None
    elif field.type_code == FIELD_TYPE.JSON or field.type_code in TEXT_TYPES:
        how = encoding
    return field, field.description(), how


_BINARY = 63
"""The character set that says of a text type that it holds bytes."""
