"""Transcript: what a client's events have told so far, in the same words for every client."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from vibey.domain.outcome import LARGEST_COST, LARGEST_COUNT
from vibey.engines.clients.rules import Event, lookup, text_of


@dataclass(slots=True)
class Transcript:
    """The run as its client tells it. Cost and tokens are totals; None where the client has not said.

    `answer` is the final answer, `ended` the client's own word that its work is over, `alive` counts the events
    that prove that the provider serves: words of the model, calls of tools. `said` is the latest words for people.
    """

    answer: str | None = None
    ended: bool = False
    alive: int = 0
    said: str = ""
    cost_usd: Decimal | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    near_quota_until: float | None = None
    spent: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def spent_nothing(self) -> bool:
        """Whether, by all the client has told, no model has answered."""
        return not self.tokens_out and not (self.tokens_out is None and self.tokens_in) and not self.cost_usd

    def serves(self, said: str = "") -> None:
        """Take note of a sign of life, in words or not."""
        self.alive += 1
        self.said = said or self.said

    def spend(self, message: str, tokens_in: int | None, tokens_out: int | None) -> None:
        """Take in the tokens of one message; the latest word on it counts."""
        if tokens_in is None and tokens_out is None:
            return
        self.spent[message] = tokens_in or 0, tokens_out or 0
        self.total(*(sum(column) for column in zip(*self.spent.values(), strict=True)))

    def total(self, tokens_in: int | None, tokens_out: int | None) -> None:
        """Take in totals; they never go back."""
        self.tokens_in = _later(self.tokens_in, tokens_in)
        self.tokens_out = _later(self.tokens_out, tokens_out)

    def cost(self, dollars: object) -> None:
        """Take in the cost so far."""
        if not isinstance(dollars, int | float) or isinstance(dollars, bool) or not math.isfinite(dollars):
            return
        if 0 <= dollars <= LARGEST_COST:
            self.cost_usd = max(Decimal(str(dollars)), self.cost_usd or Decimal(0))


Hearing = Callable[[Event, Transcript], None]
"""How a client's event is taken into the transcript."""


def count(event: object, *paths: str) -> int | None:
    """The sum of the counts at these paths; None if none of them is there."""
    found = [value for path in paths if isinstance(value := lookup(event, path), int) and _is_count(value)]
    return sum(found) if found else None


def blocks(content: object, kind: str) -> Iterable[dict[str, Any]]:
    """The blocks of this type in a message's content."""
    listed = content if isinstance(content, list) else []
    return (block for block in listed if isinstance(block, dict) and block.get("type") == kind)


def words(content: object) -> str:
    """The text of a message's content."""
    return "".join(text_of(block.get("text")) for block in blocks(content, "text"))


def hear_messages(event: Event, so_far: Transcript) -> None:
    """Take in an event of the form that `claude` made and `qwen` took over."""
    kind = event.get("type")
    if kind == "assistant" and lookup(event, "message.model") != "<synthetic>":
        _hear_message(event, so_far)
    elif kind == "user":
        so_far.serves()
    elif kind == "result":
        so_far.ended = True
        # An empty result beside words of the model has lost them; they are the answer.
        so_far.answer = text_of(event.get("result")) or so_far.answer or ""
        so_far.cost(event.get("total_cost_usd"))
        so_far.total(
            count(event, "usage.input_tokens", "usage.cache_read_input_tokens", "usage.cache_creation_input_tokens"),
            count(event, "usage.output_tokens"),
        )


def _hear_message(event: Event, so_far: Transcript) -> None:
    message = event.get("message")
    content = lookup(message, "content")
    names = [text_of(block.get("name")) for block in blocks(content, "tool_use")]
    tokens_in = count(
        message, "usage.input_tokens", "usage.cache_read_input_tokens", "usage.cache_creation_input_tokens"
    )
    tokens_out = count(message, "usage.output_tokens")
    so_far.spend(text_of(lookup(message, "id")), tokens_in, tokens_out)
    said = words(content)
    so_far.answer = said or so_far.answer
    if tokens_in or tokens_out or names:
        so_far.serves(said or " ".join(names))


def _later(before: int | None, now: int | None) -> int | None:
    return before if now is None else max(now, before or 0)


def _is_count(value: int) -> bool:
    return not isinstance(value, bool) and 0 <= value <= LARGEST_COUNT
