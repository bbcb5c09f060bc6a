"""Client tests: the verbs over HTTP — what is sent, what is read back, when a call is repeated, what an error becomes."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import memriver_client as mc
import pytest
from memriver_client.retries import retry_after

KEY = "mr_0123_secret"
ID = "9b2c6d1e-0d6b-5f0e-9a53-0f6a6e1b2c3d"
MEMORY = {
    "id": ID,
    "version": 3,
    "status": "active",
    "owner_kind": "user",
    "owner": "ann",
    "namespace": "user/ann/profile",
    "type": "semantic",
    "category": "fact",
    "subject": "user",
    "attribute": "residence",
    "value": "Hamburg",
    "text": "lives in Hamburg",
    "language": "en",
    "confidence": 0.95,
    "sensitivity": "personal",
    "source": "user_statement",
    "valid_from": "2026-03-01T09:00:00Z",
    "valid_to": None,
    "first_stated_at": "2026-03-01T09:00:00Z",
    "last_stated_at": "2026-03-01T09:00:00.25Z",
    "expires_at": None,
    "superseded_by": None,
    "evidence": [{"turn_id": "t-1", "quote": "I live in Hamburg."}],
    "evidence_count": 1,
    "writer": "rule",
}
ACCEPTED = {
    "status": "accepted",
    "commands": [
        {
            "command_id": "c-1",
            "kind": "assert",
            "memory_id": None,
            "expected_version": None,
            "decision": "accept",
            "reasons": ["explicit"],
            "see": "/v1/commands/c-1",
        }
    ],
}
VERSION = {
    "version": 1,
    "change": "created",
    "status": "active",
    "cause": "c",
    "writer": "rule",
    "recorded_at": "2026-03-01T09:00:00Z",
}


class Server:
    """Answers from a list, one after the other, the last one again and again; keeps what was asked and how long was slept."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.slept: list[float] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **more: Any) -> mc.Memriver:
        transport = httpx.MockTransport(self)
        return mc.Memriver(
            "http://memriver", KEY, transport=transport, sleep=self.slept.append, chance=lambda: 0.0, **more
        )

    def async_client(self, **more: Any) -> mc.AsyncMemriver:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        transport = httpx.MockTransport(self)
        return mc.AsyncMemriver("http://memriver", KEY, transport=transport, sleep=sleep, chance=lambda: 0.0, **more)


def ok(data: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=data)


