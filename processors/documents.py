"""Documents: reviewed YAML that ships with the packages, parsed by libyaml where it is there (ten times as fast)."""

from __future__ import annotations

from typing import Any

import yaml

_PLAIN: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def parse(text: str) -> Any:
    """Plain data: mappings, lists, texts, numbers, dates.

    Raises:
        yaml.YAMLError: it is no YAML, or asks for more than plain data.
    """
    return yaml.load(text, Loader=_PLAIN)


def parse_texts(text: str) -> Any:
    """The same with every scalar as the text that stands there.

    Raises:
        yaml.YAMLError: it is no YAML.
    """
    return yaml.load(text, Loader=_TEXTS)
