"""Adjust: what moves an engine among the others for a while: preferences, demotions, and what runs have taught.

Every one of them ends by itself. A preference is a factor on the weight of an engine or a nested pool (see
`vibey.domain.layer`); a demotion lets an engine serve after all others of its pool (`vibey.domain.selection`); a
learned factor comes from the review the tick makes where `[engines] learn` is on (`vibey.domain.learning`).
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from vibey.domain.engine import MILLION
from vibey.domain.errors import InvalidInput, UnknownName
from vibey.domain.layer import LayerKind
from vibey.domain.learning import learned
from vibey.services.control import wake_all
from vibey.services.enqueue import check_word
from vibey.services.owner import owner
from vibey.services.wording import instant
from vibey.settings.values import Unusable, Weight
from vibey.store import adjustments, engines, fleet, ledger
from vibey.store.ledger import Event

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from vibey.domain.learning import History
    from vibey.services.installation import Installation
    from vibey.store.database import Connection

LONGEST_SECONDS = 366 * 86400
REVIEWED_SECONDS = 3600
LEARNED_SECONDS = 1800


def prefer(
    installation: Installation, name: str, factor: str, seconds: float, why: str = "", *, by: str | None = None
) -> dict[str, Any]:
    """Let a member's weight take a factor, written as a decimal, for so long; 1 takes it back.

    `name` is an engine's or a nested pool's. Returns what holds now: `member`, `factor`, `until`, `note`.
    """
    millionths = _factor(factor)
    _check_length(seconds)
    if why:
        check_word("why", why)

    def work(connection: Connection) -> dict[str, Any]:
        known = _members(connection)
        if name not in known:
            raise UnknownName("engine or nested pool", name, tuple(known))
        before = adjustments.preference(connection, name)
        until = None
        if millionths == MILLION:
            adjustments.clear(connection, name)
        else:
            until = adjustments.prefer(connection, name, millionths, why, seconds)
        now = _laid(millionths, until, why)
        engine = name if known[name] else None
        was = None if before is None else _laid(before.factor, before.expires_at, before.note)
        data = {"layer": LayerKind.PREFERENCE.value, "member": name, **now, "was": was, "by": by or owner()}
        ledger.append(connection, Event.ENGINE_CHANGED, engine=engine, data=data)
        return {"member": name, **now}

    done = installation.database.run(work)
    wake_all(installation)
    return done


def demote(installation: Installation, name: str, seconds: float, *, by: str | None = None) -> str | None:
    """Let an engine serve last for so long from now, whatever was said before; returns until when."""
    _check_length(seconds)
    return _demote(installation, name, seconds, by)


def restore(installation: Installation, name: str, *, by: str | None = None) -> None:
    """Let an engine serve in its place again."""
    _demote(installation, name, None, by)


def review(installation: Installation) -> int:
    """Lay factors on the engines whose runs of the last hour give ground for it; returns how many those are.

    Nothing is taken away: a factor without ground any more is left to its end.
    """

    def work(connection: Connection) -> int:
        found = list(_judged(adjustments.histories(connection, REVIEWED_SECONDS)))
        if found:
            adjustments.learn(connection, found, LEARNED_SECONDS)
        return len(found)

    return installation.database.run(work)


def _judged(histories: Iterable[History]) -> Iterable[tuple[str, int, str]]:
    for history in histories:
        factor = learned(history)
        if factor is not None:
            yield history.engine, factor, f"{history.failed} of {history.runs} runs failed within the hour"


def _demote(installation: Installation, name: str, seconds: float | None, by: str | None) -> str | None:
    def work(connection: Connection) -> str | None:
        row = engines.SET_DEMOTED.first(connection, engine=name, seconds=seconds)
        if row is None:
            raise UnknownName("engine", name, tuple(fleet.engine_names(connection)))
        until = instant(row.demoted_until)
        was = {"demoted_until": instant(row.was)}
        data = {"demoted_until": until, "was": was, "by": by or owner()}
        ledger.append(connection, Event.ENGINE_CHANGED, engine=name, data=data)
        return until

    until = installation.database.run(work)
    wake_all(installation)
    return until


def _laid(millionths: int, until: datetime | None, note: str) -> dict[str, Any]:
    return {"factor": millionths / MILLION, "until": instant(until), "note": note}


def _members(connection: Connection) -> dict[str, bool]:
    """What a factor can be laid on, and whether it is an engine."""
    definitions, _ = fleet.pools(connection)
    nested = [each["pool"] for tree in definitions.values() for each in tree["members"] if each.get("pool")]
    return dict.fromkeys(nested, False) | dict.fromkeys(fleet.engine_names(connection), True)


def _factor(text: str) -> int:
    try:
        return Weight()(Decimal(text))
    except (InvalidOperation, Unusable):
        expected = "a number above 0, up to 1000000, of at most six decimal places"
        raise InvalidInput("factor", text, expected) from None


def _check_length(seconds: float) -> None:
    if not 0 < seconds <= LONGEST_SECONDS:
        raise InvalidInput("for", f"{seconds:g} s", "a length of time above 0, up to 366 days")
