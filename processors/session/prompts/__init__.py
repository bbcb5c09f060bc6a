"""Session, prompts: one module per version and language; a published one is never edited, a new one is added."""

from __future__ import annotations

from types import ModuleType

from processors.session.prompts import summarise_v1_en, summarise_v1_zh

PROMPT_VERSION = "summarise_v1"
"""The version in use; with the language it names the module, and it is recorded with every summary."""


def module_for(language: str) -> ModuleType:
    """The prompt module for a conversation's language: Chinese for zh*, English for everything else."""
    return summarise_v1_zh if language.casefold().startswith("zh") else summarise_v1_en
