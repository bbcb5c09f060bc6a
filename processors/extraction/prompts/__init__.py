"""Extraction, prompts: one module per version and language; a published one is never edited, a new one is added."""

from __future__ import annotations

from types import ModuleType

from processors.extraction.prompts import extract_v1_en, extract_v1_zh

PROMPT_VERSION = "extract_v1"
"""The version in use; with the language it names the module, and it is recorded with every reply."""


def module_for(language: str) -> ModuleType:
    """The prompt module for a batch's language: Chinese for zh*, English for everything else."""
    return extract_v1_zh if language.casefold().startswith("zh") else extract_v1_en
