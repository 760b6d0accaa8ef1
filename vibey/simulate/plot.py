"""Plot: busy slots of each engine, the length of the queue and what is used of the cap, over the time of a simulation.

Needs matplotlib, which only this module uses: `pip install 'vibey[plot]'`.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibey.domain.errors import InvalidInput, Refused
from vibey.domain.layer import DAY_MS, DAYS

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.simulate.report import Report

KINDS = (".png", ".html")
HOUR_MS = 3_600_000
NAMED_DAYS = 14
LEGEND = 6
LOCAL, PAID, QUEUE = "#2f6f4f", "#b4632d", "#4a5a78"
CAPS = ("#8c2f39", "#2b6cb0", "#7a5c99", "#4d7c0f", "#b7791f", "#4a5568")
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
    import matplotlib as mpl

    figure = _figure(report)
    if path.suffix == ".png":
        figure.savefig(path, dpi=144)
        return
    text = io.StringIO()
    # Names within the drawing are chance unless they are salted.
    with mpl.rc_context({"svg.hashsalt": "vibey"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    path.write_text(PAGE.format(svg=svg[svg.index("<svg") :]), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _Scale:
    """The axis of time: what one unit of it is, and what it is called."""

    unit_ms: int
    label: str

    @classmethod
    def of(cls, length_ms: int) -> _Scale:
        """The scale on which so long a time reads well."""
        if length_ms <= 2 * HOUR_MS:
            return cls(HOUR_MS // 60, "minutes")
        return cls(HOUR_MS, "hours") if length_ms <= 2 * DAY_MS else cls(DAY_MS, "days; a tick is a midnight, UTC")


def _figure(report: Report) -> Any:  # noqa: ANN401  matplotlib ships no types for this
    from matplotlib.figure import Figure

    engines = report.fleet.engines()
    heights = [1.0] * len(engines) + [1.8, 1.4]
    figure = Figure(figsize=(12, 1.4 + 0.55 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(heights), 1, sharex=True, gridspec_kw={"height_ratios": heights})
    begun_ms = report.moments[0].at_ms if report.moments else report.now_ms
    scale = _Scale.of(report.now_ms - begun_ms)
    for axis, (name, tier, slots) in zip(axes, engines, strict=False):
        used = [(moment.at_ms, moment.in_use[name]) for moment in report.moments]
        _area(axis, used, report, scale, color=LOCAL if tier == "local" else PAID)
        highest = max([slots, *(value for _, value in used)])
        _titled(axis, name, highest)
        axis.set_yticks([0, highest])
    _queue(axes[-2], report, scale)
    _cap(axes[-1], report, scale)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="x", color="#d8d8d8", linewidth=0.6)
        axis.set_axisbelow(True)
    ends_ms = max(report.now_ms, begun_ms + scale.unit_ms)
    axes[-1].set_xlim(begun_ms / scale.unit_ms, ends_ms / scale.unit_ms)
    _timed(axes[-1], ends_ms - begun_ms, scale)
    figure.suptitle("Slots in use (green: local, orange: paid), jobs in the queue, and units of the cap", fontsize=11)
    return figure


def _queue(axis: Any, report: Report, scale: _Scale) -> None:  # noqa: ANN401  matplotlib ships no types
    queued = [(each.at_ms, each.queued) for each in report.moments]
    held = [(each.at_ms, each.held) for each in report.moments]
    _area(axis, queued, report, scale, color=QUEUE, alpha=0.35, label="queued")
    _area(axis, held, report, scale, color=QUEUE, label="of these held")
    _titled(axis, "queue", max((value for _, value in queued), default=1))
    _explained(axis)


def _cap(axis: Any, report: Report, scale: _Scale) -> None:  # noqa: ANN401  matplotlib ships no types
    """Units of the day as they are taken, a line for each purse, below the day's limit."""
    limit, purses = report.rules.cap, sorted({purse for each in report.moments for purse in each.units})
    for place, purse in enumerate(purses):
        taken = [(each.at_ms, each.units.get(purse, 0)) for each in report.moments]
        for now_ms, (then_ms, _) in zip([at for at, _ in taken[1:]], taken[:-1], strict=True):
            if now_ms // DAY_MS > then_ms // DAY_MS:
                # A new day begins at its midnight, whether or not anything happened then.
                taken.append(((then_ms // DAY_MS + 1) * DAY_MS, 0))
        times, values = _steps(sorted(taken), report, scale)
        axis.step(times, values, where="post", color=CAPS[place % len(CAPS)], linewidth=1.4, label=purse)
    axis.axhline(limit, color="black", linewidth=0.8, linestyle="--", label="a day's cap")
    _titled(axis, "cap", limit)
    _explained(axis)


def _area(axis: Any, series: list[tuple[int, int]], report: Report, scale: _Scale, **style: Any) -> None:  # noqa: ANN401
    times, values = _steps(series, report, scale)
    axis.fill_between(times, values, step="post", linewidth=0, **style)


def _steps(series: list[tuple[int, int]], report: Report, scale: _Scale) -> tuple[list[float], list[int]]:
    """The times at which a value changes, and the values from then on, up to the end."""
    kept = [each for place, each in enumerate(series) if not place or each[1] != series[place - 1][1]]
    kept.append((report.now_ms, kept[-1][1] if kept else 0))
    return [at_ms / scale.unit_ms for at_ms, _ in kept], [value for _, value in kept]


def _titled(axis: Any, name: str, highest: int) -> None:  # noqa: ANN401  as above
    from matplotlib.ticker import MaxNLocator

    axis.set_ylim(0, max(highest, 1) * 1.08)
    axis.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    axis.set_ylabel(name, rotation=0, ha="right", va="center")


def _explained(axis: Any) -> None:  # noqa: ANN401  as above
    """What the colours mean, beside the drawing, where it hides nothing; of many only the first."""
    handles, labels = (found[:LEGEND] for found in axis.get_legend_handles_labels())
    axis.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.05), fontsize=8, frameon=False)


def _timed(axis: Any, length_ms: int, scale: _Scale) -> None:  # noqa: ANN401  as above
    """Ticks at round times: of days each with its name, while there is room for it."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, MultipleLocator

    axis.set_xlabel(scale.label)
    if scale.unit_ms == DAY_MS and length_ms <= NAMED_DAYS * DAY_MS:
        axis.xaxis.set_major_locator(MultipleLocator(1))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda day, _: DAYS[int(day) % 7].capitalize()))
    else:
        axis.xaxis.set_major_locator(MaxNLocator(nbins=16, steps=[1, 2, 3, 4, 6, 10], integer=True))
