"""`python -m tests.support.soak --minutes 20`: a soak from the command line; see docs/how-to/soak.md.

Exit: 0 flat and sound, 1 not, 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path

from tests.support.soak import page
from tests.support.soak.run import Length, Soak
from tests.support.soak.stored import Stored
from tests.support.soak.virtual import lived

INTERRUPTED = 130


def main() -> int:
    """Do one soak, and say what was found."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        # Also one started in the background can be ended in good order.
        signal.signal(signum, signal.default_int_handler)
    arguments = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="vibey-soak-"))
    _tell(f"files: {folder}")
    try:
        ok = _soaked(arguments, folder)
    except KeyboardInterrupt:
        _tell(f"interrupted; the logs are in {folder}")
        return INTERRUPTED
    if not ok:
        _tell(f"the logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _soaked(arguments: argparse.Namespace, folder: Path) -> bool:
    soak = Soak(folder, Length.of(arguments.minutes, arguments.rate), _tell, seed=arguments.seed)
    try:
        report = soak.go()
        if arguments.virtual_hours:
            _live(arguments, soak, folder)
    finally:
        with (folder / "logs.txt").open("w", encoding="utf-8") as logs, redirect_stdout(logs):
            soak.close()
    if arguments.json:
        _say(json.dumps(page.to_json(report), indent=2))
    else:
        for line in (*page.table(report.findings), "", *page.verdict(report)):
            _say(line)
    if arguments.write is not None:
        for path in page.write(report, arguments.write):
            _tell(f"wrote {path}")
    return report.ok


def _live(arguments: argparse.Namespace, soak: Soak, folder: Path) -> None:
    """Add virtual hours to a soak's report: simulated ones, and ones on tables of their own."""
    hours = arguments.virtual_hours
    _tell(f"simulating {hours:g} virtual hours")
    simulated = lived(hours, arguments.seed)
    if any(each.verdict == "grows" for each in simulated.findings):
        _tell(f"grown most: {', '.join(f'{name} {size} B' for name, size in simulated.where)}")
    _tell(f"{simulated.jobs} jobs, {simulated.decisions} decisions; now {hours:g} virtual hours on real tables")
    with Stored.beside(soak.services, folder / "stored", arguments.seed) as stored:
        soak.report.findings += [*simulated.findings, *stored.live(hours)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description="A steady load for long; nothing may grow.")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long the load lasts (default 20)")
    parser.add_argument(
        "--virtual-hours", type=float, default=0.0, help="then so many hours in virtual time (default 0)"
    )
    parser.add_argument("--rate", type=float, default=6.0, help="jobs a second (default 6)")
    parser.add_argument("--seed", type=int, default=1, help="which jobs (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, metavar="DIRECTORY", help="write soak.json and soak.md there")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _tell(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
