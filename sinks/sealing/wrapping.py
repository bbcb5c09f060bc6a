"""Sinks, sealing: data keys at rest are wrapped by a master key: one of the settings, or a key service's behind the same port."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from processors.exceptions import FatalError

DEVELOPMENT_KEY = base64.b64encode(hashlib.sha256(b"memriver development master key").digest()).decode()
"""What is used while no master key is set. Everybody has it: `memriver doctor` says so."""


class KeyWrapper(Protocol):
    """A key service (AWS KMS, Vault transit, an HSM) or `MasterKeys`. Calls block; results are cached by whoever asks."""

    @property
    def current(self) -> str:
        """Name of the master key that `wrap` uses, at most 32 characters; kept beside each wrapped key."""

    def wrap(self, data_key: bytes, context: str) -> bytes:
        """The data key, sealed. `context` (the data key's id) must be given again to unwrap it.

        Raises:
            TransientError: the service is away.
        """

    def unwrap(self, wrapped: bytes, context: str, master: str) -> bytes:
        """The data key.

        Raises:
            TransientError: the service is away.
            FatalError: the master key of this name is not to be had, or the bytes are not what it wrapped.
        """


class MasterKeys:
    """Master keys of the settings: the first wraps, all of them unwrap, so that a rotation needs no moment of standstill."""

    def __init__(self, *encoded: str) -> None:
        """Each key is 32 bytes in base64.

        Raises:
            FatalError: one is not.
        """
        self._ciphers: dict[str, AESGCM] = {}
        for text in encoded:
            key = _decoded(text)
            name = hashlib.blake2b(key, digest_size=8, person=b"memriver-master").hexdigest()
            self._ciphers.setdefault(name, AESGCM(key))
        if not self._ciphers:
            raise FatalError("there is no master key")
        self.current = next(iter(self._ciphers))

    def wrap(self, data_key: bytes, context: str) -> bytes:
        nonce = os.urandom(12)
        return nonce + self._ciphers[self.current].encrypt(nonce, data_key, context.encode())

    def unwrap(self, wrapped: bytes, context: str, master: str) -> bytes:
        cipher = self._ciphers.get(master)
        if cipher is None:
            raise FatalError(
                f"data keys are wrapped by the master key {master}, which is not in the settings: set it as "
                "MEMRIVER_MASTER_KEY, or as MEMRIVER_MASTER_KEY_PREVIOUS beside a newer one"
            )
        try:
            return cipher.decrypt(wrapped[:12], wrapped[12:], context.encode())
        except InvalidTag as error:
            raise FatalError("a wrapped data key was changed in the database") from error


def _decoded(text: str) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise FatalError("a master key is 32 bytes in base64 (`openssl rand -base64 32`)") from error
    if len(key) != 32:
        raise FatalError("a master key is 32 bytes in base64 (`openssl rand -base64 32`)")
    return key
