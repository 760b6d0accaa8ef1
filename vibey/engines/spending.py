"""Spending: what a run has cost, by its own reports and the operator's prices, and the limit it may not pass."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from vibey.domain.outcome import LARGEST_COST, LARGEST_COUNT
from vibey.engines.contract import Description, Progress, StopReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.domain.outcome import Outcome
    from vibey.engines.watch import Watch

_MILLION = 1_000_000
_Told = TypeVar("_Told", Decimal | None, int | None)


class Spending:
    """What a run says it used. A cost it names counts; without one, its tokens at the engine's prices."""

    def __init__(
        self,
        description: Description,
        limit: Decimal | None,
        watch: Watch,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._description = description
        self._limit = limit
        self._watch = watch
        self._on_progress = on_progress
        self._last = Progress()

    def heard(self, progress: Progress) -> None:
        """Take in a report; stop the run that costs more than it may."""
        self._watch.heard()
        last = self._last
        self._last = Progress(
            progress.text,
            _later(last.cost_usd, progress.cost_usd),
            _later(last.tokens_in, progress.tokens_in),
            _later(last.tokens_out, progress.tokens_out),
        )
        cost = self._cost(self._last)
        if self._limit is not None and cost is not None and cost > self._limit:
            self._watch.stop(StopReason.COST_LIMIT)
        if self._on_progress is not None:
            self._on_progress(progress)

    def completed(self, outcome: Outcome) -> Outcome:
        """The outcome, with the tokens and the cost that it leaves out, as they can be stored."""
        last = self._last
        told = replace(
            outcome,
            cost_usd=_later(last.cost_usd, outcome.cost_usd),
            tokens_in=_later(last.tokens_in, outcome.tokens_in),
            tokens_out=_later(last.tokens_out, outcome.tokens_out),
        )
        return replace(
            told,
            cost_usd=_stored_cost(self._cost(told)),
            tokens_in=_stored_count(told.tokens_in),
            tokens_out=_stored_count(told.tokens_out),
        )

    def _cost(self, told: Outcome | Progress) -> Decimal | None:
        price_in, price_out = self._description.price_in, self._description.price_out
        unknown = (told.tokens_in is None and told.tokens_out is None) or (price_in is None and price_out is None)
        if told.cost_usd is not None or unknown:
            return told.cost_usd
        spent = (told.tokens_in or 0) * (price_in or Decimal(0)) + (told.tokens_out or 0) * (price_out or Decimal(0))
        return spent / _MILLION


def _stored_cost(cost: Decimal | None) -> Decimal | None:
    """The cost to the millionth of a dollar, and at most the largest; what is no amount counts as not said."""
    if not isinstance(cost, Decimal) or not cost.is_finite() or cost < 0:
        return None
    return min(cost, LARGEST_COST).quantize(LARGEST_COST)


def _stored_count(count: int | None) -> int | None:
    return min(count, LARGEST_COUNT) if isinstance(count, int) and count >= 0 else None


def _later(before: _Told, now: _Told) -> _Told:
    return before if now is None else now
