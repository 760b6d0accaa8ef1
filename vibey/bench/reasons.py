"""Reasons: what is known of why a bar is missed, for the page of results."""

from __future__ import annotations

REASONS = {
    ("durable", "passes over LiteLLM Router"): (
        "LiteLLM picks at random among deployments in memory. A decision here goes through a survey, a rotation and a "
        "record of both, and writes a run, a decision, an event and a job's state, all committed. Router and Postgres "
        "work side by side, on a core each, for some 30 µs a decision; what cannot overlap is the rest: finding and "
        "locking the jobs, deciding the first part of a pass, writing its last, and the commit."
    ),
    ("durable", "passes over pgbench"): (
        "pgbench is C, and shares its commits among four clients; a pass spends half of its time in Python."
    ),
    ("endtoend", "Vibey over plain Celery"): (
        "A bare task is one message. A job's start and its end are committed before and after its work: that is what "
        "keeps it from being lost or run twice. The peer whose tasks commit these two rows, and decide nothing, is in "
        "the table too: it shows the limit of whatever runs jobs in Celery's processes, and the bar is above it. Of a "
        "job of seconds all this is a thousandth."
    ),
    ("endtoend", "Vibey over Procrastinate"): (
        "Procrastinate runs its no-ops as coroutines in two processes; here each slot is a process of its own, which a "
        "job can be killed with. Twice its rate is about that of plain Celery, which writes nothing down."
    ),
}
