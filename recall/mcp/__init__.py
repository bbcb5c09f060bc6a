"""MCP server: the verbs as tools for agents, over stdio and streamable HTTP."""

from recall.mcp.server import PATH, http_app, make_server

__all__ = ["PATH", "http_app", "make_server"]
