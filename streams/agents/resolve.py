"""The resolve agents: topics `candidates` and `commands`, keyed by owner; together the single writer of memories."""

from __future__ import annotations

from typing import Any

from streams.delivery import Delivery
from streams.faust_app import raw_topic
from streams.settings import Settings
from streams.stages.resolve import ResolveStage


def register(
    app: Any, settings: Settings, delivery: Delivery, candidates: ResolveStage, commands: ResolveStage
) -> None:
    """Attach both agents to `app`."""

    async def resolve_candidates(stream: Any) -> None:
        await delivery.run(stream, candidates)

    async def resolve_commands(stream: Any) -> None:
        await delivery.run(stream, commands)

    app.agent(raw_topic(app, settings.topic("candidates")), name="resolve_candidates")(resolve_candidates)
    app.agent(raw_topic(app, settings.topic("commands")), name="resolve_commands")(resolve_commands)
