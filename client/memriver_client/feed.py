"""Client, feed: reading Server-Sent Events line by line (WHATWG HTML, 9.2.6); no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """One event of the stream."""

    event: str
    data: str = field(repr=False)


@dataclass
class FeedReader:
    """`line` for each line of the stream; it returns a message when one is complete."""

    _event: str = ""
    _data: list[str] = field(default_factory=list, repr=False)

    def line(self, text: str) -> Message | None:
        """One line without its end."""
        if not text:
            message = Message(self._event or "message", "\n".join(self._data)) if self._data else None
            self._event, self._data = "", []
            return message
        name, _colon, value = text.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        return None
