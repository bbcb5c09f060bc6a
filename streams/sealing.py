"""Sealing, composed: identities, master keys and data keys of these settings."""

from __future__ import annotations

from processors.exceptions import FatalError
from sinks.sealing import DEVELOPMENT_KEY, DataKeys, Identities, KeyWrapper, MasterKeys, Sealer
from streams.settings import Settings


def make_identities(settings: Settings) -> Identities:
    """Under the deployment's hash key."""
    return Identities(settings.hash_key.get_secret_value().encode())


def make_wrapper(settings: Settings) -> KeyWrapper:
    """The master keys of these settings, or the development key. Another key service would be built here.

    Raises:
        FatalError: a key is not 32 bytes in base64, two are given, or the file cannot be read.
    """
    given = settings.master_key.get_secret_value()
    if settings.master_key_file is not None:
        if given:
            raise FatalError("MEMRIVER_MASTER_KEY and MEMRIVER_MASTER_KEY_FILE are both set; one of them must go")
        try:
            given = settings.master_key_file.read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise FatalError(f"the master key file cannot be read ({type(error).__name__})") from error
    previous = settings.master_key_previous.get_secret_value()
    return MasterKeys(given or DEVELOPMENT_KEY, *([previous] if previous else []))


def has_own_master_key(settings: Settings) -> bool:
    """False: data keys are wrapped by the development key, which everybody has."""
    return bool(settings.master_key.get_secret_value() or settings.master_key_file)


def make_sealer(settings: Settings) -> Sealer:
    """Intake's door."""
    return Sealer(make_identities(settings), DataKeys(make_wrapper(settings)))
