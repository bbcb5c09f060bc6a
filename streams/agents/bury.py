"""The dead-letter agent: topic `deadletters`."""

from __future__ import annotations

from typing import Any

from streams.delivery import Delivery
from streams.faust_app import raw_topic
from streams.settings import Settings
from streams.stages.bury import BuryStage


def register(app: Any, settings: Settings, delivery: Delivery, stage: BuryStage) -> None:
    """Attach the agent to `app`."""

    async def bury(stream: Any) -> None:
        await delivery.run(stream, stage)

    app.agent(raw_topic(app, settings.topic("deadletters")), name="bury")(bury)
