"""Replica: a local copy of memories that follows every change; see `replica.Replica`."""

from memriver_client.owners import Owner
from memriver_client.replica.core import Source
from memriver_client.replica.http_source import HttpSource, http_snapshot
from memriver_client.replica.listeners import Change, Conflict
from memriver_client.replica.replica import Replica
from memriver_client.replica.scope import Scope
from memriver_client.replica.session import Timing
from memriver_client.replica.state import Entry, Outcome, Place, ReplicaState, Step
from memriver_client.replica.status import Counts, Status
from memriver_client.replica.store import Kept, MemoryStore, SqliteStore, Store
from memriver_client.replica.threaded import ThreadedReplica

__all__ = [
    "Change",
    "Conflict",
    "Counts",
    "Entry",
    "HttpSource",
    "Kept",
    "MemoryStore",
    "Outcome",
    "Owner",
    "Place",
    "Replica",
    "ReplicaState",
    "Scope",
    "Source",
    "SqliteStore",
    "Status",
    "Step",
    "Store",
    "ThreadedReplica",
    "Timing",
    "http_snapshot",
]
