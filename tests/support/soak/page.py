"""Page: what a soak found, as a table for people, a page, and one object for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import vibey
from tests.support.soak.flat import MEGABYTE
from tests.support.soak.series import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.soak.flat import Finding
    from tests.support.soak.run import Report

HEADS = ("what", "measure", "seen", "first fifth", "last fifth", "an hour", "growth", "bound", "a job", "verdict")
RIGHT = range(2, 9)
NOTE = """\
Memory is in MB, of the median process; growth that of the one that grew most, over the judged time. A job's growth
is that of all processes of a row, and may be {job} bytes, or {memory} MB in all."""


def to_json(report: Report) -> dict[str, Any]:
    """As one object; memory in bytes, durations in seconds."""
    return {
        "ok": report.ok,
        "version": vibey.__version__,
        "machine": report.machine,
        "seed": report.seed,
        "settings": asdict(report.length),
        "looks": report.looks,
        "judged_jobs": report.judged_jobs,
        "states": report.states,
        "runs": report.runs,
        "unsound": report.unsound,
        "audit": report.audited,
        "series": [each.to_json() for each in report.findings],
    }


def cells(finding: Finding) -> tuple[str, ...]:
    """A finding as a row of the table, see `HEADS`; memory in megabytes, and bytes a job."""
    is_memory = finding.measure == MEMORY
    unit = MEGABYTE if is_memory else 1.0
    numbers = [finding.first, finding.last, finding.per_hour, finding.worst, finding.allowed]
    shown = [f"{number / unit:.2f}" if is_memory else f"{number:.1f}" for number in numbers]
    job = f"{finding.per_job:.0f} B" if is_memory else ""
    return finding.subject, finding.measure, str(finding.tracks), *shown, job, finding.verdict


def table(findings: Sequence[Finding]) -> Iterator[str]:
    """The findings in aligned columns."""
    rows = [HEADS, *map(cells, findings)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        aligned = (
            text.rjust(width) if column in RIGHT else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(aligned).rstrip()


def verdict(report: Report) -> Iterator[str]:
    """The verdict in words."""
    jobs = sum(report.states.values())
    yield f"{jobs} jobs, {report.judged_jobs} of them in the judged time: " + ", ".join(
        f"{count} {state}" for state, count in sorted(report.states.items())
    )
    yield f"audit: {'clean' if not report.audited else '; '.join(report.audited)}"
    yield from report.unsound
    for each in (*report.growing, *report.unjudged):
        yield f"{each.subject}, {each.measure}: {each.verdict}"
    yield "flat and sound" if report.ok else "NOT flat and sound"


def markdown(report: Report) -> str:
    """As a page."""
    length, bounds = report.length, report.bounds
    facts = {**report.machine, "vibey": vibey.__version__, "seed": report.seed}
    lines = [
        "# What `make soak` saw",
        "",
        ", ".join(f"{key} {value}" for key, value in facts.items()),
        "",
        f"{length.seconds / 60:g} minutes at {length.rate:g} jobs a second, {report.looks} looks.",
        f"The first {bounds.warm:.0f} s, and the first {bounds.settling:.0f} s of each process, are not judged.",
        "",
        *(f"- {line}" for line in verdict(report)),
        "",
        NOTE.format(job=f"{bounds.job:.0f}", memory=f"{bounds.memory / MEGABYTE:g}"),
        "",
        f"| {' | '.join(HEADS)} |",
        "|" + "".join("---:|" if column in RIGHT else "---|" for column in range(len(HEADS))),
        *(f"| {' | '.join(cells(each))} |" for each in report.findings),
        "",
    ]
    return "\n".join(lines)


def write(report: Report, folder: Path) -> Iterator[Path]:
    """Write `soak.md` and `soak.json`; yields each as it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    page, numbers = folder / "soak.md", folder / "soak.json"
    page.write_text(markdown(report), encoding="utf-8")
    yield page
    numbers.write_text(json.dumps(to_json(report), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    yield numbers
