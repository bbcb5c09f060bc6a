"""Client, calls: each verb as a request and a reader of its answer; no I/O, so both clients share all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from memriver_client import results
from memriver_client.model import Memory

T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request. `read` turns the decoded JSON into the result."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: Mapping[str, Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        """Whether it changes something, and so needs an `Idempotency-Key` before it may be sent again."""
        return self.method != "GET" and self.path not in _READING

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again when no answer came: the API keeps the answers of POSTs under their key.

        A write with a version that was lost on the way back would meet its own effect, and be taken for a stale one.
        """
        return self.method in ("GET", "POST")


_READING = frozenset({"/v1/recall", "/v1/context", "/v1/summarize"})


def remember(owner: str, text: str, **more: Any) -> Call[results.Accepted]:
    """POST /v1/remember."""
    return Call("POST", "/v1/remember", results.accepted, _body(owner=owner, text=text, **more))


def recall(owner: str, query: str, **more: Any) -> Call[results.Recalled]:
    """POST /v1/recall."""
    return Call("POST", "/v1/recall", results.recalled, _body(owner=owner, query=query, **more))


def build_context(owner: str, query: str, **more: Any) -> Call[results.Context]:
    """POST /v1/context."""
    return Call("POST", "/v1/context", results.context, _body(owner=owner, query=query, **more))


def forget(owner: str, **more: Any) -> Call[results.Accepted]:
    """POST /v1/forget."""
    return Call("POST", "/v1/forget", results.accepted, _body(owner=owner, **more))


def summarize(conversation_id: str) -> Call[results.Summary]:
    """POST /v1/summarize."""
    return Call("POST", "/v1/summarize", results.summary, _body(conversation_id=conversation_id))


def feedback(owner: str, kind: str, **more: Any) -> Call[str]:
    """POST /v1/feedback; the result is the feedback's id."""
    return Call("POST", "/v1/feedback", lambda data: str(data["feedback_id"]), _body(owner=owner, kind=kind, **more))


def explain(memory_id: str) -> Call[results.Explanation]:
    """GET /v1/memories/{id}/explain."""
    return Call("GET", f"/v1/memories/{_segment(memory_id)}/explain", results.explanation)


def history(memory_id: str) -> Call[results.History]:
    """GET /v1/memories/{id}/history."""
    return Call("GET", f"/v1/memories/{_segment(memory_id)}/history", results.history)


def command(command_id: str) -> Call[results.CommandStatus]:
    """GET /v1/commands/{id}."""
    return Call("GET", f"/v1/commands/{_segment(command_id)}", results.command_status)


def send_turn(turn: Mapping[str, Any]) -> Call[results.TurnStatus]:
    """POST /v1/turns; the answer names the turn, and what became of it is asked for later."""
    body = _body(**turn)
    known = {"conversation_id": turn["conversation_id"], "turn_id": turn["turn_id"]}
    return Call("POST", "/v1/turns", lambda data: results.turn_status({**known, **data}), body)


def turn_status(conversation_id: str, turn_id: str) -> Call[results.TurnStatus]:
    """GET /v1/turns?conversation_id=…&turn_id=…; gateways' ids may hold slashes, which do not fit into a path."""
    params = {"conversation_id": conversation_id, "turn_id": turn_id}
    return Call("GET", "/v1/turns", results.turn_status, params=params)


def list_memories(owner: str, *, statuses: Sequence[str] = (), **more: Any) -> Call[results.Page]:
    """GET /v1/memories, one page."""
    params = {
        name: value for name, value in {"owner": owner, "status": list(statuses), **more}.items() if _given(value)
    }
    return Call("GET", "/v1/memories", results.page, params=params)


def changes(owner: str, *, after: str | None = None, **more: Any) -> Call[None]:
    """GET /v1/changes: Server-Sent Events, after the event of that id."""
    params = {name: value for name, value in {"owner": owner, **more}.items() if _given(value)}
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after is not None else {})}
    return Call("GET", "/v1/changes", lambda _data: None, params=params, headers=headers)


def get_memory(memory_id: str) -> Call[Memory]:
    """GET /v1/memories/{id}."""
    return Call("GET", f"/v1/memories/{_segment(memory_id)}", Memory.from_view)


def edit_memory(memory_id: str, version: int, **more: Any) -> Call[results.Accepted]:
    """PATCH /v1/memories/{id} with If-Match."""
    path = f"/v1/memories/{_segment(memory_id)}"
    return Call("PATCH", path, results.accepted, _body(**more), headers=_if_match(version))


def replace_memory(memory_id: str, version: int, **more: Any) -> Call[results.Accepted]:
    """PUT /v1/memories/{id} with If-Match."""
    path = f"/v1/memories/{_segment(memory_id)}"
    return Call("PUT", path, results.accepted, _body(**more), headers=_if_match(version))


def delete_memory(memory_id: str, version: int) -> Call[results.Accepted]:
    """DELETE /v1/memories/{id} with If-Match."""
    return Call("DELETE", f"/v1/memories/{_segment(memory_id)}", results.accepted, headers=_if_match(version))


def confirm_memory(memory_id: str, version: int) -> Call[results.Accepted]:
    """POST /v1/memories/{id}/confirm with If-Match."""
    path = f"/v1/memories/{_segment(memory_id)}/confirm"
    return Call("POST", path, results.accepted, headers=_if_match(version))


def restore_memory(memory_id: str, version: int, to: int, **more: Any) -> Call[results.Accepted]:
    """POST /v1/memories/{id}/restore with If-Match."""
    path = f"/v1/memories/{_segment(memory_id)}/restore"
    return Call("POST", path, results.accepted, _body(version=to, **more), headers=_if_match(version))


def report_conflict(memory_id: str, version: int, detail: str) -> Call[results.Accepted]:
    """POST /v1/reviews."""
    body = _body(kind="conflict", memory_id=memory_id, version=version, detail=detail)
    return Call("POST", "/v1/reviews", results.accepted, body)


def _if_match(version: int) -> dict[str, str]:
    return {"If-Match": f'"{version}"'}


def _segment(name: str) -> str:
    # A name may hold a slash; and "." or ".." would be taken for a step by the URL's own rules, quoted or not.
    if name in ("", ".", ".."):
        raise ValueError("an id must be a name")
    return quote(name, safe="")


def _given(value: Any) -> bool:
    return value is not None and value != [] and value != ()


def _body(**fields: Any) -> dict[str, Any]:
    """Without what was not given: the API's defaults are the API's."""
    return {name: _plain(value) for name, value in fields.items() if _given(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a time needs a zone: a naive one is nobody's")
        return value.astimezone(timezone.utc).isoformat()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
