"""Screen: what a person sees while a demo runs: on a terminal a table that keeps up to date, else plain lines."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vibey.services.summary import Summary

PARTS = 4
BAR_WIDTH = 60


class Screen:
    """Progress on standard error; standard output is left for the result."""

    def __init__(self, console: Console) -> None:
        """Write to this console."""
        self._console = console
        self._live: Live | None = None
        self._said = 0

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Screen]:
        """A screen on standard error; a table still shown is left as it was last."""
        screen = cls(Console(stderr=True, highlight=False))
        try:
            yield screen
        finally:
            screen.settle()

    def step(self, text: str) -> None:
        """Say what begins now."""
        self.settle()
        self._console.print(f"· {text}", style="dim", markup=False)

    def show(self, summary: Summary, seconds: float) -> None:
        """Show how the jobs are."""
        if self._console.is_terminal:
            self._draw(Group(Text(), shares_table(summary), progress(summary, seconds)))
        else:
            self._tell(summary, seconds)

    def settle(self) -> None:
        """Stop keeping the table up to date."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self, view: Group) -> None:
        if self._live is None:
            self._live = Live(view, console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(view, refresh=True)

    def _tell(self, summary: Summary, seconds: float) -> None:
        reached = summary.ended * PARTS // len(summary.jobs)
        if reached > self._said:
            self._said = reached
            self._console.print(f"· {summary.ended} of {len(summary.jobs)} jobs ended after {seconds:.1f} s")


def shares_table(summary: Summary) -> Table:
    """The engines and how they share the jobs, with the slots in use until all have ended; fits 80 columns."""
    at_work = summary.ended < len(summary.jobs)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Engine", no_wrap=True)
    table.add_column("Tier", no_wrap=True)
    for heading in ("Slots", *(["In use"] if at_work else []), "Peak", "Picks", "Expected", "Done"):
        table.add_column(heading, justify="right", no_wrap=True)
    for share in summary.shares:
        table.add_row(
            share.name,
            share.tier,
            str(share.slots),
            *([str(share.in_use)] if at_work else []),
            str(share.peak),
            str(share.picks),
            f"{share.expected:.2f}",
            str(share.succeeded),
            style="dim" if at_work and not share.in_use else None,
        )
    return table


def progress(summary: Summary, seconds: float) -> Table:
    """The queue in one line, and a bar of the jobs that ended."""
    states = summary.states
    words = (
        f"{states['queued']} queued",
        f"{states['granted'] + states['running']} running",
        f"{summary.overflows} overflowed",
        f"{summary.ended} of {len(summary.jobs)} ended",
        f"{seconds:.1f} s",
    )
    bar = ProgressBar(total=len(summary.jobs), completed=summary.ended, width=BAR_WIDTH)
    lines = Table.grid()
    lines.add_row(Text())
    lines.add_row(bar)
    lines.add_row(Text(" · ".join(words)))
    return lines
