"""Delivery: groups of what has arrived, the order of a commit, and what is never acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection

from processors.exceptions import FatalError, PoisonError, TransientError
from sinks.truth import Truth, deadletters, outbox
from sinks.truth.outbox import Outgoing
from streams.delivery import LEFT_BEHIND, Delivered, Delivery, Message
from streams.metrics import Metrics
from tests.doubles.log import Stream, message, until

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)


class Words:
    """A stage that sends each word on once; "bad" and "poison" cannot be read."""

    name = "words"

    def __init__(self, topic: str = "turns") -> None:
        self.topic = topic
        self.groups: list[list[str]] = []
        self.fail_with: list[Exception] = []

    def prepare(self, message: Message) -> str:
        word = (message.value or b"").decode()
        if word == "bad":
            raise ValueError("a word must be good")
        if word == "poison":
            raise PoisonError("poisonous", "not for drinking")
        return word

    def commit(self, connection: Connection, group: Sequence[Delivered[str]], now: datetime) -> list[Outgoing]:
        if self.fail_with:
            raise self.fail_with.pop(0)
        partitions = {item.item: item.message.partition for item in group}
        seen = outbox.seen(connection, self.name, partitions)
        new = [word for word in partitions if word not in seen]
        outbox.receive(connection, self.name, new, now)
        self.groups.append([item.item for item in group])
        return [Outgoing("out", word, word, word.encode(), partitions[word]) for word in new]


class Sent:
    """A publisher that keeps what it is given, after failing as often as told."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.words: list[str] = []
        self.before: Callable[[Sequence[Outgoing]], None] = lambda _messages: None

    async def flush(self, messages: Sequence[Outgoing]) -> None:
        await asyncio.sleep(0.01)
        self.before(messages)
        if self.failures:
            raise self.failures.pop(0)
        self.words += [item.key for item in messages if item.topic == "out"]


@pytest.fixture
def make(truth: Truth, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Delivery]:
    """`make(publisher, **options)`: a Delivery that waits next to nothing between tries."""
    monkeypatch.setattr("streams.delivery._BACKOFF_SECONDS", (0.001,))

    def build(publisher: Sent, *, store: Truth = truth, group_size: int = 3, ends: list[str] | None = None) -> Delivery:
        return Delivery(
            store,
            publisher,
            executor,
            Metrics(),
            now=lambda: NOW,
            group_size=group_size,
            linger_seconds=0.0,
            on_fatal=(ends if ends is not None else []).append,
        )

    return build


def words(*said: str, start: int = 0, partition: int = 0) -> list[Message]:
    """One message per word."""
    return [message(start + number, word.encode(), partition=partition) for number, word in enumerate(said)]


def left(truth: Truth) -> int:
    """Rows in the outbox."""
    with truth.reading() as connection:
        return outbox.size(connection)


async def test_what_has_arrived_is_a_group_and_a_group_is_never_larger_than_allowed(
    make: Callable[..., Delivery],
) -> None:
    stage, stream = Words(), Stream(words("a", "b", "c", "d", "e"))
    await make(Sent()).run(stream, stage)
    assert [word for group in stage.groups for word in group] == ["a", "b", "c", "d", "e"]
    assert all(1 <= len(group) <= 3 for group in stage.groups)


async def test_a_single_message_does_not_wait_for_company(make: Callable[..., Delivery]) -> None:
    stage, stream = Words(), Stream(words("alone"), open_end=True)
    task = asyncio.create_task(make(Sent()).run(stream, stage))
    await until(lambda: bool(stream.acked))
    assert stage.groups == [["alone"]]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_acknowledged_in_order_after_publishing_and_the_outbox_is_empty_soon_after(
    make: Callable[..., Delivery], truth: Truth
) -> None:
    sent, happened = Sent(), list[str]()
    sent.before = lambda messages: happened.extend(f"publish {item.key}" for item in messages)
    stream = Stream(
        words("a", "b", "c", "d"), on_ack=lambda item: happened.append(f"ack {(item.value or b'').decode()}")
    )
    await make(sent, group_size=2).run(stream, Words())
    assert stream.acked == [0, 1, 2, 3]
    assert all(happened.index(f"publish {word}") < happened.index(f"ack {word}") for word in "abcd")
    await until(lambda: left(truth) == 0)


