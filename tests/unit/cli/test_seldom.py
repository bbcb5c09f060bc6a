"""The same trouble is one line in ten seconds, and another trouble is a line of its own."""

from __future__ import annotations

import logging

from streams.cli.embedded import Seldom


def said(message: str, at: float, *values: object) -> logging.LogRecord:
    record = logging.LogRecord("aiokafka", logging.ERROR, "", 0, message, values, None)
    record.created = at
    return record


def test_a_client_without_its_broker_is_heard_now_and_then() -> None:
    seldom = Seldom(10)
    heard = [at for at in range(25) if seldom.filter(said("cannot connect to node %s", float(at), at))]
    assert heard == [0, 10, 20]


def test_another_message_is_heard_at_once() -> None:
    seldom = Seldom(10)
    assert seldom.filter(said("cannot connect", 0.0))
    assert seldom.filter(said("not the leader any more", 0.1))
    assert not seldom.filter(said("cannot connect", 0.2))


def test_messages_that_never_repeat_do_not_fill_the_memory() -> None:
    seldom = Seldom(10)
    for number in range(5_000):
        assert seldom.filter(said(f"message {number}", 0.0))
    assert len(seldom._last) <= 1_001
