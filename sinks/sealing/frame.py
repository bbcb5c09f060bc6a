"""Sinks, sealing: the bytes of one sealed turn.

    2   "MR"
    1   version of this layout
    16  id of the data key
    16  id of the message: a keyed digest of turn, revision and deletion; equal for two copies of the same turn
    12  nonce
    n   AES-256-GCM of the raw-deflated JSON of the turn, with the 35 bytes before the nonce as associated data

The whole turn is sealed and not some fields of it: a user id may be a telephone number, and so may a conversation's. What
is left in the clear says nothing once the key is destroyed, since the message's id is keyed with it too.

Nonces are random: NIST SP 800-38D (8.2.2) bounds them at 2^32 messages per key, far beyond what one person says.
"""

from __future__ import annotations

import hashlib
import os
import uuid
import zlib
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from processors.exceptions import PoisonError
from schemas import Turn

_MAGIC = b"MR\x01"
_AAD = 35
_HEADER = 47
# What most turns look like, for the compressor to point at; part of the layout: another text is another version.
_DICTIONARY = (
    b'{"agent_id":null,"attachments":[{"mime":"image/","name":"","summary":null,"url":"https://"}],'
    b'"consent":null,"conversation_end":false,"conversation_id":"","deleted":false,"edited_at":null,"gateway":null,'
    b'"group":false,"reply_to":null,"revision":0,"role":"assistant","role":"user","schema_version":1,"sent_at":"202'
    b'0-01-01T00:00:00Z","speaker_name":null,"tenant":"default","text":"","timezone":"Asia/Shanghai","timezone":"UTC",'
    b'"tool_name":null,"trace_id":null,"turn_id":"","user_id":""}'
)


class Unsealable(PoisonError):
    """Not a sealed turn, changed on the way, or sealed under another key than the one named."""

    def __init__(self, detail: str) -> None:
        super().__init__("unsealable", detail)


@dataclass(frozen=True, slots=True)
class Frame:
    """A sealed turn before it is opened. `key_id` is a UUID string, `message_id` 16 bytes."""

    key_id: str
    message_id: bytes
    raw: bytes


def message_id(turn: Turn, key: bytes) -> bytes:
    """16 bytes that stand for the turn in this revision; without the key nobody can tell for which."""
    name = f"{turn.turn_key}:{turn.revision}:{turn.deleted:d}".encode()
    return hashlib.blake2b(name, key=key, digest_size=16).digest()


def seal(turn: Turn, body: bytes, key_id: str, key: bytes, cipher: AESGCM) -> bytes:
    """`body` is `turn.to_bytes()`, `cipher` is made of `key` (32 bytes); whoever seals many keeps both."""
    header = _MAGIC + uuid.UUID(key_id).bytes + message_id(turn, key)
    nonce = os.urandom(12)
    deflate = zlib.compressobj(1, zlib.DEFLATED, -12, 5, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY)
    return header + nonce + cipher.encrypt(nonce, deflate.compress(body) + deflate.flush(), header)


def read_frame(raw: bytes) -> Frame:
    """What can be read without a key.

    Raises:
        Unsealable: not a frame of this layout.
    """
    if len(raw) <= _HEADER or raw[:3] != _MAGIC:
        raise Unsealable("not a sealed turn of a known layout")
    return Frame(str(uuid.UUID(bytes=raw[3:19])), raw[19:_AAD], raw)


def open_frame(frame: Frame, cipher: AESGCM) -> bytes:
    """The JSON of the turn.

    Raises:
        Unsealable: another key, or changed bytes.
    """
    raw = frame.raw
    try:
        packed = cipher.decrypt(raw[_AAD:_HEADER], raw[_HEADER:], raw[:_AAD])
    except InvalidTag as error:
        raise Unsealable("the seal is broken, or was made with another key") from error
    inflate = zlib.decompressobj(-12, _DICTIONARY)
    return inflate.decompress(packed) + inflate.flush()
