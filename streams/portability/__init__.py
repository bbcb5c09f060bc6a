"""Portability: one owner's memories out as JSON lines, and back in through the owner's single writer (SPEC G2)."""