def problem(status: int, code: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    body = {"type": f"urn:memriver:problem:{code}", "title": "No", "status": status, "detail": "because", **more}
    return httpx.Response(
        status, content=json.dumps(body), headers={"content-type": "application/problem+json", **(headers or {})}
    )


async def settled(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


Use = Callable[[Any], Any]
WHEN = datetime(2026, 3, 1, 10, 0, tzinfo=timezone(timedelta(hours=1)))

VERBS: dict[str, tuple[Use, str, str, dict[str, Any] | None, Any]] = {
    "remember": (
        lambda c: c.remember("ann", "I live in Hamburg.", event_time=WHEN, quote="I live in Hamburg."),
        "POST",
        "/v1/remember",
        {
            "owner": "ann",
            "owner_kind": "user",
            "text": "I live in Hamburg.",
            "event_time": "2026-03-01T09:00:00+00:00",
            "quote": "I live in Hamburg.",
        },
        ACCEPTED,
    ),
    "recall": (
        lambda c: c.recall("ann", "Where?", shared=[mc.Owner("org", "acme")], limit=3, explain=True),
        "POST",
        "/v1/recall",
        {
            "owner": "ann",
            "owner_kind": "user",
            "query": "Where?",
            "shared": [{"owner_kind": "org", "owner": "acme"}],
            "limit": 3,
            "explain": True,
        },
        {"results": [{"score": 0.9, "kind": "memory", "memory": MEMORY, "parts": {"similarity": 0.9}}], "note": None},
    ),
    "build_context": (
        lambda c: c.build_context("ann", "Where?", budget_tokens=300, language="zh"),
        "POST",
        "/v1/context",
        {"owner": "ann", "owner_kind": "user", "query": "Where?", "budget_tokens": 300, "language": "zh"},
        {"text": "[1] …", "tokens": 20, "citations": [{"number": 1, "id": ID, "version": 3}]},
    ),
    "forget": (
        lambda c: c.forget("ann", attribute="likes", mode="delete"),
        "POST",
        "/v1/forget",
        {"owner": "ann", "owner_kind": "user", "attribute": "likes", "mode": "delete"},
        ACCEPTED,
    ),
    "summarize": (
        lambda c: c.summarize("c/1"),
        "POST",
        "/v1/summarize",
        {"conversation_id": "c/1"},
        {"conversation_id": "c/1", "summary": "They talked.", "key_points": ["one"], "open_loops": [], "by": "extract"},
    ),
    "feedback": (
        lambda c: c.feedback("ann", "used", memory_ids=[ID], query="Where?"),
        "POST",
        "/v1/feedback",
        {"owner": "ann", "owner_kind": "user", "kind": "used", "memory_ids": [ID], "query": "Where?"},
        {"status": "accepted", "feedback_id": "f-1"},
    ),
    "explain": (
        lambda c: c.explain(ID),
        "GET",
        f"/v1/memories/{ID}/explain",
        None,
        {"memory": MEMORY, "versions": [VERSION], "policy": {"decision": "accept"}, "decisions": [], "reads": []},
    ),
    "history": (
        lambda c: c.history(ID),
        "GET",
        f"/v1/memories/{ID}/history",
        None,
        {"id": ID, "versions": [VERSION]},
    ),
    "command": (
        lambda c: c.command("c-1"),
        "GET",
        "/v1/commands/c-1",
        None,
        {"command_id": "c-1", "state": "applied", "memories": [{"id": ID, "version": 4}], "review_id": None},
    ),
    "turns.send": (
        lambda c: c.turns.send(
            conversation_id="c", turn_id="t", user_id="ann", role="user", text="hi", sent_at=WHEN, group=True
        ),
        "POST",
        "/v1/turns",
        {
            "conversation_id": "c",
            "turn_id": "t",
            "user_id": "ann",
            "role": "user",
            "text": "hi",
            "sent_at": "2026-03-01T09:00:00+00:00",
            "timezone": "UTC",
            "group": True,
        },
        {"status": "accepted", "conversation_id": "c", "turn_id": "t", "turn_key": "k"},
    ),
    "turns.status": (
        lambda c: c.turns.status("c/1", "t?1"),
        "GET",
        "/v1/turns?conversation_id=c%2F1&turn_id=t%3F1",
        None,
        {"conversation_id": "c/1", "turn_id": "t?1", "outcome": "filtered", "reason": "greeting", "revision": 0},
    ),
    "memories.get": (lambda c: c.memories.get(ID), "GET", f"/v1/memories/{ID}", None, MEMORY),
    "memories.page": (
        lambda c: c.memories.page("ann", namespaces=["profile"], statuses=["active", "superseded"]),
        "GET",
        "/v1/memories?owner=ann&status=active&status=superseded&owner_kind=user&namespace=profile",
        None,
        {"memories": [MEMORY], "next_cursor": "abc"},
    ),
    "memories.edit": (
        lambda c: c.memories.edit(ID, 3, value="Bremen"),
        "PATCH",
        f"/v1/memories/{ID}",
        {"value": "Bremen"},
        ACCEPTED,
    ),
    "memories.replace": (
        lambda c: c.memories.replace(ID, 3, text="lives in Bremen", value="Bremen", reason="moved"),
        "PUT",
        f"/v1/memories/{ID}",
        {"text": "lives in Bremen", "value": "Bremen", "reason": "moved"},
        ACCEPTED,
    ),
    "memories.delete": (lambda c: c.memories.delete(ID, 3), "DELETE", f"/v1/memories/{ID}", None, ACCEPTED),
    "memories.confirm": (lambda c: c.memories.confirm(ID, 3), "POST", f"/v1/memories/{ID}/confirm", None, ACCEPTED),
    "memories.restore": (
        lambda c: c.memories.restore(ID, 3, 1),
        "POST",
        f"/v1/memories/{ID}/restore",
        {"version": 1},
        ACCEPTED,
    ),
}
VERSIONED = ("memories.edit", "memories.replace", "memories.delete", "memories.confirm", "memories.restore")
READING = ("recall", "build_context", "summarize")


@pytest.mark.parametrize("verb", VERBS)
async def test_both_clients_send_the_same_request_and_read_the_same_result(verb: str) -> None:
    use, method, path, body, answer = VERBS[verb]
    results = []
    for server in (Server(ok(answer)), Server(ok(answer))):
        client: Any = server.async_client() if results else server.client()
        results.append(await settled(use(client)))
        await settled(client.aclose() if isinstance(client, mc.AsyncMemriver) else client.close())

        (asked,) = server.asked
        assert (asked.method, asked.url.raw_path.decode()) == (method, path)
        assert (json.loads(asked.content) if asked.content else None) == body
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        assert asked.headers.get("if-match") == ('"3"' if verb in VERSIONED else None)
        assert ("idempotency-key" in asked.headers) == (method != "GET" and verb not in READING)
    assert results[0] == results[1]


def test_a_memory_is_read_with_its_times_and_evidence() -> None:
    with Server(ok(MEMORY)).client() as client:
        memory = client.memories.get(ID)

    assert (memory.id, memory.version, memory.value, memory.source_kind) == (ID, 3, "Hamburg", "user_statement")
    assert memory.valid_from == datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert memory.last_stated_at == datetime(2026, 3, 1, 9, 0, 0, 250_000, tzinfo=UTC)
    assert memory.evidence == (mc.Evidence("t-1", "I live in Hamburg."),)
    assert memory.raw["writer"] == "rule"


def test_results_are_typed() -> None:
    def ask(verb: str) -> Any:
        with Server(ok(VERBS[verb][4])).client() as client:
            return VERBS[verb][0](client)

    recalled = ask("recall")
    assert recalled.memories[0].id == ID
    assert (recalled.results[0].text, recalled.results[0].parts) == ("lives in Hamburg", {"similarity": 0.9})
    assert ask("build_context").citations == (mc.Citation(1, ID, 3),)
    assert ask("remember").commands[0].reasons == ("explicit",)
    assert ask("feedback") == "f-1"
    assert ask("command").memories == ((ID, 4),)
    assert ask("turns.send").outcome == "accepted"
    assert (ask("turns.status").outcome, ask("turns.status").reason) == ("filtered", "greeting")
    assert ask("history").versions[0].recorded_at == datetime(2026, 3, 1, 9, tzinfo=UTC)
    assert ask("explain").policy == {"decision": "accept"}
    assert ask("summarize").raw["by"] == "extract"


def test_a_recent_turn_is_a_result_too() -> None:
    turn = {"turn_id": "t", "user_id": "ann", "role": "user", "text": "just now", "sent_at": "2026-03-01T09:00:00Z"}
    with Server(ok({"results": [{"score": 0.8, "kind": "turn", "turn": turn}]})).client() as client:
        recalled = client.recall("ann", "What?")
    assert (recalled.results[0].text, recalled.memories) == ("just now", ())


async def test_a_list_goes_on_to_the_last_page() -> None:
    pages = (
        {"memories": [MEMORY], "next_cursor": "abc"},
        {"memories": [{**MEMORY, "version": 4}], "next_cursor": None},
    )
    server, other = Server(*map(ok, pages)), Server(*map(ok, pages))
    with server.client() as client:
        assert [memory.version for memory in client.memories.list("ann")] == [3, 4]
    async with other.async_client() as again:
        assert [memory.version async for memory in again.memories.list("ann")] == [3, 4]
    assert [request.url.params.get("cursor") for request in server.asked] == [None, "abc"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, mc.BadRequest),
        (401, mc.Unauthenticated),
        (403, mc.Forbidden),
        (404, mc.NotFound),
        (409, mc.StateConflict),
        (412, mc.VersionConflict),
        (413, mc.BadRequest),
        (422, mc.BadRequest),
        (428, mc.VersionConflict),
        (429, mc.RateLimited),
        (500, mc.ServerError),
        (503, mc.Unavailable),
    ],
)
def test_a_problem_becomes_its_exception(status: int, kind: type[mc.ApiError]) -> None:
    errors = [{"field": "body.query", "message": "must not be blank"}]
    server = Server(problem(status, "code", {"Retry-After": "7", "ETag": '"5"'}, errors=errors))
    with server.client(retry=mc.Retry(attempts=1)) as client, pytest.raises(mc.ApiError) as caught:
        client.recall("ann", "?")

    error = caught.value
    assert type(error) is kind
    assert (error.status, error.type, error.detail) == (status, "urn:memriver:problem:code", "because")
    assert (error.errors, error.retry_after) == (tuple(errors), 7.0)
    if isinstance(error, mc.VersionConflict):
        assert error.present_version == 5


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(502, text="<html>bad gateway</html>"),
        httpx.Response(500, content=b"\xff", headers={"content-type": "application/problem+json"}),
        httpx.Response(500, json=["no", "object"]),
        problem(500, "x", errors="nonsense"),
    ],
)
def test_an_error_that_is_no_problem_document_is_an_error_all_the_same(answer: httpx.Response) -> None:
    with Server(answer).client(retry=mc.Retry(attempts=1)) as client, pytest.raises(mc.ServerError):
        client.history(ID)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, text="<html>log in</html>"),
        httpx.Response(302, headers={"location": "/login"}),
        ok({"unexpected": 1}),
        ok([1]),
        ok({**MEMORY, "version": "three"}),
        ok({**MEMORY, "valid_from": "2026-03-01T09:00:00"}),
    ],
)
def test_an_answer_that_is_not_the_apis_is_said_to_be_one_without_quoting_it(answer: httpx.Response) -> None:
    with Server(answer).client() as client, pytest.raises(mc.BadAnswer) as caught:
        client.memories.get(ID)
    assert "Hamburg" not in str(caught.value)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_call_is_repeated_with_the_same_key_until_it_is_taken(status: int) -> None:
    for asynchronous in (False, True):
        server = Server(problem(status, "later"), httpx.ReadTimeout("slow"), ok(ACCEPTED, 202))
        client: Any = server.async_client() if asynchronous else server.client()

        await settled(client.remember("ann", "I live in Hamburg."))

        assert len({request.headers["idempotency-key"] for request in server.asked}) == 1
        assert len(server.asked) == 3
        assert server.slept == [0.1, 0.2]
        await settled(client.aclose() if asynchronous else client.close())


