"""Serving: what start-up made is out of the garbage collector's sight while requests are answered."""

from __future__ import annotations

import gc

from streams import serving


async def test_the_collector_does_not_walk_what_lives_as_long_as_the_process() -> None:
    before = gc.get_freeze_count()
    async with serving._warmed_up():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0
