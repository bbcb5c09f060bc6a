"""Topics: made and kept by `memriver topics apply` from one declarative file; never by Faust, never by the broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from processors.documents import parse
from processors.exceptions import FatalError, TransientError
from streams.connection import client_options
from streams.settings import Settings

_LOOKS = 100
_LOOK_SECONDS = 0.1
_TOPIC_SOURCE = 1  # DYNAMIC_TOPIC_CONFIG among the sources of a setting (KIP-226)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One topic as the file declares it."""

    name: str
    partitions: int
    config: dict[str, str]


@dataclass(frozen=True, slots=True)
class Applied:
    """What `apply` did to one topic: created, configured or unchanged."""

    name: str
    action: str
    detail: str = ""


def declared() -> tuple[TopicSpec, ...]:
    """The topics of `topics.yaml`."""
    data: dict[str, Any] = parse(files("streams").joinpath("topics.yaml").read_text(encoding="utf-8"))
    return tuple(
        TopicSpec(row["name"], int(row["partitions"]), {key: str(value) for key, value in row["config"].items()})
        for row in data["topics"]
    )


async def apply(settings: Settings, *, replication_factor: int = 1) -> list[Applied]:
    """Create what is missing and correct what differs; never deletes, never shrinks.

    Raises:
        TransientError: the broker is away.
        FatalError: a keyed topic has another number of partitions; changing it would tear keys from their order.
    """
    admin = AIOKafkaAdminClient(**client_options(settings))
    try:
        try:
            await admin.start()
            return await _apply(admin, settings, replication_factor)
        finally:
            await admin.close()
    except KafkaError as error:
        raise TransientError(f"the broker does not answer ({type(error).__name__})") from error


async def _apply(admin: AIOKafkaAdminClient, settings: Settings, replication_factor: int) -> list[Applied]:
    existing = {row["topic"]: row for row in await admin.describe_topics()}
    done: list[Applied] = []
    for spec in declared():
        name = settings.topic(spec.name)
        created = name not in existing and await _create(admin, name, spec, replication_factor)
        row = existing.get(name) or await _visible(admin, name)
        partitions = len(row["partitions"])
        if partitions != spec.partitions:
            raise FatalError(
                f"{name} has {partitions} partitions, declared are {spec.partitions}: keys would move between partitions "
                "and lose their order; drain the topic and recreate it, or change streams/topics.yaml"
            )
        if created:
            done.append(Applied(name, "created", f"{spec.partitions} partitions"))
            continue
        found, own = await _configs(admin, name)
        changed = {key for key, value in spec.config.items() if found.get(key) != value}
        if changed:
            # Altering replaces all of a topic's own settings, so what an operator has added goes in again.
            await _alter(admin, name, own | spec.config)
        done.append(Applied(name, "configured" if changed else "unchanged", ", ".join(sorted(changed))))
    return done


async def _create(admin: AIOKafkaAdminClient, name: str, spec: TopicSpec, replication_factor: int) -> bool:
    """False if it was there already, made by somebody else a moment ago."""
    topic = NewTopic(name, spec.partitions, replication_factor, topic_configs=dict(spec.config))
    response = await admin.create_topics([topic])
    for row in response.topic_errors:
        code = row[1]
        if code and for_code(code) is TopicAlreadyExistsError:
            return False
        if code:
            raise FatalError(f"{name} could not be created ({for_code(code).__name__})")
    return True


async def _visible(admin: AIOKafkaAdminClient, name: str) -> dict[str, Any]:
    """The topic's description. A broker learns of a new topic a little after the controller has made it (KIP-500)."""
    for _attempt in range(_LOOKS):
        for row in await admin.describe_topics():
            if row["topic"] == name and row["partitions"]:
                return dict(row)
        await asyncio.sleep(_LOOK_SECONDS)
    raise TransientError(f"{name} was made, but the broker does not show it yet")


async def _alter(admin: AIOKafkaAdminClient, name: str, config: dict[str, str]) -> None:
    for response in await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=config)]):
        for resource in response.resources:
            if resource[0]:
                raise FatalError(f"{name} could not be configured ({for_code(resource[0]).__name__})")


async def _configs(admin: AIOKafkaAdminClient, name: str) -> tuple[dict[str, str], dict[str, str]]:
    """All settings of a topic, and those of them that are its own and not the broker's."""
    found: dict[str, str] = {}
    own: dict[str, str] = {}
    for response in await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)]):
        for resource in response.resources:
            if resource[0]:
                raise FatalError(f"{name} could not be described ({for_code(resource[0]).__name__})")
            # config_name, config_value, read_only, config_source, … (KIP-226)
            for key, value, _read_only, source, *_rest in resource[4]:
                found[key] = str(value)
                if source == _TOPIC_SOURCE:
                    own[key] = str(value)
    return found, own
