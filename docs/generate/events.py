"""The ledger's events: when each is written, and what its data say beside its job, run and engine.

That every kind is here and that the names of data are complete is checked against ledgers of real installations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.generate.markdown import code, table
from vibey.services.views import DISPATCH_EVENTS
from vibey.settings import ProjectPolicy
from vibey.store.ledger import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

POLICY = tuple(ProjectPolicy.model_fields)
RULES = (
    "attempt",
    "local_slots",
    "mode",
    "mode_source",
    "mode_reason",
    "overflow_after_seconds",
    "waited_seconds",
    "paid_daily_cap",
    "paid_daily_cap_scope",
)
UNIT = ("engine", "paid_today", "cap_remaining_after", "utc_day")
END = ("run", "reason", "delay_ms", "cost_usd", "cap_unit")

DATA: Mapping[Event, tuple[str, tuple[str, ...]]] = {
    Event.PROJECT_CREATED: ("a project is made, with its copy of the dispatch settings", (*POLICY, "by")),
    Event.PROJECT_CHANGED: ("a project's dispatch settings change; only the changed keys", (*POLICY, "was", "by")),
    Event.JOB_ENQUEUED: ("a job is enqueued, in its producer's transaction", ()),
    Event.RUN_GRANTED: ("a run is made, with its slot, token and decision", ("why", "attempt")),
    Event.RUN_STARTED: ("a worker starts it by its token", ()),
    Event.JOB_REQUEUED: ("a run ends and its job is queued again", END),
    Event.JOB_SUCCEEDED: ("a job has succeeded", END),
    Event.JOB_FAILED: ("a job has failed: its attempts are spent, or its deadline has passed", END),
    Event.JOB_CANCELLED: ("a job is cancelled and nothing of it runs any more", END),
    Event.CANCEL_REQUESTED: (
        "someone (`by`) asks for a job to be cancelled; `state` is the job's at that moment",
        ("state", "by"),
    ),
    Event.JOB_RETRIED: ("a person queues a failed or cancelled job again", ()),
    Event.ENGINE_SLOT_WAIT_STARTED: (
        "the first hold of an attempt; names at most 50 local engines, `local_slots_omitted` counts the others",
        (*RULES, "cap_remaining"),
    ),
    Event.ENGINE_OVERFLOW_SELECTED: ("paid because local is full: one unit of the cap", (*RULES, *UNIT)),
    Event.ENGINE_OVERFLOW_RELEASED: ("a unit is given back, because its run provably did no work", ("reason",)),
    Event.PAID_FALLBACK_SELECTED: (
        "paid because no local engine is eligible; a unit, with its keys, where the cap counts fallbacks or covers all",
        (*RULES, *UNIT),
    ),
    Event.PAID_ASSIGNMENT_SELECTED: (
        "paid where the pool has no local engine: one unit of a cap that covers all",
        (*RULES, *UNIT),
    ),
    Event.ENGINE_DISPATCH_MEASURED: (
        "a project's demand is replayed for mode `auto`",
        (
            "winner",
            "demand",
            "contended",
            "contention",
            "median_wait_seconds",
            "reason",
            "algorithm",
            "fingerprint",
            "mode_before",
            "thresholds",
            "local_slots",
            "replayed",
        ),
    ),
    Event.CIRCUIT_CHANGED: (
        "a circuit opens (`open` says why), puts its probe off, or closes (`open` is null; `by` a person)",
        ("account", "open", "probe_at_ms", "resets_at_ms", "was", "by"),
    ),
    Event.ENGINE_CHANGED: (
        "an engine is paused, resumed, preferred, demoted, found unfit or fit again, or learned about",
        (
            "paused",
            "by",
            "layer",
            "member",
            "factor",
            "until",
            "note",
            "account",
            "demoted_until",
            "installed",
            "conformant",
            "login_ok",
            "detail",
            "was",
        ),
    ),
    Event.EXCLUSION_WAIVED: (
        "an exclusion is not obeyed: it would have left no engine (`handoff`), or its tier empty (a rise of `effort`)",
        ("attempt", "reason"),
    ),
    Event.WORKER_CHANGED: (
        "a worker begins to serve engines, serves others, or leaves; a row that nobody renewed is dropped after a day",
        ("worker", "host", "engines", "slots", "concurrency", "generation", "version", "problems", "was"),
    ),
    Event.CONFIGURATION_APPLIED: (
        "a configuration is put in force; `difference` has one line each, `undone` is what an undo went back from",
        ("generation", "by", "difference", "undone"),
    ),
    Event.BACKUP_RESTORED: (
        "a backup is restored: what came after the instant it was made (`backup_at`) is not in this ledger",
        ("backup_at", "version", "by"),
    ),
}
INTRODUCTION = """\
# Ledger events

What happened, one line each, in the order of writing. A trigger in the database refuses to change or delete a line. A
line has a number, an instant by the database's clock, a kind, where they apply project, job, run and engine, the UTC
day for units of the cap, and data. `vibey ledger` shows them, `--json` whole. Kinds marked ◇ are left out by
`vibey ledger --public`.

Whatever changes the fleet has its event, written in the transaction that changes it: `by` is who did it, and `was` what
held before, in the same words as what holds now.

Every move of a job has its event, written in the transaction that moves it; `vibey audit` checks that (I8).
"""


def page() -> str:
    """The page: one table in the order of the code."""
    rows = ((_name(kind), DATA[kind][0], ", ".join(map(code, DATA[kind][1]))) for kind in Event)
    return f"{INTRODUCTION}\n{table(('kind', 'written when', 'data'), rows)}"


def _name(kind: Event) -> str:
    return code(kind.value) + (" ◇" if kind.value in DISPATCH_EVENTS else "")
