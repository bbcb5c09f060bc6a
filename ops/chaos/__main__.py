"""Chaos by hand: `python -m ops.chaos --seed 7`, or several seeds one after another on the same servers."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from contextlib import closing
from pathlib import Path

from ops.chaos.nursery import Nursery
from ops.chaos.report import as_json, as_row, as_text
from ops.chaos.run import Plan, run
from ops.dev.server import DEV, ServiceFailed, ServiceUnavailable
from ops.dev.services import Kafka, MariaDb


def main() -> int:
    """Returns 0 when every seed passed, 1 when an invariant did not hold, 3 when a service is missing."""
    parser = argparse.ArgumentParser(prog="python -m ops.chaos", description=__doc__)
    parser.add_argument("--seed", default="1", help="a number, or a range: 1-20")
    parser.add_argument("--minutes", type=float, default=1.5, help="how long load and faults last")
    parser.add_argument("--rate", type=float, default=40.0, help="messages a second")
    parser.add_argument("--people", type=int, default=60)
    parser.add_argument("--out", type=Path, default=DEV / "chaos", help="where reports, logs and messages are kept")
    parser.add_argument("--keep", action="store_true", help="leave broker and database running until Enter is pressed")
    given = parser.parse_args()
    # The broker is away on purpose, and the clients say so many times a second.
    logging.basicConfig(level="WARNING", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel("CRITICAL")
    first, _, last = given.seed.partition("-")
    failed = 0
    try:
        with Kafka() as kafka, MariaDb() as mariadb, closing(Nursery()) as nursery:
            for seed in range(int(first), int(last or first) + 1):
                plan = Plan(seed, given.minutes * 60, rate=given.rate, people=given.people)
                directory = given.out / f"seed-{seed}"
                result = asyncio.run(run(plan, kafka, mariadb, nursery, directory))
                (directory / "report.json").write_text(json.dumps(as_json(result), ensure_ascii=False, indent=1))
                (directory / "report.txt").write_text(as_text(result) + "\n")
                with (given.out / "rows.md").open("a") as rows:
                    rows.write(as_row(result) + "\n")
                sys.stdout.write(as_text(result) + "\n\n")
                sys.stdout.flush()
                failed += bool(result.violations)
            if given.keep:
                sys.stderr.write(
                    f"Kafka {kafka.bootstrap}, MariaDB 127.0.0.1:{mariadb.port}, data in {mariadb.home}; Enter ends them\n"
                )
                sys.stdin.readline()
    except (ServiceUnavailable, ServiceFailed) as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