async def test_a_bad_message_becomes_a_dead_letter_and_the_others_go_on(
    make: Callable[..., Delivery], truth: Truth
) -> None:
    sent, stream = Sent(), Stream(words("a", "bad", "poison", "b", "c"))
    published: list[Outgoing] = []
    sent.before = published.extend
    await make(sent).run(stream, Words())
    assert sent.words == ["a", "b", "c"]
    assert stream.acked == [0, 1, 2, 3, 4]
    with truth.reading() as connection:
        letters = deadletters.listing(connection)
    assert {(row["reason"], row["place"], row["raw"]) for row in letters} == {
        ("unreadable", "turns:0:1", b"bad"),
        ("poisonous", "turns:0:2", b"poison"),
    }
    assert {item.key for item in published if item.topic == "deadletters"} == {row["dead_letter_id"] for row in letters}


async def test_a_redelivered_bad_message_is_one_dead_letter(make: Callable[..., Delivery], truth: Truth) -> None:
    for _delivery in range(2):
        await make(Sent()).run(Stream(words("bad")), Words())
    with truth.reading() as connection:
        assert deadletters.count(connection) == 1


async def test_a_server_that_is_away_is_asked_again_and_nothing_is_acknowledged_meanwhile(
    make: Callable[..., Delivery],
) -> None:
    sent = Sent(TransientError("broker away"), TransientError("broker away", retry_after=0.001))
    stage, stream = Words(), Stream(words("a", "b"))
    stage.fail_with = [TransientError("database away")] * 7  # more than the transaction itself is tried
    acked_while_away: list[list[int]] = []
    sent.before = lambda _messages: acked_while_away.append(list(stream.acked))
    await make(sent).run(stream, stage)
    assert acked_while_away == [[], [], []]
    assert sent.words == ["a", "b"]
    assert stream.acked == [0, 1]


async def test_an_error_nobody_foresaw_ends_the_process_and_acknowledges_nothing(
    make: Callable[..., Delivery], truth: Truth
) -> None:
    ends: list[str] = []
    stage, stream = Words(), Stream(words("a", "b", "c", "d"))
    stage.fail_with = [RuntimeError("a bug")]
    with pytest.raises(FatalError):
        await make(Sent(), ends=ends, group_size=2).run(stream, stage)
    assert ends and ends[0] == "words: RuntimeError"
    assert stream.acked == []
    assert left(truth) == 0


async def test_an_error_behind_a_finished_group_leaves_the_finished_one_acknowledged(
    make: Callable[..., Delivery],
) -> None:
    ends: list[str] = []
    stage, stream = Words(), Stream(words("a", "b"), open_end=True)
    task = asyncio.create_task(make(Sent(), ends=ends, group_size=2).run(stream, stage))
    await until(lambda: len(stream.acked) == 2)
    stage.fail_with = [RuntimeError("a bug")]
    for item in words("c", "d", start=2):
        stream.put(item)
    await until(lambda: bool(ends))
    assert stream.acked == [0, 1]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_an_earlier_owner_committed_goes_out_before_the_first_new_message(
    make: Callable[..., Delivery], truth: Truth
) -> None:
    rows = [
        Outgoing("out", "old-1", "k", b"1", 1),
        Outgoing("out", "old-2", "k", b"2", 2),
        Outgoing("out", "old-3", "k", b"3", 1),
    ]
    truth.run(lambda connection: outbox.put(connection, "words", rows, NOW))
    truth.run(lambda connection: outbox.put(connection, "other", [Outgoing("out", "not-ours", "k", b"", 1)], NOW))
    sent = Sent()
    delivery = make(sent)
    delivery.assigned("words", {1})
    await delivery.run(Stream(words("new", partition=1)), Words())
    assert sent.words == ["old-1", "old-3", "new"], "in the order they were committed, and only of our partition"
    await until(lambda: left(truth) == 2)


async def test_what_was_committed_after_the_partition_was_drained_is_swept_up(
    make: Callable[..., Delivery], truth: Truth
) -> None:
    sent = Sent()
    delivery = make(sent)
    delivery.assigned("words", {0, 1})
    await delivery.run(Stream(words("new")), Words())

    def late(stage: str, key: str, partition: int, age: timedelta) -> None:
        row = Outgoing("out", key, "k", b"", partition)
        truth.run(lambda connection: outbox.put(connection, stage, [row], NOW - age))

    late("words", "late", 1, 2 * LEFT_BEHIND)
    late("words", "somebody works on it", 1, timedelta())
    late("words", "another's partition", 2, 2 * LEFT_BEHIND)
    late("other", "another's stage", 1, 2 * LEFT_BEHIND)
    assert await delivery.sweep(LEFT_BEHIND) == 1
    assert sent.words == ["new", "late"]
    assert await delivery.sweep(LEFT_BEHIND) == 0, "published rows are deleted"
    delivery.assigned("words", {2})
    await until(lambda: sent.words[2:] == ["another's partition"])
    late("words", "not ours any more", 1, 2 * LEFT_BEHIND)
    assert await delivery.sweep(LEFT_BEHIND) == 0


