"""Agents: one Faust agent per file; each takes raw bytes and hands them to its stage through `streams.delivery`."""
