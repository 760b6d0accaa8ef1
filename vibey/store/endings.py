"""Endings: jobs that were calls of Celery tasks and ended without their result backend hearing of it."""

from __future__ import annotations

from vibey.store.statement import Statement

CLAIM = Statement(
    "ending-claim",
    "take ends to be told, for a while, so that one teller has them: of one call, or of calls some engines could run; "
    "after a day a result backend has forgotten the call itself",
    """with due as materialized (
         select id from jobs
         where tell_after <= statement_timestamp() and state in ('failed', 'cancelled')
           and ended_at > statement_timestamp() - interval '1 day'
           and (%(task)s::text is null or task_id = %(task)s)
           and (%(engines)s::text[] is null or not (%(engines)s::text[] <@ excluded)
                and (pinned = '{}' or pinned && %(engines)s::text[]))
         order by tell_after limit %(limit)s for no key update skip locked)
       update jobs j set tell_after = clock_timestamp() + %(claim_s)s * interval '1 second'
       from due where j.id = due.id
       returning j.id, j.state, j.attempt, j.reason, j.payload, coalesce(j.deadline_at <= j.ended_at, false) as late""",
)
TOLD = Statement(
    "ending-told",
    "note that these ends have been told",
    "update jobs set tell_after = null where id = any(%(ids)s) and state in ('failed', 'cancelled')",
)
OF_TASK = Statement(
    "ending-jobs-of-task",
    "the jobs of one Celery call: one for each time it was sent, retried or replaced",
    "select id, state from jobs where task_id = %(task)s order by id",
)
