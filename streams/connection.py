"""How every Kafka client of memriver connects: address, TLS and SASL from the settings."""

from __future__ import annotations

from typing import Any

from aiokafka.helpers import create_ssl_context

from streams.settings import Settings

METADATA_MS = 15_000
"""How old a client's view of the cluster may be, in milliseconds. A broker that is just starting may answer that it does not
know a topic; a group whose leader heard that gives the topic's partitions to nobody, and nothing stands still for anybody to
notice, until the next look. aiokafka's default is five minutes."""


def client_options(settings: Settings) -> dict[str, Any]:
    """Keyword arguments for any aiokafka client."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap,
        "security_protocol": settings.kafka_security_protocol,
        "metadata_max_age_ms": METADATA_MS,
    }
    if settings.kafka_security_protocol.endswith("SSL"):
        cafile = str(settings.kafka_ssl_cafile) if settings.kafka_ssl_cafile else None
        options["ssl_context"] = create_ssl_context(cafile=cafile)
    if settings.kafka_security_protocol.startswith("SASL"):
        options |= {
            "sasl_mechanism": settings.kafka_sasl_mechanism,
            "sasl_plain_username": settings.kafka_sasl_username,
            "sasl_plain_password": settings.kafka_sasl_password.get_secret_value(),
        }
    return options
