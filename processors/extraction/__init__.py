"""Extraction: what the model is asked, how its answer is read, which of its claims become candidates (SPEC W5, W6)."""
