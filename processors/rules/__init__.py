"""Rules: the channel that needs no model; rules are reviewed YAML, one file per language, with examples that are the tests."""

from processors.rules.book import RuleBook
from processors.rules.channel import candidates_from
from processors.rules.model import HitKind, RuleHit

__all__ = ["HitKind", "RuleBook", "RuleHit", "candidates_from"]