def test_retry_after_is_never_undercut_and_chance_comes_on_top() -> None:
    server = Server(problem(429, "too_many", {"Retry-After": "3"}), ok({"results": []}))
    with server.client() as client:
        client.recall("ann", "?")
    assert server.slept == [3.0]

    policy = mc.Retry(first=1.0, longest=4.0)
    assert policy.pause(1, 3.0, 0.5) == 3.25
    assert [policy.pause(n, None, 0.5) for n in (1, 2, 3, 4)] == [0.75, 1.5, 3.0, None]


def test_a_wait_longer_than_ones_patience_is_the_callers_to_decide() -> None:
    server = Server(problem(503, "unavailable", {"Retry-After": "3600"}))
    with server.client() as client, pytest.raises(mc.Unavailable) as caught:
        client.recall("ann", "?")
    assert (caught.value.retry_after, server.slept) == (3600.0, [])


def test_the_first_attempt_still_at_work_is_waited_for() -> None:
    server = Server(problem(409, "in_progress", {"Retry-After": "1"}), ok(ACCEPTED))
    with server.client() as client:
        client.forget("ann", attribute="likes")
    assert server.slept == [1.0]


@pytest.mark.parametrize("status", [400, 403, 404, 409, 412, 422, 500])
def test_what_will_not_change_is_not_repeated(status: int) -> None:
    server = Server(problem(status, "no"))
    with server.client() as client, pytest.raises(mc.ApiError):
        client.remember("ann", "x")
    assert len(server.asked) == 1


