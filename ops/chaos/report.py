"""Chaos, the report: seed, what was done when, what was found; as JSON for programs and as text for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from ops.chaos.run import Result
from ops.chaos.verifier import INVARIANTS


def as_json(result: Result) -> dict[str, Any]:
    """Everything."""
    return {
        "seed": result.plan.seed,
        "command": command(result),
        "passed": not result.violations,
        "violations": [asdict(violation) for violation in result.violations],
        "invariants": list(INVARIANTS),
        "counts": dict(result.counts),
        "seconds": {
            "disturbed": result.plan.seconds,
            "until quiet": result.settled_after,
            "whole run": result.duration,
        },
        "faults": [
            {
                "at": done.began,
                "until": done.ended,
                "what": done.fault.kind.value,
                "worker": done.fault.worker + 1 if done.fault.kind.value.startswith("worker") else None,
                "outcome": done.outcome,
            }
            for done in result.faults
        ],
        "workers that ended by themselves": [
            {"worker": ended.worker, "code": ended.code, "last words": ended.last_words} for ended in result.ended
        ],
        "remarks": result.remarks,
        "diary": result.diary,
    }


def as_text(result: Result) -> str:
    """What a person wants to know first, first."""
    verdict = "PASSED" if not result.violations else f"FAILED: {len(result.violations)} of {len(INVARIANTS)} invariants"
    lines = [f"seed {result.plan.seed}: {verdict}", f"again with: {command(result)}", ""]
    for violation in result.violations:
        lines.append(f"  violated {violation.count} times: {violation.invariant}")
        lines += [f"    {case}" for case in violation.evidence]
    lines += ["  " + ", ".join(f"{count} {what}" for what, count in result.counts.items())]
    lines += [
        f"  {result.plan.seconds:.0f} s of faults, quiet {result.settled_after:.0f} s after the last message, "
        f"{result.duration:.0f} s in all",
        "",
    ]
    for done in result.faults:
        who = f" {done.fault.worker + 1}" if done.fault.kind.value.startswith("worker") else ""
        what = done.fault.kind.value.replace("worker", f"worker{who}", 1)
        lines.append(f"  {done.began:6.1f}–{done.ended:<6.1f} {what}: {done.outcome}")
    for ended in result.ended:
        lines.append(f"  {ended.worker} ended by itself with {ended.code}: {ended.last_words}")
    lines += [f"  remark: {remark}" for remark in result.remarks]
    return "\n".join(lines)


def as_row(result: Result) -> str:
    """A row of RESULTS.md."""
    kinds = Counter(done.fault.kind.value.split(":")[0].split(" joins")[0] for done in result.faults)
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    broken = "; ".join(f"{violation.invariant} ({violation.count})" for violation in result.violations) or "none"
    counts = result.counts
    return (
        f"| {result.plan.seed} | `{command(result)}` | {result.duration:.0f} s | {len(result.faults)}: {faults} "
        f"| {counts['turns']:,} | {counts['memories']:,} | {counts['events']:,} | {broken} |"
    )


def command(result: Result) -> str:
    """What repeats the run."""
    return f"make chaos SEED={result.plan.seed} MINUTES={result.plan.seconds / 60:g}"
