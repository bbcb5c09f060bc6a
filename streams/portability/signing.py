"""Portability, signing: which deployment vouches for an export, so that its people's decisions can be believed again.

A checksum tells damage, not intent: whoever edits a line can write the sum anew. So the trailer also has HMAC-SHA256 (RFC
2104) of the checksum under a key that is derived from the deployment's hash key.
"""

from __future__ import annotations

import hashlib
import hmac

from streams.settings import Settings

_PURPOSE = b"memriver export, version 1"


class Signer:
    """Signs and checks checksums. `trusted` is False for the key that every development checkout has."""

    def __init__(self, secret: str, *, trusted: bool = True) -> None:
        self._key = hmac.new(secret.encode(), _PURPOSE, hashlib.sha256).digest()
        self.key_id = hashlib.sha256(self._key).hexdigest()[:16]
        self.trusted = trusted

    @classmethod
    def of(cls, settings: Settings) -> Signer:
        """This deployment's."""
        secret = settings.hash_key.get_secret_value()
        default = Settings.model_fields["hash_key"].default.get_secret_value()
        return cls(secret, trusted=secret != default)

    def sign(self, sha256: str) -> str:
        """64 hex characters."""
        return hmac.new(self._key, sha256.encode(), hashlib.sha256).hexdigest()

    def holds(self, sha256: str, signature: str) -> bool:
        """Whether this key made the signature; compared in constant time."""
        return hmac.compare_digest(self.sign(sha256), signature)
