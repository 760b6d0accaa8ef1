"""Families: every metric there is, its labels, and what its numbers mean. The names are a contract.

A label's values are the installation's own names (engines, accounts, projects, workers) or words of a short list, so
that the number of series is bounded by what an operator has configured, never by jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How a metric's numbers move: up and down, only up, or as counts of durations by upper bounds."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; a counter's name ends in `_total`, a duration's in `_seconds`."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """Its unit, empty for plain numbers."""
        return "seconds" if self.name.endswith("_seconds") else ""

    @property
    def series(self) -> tuple[str, ...]:
        """The names its samples go under."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.name}_{end}" for end in ("bucket", "count", "sum"))
        return (self.name,)


AS_OF = Family(
    "vibey_as_of_timestamp_seconds", Kind.GAUGE, "The instant all of this is as of, by the database's clock."
)
SELECTED = Family(
    "vibey_engine_selected_total",
    Kind.COUNTER,
    "Runs granted to an engine, by what the grant rested on: assign, overflow or fallback.",
    ("engine", "tier", "why"),
)
SLOTS = Family("vibey_slots", Kind.GAUGE, "Runs an engine may have at once, as configured.", ("engine",))
IN_USE = Family(
    "vibey_slots_in_use", Kind.GAUGE, "Runs of an engine that have not ended, over all projects.", ("engine",)
)
STAFFED = Family("vibey_engine_staffed", Kind.GAUGE, "1 while a live worker serves the engine, else 0.", ("engine",))
CIRCUIT = Family(
    "vibey_circuit_state", Kind.GAUGE, "An account's circuit: 0 closed, 1 half open, 2 open.", ("account",)
)
JOBS = Family("vibey_jobs", Kind.GAUGE, "Jobs that have not ended, by state: queued, granted, running.", ("state",))
HELD = Family("vibey_jobs_held", Kind.GAUGE, "Queued jobs held because overflow could follow.")
WAIT = Family(
    "vibey_oldest_wait_seconds",
    Kind.GAUGE,
    "How long the job that has waited longest at the front of its group and priority has been due, by the tier it "
    "waits for: local, paid, or none where no engine may serve it now. 0 while none waits.",
    ("tier",),
)
OVERDUE = Family(
    "vibey_hold_overdue_seconds",
    Kind.GAUGE,
    "For how long beyond its project's threshold the longest hold has lasted though overflow could follow; 0 is well.",
)
STALLED = Family(
    "vibey_stalled_seconds",
    Kind.GAUGE,
    "For how long the same job has been seen at the front of its group beside a free slot that it may use; 0 is well. "
    "Seen by this exporter since it runs.",
)
CAP = Family(
    "vibey_cap_units", Kind.GAUGE, "Paid units a UTC day that the project's work may take in all.", ("project",)
)
CAP_REMAINING = Family(
    "vibey_cap_remaining", Kind.GAUGE, "Paid units of the UTC day that are left to the project's work.", ("project",)
)
DECISION = Family(
    "vibey_decision_seconds",
    Kind.HISTOGRAM,
    "How long routing passes that decided something took, from their transaction's begin to the writing of it.",
)
HANDOVER = Family(
    "vibey_handover_seconds",
    Kind.HISTOGRAM,
    "From the successful end of a run on an engine without another free slot to the start of the next run in its "
    "place, where that one's job was waiting already.",
)
TICK = Family(
    "vibey_tick_age_seconds", Kind.GAUGE, "How long ago the last tick was: more than a few seconds means beat is gone."
)
SILENT = Family(
    "vibey_worker_silent_seconds",
    Kind.GAUGE,
    "How long ago a worker last said that it lives; one that left in good order, or an hour ago, is not told of.",
    ("worker",),
)
VIOLATIONS = Family(
    "vibey_invariant_violations",
    Kind.GAUGE,
    "Breaches of an invariant that the last audit by itself found; for I10, jobs seen beside a free slot for too long.",
    ("invariant",),
)
AUDITED = Family(
    "vibey_audit_timestamp_seconds",
    Kind.GAUGE,
    "The instant the last audit by itself was about.",
)

FAMILIES = (
    AS_OF,
    SELECTED,
    SLOTS,
    IN_USE,
    STAFFED,
    CIRCUIT,
    JOBS,
    HELD,
    WAIT,
    OVERDUE,
    STALLED,
    CAP,
    CAP_REMAINING,
    DECISION,
    HANDOVER,
    TICK,
    SILENT,
    VIOLATIONS,
    AUDITED,
)

INTRODUCTION = """\
# Metrics

Printed by `vibey metrics --describe`. [Monitor an installation](../how-to/monitor.md) says how to collect them.

Every number is read from the rows that admit jobs, as of `vibey_as_of_timestamp_seconds`. Counters and histograms are
kept in the database: they go on growing over restarts of whatever serves them, and are the same whoever is asked.
Histograms are some ten seconds late, and begin when they are first asked for.

| Metric | Kind | Labels | Meaning |
|---|---|---|---|
"""


def reference() -> str:
    """All of this as a page of Markdown."""
    rows = (
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.meaning} |\n"
        for each in FAMILIES
    )
    return INTRODUCTION + "".join(rows)
