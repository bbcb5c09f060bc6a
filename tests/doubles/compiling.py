"""Patterns that are compiled while a test looks on."""

from __future__ import annotations

import pytest

from processors.rules.late import LatePattern


def compiled_from_now_on(monkeypatch: pytest.MonkeyPatch) -> list[LatePattern]:
    """Grows with each pattern that is compiled."""
    made: list[LatePattern] = []
    compile_it = LatePattern.compile

    def counted(pattern: LatePattern) -> None:
        made.append(pattern)
        compile_it(pattern)

    monkeypatch.setattr(LatePattern, "compile", counted)
    return made
