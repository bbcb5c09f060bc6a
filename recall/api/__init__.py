"""HTTP API, version 1: the verbs for programs; OpenAPI at `/openapi.json`."""

from recall.api.app import ApiConfig, create_app
from recall.api.changes import ChangeHub

__all__ = ["ApiConfig", "ChangeHub", "create_app"]
