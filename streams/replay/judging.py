"""Replay, judging: which rules and which prompt, checked before anything is begun."""

from __future__ import annotations

from pathlib import Path

from processors.exceptions import FatalError
from processors.extraction.prompts import PROMPT_VERSION, module_for
from processors.rules import RuleBook
from processors.rules.loading import LANGUAGES, packaged_texts, version_of
from sinks.truth.replays import Judging


def chosen(rules: str | None = None, prompt: str | None = None) -> Judging:
    """The packaged rules and the present prompt, or others.

    Args:
        rules: version of the packaged rules, or a file `zh.yaml` or `en.yaml`, or a folder with one or both; a language
            that is not there keeps the packaged file.
        prompt: a version among `processors.extraction.prompts.PROMPTS`.

    Raises:
        FatalError: there are no such rules or no such prompt, or a rule is malformed.
    """
    texts = packaged_texts()
    if rules is not None and rules != version_of(texts):
        texts |= _texts(rules, version_of(texts))
    RuleBook.of(texts)
    version = prompt if prompt is not None else PROMPT_VERSION
    module_for("en", version)
    return Judging(texts, version_of(texts), version)


def _texts(named: str, packaged: str) -> dict[str, str]:
    place = Path(named)
    if not place.exists():
        raise FatalError(
            f"there are no rules {named}: the packaged ones are {packaged}; a file or a folder may be named"
        )
    files = [place] if place.is_file() else [place / f"{language}.yaml" for language in LANGUAGES]
    found = [path for path in files if path.is_file()]
    if not found or any(path.stem not in LANGUAGES for path in found):
        raise FatalError(
            f"{named} must be one of {', '.join(f'{name}.yaml' for name in LANGUAGES)}, or a folder with them"
        )
    try:
        return {path.stem: path.read_text(encoding="utf-8") for path in found}
    except (OSError, ValueError) as error:
        raise FatalError(f"the rules in {named} cannot be read ({type(error).__name__})") from error
