"""Chaos: real services and workers under seeded faults, and a verifier that knows what must be left."""
