"""Remark: how an engine stands in the fleet, in a few words: kept out, demoted, at rest, active, and for how long.

An engine that is offered nothing while others serve is not needed: a lower tier at rest expects no share, and cannot be
underused. That it has not been tried for long is another thing, and said beside it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vibey.domain.engine import MILLION, NOT_NEEDED
from vibey.services.wording import in_words, instant, keeps_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vibey.domain.layer import Layer
    from vibey.store.statement import Row

STALE_DAYS = 7


def remark(engine: Row[Any], circuit: str, *, others_serve: bool) -> str:
    """How an engine stands; empty for one that is simply active.

    The row is the view's; `others_serve` says that other engines have been picked.
    """
    kept_out = keeps_out(engine, circuit)
    if kept_out:
        return kept_out
    is_idle = others_serve and not engine.selected_count and not engine.expected
    days = int(engine.idle_days)
    rules = (
        (engine.demoted, f"demoted until {in_words(engine.demoted_until)}" if engine.demoted_until else "demoted"),
        (engine.ramp is not None, f"comes back slot by slot: {engine.ramp} of {engine.slots}"),
        (is_idle, NOT_NEEDED),
        (days >= STALE_DAYS, f"not exercised for {days} days"),
    )
    return "; ".join(text for applies, text in rules if applies)


def layers_json(layers: Iterable[Layer]) -> list[dict[str, Any]]:
    """Layers as JSON values: each one's kind, factor, end and note."""
    return [
        {"kind": each.kind.value, "factor": each.factor / MILLION, "until": _ending(each.until_ms), "note": each.note}
        for each in layers
    ]


def _ending(until_ms: int | None) -> str | None:
    return None if until_ms is None else instant(datetime.fromtimestamp(until_ms / 1000, UTC))
