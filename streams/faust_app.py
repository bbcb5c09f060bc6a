"""Faust, tamed: the settings under which it neither creates topics, nor decodes, nor keeps state, nor serves a web page."""

from __future__ import annotations

from typing import Any

import faust

from streams.connection import METADATA_MS
from streams.consumer import PromptTransport
from streams.settings import Settings

STREAM_BUFFER = 4096
"""Messages that wait in front of an agent; when they are that many, Faust reads no more, and the rest stays on the broker."""
MAX_POLL = 1000
"""Messages that one look at the broker takes."""


def make_app(settings: Settings, stage: str) -> Any:
    """One app, and so one consumer group, per stage: a stage that waits for a model must not hold up the others."""
    # Faust makes the last segment of its `datadir` (nothing of ours is kept in it), and fails when the one above is missing.
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    app = faust.App(
        settings.group(stage),
        broker=f"aiokafka://{settings.kafka_bootstrap}",
        broker_credentials=_credentials(settings),
        store="memory://",
        datadir=str(settings.data_dir / "faust"),
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        web_enabled=False,
        stream_wait_empty=True,
        stream_buffer_maxsize=STREAM_BUFFER,
        broker_session_timeout=settings.session_timeout_seconds,
        broker_heartbeat_interval=max(0.5, settings.session_timeout_seconds / 5),
        broker_commit_interval=0.5,
        broker_max_poll_records=MAX_POLL,
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=METADATA_MS,
        producer_metadata_max_age_ms=METADATA_MS,
        producer_acks=-1,
    )
    app.finalize()
    app.transport = PromptTransport(app.conf.broker_consumer, app, fetch_wait_ms=settings.fetch_wait_ms)
    return app


def raw_topic(app: Any, name: str) -> Any:
    """Bytes in: a decode error inside Faust would acknowledge the message and kill the agent."""
    return app.topic(name, key_serializer="raw", value_serializer="raw", allow_empty=True)


def _credentials(settings: Settings) -> Any:
    if settings.kafka_security_protocol == "PLAINTEXT":
        return None
    from aiokafka.helpers import create_ssl_context

    context = None
    if settings.kafka_security_protocol.endswith("SSL"):
        cafile = str(settings.kafka_ssl_cafile) if settings.kafka_ssl_cafile else None
        context = create_ssl_context(cafile=cafile)
    if settings.kafka_security_protocol == "SSL":
        return faust.SSLCredentials(context)
    return faust.SASLCredentials(
        username=settings.kafka_sasl_username,
        password=settings.kafka_sasl_password.get_secret_value(),
        mechanism=settings.kafka_sasl_mechanism,
        ssl_context=context,
    )