@pytest.mark.parametrize("verb", ["memories.edit", "memories.replace", "memories.delete"])
def test_a_versioned_write_is_repeated_only_when_it_never_left(verb: str) -> None:
    lost, unsent = Server(httpx.ReadTimeout("?"), ok(ACCEPTED)), Server(httpx.ConnectError("refused"), ok(ACCEPTED))
    with lost.client() as client, pytest.raises(mc.ConnectionFailed) as caught:
        VERBS[verb][0](client)
    assert (len(lost.asked), caught.value.unsent) == (1, False)

    with unsent.client() as client:
        VERBS[verb][0](client)
    assert len(unsent.asked) == 2


def test_no_answer_at_all_is_an_error_of_its_own() -> None:
    server = Server(httpx.ConnectError("refused"))
    with server.client() as client, pytest.raises(mc.ConnectionFailed):
        client.recall("ann", "?")
    assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("Sun, 01 Mar 2026 09:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 08:00:00 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("٣", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, datetime(2026, 3, 1, 9, tzinfo=UTC)) == seconds


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_an_id_that_would_change_the_path_is_refused(name: str) -> None:
    with Server(ok({})).client() as client, pytest.raises(ValueError, match="name"):
        client.history(name)


def test_an_id_with_a_slash_stays_one_segment() -> None:
    server = Server(ok({"id": "x", "versions": []}))
    with server.client() as client:
        client.history("a/../b?c#d")
    assert server.asked[0].url.raw_path == b"/v1/memories/a%2F..%2Fb%3Fc%23d/history"


def test_text_that_is_not_unicode_reaches_the_api_which_can_say_so() -> None:
    server = Server(problem(422, "invalid"))
    with server.client() as client, pytest.raises(mc.BadRequest):
        client.remember("ann", "\ud800")
    assert b'"text": "\\ud800"' in server.asked[0].content


def test_a_naive_time_is_refused() -> None:
    with Server(ok(ACCEPTED)).client() as client, pytest.raises(ValueError, match="zone"):
        client.remember("ann", "x", event_time=datetime(2026, 3, 1))


EVENT = {
    "event_id": f"{ID}:3",
    "change": "updated",
    "owner_seq": 9,
    "occurred_at": "2026-03-01T09:00:00Z",
    "replaces": [],
    "memory": MEMORY,
}


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self.chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            yield chunk


def feed(*chunks: bytes) -> Server:
    return Server(httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Stream(*chunks)))


async def test_the_feed_gives_changes_and_says_when_it_lost_some() -> None:
    event = b"id: x\nevent: memory_updated\ndata: " + json.dumps(EVENT).encode() + b"\n\n"
    chunks = (b": listening\n\n", event[:40], event[40:], b"event: new\ndata: {}\n\n", b"event: lost\ndata: {}\n\n")
    seen: list[mc.MemoryUpdated] = []
    with feed(*chunks).client() as client, pytest.raises(mc.FeedLost):
        for change in client.changes("ann", namespaces=["profile"]):
            seen.append(change)
    async with feed(*chunks).async_client() as other:
        with pytest.raises(mc.FeedLost):
            async for change in other.changes("ann"):
                seen.append(change)
    assert [(change.owner_seq, change.memory.version) for change in seen] == [(9, 3), (9, 3)]


def test_a_feed_that_just_ends_is_lost_too_and_one_that_is_refused_an_error() -> None:
    with feed(b": listening\n\n").client() as client, pytest.raises(mc.FeedLost):
        list(client.changes("ann"))
    with Server(problem(403, "owner_not_granted")).client() as client, pytest.raises(mc.Forbidden):
        list(client.changes("bob"))
