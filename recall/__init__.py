"""The read side: what agents ask."""
