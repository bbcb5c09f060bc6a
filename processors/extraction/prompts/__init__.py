"""Extraction, prompts: one module per version and language; a published one is never edited, a new one is added."""

from __future__ import annotations

from types import MappingProxyType, ModuleType

from processors.exceptions import FatalError
from processors.extraction.prompts import extract_v1_en, extract_v1_zh

PROMPT_VERSION = "extract_v1"
"""The version in use; with the language it names the module, and it is recorded with every reply."""

PROMPTS = MappingProxyType({"extract_v1": {"zh": extract_v1_zh, "en": extract_v1_en}})
"""Every version that there is: a replay may ask under another one than the one in use."""


def module_for(language: str, version: str = PROMPT_VERSION) -> ModuleType:
    """The prompt module for a batch's language: Chinese for zh*, English for everything else.

    Raises:
        FatalError: there is no such version.
    """
    known = PROMPTS.get(version)
    if known is None:
        raise FatalError(f"there is no prompt {version}; there are {', '.join(PROMPTS)}")
    return known["zh" if language.casefold().startswith("zh") else "en"]
