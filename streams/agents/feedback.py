"""The feedback agent: topic `feedback`, keyed by owner."""

from __future__ import annotations

from typing import Any

from streams.delivery import Delivery
from streams.faust_app import raw_topic
from streams.settings import Settings
from streams.stages.feedback import FeedbackStage


def register(app: Any, settings: Settings, delivery: Delivery, stage: FeedbackStage) -> None:
    """Attach the agent to `app`."""

    async def feedback(stream: Any) -> None:
        await delivery.run(stream, stage)

    app.agent(raw_topic(app, settings.topic("feedback")), name="feedback")(feedback)
