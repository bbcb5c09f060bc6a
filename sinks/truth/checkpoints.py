"""Truth, checkpoints: an agent's scratch state per thread, replaced only by the one who read it last (SPEC W13)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, select, update

from schemas import digest
from sinks.truth.sql import insert_rows
from sinks.truth.tables import session_states


@dataclass(frozen=True, slots=True)
class Thread:
    """Whose scratch state it is: one agent's, at work for one person, in one thread. `owner_key` is that person's."""

    tenant: str
    agent_id: str
    owner_key: str
    thread_id: str

    @property
    def key(self) -> str:
        """Digest: another agent's thread of the same name is another row."""
        return digest("state", self.tenant, self.agent_id, self.owner_key, self.thread_id)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was saved; `body` is JSON. `ended` means that the task is over and nothing is to be resumed."""

    version: int
    ended: bool
    body: str
    updated_at: datetime


def load(connection: Connection, thread: Thread) -> Checkpoint | None:
    """The last checkpoint, ended ones included; None when there never was one."""
    query = select(session_states).where(session_states.c.state_key == thread.key)
    row = connection.execute(query).one_or_none()
    return Checkpoint(row.version, row.ended, row.body, row.updated_at) if row is not None else None


def save(
    connection: Connection,
    thread: Thread,
    body: str,
    *,
    expected_version: int,
    now: datetime,
    conversation_key: str | None = None,
    ended: bool = False,
) -> int | None:
    """The new version, or None when `expected_version` (0: none yet) is not what is there.

    Raises:
        ConflictError: another writer inserted the first one at the same moment.
    """
    values = {"body": body, "ended": ended, "updated_at": now, "conversation_key": conversation_key}
    if expected_version == 0:
        if load(connection, thread) is not None:
            return None
        key = {
            "state_key": thread.key,
            "tenant": thread.tenant,
            "agent_id": thread.agent_id,
            "thread_id": thread.thread_id,
            "owner_key": thread.owner_key,
        }
        insert_rows(connection, session_states, [key | values | {"version": 1}])
        return 1
    statement = update(session_states).where(
        session_states.c.state_key == thread.key, session_states.c.version == expected_version
    )
    done = connection.execute(statement.values(**values, version=expected_version + 1)).rowcount
    return expected_version + 1 if done == 1 else None


def purge(connection: Connection, before: datetime) -> int:
    """Delete states that nobody has written since `before`: a task memory lives for days, not for ever (SPEC L2)."""
    return connection.execute(delete(session_states).where(session_states.c.updated_at < before)).rowcount
