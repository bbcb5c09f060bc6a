"""Re-embedding: a new collection beside the live one, from truth, verified, switched to, reversible (SPEC L5)."""
