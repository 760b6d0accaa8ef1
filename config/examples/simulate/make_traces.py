"""Write the traces of the simulate how-to: a small team's week, drawn once and for all from a fixed seed.

Run it from this folder to write them anew: `python make_traces.py`. The same numbers come out every time.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

HOUR = 3600
DAY = 24 * HOUR
HERE = Path(__file__).parent


def office_week(seed: int, jobs_a_day: int, *, minutes: tuple[int, int]) -> list[dict[str, object]]:
    """Five working days of jobs, most between nine and six, each longer on the local engine than on a paid one."""
    chance = Random(seed)  # noqa: S311  (a trace wants to be the same every time)
    arrivals = []
    for day in range(5):
        for _ in range(jobs_a_day):
            hour = min(23.9, max(0.0, chance.gauss(13.5, 3.0)))
            arrivals.append(round(day * DAY + hour * HOUR))
    lines = []
    for number, at in enumerate(sorted(arrivals), 1):
        local = 60 * chance.randint(*minutes)
        seconds = {"ollama": local, "*": round(local * 0.6)}
        lines.append({"at": at, "job": f"job-{number}", "project": chance.choice(["web", "api"]), "seconds": seconds})
    return lines


def main() -> None:
    """Write one trace for each question."""
    bad_morning = [
        {"at": DAY + 9 * HOUR, "engine": "ollama", "event": "down"},
        {"at": DAY + 13 * HOUR, "engine": "ollama", "event": "up"},
        {"at": 3 * DAY + 10 * HOUR, "engine": "claude", "event": "fail", "value": "window", "resets_in": 2 * HOUR},
        {"at": 3 * DAY + 12 * HOUR, "engine": "claude", "event": "up"},
    ]
    traces = {
        "cap": office_week(1, 40, minutes=(10, 30)) + bad_morning,
        "threshold": office_week(2, 36, minutes=(5, 25)),
        "second-slot": office_week(3, 45, minutes=(10, 25)),
    }
    for name, lines in traces.items():
        ordered = sorted(lines, key=lambda line: line["at"])
        text = "".join(json.dumps({key: each[key] for key in each}) + "\n" for each in ordered)
        (HERE / f"{name}.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
