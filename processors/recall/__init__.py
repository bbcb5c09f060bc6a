"""Recall room: what a question is after, and which of many sentences answer it best. Pure (SPEC R3, R4, R6)."""

from processors.recall.evidence import Mixing
from processors.recall.question import Question, Wish
from processors.recall.ranking import Parts, Ranked, Ranking, Scales, Weights, rank
from processors.recall.selection import Quotas, select
from processors.recall.standin import newest_first
from processors.recall.triggers import Clarification, clarify, fallback, triggers
from processors.recall.unit import Kind, Unit

__all__ = [
    "Clarification",
    "Kind",
    "Mixing",
    "Parts",
    "Question",
    "Quotas",
    "Ranked",
    "Ranking",
    "Scales",
    "Unit",
    "Weights",
    "Wish",
    "clarify",
    "fallback",
    "newest_first",
    "rank",
    "select",
    "triggers",
]
