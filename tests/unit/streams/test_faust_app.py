"""Faust, tamed: a worker starts where its data directory is not there yet, and waits at the broker as it is told."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiokafka import AIOKafkaConsumer
from faust.transport.drivers import aiokafka as faust_driver
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

from streams.connection import client_options
from streams.consumer import PromptThread
from streams.faust_app import make_app
from streams.settings import Settings


def test_faust_finds_the_folder_that_it_writes_into(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there"
    app = make_app(Settings(_env_file=None, data_dir=directory), "ingest")
    app.conf.datadir.mkdir(exist_ok=True)
    assert (directory / "faust").is_dir()


def test_the_client_that_fetches_waits_as_long_as_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(Settings(_env_file=None, data_dir=tmp_path, fetch_wait_ms=70), "ingest")
    made = SimpleNamespace(_fetch_max_wait_ms=1500)
    monkeypatch.setattr(AIOKafkaConsumerThread, "_create_worker_consumer", lambda _thread, _transport: made)
    assert PromptThread.__new__(PromptThread)._create_worker_consumer(app.transport) is made
    assert made._fetch_max_wait_ms == 70
    # Both libraries still use these names: Faust for what it makes, aiokafka for what it hands to its fetcher.
    assert "fetch_max_wait_ms=1500" in inspect.getsource(faust_driver)
    assert "self._fetch_max_wait_ms" in inspect.getsource(AIOKafkaConsumer.start)


def test_no_client_believes_an_old_view_of_the_cluster_for_long(tmp_path: Path) -> None:
    """Scenario: a worker joins while the broker is starting and does not know a topic yet.
    We expect it to look again within seconds: a topic that was given to nobody in that moment stood still for five minutes."""
    settings = Settings(_env_file=None, data_dir=tmp_path)
    app = make_app(settings, "extract")
    ages = {app.conf.consumer_metadata_max_age_ms, app.conf.producer_metadata_max_age_ms}
    assert ages == {client_options(settings)["metadata_max_age_ms"]}
    assert max(ages) <= 30_000
    assert "metadata_max_age_ms=conf.consumer_metadata_max_age_ms" in inspect.getsource(faust_driver)
