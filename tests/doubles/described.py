"""Tests, doubles: every answer of the API is held against its description: right types, nothing missing, nothing unsaid."""

from __future__ import annotations

import re
from typing import Any

import httpx
import orjson
from fastapi import FastAPI
from pydantic import BaseModel

from recall.api import problems, shapes

_PARAMETER = re.compile(r"\{[^}]+\}")


class Described:
    """`check` is a response hook of httpx; `seen` are the operations and statuses that it looked at."""

    def __init__(self, app: FastAPI) -> None:
        self._routes: list[tuple[str, re.Pattern[str], dict[int, type[BaseModel]]]] = []
        self.seen: set[tuple[str, str, int]] = set()
        for path, operations in app.openapi()["paths"].items():
            pattern = re.compile(_PARAMETER.sub(r"[^/]+", re.escape(path).replace(r"\{", "{").replace(r"\}", "}")))
            for method, operation in operations.items():
                held = {int(status): _shape(answer) for status, answer in operation["responses"].items()}
                found = {status: shape for status, shape in held.items() if shape is not None}
                self._routes.append((method.upper(), pattern, found))

    async def check(self, response: httpx.Response) -> None:
        """Raises AssertionError for an answer that the description does not allow."""
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return
        await response.aread()
        path = response.request.url.raw_path.decode().partition("?")[0]
        for method, pattern, held in self._routes:
            if method == response.request.method and pattern.fullmatch(path):
                where = f"{method} {pattern.pattern} {response.status_code}"
                if response.status_code == 204:
                    assert not response.content, where
                    return
                assert response.status_code in held, f"{where} is not described"
                shape = held[response.status_code]
                kind = "application/problem+json" if shape is problems.Problem else "application/json"
                assert response.headers["content-type"] == kind, where
                data = orjson.loads(response.content)
                _same(data, shape.model_validate(data, strict=False).model_dump(exclude_unset=True), where)
                self.seen.add((method, pattern.pattern, response.status_code))
                return


def _shape(answer: dict[str, Any]) -> type[BaseModel] | None:
    for content in answer.get("content", {}).values():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        found: type[BaseModel] | None = getattr(shapes, name, None) or getattr(problems, name, None)
        if found is not None:
            return found
    return None


def _same(said: Any, described: Any, where: str) -> None:
    """Every field that is said is one of the description's."""
    if isinstance(said, dict) and isinstance(described, dict):
        unsaid = set(said) - set(described)
        assert not unsaid, f"{where}: not described: {sorted(unsaid)}"
        for name, value in said.items():
            _same(value, described[name], f"{where}.{name}")
    elif isinstance(said, list) and isinstance(described, list):
        for value, other in zip(said, described, strict=True):
            _same(value, other, where)
