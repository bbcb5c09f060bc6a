"""Replay: the log of turns judged once more, into a schema beside the live one, which can then take its place (SPEC L6)."""
