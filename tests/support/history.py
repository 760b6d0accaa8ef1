"""History: runs as an installation would have recorded them, written into its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.databases import query

if TYPE_CHECKING:
    from tests.support.installation import Bench


def ran(bench: Bench, job: int, due: int, minutes: float | None, engine: str = "near", **more: Any) -> None:
    """Let a job have had a run: due so many minutes ago, lasting so many; None for one that still runs."""
    columns = {"attempt": 1, "why": "assign", "state": "succeeded" if minutes is not None else "running", **more}
    begun = f"clock_timestamp() - interval '{due} minutes'"
    values = {
        "job_id": str(job),
        "engine": f"'{engine}'",
        "account": f"'{engine}'",
        "due_at": begun,
        "started_at": begun,
        "lease_expires_at": begun,
        **{key: "null" if value is None else f"'{value}'" for key, value in columns.items()},
    }
    if minutes is not None:
        values["ended_at"] = f"{begun} + interval '{minutes} minutes'"
    query(bench.url, f"insert into runs ({', '.join(values)}) values ({', '.join(values.values())})")


def crowded(bench: Bench, project: str = "default") -> None:
    """Let ten pairs of jobs of an hour each have come a minute apart, each pair hours after the one before."""
    for number, job in enumerate(bench.enqueue(20, project=project)):
        ran(bench, job, due=9000 - number // 2 * 400 - number % 2, minutes=60)
    settle(bench)


def settle(bench: Bench) -> None:
    """Let every job that has ended runs only have succeeded."""
    query(
        bench.url,
        "update jobs set state = 'succeeded', ended_at = clock_timestamp() where state = 'queued' "
        "and exists (select 1 from runs where job_id = jobs.id and ended_at is not null)",
    )
