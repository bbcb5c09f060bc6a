"""Access, composed: the keyring and the writer of these settings, for servers and commands alike."""

from __future__ import annotations

import uuid

from processors.policy import Decision, PolicyGate, PolicySettings
from processors.rules import RuleBook
from recall.access import Keyring
from recall.writing import Writer
from sinks.truth import Truth
from streams.runtime import wall_clock
from streams.settings import Settings


def make_keyring(settings: Settings, truth: Truth) -> Keyring:
    """Keys are hashed under the deployment's hash key."""
    return Keyring(truth, settings.hash_key.get_secret_value().encode(), wall_clock)


def make_writer(settings: Settings) -> Writer:
    """What nobody has confirmed is not refused here, as in the stream, but waits for a reviewer: somebody asked for it."""
    policy = PolicySettings(confidence_floor=settings.confidence_floor, unconfirmed=Decision.REVIEW)
    gate = PolicyGate(policy, settings.hash_key.get_secret_value().encode())
    return Writer(gate, RuleBook.load(), wall_clock, lambda: str(uuid.uuid4()))
