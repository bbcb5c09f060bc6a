"""Sealing, composed: identities, master keys and data keys of these settings."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from processors.exceptions import FatalError
from sinks.sealing import DEVELOPMENT_KEY, DataKeys, Identities, KeyWrapper, MasterKeys, Sealer
from sinks.sealing.guard import Guard
from sinks.truth import Truth, keys
from sinks.truth.audit import AuditChain
from streams.settings import Settings

_PAGE = 500


def make_identities(settings: Settings) -> Identities:
    """Under the deployment's hash key."""
    return Identities(settings.hash_key.get_secret_value().encode())


def make_guard(settings: Settings) -> Guard:
    """The suppression list, for the stages behind intake."""
    return Guard(make_identities(settings))


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


def make_chain(settings: Settings) -> AuditChain:
    """Signed under the deployment's hash key."""
    return AuditChain(settings.hash_key.get_secret_value().encode())


def make_sealer(settings: Settings) -> Sealer:
    """Intake's door."""
    return Sealer(make_identities(settings), DataKeys(make_wrapper(settings)))


def rotate_master(settings: Settings, truth: Truth, now: datetime) -> dict[str, Any]:
    """Wrap every living data key with the present master key, page by page; a death in between leaves both kinds, which work.

    Raises:
        FatalError: keys are wrapped by a master key that the settings do not have.
    """
    wrapper = make_wrapper(settings)
    done = 0

    def page(connection: Connection) -> int:
        found = keys.not_under(connection, wrapper.current, _PAGE)
        fresh = []
        for key in found:
            assert key.wrapped is not None  # the query asks for living ones
            plain = wrapper.unwrap(key.wrapped, key.key_id, key.master)
            fresh.append(replace(key, wrapped=wrapper.wrap(plain, key.key_id), master=wrapper.current))
        keys.rewrap(connection, fresh)
        return len(fresh)

    while count := truth.run(page):
        done += count
    if done:
        entry = {"master": wrapper.current, "rewrapped": done}
        truth.run(lambda connection: make_chain(settings).append(connection, "master_rotated", entry, now))
    return {"rewrapped": done, "master": wrapper.current}