async def test_a_stage_that_waits_for_a_server_is_not_swept(make: Callable[..., Delivery], truth: Truth) -> None:
    sent = Sent(*[TransientError("broker away")] * 50)
    delivery = make(sent)
    delivery.assigned("words", {0})
    task = asyncio.create_task(delivery.run(Stream(words("a")), Words()))
    await until(lambda: bool(delivery.waits))
    assert await delivery.sweep(timedelta(seconds=-1)) == 0, "its own rows would be sent twice"
    await task
    assert sent.words == ["a"]


async def test_the_database_being_away_while_left_over_rows_are_looked_for_is_waited_out(
    make: Callable[..., Delivery], truth: Truth
) -> None:
    class Flaky(Truth):
        failures = 2

        @contextmanager
        def reading(self) -> Iterator[Connection]:
            if self.failures:
                self.failures -= 1
                raise TransientError("database away")
            with super().reading() as connection:
                yield connection

    truth.run(lambda connection: outbox.put(connection, "words", [Outgoing("out", "old", "k", b"")], NOW))
    sent, ends = Sent(), list[str]()
    delivery = make(sent, store=Flaky(truth.engine), ends=ends)
    delivery.assigned("words", {0})
    await delivery.run(Stream(words("new")), Words())
    assert sent.words == ["old", "new"]
    assert ends == []


async def test_a_commit_whose_answer_is_lost_is_published_all_the_same(
    make: Callable[..., Delivery], truth: Truth
) -> None:
    class Cut(Truth):
        """The connection breaks right after the first COMMIT."""

        commits = 0

        @contextmanager
        def begin(self) -> Iterator[Connection]:
            with super().begin() as connection:
                yield connection
            self.commits += 1
            if self.commits == 1:
                raise TransientError("gone while committing")

    sent, stream = Sent(), Stream(words("a", "b"))
    await make(sent, store=Cut(truth.engine)).run(stream, Words())
    assert sorted(sent.words) == ["a", "b"]
    assert stream.acked == [0, 1]
    assert left(truth) == 0


async def test_published_rows_are_deleted_even_if_the_database_is_away_at_that_moment(
    make: Callable[..., Delivery], truth: Truth
) -> None:
    class Away(Truth):
        """Gone for longer than one transaction is tried, once the words are committed."""

        begins = 0

        @contextmanager
        def begin(self) -> Iterator[Connection]:
            self.begins += 1
            if 2 <= self.begins <= 8:
                raise TransientError("database away")
            with super().begin() as connection:
                yield connection

    sent, stream = Sent(), Stream(words("a"))
    await make(sent, store=Away(truth.engine)).run(stream, Words())
    assert sent.words == ["a"]
    await until(lambda: left(truth) == 0)


async def test_what_two_agents_of_one_stage_commit_leaves_in_the_order_of_the_commits(
    make: Callable[..., Delivery],
) -> None:
    sent = Sent()
    delivery = make(sent, group_size=1)
    one, other = Words("candidates"), Words("commands")
    committed: list[str] = []

    def watched(stage: Words) -> Words:
        inner = stage.commit

        def commit(connection: Connection, group: Sequence[Delivered[str]], now: datetime) -> list[Outgoing]:
            out = inner(connection, group, now)
            committed.extend(item.item for item in group)
            return out

        stage.commit = commit  # type: ignore[method-assign]  # observed, not replaced
        return stage

    await asyncio.gather(
        delivery.run(Stream(words(*"abcdef")), watched(one)), delivery.run(Stream(words(*"ghijkl")), watched(other))
    )
    assert sent.words == committed


async def test_a_jump_in_offsets_is_a_loss_and_ends_the_process(make: Callable[..., Delivery]) -> None:
    ends: list[str] = []
    stream = Stream([message(4, b"a"), message(5, b"b"), message(9, b"c")])
    with pytest.raises(FatalError):
        await make(Sent(), ends=ends, group_size=1).run(stream, Words())
    assert ends
    assert 9 not in stream.acked


async def test_offsets_may_start_anew_where_a_partition_is_assigned_again(make: Callable[..., Delivery]) -> None:
    delivery, ends = make(Sent()), list[str]()
    await delivery.run(Stream(words("a", "b")), Words())
    delivery.assigned("words", set())
    delivery.assigned("words", {0})
    await delivery.run(Stream(words("z", start=40)), Words())
    assert ends == []


