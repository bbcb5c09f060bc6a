"""Truth, the tables. Keys are digests (`schemas.digest`): no collation, padding or length rule can merge two ids."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.dialects import mysql

metadata = MetaData()


class Utc(TypeDecorator[datetime]):
    """UTC in the database without an offset (DATETIME(6) on MySQL), aware in Python."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        """Microseconds everywhere: MySQL rounds to seconds unless told otherwise."""
        if dialect.name in ("mysql", "mariadb"):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(DateTime())

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Refuses a naive time, since its meaning would depend on the machine."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a naive time cannot be stored")
        plain = (value if value.tzinfo is UTC else value.astimezone(UTC)).replace(tzinfo=None)
        # The driver would write the same literal, several times slower.
        return plain.isoformat(" ") if dialect.name in ("mysql", "mariadb") else plain

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Aware again."""
        return None if value is None else value.replace(tzinfo=UTC)


Key = String(32)
Name = String(255)
LongText = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")
Blob = LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")
# SQLite gives out row ids only for INTEGER keys.
AutoId = BigInteger().with_variant(Integer(), "sqlite")
_BINARY = {f"{name}_charset": "utf8mb4" for name in ("mysql", "mariadb")} | {
    f"{name}_collate": "utf8mb4_bin" for name in ("mysql", "mariadb")
}


def _table(name: str, *columns: Column[Any] | Index) -> Table[Any]:
    dialect_options: Any = _BINARY
    return Table(name, metadata, *columns, **dialect_options)


owners = _table(
    "owners",
    Column("owner_key", Key, primary_key=True),
    Column("tenant", Name, nullable=False),
    Column("owner_kind", String(16), nullable=False),
    Column("owner", Name, nullable=False),
    Column("seq", BigInteger, nullable=False, default=0),
)

conversations = _table(
    "conversations",
    Column("conversation_key", Key, primary_key=True),
    Column("tenant", Name, nullable=False),
    Column("conversation_id", Name, nullable=False),
    Column("last_sent_at", Utc, nullable=False),
    Column("turn_count", Integer, nullable=False),
    Column("pending_count", Integer, nullable=False),
    Column("pending_tokens", Integer, nullable=False),
    Column("first_pending_at", Utc, nullable=True),
    Column("ended", Boolean, nullable=False),
    # Digests of the last few texts: a repeated text is noise.
    Column("recent", Text, nullable=False),
    Index("ix_conversations_due", "first_pending_at"),
)

