"""Noise, tools: a tool's JSON answer, reduced to the fields that were reviewed as worth reading (SPEC W4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class ToolWhitelist:
    """Field paths per tool, with a cap on strings and lists."""

    fields: Mapping[str, tuple[tuple[str, ...], ...]]
    longest_string: int
    most_items: int

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ToolWhitelist:
        """From the decoded `tools.yaml`."""
        fields = {tool: tuple(tuple(path.split(".")) for path in paths) for tool, paths in data["tools"].items()}
        return cls(fields, data["longest_string"], data["most_items"])

    def reduce(self, tool: str | None, text: str) -> str | None:
        """Compact JSON of the listed fields; None for an unlisted tool, no JSON object, or nothing of interest in it."""
        paths = self.fields.get(tool or "")
        if paths is None:
            return None
        try:
            data: Any = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        kept = self._pick(data, paths)
        return orjson.dumps(kept).decode() if kept and isinstance(kept, dict) else None

    def _pick(self, data: Any, paths: Iterable[tuple[str, ...]]) -> Any:
        """The parts of `data` on the paths; None when there is nothing."""
        if isinstance(data, list):
            items = [self._pick(item, paths) for item in data[: self.most_items]]
            return [item for item in items if item is not None] or None
        if () in paths:
            return self._scalar(data)
        if not isinstance(data, dict):
            return None
        heads: dict[str, list[tuple[str, ...]]] = {}
        for path in paths:
            heads.setdefault(path[0], []).append(path[1:])
        picked = {head: self._pick(data[head], tails) for head, tails in heads.items() if head in data}
        return {head: value for head, value in picked.items() if value is not None} or None

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, str):
            return value[: self.longest_string] or None
        return value if isinstance(value, bool | int | float) else None
