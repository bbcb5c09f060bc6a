"""Client, owners: whose memories are meant."""

from __future__ import annotations

from typing import NamedTuple


class Owner(NamedTuple):
    """The kind is user, org, project, agent or thread."""

    kind: str
    id: str
