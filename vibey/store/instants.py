"""Instants that lie further ahead than whatever wrote them can ever have meant, because the clock was set back since.

Each is brought back to the furthest ahead that a statement of now would write it, by the tick: at once where it finds
that the clock was set back, and every ten minutes. Which instants are stored, and what bounds each, is a table in
`docs/explanation/leases.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

# So many rows of a statement are brought back at once, and so many times: first holds are written to whole queues.
LIMIT = 5_000
TIMES = 40

BACKOFFS = Statement(
    "instant-backoffs",
    "jobs that wait for another attempt wait no longer than the longest backoff; a delay that was asked for is before "
    "the first attempt, and stays",
    """with far as materialized (
         select id from jobs
         where state = 'queued' and attempt > 0
           and not_before > clock_timestamp() + %(backoff_ms)s * interval '1 millisecond'
         order by id limit %(limit)s for no key update skip locked)
       update jobs j set not_before = clock_timestamp() + %(backoff_ms)s * interval '1 millisecond',
              due_at = clock_timestamp() + %(backoff_ms)s * interval '1 millisecond'
       from far where j.id = far.id""",
)
HOLDS = Statement(
    "instant-holds",
    "due jobs were held no later than now, so that what they have waited counts from now at the latest",
    """with far as materialized (
         select id from jobs
         where state = 'queued' and not_before is null and held_at > clock_timestamp()
         order by id limit %(limit)s for no key update skip locked)
       update jobs j set held_at = clock_timestamp() from far where j.id = far.id""",
)
PROBES = Statement(
    "instant-probes",
    "open circuits are probed no later than the longest step of the schedule from now, those whose reset is known and "
    "rechecked no later than a recheck; a reset without recheck is the provider's word; failures are no newer than now",
    """with far as materialized (
         select name, (case when resets_at is null then %(probe_ms)s::bigint else nullif(%(recheck_ms)s, 0) end)
                * interval '1 millisecond' as wait
         from accounts where probe_at > clock_timestamp() or failure_at > clock_timestamp()
         order by name for no key update)
       update accounts a set failure_at = least(a.failure_at, clock_timestamp()),
              probe_at = case when a.probe_at > clock_timestamp() + far.wait then clock_timestamp() + far.wait
                         else a.probe_at end
       from far where a.name = far.name and (a.probe_at > clock_timestamp() + far.wait
         or a.failure_at > clock_timestamp())""",
)
BUSY = Statement(
    "instant-busy",
    "servers that were busy are tried again no later than a poll from now",
    """with far as materialized (
         select name from engines where busy_until > clock_timestamp() + %(poll_ms)s * interval '1 millisecond'
         order by name for no key update)
       update engines e set busy_until = clock_timestamp() + %(poll_ms)s * interval '1 millisecond'
       from far where e.name = far.name""",
)
TELLING = Statement(
    "instant-telling",
    "ends that a process has claimed to report are reported by another no later than a claim from now",
    """with far as materialized (
         select id from jobs
         where tell_after > clock_timestamp() + %(claim_s)s * interval '1 second' and state in ('failed', 'cancelled')
         order by id limit %(limit)s for no key update skip locked)
       update jobs j set tell_after = clock_timestamp() + %(claim_s)s * interval '1 second'
       from far where j.id = far.id""",
)
SESSIONS = Statement(
    "instant-sessions",
    "sessions go cold no later than one used now",
    """update sessions set expires_at = clock_timestamp() + %(session_s)s * interval '1 second'
       where expires_at > clock_timestamp() + %(session_s)s * interval '1 second'""",
)
LEARNED = Statement(
    "instant-learned",
    "learned factors end no later than one laid now; a person's factor is that person's",
    """update adjustments set expires_at = clock_timestamp() + %(learned_s)s * interval '1 second'
       where kind = 'learned' and expires_at > clock_timestamp() + %(learned_s)s * interval '1 second'""",
)
BOUNDS: Sequence[Statement] = (BACKOFFS, HOLDS, PROBES, BUSY, TELLING, SESSIONS, LEARNED)


def bring_back(connection: Connection, statement: Statement, longest: dict[str, int]) -> bool:
    """Bring some rows back; whether there may be more. `longest` is how far ahead each kind of instant is written."""
    return statement.run(connection, limit=LIMIT, **longest) >= LIMIT
