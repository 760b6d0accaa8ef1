"""Report: what a bench found, as cells, as one object, as a page and as a picture.

The picture shows the ratios, since only they mean something on another machine: a point for each median with its spread
over the rounds, its bar if it has one, on a scale where twice and half as much are as far from one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import vibey
from vibey.bench.reasons import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from vibey.bench.figures import Figure

RATIO = "x"
GREEN, RED, GREY, BAR = "#2f6f4f", "#8c2f39", "#4a5a78", "#b4632d"
HEADS = ("row", "what", "median", "spread", "unit", "bar", "met")
SETTINGS = """\
Each pair is measured in turn, A B A B, in the same minutes on the same servers; a figure is the median over the rounds,
the spread their least and greatest, and a ratio that of each round's pair. Figures without a bar are for context.

- Postgres and the Redis-compatible server are embedded ones with their defaults, every commit durable.
- The router's passes are those of one at work: it has granted a job on each engine before, so that it is connected and
  its statements are planned.
- *pgbench* is C over prepared statements, four clients: one transaction a decision on the same tables. It is told which
  job to take, and touches one credit instead of all.
- *LiteLLM Router* picks among as many deployments in memory, by its default and quickest strategy, without Redis. It
  checks no slot and no cap, and records nothing.
- *Plain Celery, start and end committed*: its tasks insert a row and update it, over the driver's own connection, on
  the same Postgres.
- *Plain Celery* has the same broker and as many pool processes as all of Vibey's workers, no results and no events,
  early acknowledgement and its own prefetching. Vibey's side has events on.
- *Procrastinate* has two worker processes that share as many jobs at once as Vibey has slots, coroutine tasks deferred
  in batches, notifications on, and finished jobs kept. It is on the same Postgres.
- Added delay is there and back, by a proxy that both sides go through, also where the delay is 0.
- Jobs are held in a database that Postgres has not analysed yet, as in the first minute after their enqueueing: until
  then a tick reads an index of the queue whole.
- Memory is what is freed when a process ends. Size is counted after `vacuum full`, but for the first line.
- Faults are not in this table: `make chaos` counts them. Its reports lie beside this page, as `chaos-1.json` and so on.
"""


@dataclass(frozen=True, slots=True)
class Report:
    """Figures with the machine they were found on, the peers' versions, and why those that are missing are."""

    machine: Mapping[str, Any]
    figures: tuple[Figure, ...]
    versions: Mapping[str, str]
    missing: Mapping[str, str]
    rounds: int
    quick: bool

    @property
    def missed(self) -> int:
        """How many bars were missed."""
        return len(self._missed())

    def to_json(self) -> dict[str, Any]:
        """As one object for programs."""
        return {
            "quick": self.quick,
            "rounds": self.rounds,
            "version": vibey.__version__,
            "machine": dict(self.machine),
            "peers": dict(self.versions),
            "missing": dict(self.missing),
            "missed": self.missed,
            "rows": [figure.to_json() for figure in self.figures],
        }

    def cells(self, figure: Figure) -> tuple[object, ...]:
        """A figure as a row of a table: see `HEADS`. Of a quick run no bar is judged."""
        verdict = None if self.quick or figure.met is None else ("ok" if figure.met else "missed")
        spread = f"{shown(min(figure.samples))} to {shown(max(figure.samples))}"
        return figure.row, figure.what, shown(figure.median), spread, figure.unit, figure.bar, verdict

    def page(self) -> str:
        """As Markdown."""
        facts = {**self.machine, "vibey": vibey.__version__, **self.versions, "rounds": self.rounds}
        warning = "A quick run: it shows that everything can be measured, and nothing of how quick it is.\n\n"
        lines = [
            "# What `make bench` measured",
            "",
            (warning if self.quick else "") + ", ".join(f"{key} {value}" for key, value in facts.items()),
            "",
            *(f"Missing: {name}, because {reason}." for name, reason in self.missing.items()),
            "",
            f"| {' | '.join(HEADS)} |",
            "|---|---|---:|---:|---|---:|---|",
            *(self._line(figure) for figure in self.figures),
            "",
            *self._misses(),
            "## How",
            "",
            SETTINGS,
        ]
        return "\n".join(lines)

    def _missed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.met is False]

    def _misses(self) -> list[str]:
        """The bars that were missed, each with the reason, if one is known."""
        missed = [] if self.quick else self._missed()
        if not missed:
            return []
        told = [
            f"- *{figure.row}: {figure.what}*: {shown(figure.median)} {figure.unit}, not {figure.bar}. "
            f"{REASONS.get((figure.row, figure.what), 'No reason is known yet.')}"
            for figure in missed
        ]
        return ["## Bars that were missed, and why", "", *told, ""]

    def _line(self, figure: Figure) -> str:
        return f"| {' | '.join('' if cell is None else str(cell) for cell in self.cells(figure))} |"


def shown(value: float) -> str:
    """A number with three digits, or whole."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write(report: Report, folder: Path) -> Iterator[Path]:
    """Write `bench.md`, `bench.json` and, where matplotlib is installed, `bench.svg`; yields each as it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    page, numbers, picture = (folder / f"bench.{kind}" for kind in ("md", "json", "svg"))
    page.write_text(report.page(), encoding="utf-8")
    yield page
    numbers.write_text(json.dumps(report.to_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    yield numbers
    ratios = [figure for figure in report.figures if figure.unit == RATIO]
    if ratios and _draw(ratios, picture):
        yield picture


def _draw(ratios: list[Figure], path: Path) -> bool:
    """Draw the ratios; False without matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        return False
    with mpl.rc_context({"svg.hashsalt": "vibey", "svg.fonttype": "none"}):
        canvas = Canvas(figsize=(9, 1.2 + 0.34 * len(ratios)), layout="constrained")
        axes = canvas.subplots()
        for place, figure in enumerate(reversed(ratios)):
            colour = GREY if figure.met is None else (GREEN if figure.met else RED)
            axes.plot([min(figure.samples), max(figure.samples)], [place, place], color=colour, linewidth=5, alpha=0.35)
            axes.plot([figure.median], [place], "o", color=colour)
            if figure.bar is not None:
                axes.plot([figure.bar.limit], [place], "|", color=BAR, markersize=16, markeredgewidth=2.5)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.axvline(1, color="#cccccc", linewidth=1, zorder=0)
        axes.set_yticks(range(len(ratios)), [f"{each.row}: {each.what}" for each in reversed(ratios)])
        axes.set_xlabel("ratio: median and spread over the rounds; the upright mark is the bar")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        canvas.savefig(path, format="svg", metadata={"Date": None})
    return True