turns = _table(
    "turns",
    Column("turn_key", Key, primary_key=True),
    Column("conversation_key", Key, nullable=False),
    Column("owner_key", Key, nullable=False),
    Column("tenant", Name, nullable=False),
    Column("turn_id", Name, nullable=False),
    Column("role", String(16), nullable=False),
    Column("sent_at", Utc, nullable=False),
    Column("arrived_at", Utc, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("content_hash", Key, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("pending", Boolean, nullable=False),
    Column("retracts", Boolean, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("reason", String(64), nullable=True),
    Column("body", LongText, nullable=False),
    Index("ix_turns_conversation", "conversation_key", "sent_at"),
    Index("ix_turns_pending", "conversation_key", "pending"),
    Index("ix_turns_owner", "owner_key", "sent_at"),
    Index("ix_turns_id", "turn_id"),
)

batches = _table(
    "batches",
    Column("batch_id", Key, primary_key=True),
    Column("conversation_key", Key, nullable=False),
    Column("tenant", Name, nullable=False),
    Column("conversation_id", Name, nullable=False),
    Column("turn_count", Integer, nullable=False),
    Column("token_estimate", Integer, nullable=False),
    Column("language", String(8), nullable=False),
    Column("closed_by", String(16), nullable=False),
    Column("closed_at", Utc, nullable=False),
    # closed, waiting (the model channel is off), extracted, empty, dead
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False, default=0),
    Column("candidates", Integer, nullable=False, default=0),
    # JSON list of the turn keys it holds, in order; the turns themselves are in `turns`.
    Column("turn_keys", LongText, nullable=False),
    Index("ix_batches_status", "status", "closed_at"),
    Index("ix_batches_conversation", "conversation_key"),
)

model_replies = _table(
    "model_replies",
    Column("id", AutoId, primary_key=True, autoincrement=True),
    Column("batch_id", Key, nullable=False),
    Column("part", Integer, nullable=False),
    Column("prompt_version", String(64), nullable=False),
    Column("model", Name, nullable=False),
    Column("finish_reason", String(32), nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cost_usd", Double, nullable=False),
    Column("reply", LongText, nullable=False),
    Column("created_at", Utc, nullable=False),
    Index("ix_model_replies_batch", "batch_id"),
)

claims = _table(
    "claims",
    Column("claim_id", String(36), primary_key=True),
    Column("owner_key", Key, nullable=False),
    Column("slot_key", Key, nullable=False),
    Column("cell_key", Key, nullable=False),
    Column("turn_key", Key, nullable=False),
    Column("order_key", String(255), nullable=False),
    Column("operation", String(16), nullable=False),
    Column("body", LongText, nullable=False),
    Index("ix_claims_cell", "cell_key", "order_key"),
    Index("ix_claims_slot", "slot_key"),
    Index("ix_claims_turn", "turn_key"),
    Index("ix_claims_owner", "owner_key"),
)

retractions = _table(
    "retractions",
    Column("retraction_key", Key, primary_key=True),
    Column("owner_key", Key, nullable=False),
    Column("target_turn_key", Key, nullable=True),
    Column("below_revision", Integer, nullable=True),
    Column("order_key", String(255), nullable=False),
    Index("ix_retractions_target", "target_turn_key"),
    Index("ix_retractions_owner", "owner_key"),
)

cells = _table(
    "cells",
    Column("cell_key", Key, primary_key=True),
    Column("owner_key", Key, nullable=False),
    Column("slot_key", Key, nullable=False),
    Column("body", Blob, nullable=False),
    Index("ix_cells_slot", "slot_key"),
    Index("ix_cells_owner", "owner_key", "cell_key"),
)

memories = _table(
    "memories",
    Column("id", String(36), primary_key=True),
    Column("owner_key", Key, nullable=False),
    Column("slot_key", Key, nullable=False),
    Column("cell_key", Key, nullable=False),
    Column("tenant", Name, nullable=False),
    Column("owner_kind", String(16), nullable=False),
    Column("owner", Name, nullable=False),
    # An owner of 255 characters, each of them escaped to three, and the segments around it.
    Column("namespace", String(1024), nullable=False),
    Column("type", String(16), nullable=False),
    Column("category", String(16), nullable=False),
    Column("subject", Name, nullable=False),
    Column("attribute", String(64), nullable=False),
    # Not Text: "remember this" may be followed by more than the 65,535 bytes that it holds.
    Column("value", LongText, nullable=False),
    Column("text", LongText, nullable=False),
    Column("language", String(8), nullable=False),
    Column("status", String(16), nullable=False),
    Column("version", Integer, nullable=False),
    Column("confidence", Double, nullable=False),
    Column("sensitivity", String(16), nullable=False),
    Column("valid_from", Utc, nullable=True),
    Column("valid_to", Utc, nullable=True),
    Column("first_stated_at", Utc, nullable=False),
    Column("last_stated_at", Utc, nullable=False),
    Column("timezone", String(64), nullable=False),
    Column("expires_at", Utc, nullable=True),
    Column("superseded_by", String(36), nullable=True),
    Column("evidence_count", Integer, nullable=False),
    Column("body", LongText, nullable=False),
    Index("ix_memories_owner", "owner_key", "status"),
    Index("ix_memories_expiry", "status", "expires_at"),
)

memory_versions = _table(
    "memory_versions",
    Column("memory_id", String(36), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("owner_key", Key, nullable=False),
    Column("change", String(16), nullable=False, quote=True),
    Column("cause", String(128), nullable=False),
    Column("body", LongText, nullable=False),
    # JSON: what its event said beside the memory, so that it can be said again. NULL: it was imported, and never an event.
    Column("envelope", LongText, nullable=True),
    Column("recorded_at", Utc, nullable=False),
    Index("ix_memory_versions_owner", "owner_key"),
)

decisions = _table(
    "decisions",
    Column("candidate_id", String(36), primary_key=True),
    Column("owner_key", Key, nullable=False),
    Column("turn_key", Key, nullable=False),
    Column("stage", String(16), nullable=False),
    Column("channel", String(16), nullable=False),
    Column("attribute", String(64), nullable=False),
    Column("decision", String(16), nullable=False),
    Column("reasons", String(512), nullable=False),
    Column("policy_version", String(64), nullable=False),
    Column("decided_at", Utc, nullable=False),
    Index("ix_decisions_owner", "owner_key"),
    Index("ix_decisions_turn", "turn_key"),
)

reviews = _table(
    "reviews",
    Column("review_id", String(36), primary_key=True),
    Column("owner_key", Key, nullable=False),
    # conflict, quarantine, review, stale_write, potential, forgotten, policy_hint, two_contents
    Column("kind", String(16), nullable=False),
    Column("memory_id", String(36), nullable=True),
    Column("other_memory_id", String(36), nullable=True),
    Column("candidate_id", String(36), nullable=True),
    Column("detail", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("opened_at", Utc, nullable=False),
    Column("body", LongText, nullable=True),
    # Who answered, when, and the command that carried the answer (undo takes that command's claims back).
    Column("decided_by", Name, nullable=True),
    Column("decided_at", Utc, nullable=True),
    Column("decision_id", String(36), nullable=True),
    Index("ix_reviews_owner", "owner_key", "status"),
)

inbox = _table(
    "inbox",
    Column("stage", String(16), primary_key=True),
    Column("message_id", String(64), primary_key=True),
    Column("processed_at", Utc, nullable=False),
)

outbox = _table(
    "outbox",
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("stage", String(16), nullable=False),
    Column("source_partition", Integer, nullable=False),
    Column("topic", String(64), nullable=False),
    Column("message_key", String(64), nullable=False),
    # What the partition is chosen by, when it is not the key itself (memory_updated: key = memory, partition = owner).
    Column("partition_key", String(64), nullable=False),
    Column("payload", Blob, nullable=True),
    # A tombstone's: the version that it ends, since an empty message cannot say it inside.
    Column("version", Integer, nullable=True),
    Column("created_at", Utc, nullable=False),
    Index("ix_outbox_drain", "stage", "source_partition", "id"),
)

dead_letters = _table(
    "dead_letters",
    Column("dead_letter_id", String(36), primary_key=True),
    Column("stage", String(16), nullable=False),
    Column("reason", String(64), nullable=False),
    Column("detail", Text, nullable=False),
    Column("place", String(512), nullable=False),
    # With the deployment's prefix: Kafka's own limit is 249.
    Column("topic", String(249), nullable=False),
    Column("message_key", String(64), nullable=True),
    # As far as the bytes tell.
    Column("tenant", Name, nullable=True),
    Column("attempts", Integer, nullable=False),
    Column("raw", Blob, nullable=False),
    # How long the message was, where `raw` is only its beginning; NULL: `raw` is all of it.
    Column("original_bytes", Integer, nullable=True),
    # What a person made of it; NULL while nobody mended anything.
    Column("mended", Blob, nullable=True),
    Column("first_failed_at", Utc, nullable=False),
    Column("failed_at", Utc, nullable=False),
    # waiting, redriven, resolved, dropped
    Column("status", String(16), nullable=False),
    # Digest of the bytes that were sent again, and when the broker had them: NULL is "not yet", so that a command that
    # died in between is simply given again.
    Column("sent_digest", Key, nullable=True),
    Column("sent_at", Utc, nullable=True),
    Index("ix_dead_letters_status", "status", "first_failed_at"),
)

dead_letter_log = _table(
    "dead_letter_log",
    Column("id", AutoId, primary_key=True, autoincrement=True),
    Column("dead_letter_id", String(36), nullable=False),
    # failed, mended, redriven, resolved, dropped
    Column("action", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    # A person at a command line, or the stage.
    Column("actor", Name, nullable=False),
    # The reason for a failure or for dropping; no content.
    Column("note", Text, nullable=False),
    Column("at", Utc, nullable=False),
    Index("ix_dead_letter_log_letter", "dead_letter_id"),
)

api_keys = _table(
    "api_keys",
    # The public part of the key, by which it is found; the secret part is kept as a keyed hash only.
    Column("prefix", String(16), primary_key=True),
    Column("hash", String(64), nullable=False),
    Column("tenant", Name, nullable=False),
    Column("principal_key", Key, nullable=False),
    Column("principal_kind", String(16), nullable=False),
    Column("principal", Name, nullable=False),
    Column("label", Name, nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("created_by", Name, nullable=False),
    Column("expires_at", Utc, nullable=True),
    Column("revoked_at", Utc, nullable=True),
    Index("ix_api_keys_principal", "principal_key"),
)

grants = _table(
    "grants",
    Column("grant_id", String(36), primary_key=True),
    Column("principal_key", Key, nullable=False),
    Column("tenant", Name, nullable=False),
    Column("principal_kind", String(16), nullable=False),
    Column("principal", Name, nullable=False),
    Column("owner_kind", String(16), nullable=False),
    # NULL means every owner of the kind; it is written only for an explicit "user/*".
    Column("owner", Name, nullable=True),
    Column("segment", String(1024), nullable=False),
    Column("scopes", String(64), nullable=False),
    Column("sensitivity", String(16), nullable=False),
    Column("granted_at", Utc, nullable=False),
    Column("granted_by", Name, nullable=False),
    Column("expires_at", Utc, nullable=True),
    Column("revoked_at", Utc, nullable=True),
    Index("ix_grants_principal", "principal_key"),
)

idempotency_keys = _table(
    "idempotency_keys",
    # Digest of the principal and the key it chose.
    Column("request_key", Key, primary_key=True),
    Column("request_hash", Key, nullable=False),
    # NULL while the first request is still at work.
    Column("status", Integer, nullable=True),
    Column("body", LongText, nullable=True),
    Column("created_at", Utc, nullable=False),
    Index("ix_idempotency_keys_created", "created_at"),
)

read_log = _table(
    "read_log",
    Column("id", AutoId, primary_key=True, autoincrement=True),
    Column("owner_key", Key, nullable=False),
    Column("memory_id", String(36), nullable=False),
    Column("version", Integer, nullable=False),
    Column("reader", Name, nullable=False),
    Column("verb", String(16), nullable=False),
    Column("read_at", Utc, nullable=False),
    Index("ix_read_log_owner", "owner_key", "read_at"),
    Index("ix_read_log_memory", "memory_id"),
)

session_summaries = _table(
    "session_summaries",
    Column("conversation_key", Key, primary_key=True),
    Column("tenant", Name, nullable=False),
    Column("conversation_id", Name, nullable=False),
    Column("version", Integer, nullable=False),
    # model, or extractive
    Column("method", String(16), nullable=False),
    # The turns that arrived up to here are in it; an edited turn arrives anew.
    Column("through_at", Utc, nullable=True),
    Column("through_key", Key, nullable=True),
    # The conversation's turn count when it was made, so that a clock finds what is due without counting turns.
    Column("seen_turns", Integer, nullable=False),
    Column("body", LongText, nullable=False),
    Column("made_at", Utc, nullable=False),
)

session_people = _table(
    "session_people",
    # Whose words a summary holds: erasing a person finds it also when the turns are gone already.
    Column("conversation_key", Key, primary_key=True),
    Column("owner_key", Key, primary_key=True),
    Index("ix_session_people_owner", "owner_key"),
)

session_states = _table(
    "session_states",
    # Digest of tenant, agent, owner and thread.
    Column("state_key", Key, primary_key=True),
    Column("tenant", Name, nullable=False),
    Column("agent_id", Name, nullable=False),
    Column("thread_id", Name, nullable=False),
    Column("owner_key", Key, nullable=False),
    Column("conversation_key", Key, nullable=True),
    Column("version", Integer, nullable=False),
    # The task ended: the row keeps its version, so that a late writer cannot take the next task's place.
    Column("ended", Boolean, nullable=False),
    Column("body", LongText, nullable=False),
    Column("updated_at", Utc, nullable=False),
    Index("ix_session_states_owner", "owner_key"),
    Index("ix_session_states_conversation", "conversation_key"),
    Index("ix_session_states_updated", "updated_at"),
)

questions_asked = _table(
    "questions_asked",
    Column("owner_key", Key, primary_key=True),
    Column("attribute", String(64), primary_key=True),
    Column("asked_at", Utc, nullable=False),
)

memory_access = _table(
    "memory_access",
    Column("memory_id", String(36), primary_key=True),
    Column("owner_key", Key, nullable=False),
    # How often an agent said what became of it after a recall; used + ignored + corrected.
    Column("accesses", Integer, nullable=False),
    Column("used", Integer, nullable=False),
    Column("ignored", Integer, nullable=False),
    Column("corrected", Integer, nullable=False),
    Column("last_accessed_at", Utc, nullable=False),
    Index("ix_memory_access_owner", "owner_key"),
)

feedback = _table(
    "feedback",
    # Digest of the owner and the id that the sender chose: nobody can take another owner's id.
    Column("feedback_key", Key, primary_key=True),
    Column("owner_key", Key, nullable=False),
    Column("tenant", Name, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("agent_id", Name, nullable=True),
    # Both masked.
    Column("query", LongText, nullable=True),
    Column("correction", LongText, nullable=True),
    # JSON list of what was shown: memory_id, version, attribute, writer. No text: erasing a memory erases it here too.
    Column("shown", LongText, nullable=False),
    # The gate's word on the correction; NULL where nothing was to be judged.
    Column("decision", String(16), nullable=True),
    Column("policy_version", String(64), nullable=False),
    # The embedder that recall searched with.
    Column("model", Name, nullable=False),
    Column("given_at", Utc, nullable=False),
    Column("recorded_at", Utc, nullable=False),
    Index("ix_feedback_recorded", "recorded_at", "feedback_key"),
    Index("ix_feedback_owner", "owner_key"),
)

collections = _table(
    "collections",
    # Prefix, model and dimension; the vector store's own name for it.
    Column("name", Name, primary_key=True),
    # The embedder as configuration spells it: hashing:768, openai:text-embedding-3-small.
    Column("embedder", Name, nullable=False),
    Column("model", Name, nullable=False),
    Column("dimension", Integer, nullable=False),
    # building, verified, live, previous, dropping, dropped
    Column("status", String(16), nullable=False),
    # live, or other: the unique index is what makes a second of either impossible. NULL once it is dropped.
    Column("place", String(16), nullable=True),
    # What whoever owns the vectors is asked to do: build, verify, repair, drop.
    Column("task", String(16), nullable=True),
    Column("source", String(16), nullable=False),
    # Memories a second at most; NULL: as fast as it goes.
    Column("rate", Integer, nullable=True),
    # Who does the task, and until when it is theirs.
    Column("holder", String(64), nullable=True),
    Column("held_until", Utc, nullable=True),
    # How far the build has come: the last memory id, or offsets by partition.
    Column("reached", Text, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger, nullable=False),
    # Changes that could not be written while this was not the live one, and how many of them a repair has made good.
    Column("missed", BigInteger, nullable=False),
    Column("repaired", BigInteger, nullable=False),
    # JSON: the calibration measured for it, and what the last verification found.
    Column("calibration", LongText, nullable=True),
    Column("report", LongText, nullable=True),
    # Why the last task failed.
    Column("error", Text, nullable=True),
    Column("started_at", Utc, nullable=False),
    Column("built_at", Utc, nullable=True),
    Column("verified_at", Utc, nullable=True),
    # When it last became, or ceased to be, the live one.
    Column("switched_at", Utc, nullable=True),
    Column("dropped_at", Utc, nullable=True),
    Index("ux_collections_place", "place", unique=True),
)

# Erasure and sealing. Nothing here names a person: a subject is a keyed hash (`sinks.sealing.identity`).

subjects = _table(
    "subjects",
    Column("subject_key", Key, primary_key=True),
    # tenant, owner, conversation, memory, turn
    Column("kind", String(16), nullable=False),
    Column("suppressed", Boolean, nullable=False),
    # What an owner's turns are sealed with now.
    Column("key_id", String(36), nullable=True),
    Column("erasure_id", String(36), nullable=True),
    # A tenant's: some of its conversations or turns are suppressed.
    Column("partial", Boolean, nullable=False, quote=True),
    Column("changed_at", Utc, nullable=False),
    Index("ix_subjects_erasure", "erasure_id"),
)

data_keys = _table(
    "data_keys",
    Column("key_id", String(36), primary_key=True),
    Column("subject_key", Key, nullable=False),
    # NULL: destroyed.
    Column("wrapped", Blob, nullable=True),
    # Name of the master key that wraps it.
    Column("master", String(32), nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("destroyed_at", Utc, nullable=True),
    Index("ix_data_keys_subject", "subject_key"),
    Index("ix_data_keys_master", "master"),
)

erasures = _table(
    "erasures",
    Column("erasure_id", String(36), primary_key=True),
    # memory, conversation, owner, tenant
    Column("scope", String(16), nullable=False),
    Column("subject_key", Key, nullable=False),
    # The tenant's keyed hash: whose administrators may see it.
    Column("tenant_key", Key, nullable=False),
    # open, done
    Column("status", String(16), nullable=False),
    # Who and what is meant, in plain words, for as long as it takes; NULL when it is done.
    Column("target", LongText, nullable=True),
    # JSON: each step with what it found; a step that is in it is not done again.
    Column("steps", LongText, nullable=False),
    Column("holder", String(64), nullable=True),
    Column("held_until", Utc, nullable=True),
    Column("opened_at", Utc, nullable=False),
    Column("done_at", Utc, nullable=True),
    Column("receipt", LongText, nullable=True),
    Index("ix_erasures_status", "status", "opened_at"),
)

erasure_counts = _table(
    "erasure_counts",
    Column("erasure_id", String(36), primary_key=True),
    Column("store", String(64), primary_key=True),
    Column("count", BigInteger, nullable=False, quote=True),
)

erased_memories = _table(
    "erased_memories",
    # What is left of a memory: its number, so that nothing older is written after it and a new beginning goes on above it.
    Column("memory_id", String(36), primary_key=True),
    Column("cell_key", Key, nullable=False),
    Column("version", Integer, nullable=False),
    Column("erasure_id", String(36), nullable=False),
    Index("ix_erased_memories_cell", "cell_key"),
    Index("ix_erased_memories_erasure", "erasure_id"),
)

audit_chain = _table(
    "audit_chain",
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(32), nullable=False),
    Column("at", Utc, nullable=False),
    Column("entry", LongText, nullable=False),
    # Of the entry before; 64 zeros for the first.
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Column("signature", String(64), nullable=False),
)

# Replay (SPEC L6): what the schema beside the live one knows of itself. The live one has these tables too, and they are empty.

replays = _table(
    "replays",
    # plan: what is replayed, and how; progress: how far it is
    Column("name", String(16), primary_key=True),
    Column("body", LongText, nullable=False),
)

replay_positions = _table(
    "replay_positions",
    Column("partition", Integer, primary_key=True, autoincrement=False, quote=True),
    # The next one that will be read.
    Column("next_offset", BigInteger, nullable=False),
)

replay_carried = _table(
    "replay_carried",
    # What people, agents and the life cycle ordered in the live schema, until the replay comes to its moment.
    Column("carried_id", String(36), primary_key=True),
    Column("at", Utc, nullable=False),
    # claim, retraction
    Column("kind", String(16), nullable=False),
    Column("body", LongText, nullable=False),
    Index("ix_replay_carried_at", "at", "carried_id"),
)

replay_mark = _table(
    "replay_mark",
    # One row in the schema that a replay made. It is exchanged with the tables, and so it says which ones are live.
    Column("name", String(16), primary_key=True),
)
