"""Contracts for others: JSON Schema per message and an AsyncAPI document of the topics, written from the models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import yaml

from schemas import (
    Candidate,
    Command,
    Contract,
    DeadLetter,
    ExtractionBatch,
    Feedback,
    Memory,
    MemoryUpdated,
    Turn,
)
from streams.portability.writing import schema_bytes

_MESSAGES: dict[str, tuple[type[Contract], str, str]] = {
    "turns": (Turn, "conversation digest", "Turns as chat gateways publish them."),
    "batches": (ExtractionBatch, "conversation digest", "Closed micro-batches on their way to the model."),
    "candidates": (Candidate, "owner digest", "Claims that may become memories, with the policy gate's verdict."),
    "commands": (Command, "owner digest", "Orders of people, agents and the life cycle."),
    "memory_updated": (
        MemoryUpdated,
        "memory id; partition by owner digest",
        "Every change, with the whole new state.",
    ),
    "feedback": (Feedback, "owner digest", "What happened to a memory after it was recalled."),
    "deadletters": (DeadLetter, "dead letter id", "Messages that could not be processed."),
}


def documents() -> dict[str, bytes]:
    """File name to content; equal contracts give equal bytes."""
    files: dict[str, bytes] = {}
    contracts: list[type[Contract]] = [row[0] for row in _MESSAGES.values()]
    contracts.append(Memory)
    for contract in contracts:
        schema = contract.model_json_schema()
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        raw = orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)
        files[f"{contract.__name__}.schema.json"] = raw + b"\n"
    files["ExportLine.schema.json"] = schema_bytes()
    files["asyncapi.yaml"] = yaml.safe_dump(_asyncapi(), sort_keys=False, allow_unicode=True).encode()
    return files


def export(directory: Path, *, write: bool = True) -> list[str]:
    """Write what differs (or only look, when not `write`); returns the names of the files that differ."""
    stale: list[str] = []
    for name, content in documents().items():
        path = directory / name
        if path.exists() and path.read_bytes() == content:
            continue
        stale.append(name)
        if write:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return stale


def _asyncapi() -> dict[str, Any]:
    """AsyncAPI 3.0: channels are topics, operations are seen from memriver.

    `receive` is what others may send; memriver's own stages talk to each other over `commands` as well.
    """
    received = {"turns", "commands", "feedback"}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "memriver", "version": "1", "description": "Topics of the memory pipeline."},
        "defaultContentType": "application/json",
        "channels": {
            topic: {
                "address": topic,
                "description": f"{text} Key: {key}.",
                "messages": {contract.__name__: {"payload": {"$ref": f"./{contract.__name__}.schema.json"}}},
            }
            for topic, (contract, key, text) in _MESSAGES.items()
        },
        "operations": {
            topic: {
                "action": "receive" if topic in received else "send",
                "channel": {"$ref": f"#/channels/{topic}"},
            }
            for topic in _MESSAGES
        },
    }
