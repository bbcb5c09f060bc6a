"""A worker starts where its data directory is not there yet, as beside a Qdrant server, where nothing else makes it."""

from __future__ import annotations

from pathlib import Path

from streams.faust_app import make_app
from streams.settings import Settings


def test_faust_finds_the_folder_that_it_writes_into(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there"
    app = make_app(Settings(_env_file=None, data_dir=directory), "ingest")
    app.conf.datadir.mkdir(exist_ok=True)
    assert (directory / "faust").is_dir()
