"""Plot: busy slots of each engine, the length of the queue and what is used of the cap, over the time of a simulation.

Needs matplotlib, which only this module uses: `pip install 'vibey[plot]'`.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import InvalidInput, Refused
from vibey.domain.layer import DAY_MS

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.simulate.report import Report

KINDS = (".png", ".html")
HOUR_MS = 3_600_000
LOCAL, PAID, QUEUE, CAP = "#2f6f4f", "#b4632d", "#4a5a78", "#8c2f39"
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>vibey simulate</title>
<style>body{{margin:2rem;font:16px/1.5 system-ui,sans-serif}} svg{{max-width:100%;height:auto}}</style></head>
<body>{svg}</body></html>
"""


def check(path: Path) -> None:
    """Refuse a file name whose kind cannot be drawn, and a missing library, before anything is simulated."""
    if path.suffix not in KINDS:
        raise InvalidInput("--plot", path.name, f"a file name that ends in {' or '.join(KINDS)}")
    if not path.absolute().parent.is_dir():
        raise InvalidInput("--plot", str(path), "a file in a folder that exists")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise Refused("plots need matplotlib, which is not installed", "run: pip install 'vibey[plot]'") from error
    mpl.use("agg")


def draw(report: Report, path: Path) -> None:
    """Draw a report that kept its moments, as a picture or as a page that holds it."""
    figure = _figure(report)
    if path.suffix == ".png":
        figure.savefig(path, dpi=144)
        return
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    path.write_text(PAGE.format(svg=svg[svg.index("<svg") :]), encoding="utf-8")


def _figure(report: Report) -> Any:  # noqa: ANN401  matplotlib ships no types for this
    from matplotlib.figure import Figure

    engines = report.fleet.engines()
    heights = [1.0] * len(engines) + [1.8, 1.2]
    figure = Figure(figsize=(11, 1.2 + 0.55 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})
    hours = [moment.at_ms / HOUR_MS for moment in report.moments] + [report.now_ms / HOUR_MS]
    for axis, (name, tier, slots) in zip(axes, engines, strict=False):
        used = [moment.in_use.get(name, 0) for moment in report.moments]
        axis.stairs(used, hours, fill=True, color=LOCAL if tier == "local" else PAID)
        axis.set_ylim(0, max([slots, *used]) * 1.05)
        axis.set_yticks([0, slots])
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
    _queue(axes[-2], report, hours)
    _cap(axes[-1], report)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0)
    axes[-1].set_xlabel("hours")
    figure.suptitle("slots in use (green local, orange paid), jobs queued, paid units of the day", fontsize=10)
    return figure


def _queue(axis: Any, report: Report, hours: list[float]) -> None:  # noqa: ANN401  matplotlib ships no types
    axis.stairs([moment.queued for moment in report.moments], hours, fill=True, color=QUEUE, alpha=0.35, label="queued")
    axis.stairs([moment.held for moment in report.moments], hours, fill=True, color=QUEUE, label="held for overflow")
    axis.set_ylim(bottom=0)
    axis.set_ylabel("queue", rotation=0, ha="right", va="center")
    axis.legend(loc="upper right", fontsize=8, frameon=False)


def _cap(axis: Any, report: Report) -> None:  # noqa: ANN401  matplotlib ships no types
    used = report.rules.used
    purses = sorted({purse for purse, _ in used}) or [""]
    days = range(report.now_ms // DAY_MS + 1)
    width = 24 / len(purses)
    for place, purse in enumerate(purses):
        values = [used.get((purse, day), 0) for day in days]
        lefts = [24 * day + place * width for day in days]
        shade = 1 - 0.6 * place / len(purses)
        axis.bar(lefts, values, width=width, align="edge", color=CAP, alpha=shade, edgecolor="white", label=purse)
    axis.axhline(report.rules.cap, color="black", linewidth=0.8, linestyle="--")
    axis.set_xlim(0, report.now_ms / HOUR_MS)
    axis.set_ylim(0, max(report.rules.cap, *used.values(), 1) * 1.1 if used else max(report.rules.cap, 1) * 1.1)
    if len(purses) > 1:
        axis.legend(loc="upper right", fontsize=8, frameon=False, ncols=len(purses))
    axis.set_ylabel("cap", rotation=0, ha="right", va="center")
