"""The ingest agent: topic `turns`, keyed by conversation."""

from __future__ import annotations

from typing import Any

from streams.delivery import Delivery
from streams.faust_app import raw_topic
from streams.settings import Settings
from streams.stages.ingest import IngestStage


def register(app: Any, settings: Settings, delivery: Delivery, stage: IngestStage) -> None:
    """Attach the agent to `app`."""

    async def ingest(stream: Any) -> None:
        await delivery.run(stream, stage)

    app.agent(raw_topic(app, settings.topic("turns")), name="ingest")(ingest)
