"""Rotation: the state that draws leave behind: credits, and what classes of pools remember of sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vibey.store.statement import Statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from vibey.domain.selection import SessionKey

_CREDITS = "select pool, member, credit from credits where pool = any(%(pools)s) order by pool, member"
LOCK_CREDITS = Statement(
    "credit-lock",
    "lock and read the rotation's state of some pools",
    f"{_CREDITS} for no key update",
    prepared=True,
)
CREDITS = Statement("credit-read", "the rotation's state of some pools", _CREDITS)
SESSIONS = Statement(
    "session-recall",
    "the members that classes of some pools remember for some sessions",
    """select pool, class, session, member from sessions
       where session = any(%(sessions)s) and pool = any(%(pools)s) and expires_at > clock_timestamp()
       order by pool, class, session""",
)
TURNS = Statement(
    "credit-turns",
    "the rotation's state of some members of some pools",
    """select pool, member, credit from credits where pool = any(%(pools)s) and member = any(%(members)s)
       order by pool, member""",
    prepared=True,
)


def credits(connection: Connection, pools: Sequence[str], *, locking: bool = True) -> dict[tuple[str, str], int]:
    """The rotation's state of some pools, locked if `locking`."""
    rows = (LOCK_CREDITS if locking else CREDITS).all(connection, pools=list(pools))
    return {(row.pool, row.member): row.credit for row in rows}


def turns(connection: Connection, pools: Sequence[str], members: Sequence[str]) -> dict[tuple[str, str], int]:
    """The rotation's state of some members of some pools."""
    rows = TURNS.all(connection, pools=list(pools), members=list(members))
    return {(pool, member): credit for pool, member, credit in map(tuple, rows)}


def recalled(connection: Connection, pools: Sequence[str], sessions: Sequence[str]) -> dict[SessionKey, str]:
    """What classes of these pools remember of these sessions."""
    rows = SESSIONS.all(connection, pools=list(pools), sessions=list(sessions))
    return {(pool, label, session): member for pool, label, session, member in map(tuple, rows)}
