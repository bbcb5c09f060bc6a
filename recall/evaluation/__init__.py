"""Recall, evaluation: the product's own ranker on published conversations (SPEC E2)."""
