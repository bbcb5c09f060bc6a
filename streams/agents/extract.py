"""The extract agent: topic `batches`, keyed by conversation; many model calls at once, acknowledged in order."""

from __future__ import annotations

from typing import Any

from streams.delivery import Delivery
from streams.faust_app import raw_topic
from streams.settings import Settings
from streams.stages.extract import ExtractStage

GROUPS = 4
"""Groups in flight: a slow answer holds up the transaction of a quarter of the questions, not of all of them."""


def register(app: Any, settings: Settings, delivery: Delivery, stage: ExtractStage) -> None:
    """Attach the agent to `app`."""

    async def extract(stream: Any) -> None:
        size = max(1, settings.model_concurrency // GROUPS)
        await delivery.run_many(stream, stage.name, stage.handle, size=size, flying=GROUPS)

    app.agent(raw_topic(app, settings.topic("batches")), name="extract")(extract)
