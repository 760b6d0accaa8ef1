"""`python -m tests.support.chaos --seed 7`: a chaos run from the command line; see docs/how-to/chaos.md.

Exit: 0 no violation, 1 violations, 2 usage. The seed, or the printed plan, is all it takes to repeat a run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.support.chaos.plan import KINDS, Plan
from tests.support.chaos.run import Chaos, Report


def main() -> int:
    """Do one run, and say what was found."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        # Also one started in the background can be ended in good order.
        signal.signal(signum, signal.default_int_handler)
    arguments = _arguments()
    plan = Plan.of(arguments.seed, arguments.jobs, arguments.faults, arguments.only or tuple(KINDS))
    _say(str(plan))
    if arguments.plan:
        return 0
    folder = Path(tempfile.mkdtemp(prefix=f"vibey-chaos-{arguments.seed}-"))
    _say(f"files: {folder}")
    chaos = Chaos(plan, folder, arguments.seconds, lambda line: _say(f"{time.strftime('%H:%M:%S')} {line}"))
    try:
        report = chaos.go()
    finally:
        quietly = sys.stdout
        sys.stdout = (folder / "logs.txt").open("w", encoding="utf-8")
        try:
            chaos.close()
        finally:
            sys.stdout.close()
            sys.stdout = quietly
    _tell(report)
    if report.violations or report.audited:
        _say(f"to repeat: make chaos SEED={plan.seed}; the logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description="Many faults over many jobs, decided by a seed.")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("VIBEY_CHAOS_SEED") or "1"))
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("VIBEY_CHAOS_JOBS") or "5000"))
    parser.add_argument("--faults", type=int, default=int(os.environ.get("VIBEY_CHAOS_FAULTS") or "520"))
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("VIBEY_CHAOS_SECONDS") or "720"))
    parser.add_argument("--only", action="append", choices=tuple(KINDS), help="strike with this kind alone; repeatable")
    parser.add_argument("--plan", action="store_true", help="print the plan and do nothing")
    return parser.parse_args()


def _tell(report: Report) -> None:
    told = report.to_json()
    _say(json.dumps(told, indent=2))
    verdict = "no violation" if told["ok"] else f"{len(report.violations) + len(report.audited)} VIOLATIONS"
    _say(f"seed {report.seed}: {report.jobs} jobs, {report.faults} faults, {report.seconds:.0f} s: {verdict}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
