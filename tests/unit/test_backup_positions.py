"""What a backup says of consumer groups: every topic that a stage reads, under the name of its group."""

from __future__ import annotations

from typing import get_args

from streams.backup.positions import READ_BY
from streams.faust_app import make_app
from streams.settings import Settings, StageName
from streams.topics import declared


def test_every_topic_that_a_stage_reads_has_its_positions_kept() -> None:
    read = [topic for topics in READ_BY.values() for topic in topics]
    # Agents read the one, a replay the other, both without a group of ours.
    assert sorted([*read, "memory_updated", "turns.sealed"]) == sorted(topic.name for topic in declared())
    assert set(READ_BY) <= set(get_args(StageName))


def test_a_group_is_the_one_that_the_stage_joins() -> None:
    settings = Settings(_env_file=None, topic_prefix="p.")
    assert make_app(settings, "ingest").conf.id == settings.group("ingest")
