"""Streams, model side: from what an endpoint answered to the exception that carries the right policy."""

from __future__ import annotations

import openai

from processors.exceptions import MemriverError, Outage, PoisonError, TransientError
from sinks import outages
from sinks.retry_after import retry_after

_TOO_LONG = ("context_length", "context length", "maximum context", "too many tokens", "prompt is too long")
_REFUSED = ("content_filter", "content_policy", "content management policy", "data_inspection", "sensitive_words")
_UNKNOWN_MODEL = ("model not exist", "model_not_found", "does not exist", "unknown model", "no such model")
_FORMAT = ("response_format", "json_schema", "json_object", "structured output", "guided_json")
MISCONFIGURED_WAIT = 60.0
"""Seconds before a call that fails on account, key or model name is worth repeating; a person has to act."""


class Misconfigured(TransientError):
    """The endpoint refuses this account, key or model: no batch is to blame, so all of them wait."""


def from_status(error: openai.APIStatusError) -> MemriverError:
    """The exception for a status; its text names the status only, since providers echo prompts in their messages."""
    status = error.status_code
    said = _words(error)
    if status == 429 or status >= 500 or status in (408, 409, 425):
        return TransientError(
            f"the model endpoint answered {status}",
            retry_after=retry_after(error.response.headers),
            part="model",
            outage=outages.http(status) or Outage.AWAY,
        )
    if status == 413 or any(word in said for word in _TOO_LONG):
        return PoisonError("too_long", f"the model endpoint answered {status}: the request is too long")
    if any(word in said for word in _REFUSED):
        return PoisonError("refused", f"the model endpoint answered {status}: its content policy refuses the request")
    if status in (401, 402, 403, 404) or any(word in said for word in _UNKNOWN_MODEL):
        return Misconfigured(
            f"the model endpoint answered {status}: account, key, address or model name is refused",
            retry_after=MISCONFIGURED_WAIT,
            part="model",
            outage=Outage.REFUSED,
        )
    return PoisonError("bad_request", f"the model endpoint answered {status}")


def refused_parameter(error: openai.APIStatusError) -> str | None:
    """The optional part of a request that an endpoint does not know: response_format, max_tokens, temperature, None."""
    if error.status_code not in (400, 422):
        return None
    said = _words(error)
    if any(word in said for word in _FORMAT):
        return "response_format"
    for name in ("max_tokens", "temperature"):
        if name in said and not any(word in said for word in _TOO_LONG):
            return name
    return None


def _words(error: openai.APIStatusError) -> str:
    return f"{error.code or ''} {error.param or ''} {error.message} {error.body or ''}".casefold()
