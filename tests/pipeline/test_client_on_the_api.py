"""Client on the API: every verb of both clients against a whole memriver behind a real HTTP server, nothing of it played."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import memriver_client as mc
import pytest

from processors.access import Grant, PrincipalKind, Scope, parse_namespace
from streams.access import make_keyring
from streams.cli.embedded import Embedded
from streams.health import Health, HealthServer
from streams.runtime import wall_clock
from streams.serving import api_app
from tests.pipeline.river import STAGES, settings

DEADLINE = 240.0
"""Seconds after which a test gives up; far more than anything takes, so that a busy machine fails nothing."""


@dataclass
class Deployment:
    """An embedded memriver with its API on a port of its own, in a thread of its own."""

    directory: Path
    address: str = ""
    ready: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None

    def run(self) -> None:
        """Until `stop`."""
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test has to say it
            self.failure = error
            self.ready.set()

    async def _serve(self) -> None:
        given = settings(http_port=0, http_host="127.0.0.1", batch_seconds=600.0)
        self._embedded = Embedded(given, self.directory, (*STAGES, "feedback"))
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._embedded.start(lambda _event: None)
            runtime = self._embedded.runtime
            self._keyring = make_keyring(runtime.settings, runtime.truth)
            health = Health(runtime, now=wall_clock)
            server = HealthServer(health, runtime, api_app(runtime, health))
            self.address = await server.start()
            self.ready.set()
            await self._over.wait()
            await server.stop()
        finally:
            await self._embedded.stop()

    def stop(self) -> None:
        """Orderly."""
        self._loop.call_soon_threadsafe(self._over.set)

    def key(self, name: str, *grants: str, scopes: frozenset[Scope] = frozenset(Scope)) -> str:
        """A key of an agent."""
        held = [Grant(*parse_namespace(text), scopes) for text in grants]
        return self._keyring.create("acme", PrincipalKind.AGENT, name, scopes, grants=held).secret


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(tmp_path_factory.mktemp("deployment"))
    thread = threading.Thread(target=made.run, name="memriver", daemon=True)
    thread.start()
    assert made.ready.wait(DEADLINE)
    assert made.failure is None, made.failure
    yield made
    made.stop()
    thread.join(DEADLINE)
    assert made.failure is None, made.failure


class Caller:
    """One of the two clients; every call is awaited, whichever it is. `owner` is a person of its own."""

    def __init__(self, deployment: Deployment, kind: str, **more: Any) -> None:
        self.owner = f"ann-{uuid.uuid4().hex[:8]}"
        self.kind = kind
        self.key = deployment.key(f"crm-{self.owner}", f"user/{self.owner}")
        self.address = deployment.address
        self.client = self.made(self.key, **more)

    def made(self, key: str, **more: Any) -> Any:
        """Another client of the same kind."""
        return (mc.AsyncMemriver if self.kind == "async" else mc.Memriver)(self.address, key, **more)

    async def close(self) -> None:
        """Give back the connections."""
        await settled(self.client.aclose() if self.kind == "async" else self.client.close())

    async def applied(self, accepted: mc.Accepted) -> mc.CommandStatus:
        """When the resolver is done with it."""
        [command] = accepted.commands

        async def known() -> mc.CommandStatus | None:
            status = await settled(self.client.command(command.command_id))
            return None if status.state == "pending" else status

        return await until(known)

    async def learn(self, text: str, **more: Any) -> mc.Memory:
        """What the person said, as a memory."""
        accepted = await settled(self.client.remember(self.owner, text, source="user_statement", quote=text, **more))
        status = await self.applied(accepted)
        assert status.state == "applied"
        return await settled(self.client.memories.get(status.memories[0][0]))


async def settled(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


async def until(found: Callable[[], Awaitable[Any]]) -> Any:
    end = time.monotonic() + DEADLINE
    while (thing := await found()) is None:
        assert time.monotonic() < end, "it never came about"
        await asyncio.sleep(0.02)
    return thing


@pytest.fixture(params=["sync", "async"])
async def caller(request: pytest.FixtureRequest, deployment: Deployment) -> AsyncIterator[Caller]:
    made = Caller(deployment, request.param)
    yield made
    await made.close()


async def say(caller: Caller, number: int, text: str, **more: Any) -> mc.TurnStatus:
    """A turn, when it has come through."""
    conversation, turn = f"talk/{caller.owner}", f"t{number}"
    sent = await settled(
        caller.client.turns.send(
            conversation_id=conversation,
            turn_id=turn,
            user_id=caller.owner,
            role="user",
            text=text,
            sent_at=datetime.now(UTC) - timedelta(minutes=60 - number),
            timezone="Europe/Berlin",
            **more,
        )
    )
    assert (sent.conversation_id, sent.turn_id, sent.outcome) == (conversation, turn, "accepted")

    async def through() -> mc.TurnStatus | None:
        try:
            return await settled(caller.client.turns.status(conversation, turn))
        except mc.NotFound:
            return None

    return await until(through)


async def test_a_turn_is_sent_looked_up_recalled_and_put_into_a_context(caller: Caller) -> None:
    client = caller.client

    async def remembered() -> mc.Recalled | None:
        found = await settled(client.recall(caller.owner, "Where do I live?", explain=True))
        return found if found.memories else None

    assert (await say(caller, 1, "I live in Hamburg.")).arrived_at is not None
    found = await until(remembered)
    assert [memory.value for memory in found.memories] == ["Hamburg"]
    assert (found.degraded, found.clarify) == ((), None)
    first = found.results[0]
    assert 0 < first.score <= 1
    assert {"similarity", "recency", "access", "confidence"} <= set(first.parts)
    memory = first.memory
    assert memory is not None
    assert (memory.owner, memory.evidence[0].turn_id, memory.language) == (caller.owner, "t1", "en")

    nothing = await settled(client.recall(caller.owner, "quarterly zebra turbines"))
    assert (nothing.results, bool(nothing.note)) == ((), True)

    context = await settled(client.build_context(caller.owner, "Where do I live?", budget_tokens=400, language="en"))
    assert "Hamburg" in context.text
    assert 0 < context.tokens <= 400
    assert memory.id in {citation.id for citation in context.citations}

    assert await settled(client.feedback(caller.owner, "used", memory_ids=[memory.id], query="Where do I live?"))


async def test_a_summary_has_all_its_fields(caller: Caller) -> None:
    said = ["We decided to take the train to Basel.", "I still have to book the hotel.", "My flight was cancelled."]
    for number, text in enumerate(said, 1):
        await say(caller, number, text)
    summary = await settled(caller.client.summarize(f"talk/{caller.owner}"))
    assert summary.conversation_id == f"talk/{caller.owner}"
    assert (summary.method, summary.turns + summary.unsummarised) == ("extractive", 3)
    assert any("train" in text for text in (*summary.decisions, *summary.facts, *summary.key_points))
    assert len(summary.digests) == 3
    assert all(len(line) <= 80 for line in summary.digests)
    assert set(summary.raw) >= {"facts", "decisions", "open_loops", "key_points", "digests", "method"}
    with pytest.raises(mc.NotFound):
        await settled(caller.client.summarize("never held"))


async def test_the_life_of_a_memory_from_version_to_version(caller: Caller) -> None:
    client = caller.client
    memory = await caller.learn("lives in Leeds", attribute="residence", value="Leeds")
    assert (memory.value, memory.version, memory.status) == ("Leeds", 1, "active")

    edited = await settled(
        client.memories.edit(memory.id, 1, text="lives in Leeds (north)", source="user_statement", quote="in the north")
    )
    assert (await caller.applied(edited)).memories == ((memory.id, 2),)
    with pytest.raises(mc.VersionConflict) as stale:
        await settled(client.memories.edit(memory.id, 1, text="lives in Leeds (south)"))
    assert stale.value.present_version == 2

    replaced = await settled(
        client.memories.replace(
            memory.id, 2, text="lives in Leeds", value="Leeds", source="user_statement", quote="in Leeds"
        )
    )
    assert (await caller.applied(replaced)).state == "applied"
    await caller.applied(await settled(client.memories.confirm(memory.id, 3)))
    await caller.applied(await settled(client.memories.restore(memory.id, 4, 2, reason="the old wording")))
    restored = await settled(client.memories.get(memory.id))
    assert (restored.version, restored.text) == (5, "lives in Leeds (north)")

    history = await settled(client.history(memory.id))
    assert [version.version for version in history.versions] == [1, 2, 3, 4, 5]
    assert history.versions[1].text == "lives in Leeds (north)"
    grounds = await settled(client.explain(memory.id))
    assert (grounds.memory.version, len(grounds.versions)) == (5, 5)
    assert grounds.provenance
    assert grounds.policy["decision"] == "accept"

    report = await settled(client.report_conflict(memory.id, 5, "two contents were seen"))
    state = await caller.applied(report)
    assert (state.state, state.review_id is not None) == ("review", True)
    again = await settled(client.report_conflict(memory.id, 5, "two contents were seen"))
    assert again.commands[0].command_id == report.commands[0].command_id

    await caller.applied(await settled(client.memories.delete(memory.id, 5)))
    with pytest.raises(mc.NotFound):
        await settled(client.memories.get(memory.id))
    last = (await settled(client.history(memory.id))).versions[-1]
    assert (last.status, last.text, last.value) == ("deleted", None, None)


async def test_a_list_is_read_page_by_page_and_forgotten_by_attribute(caller: Caller) -> None:
    client = caller.client
    likes = ["tea", "chess", "rowing"]
    for thing in likes:
        await caller.learn(f"likes {thing}", attribute="likes", value=thing)
    page = await settled(client.memories.page(caller.owner, attribute="likes", limit=2))
    assert (len(page.memories), page.next_cursor is not None) == (2, True)
    rest = await settled(client.memories.page(caller.owner, attribute="likes", limit=2, cursor=page.next_cursor))
    assert sorted(memory.value for memory in (*page.memories, *rest.memories)) == sorted(likes)
    assert rest.next_cursor is None
    listed = client.memories.list(caller.owner)
    held = [memory async for memory in listed] if caller.kind == "async" else list(listed)
    assert sorted(memory.value for memory in held) == sorted(likes)

    forgotten = await settled(client.forget(caller.owner, attribute="likes", reason="moved on"))
    assert len(forgotten.commands) == 3
    for command in forgotten.commands:
        await caller.applied(mc.Accepted((command,)))
    assert (await settled(client.memories.page(caller.owner))).memories == ()
    old = await settled(client.memories.page(caller.owner, statuses=["superseded"]))
    assert len(old.memories) == 3


async def test_errors_are_the_apis_own(caller: Caller) -> None:
    client = caller.client
    with pytest.raises(mc.Forbidden) as foreign:
        await settled(client.recall("somebody else", "Where do they live?"))
    assert foreign.value.type.startswith("urn:memriver:problem:")
    with pytest.raises(mc.BadRequest) as blank:
        await settled(client.recall(caller.owner, " "))
    assert [item["field"] for item in blank.value.errors] == ["body.query"]
    with pytest.raises(mc.NotFound):
        await settled(client.memories.get(str(uuid.uuid4())))
    with pytest.raises(mc.StateConflict):
        memory = await caller.learn("likes tea", attribute="likes", value="tea")
        await settled(client.report_conflict(memory.id, 99, "from the future"))
    with pytest.raises(mc.BadRequest, match="secret"):
        await settled(client.remember(caller.owner, "my password is hunter2-Xy9!", source="user_statement"))
    stranger = caller.made("mr_000000000000_nobody")
    with pytest.raises(mc.Unauthenticated):
        await settled(stranger.memories.get(str(uuid.uuid4())))
    await settled(stranger.aclose() if caller.kind == "async" else stranger.close())


class LosesTheFirstAnswer(httpx.HTTPTransport):
    """A network on which the answer to the first write is lost, after the server has done it."""

    lost = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if request.method == "POST" and not self.lost:
            self.lost += 1
            answer.close()
            raise httpx.ReadError("gone", request=request)
        return answer


class LosesTheFirstAnswerAsync(httpx.AsyncHTTPTransport):
    """The same for the asynchronous client."""

    lost = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        if request.method == "POST" and not self.lost:
            self.lost += 1
            await answer.aclose()
            raise httpx.ReadError("gone", request=request)
        return answer


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_write_whose_answer_was_lost_is_sent_again_and_has_one_effect(
    deployment: Deployment, kind: str
) -> None:
    transport = LosesTheFirstAnswerAsync() if kind == "async" else LosesTheFirstAnswer()
    caller = Caller(deployment, kind, transport=transport)
    memory = await caller.learn("likes tea", attribute="likes", value="tea")
    assert transport.lost == 1
    history = await settled(caller.client.history(memory.id))
    assert [version.version for version in history.versions] == [1]
    await caller.close()


async def test_the_feed_tells_of_changes_and_goes_on_where_it_broke_off(caller: Caller) -> None:
    """Scenario: a listener hears one change and goes; two more happen; it comes back with what it had. We expect both."""
    feed = caller.client.changes(caller.owner)
    first = await heard(caller, feed, 1, lambda n: caller.learn("likes tea", attribute="likes", value=f"tea {n}"))
    assert (first[0].change, first[0].memory.owner, first[0].owner_seq) == ("created", caller.owner, first[0].owner_seq)
    await caller.learn("likes chess", attribute="likes", value="chess")
    await caller.learn("likes rowing", attribute="likes", value="rowing")
    back = caller.client.changes(caller.owner, after=first[0].event_id)
    missed = await heard(caller, back, 2)
    assert [event.owner_seq for event in missed] == [first[0].owner_seq + 1, first[0].owner_seq + 2]

    with pytest.raises(mc.FeedLost) as lost:
        await heard(caller, caller.client.changes(caller.owner, after=f"{uuid.uuid4()}:1"), 1)
    assert lost.value.after is None


async def heard(
    caller: Caller, feed: Any, count: int, stir: Callable[[int], Awaitable[Any]] | None = None
) -> list[mc.MemoryUpdated]:
    """The next `count` events. A feed starts "from now on", and no answer says when that is: so `stir` until it speaks."""
    events: list[mc.MemoryUpdated] = []
    broken: list[BaseException] = []

    def follow() -> None:
        try:
            events.extend(itertools.islice(feed, count))
        except mc.MemriverError as error:
            broken.append(error)
        finally:
            feed.close()

    async def follow_async() -> None:
        async for event in feed:
            events.append(event)
            if len(events) == count:
                break
        await feed.aclose()

    task = asyncio.create_task(follow_async() if caller.kind == "async" else asyncio.to_thread(follow))
    number = 0
    while not task.done():
        if stir is not None and not events:
            await stir(number)
            number += 1
        await asyncio.wait({task}, timeout=0.05)
    await task
    if broken:
        raise broken[0]
    return events
