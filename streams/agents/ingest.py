"""The ingest agent: topic `turns`, keyed by conversation."""

from __future__ import annotations

from typing import Any

from streams.delivery import Delivery
from streams.faust_app import raw_topic
from streams.judging import JudgePool
from streams.settings import Settings
from streams.stages.ingest import IngestStage


def register(
    app: Any, settings: Settings, delivery: Delivery, stage: IngestStage, judges: JudgePool | None = None
) -> None:
    """Attach the agent to `app`."""

    async def ingest(stream: Any) -> None:
        await delivery.run(stream, stage, judges.judge if judges is not None else None)

    app.agent(raw_topic(app, settings.topic("turns")), name="ingest")(ingest)
