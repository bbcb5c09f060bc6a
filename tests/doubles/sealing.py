"""Tests, doubles: a door for intake with a master key of its own."""

from __future__ import annotations

import base64

from sinks.sealing import DataKeys, Identities, MasterKeys, Sealer

HASH_KEY = b"a key for tests only"


def master(letter: str = "m") -> str:
    """A master key as it stands in the settings."""
    return base64.b64encode(letter.encode() * 32).decode()


def sealer(*letters: str) -> Sealer:
    """Wraps with the first of these master keys."""
    return Sealer(Identities(HASH_KEY), DataKeys(MasterKeys(*(master(letter) for letter in letters or ("m",)))))