async def test_a_partition_that_stays_ours_keeps_its_position_beyond_what_is_committed(
    make: Callable[..., Delivery],
) -> None:
    """Scenario: a rebalance while messages are in our hands. We expect them not to be taken for a loss."""
    delivery, ends = make(Sent()), list[str]()
    await delivery.run(Stream(words("a", "b")), Words())
    delivery.assigned("words", {0})
    delivery.standing.expect("words", words("a")[0].topic, 0, 0)
    await delivery.run(Stream(words("c", start=2)), Words())
    assert ends == []


async def test_a_worker_that_slept_while_others_went_on_is_told_of_no_loss(make: Callable[..., Delivery]) -> None:
    """Scenario: a pause longer than the session; others go on; we get the same partition again and never saw it go.
    We expect no alarm, also while a message from before the pause is still in our hands; a real gap is one all the same."""
    ends: list[str] = []
    delivery = make(Sent(), ends=ends)
    await delivery.run(Stream(words("a", "b")), Words())
    delivery.assigned("words", {0})
    delivery.standing.expect("words", words("a")[0].topic, 0, 40)
    await delivery.run(Stream([*words("c", start=2), *words("z", start=40)]), Words())
    assert ends == []
    with pytest.raises(FatalError):
        await delivery.run(Stream(words("y", start=50)), Words())
    assert len(ends) == 1


async def test_a_message_that_comes_before_the_groups_position_is_known_waits_for_it(
    make: Callable[..., Delivery],
) -> None:
    """Scenario: others had the partition for a while, and Faust hands out its messages before we know where they stood.
    We expect no alarm, and the message worked through once the position is told; a real gap is one even then."""
    ends: list[str] = []
    delivery = make(Sent(), ends=ends)
    await delivery.run(Stream(words("a", "b")), Words())
    delivery.standing.ask("words")
    delivery.assigned("words", {0})
    stream = Stream(words("z", start=40))
    early = asyncio.create_task(delivery.run(stream, Words()))
    await asyncio.sleep(0.05)
    assert (ends, stream.acked) == ([], [])
    delivery.standing.expect("words", words("a")[0].topic, 0, 40)
    delivery.standing.told("words")
    await early
    assert (ends, stream.acked) == ([], [40])
    delivery.standing.ask("words")
    delivery.standing.told("words")
    with pytest.raises(FatalError):
        await delivery.run(Stream(words("y", start=50)), Words())
    assert len(ends) == 1


async def test_a_group_that_was_away_longer_than_its_log_is_kept_says_so_and_goes_on(
    make: Callable[..., Delivery], caplog: pytest.LogCaptureFixture
) -> None:
    """Scenario: retention overtook a stopped group. We expect one loud line with the number, and no crash for ever."""
    ends: list[str] = []
    delivery, sent = make(Sent(), ends=ends), Stream(words("z", start=40))
    delivery.assigned("words", {0})
    delivery.standing.expect("words", words("a")[0].topic, 0, 3)
    await delivery.run(sent, Words())
    assert (ends, sent.acked) == ([], [40])
    assert "lost 37 messages before offset 40" in caplog.text


async def test_redelivered_messages_are_no_jump(make: Callable[..., Delivery]) -> None:
    sent, stream = Sent(), Stream([*words("a", "b"), *words("a", "b", "c")])
    await make(sent).run(stream, Words())
    assert sent.words == ["a", "b", "c"]


async def test_the_second_of_two_groups_counts_as_work_in_hand_after_the_first_is_done(
    make: Callable[..., Delivery],
) -> None:
    """Scenario: the broker hangs on the second group. We expect the stage to be known as busy, or no watchdog would see it."""
    sent = Sent()
    hangs = asyncio.Event()
    delivery = make(sent, group_size=1)
    inner = sent.flush

    async def flush(messages: Sequence[Outgoing]) -> None:
        if messages[0].key == "b":
            await hangs.wait()
        await inner(messages)

    sent.flush = flush  # type: ignore[method-assign]  # hangs instead
    stream = Stream(words("a", "b"), open_end=True)
    task = asyncio.create_task(delivery.run(stream, Words()))
    await until(lambda: stream.acked == [0])
    assert delivery.progress["words"].busy_since is not None
    hangs.set()
    await until(lambda: stream.acked == [0, 1])
    assert delivery.progress["words"].busy_since is None
    assert delivery.progress["words"].handled == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
