"""Offer: which candidates a job may be given now, before rotation chooses among them.

Pure and total: for every survey and usage there is exactly one answer. In mode `singleton` the preferred
tier's candidates are offered whatever the load, and a job waits in the queue while all of them are full.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibey.domain.assessment import Assessment, Survey


class Mode(StrEnum):
    """How local and paid engines work together; the setting `auto` always resolves to one of these."""

    SINGLETON = "singleton"
    HYBRID = "hybrid"


class Why(StrEnum):
    """On what grounds a run was granted."""

    ASSIGN = "assign"
    OVERFLOW = "overflow"
    FALLBACK = "fallback"


class WaitReason(StrEnum):
    """Why a job stays queued, seen from the fleet."""

    NO_ELIGIBLE_ENGINE = "no_eligible_engine"
    SLOTS_FULL = "slots_full"
    NO_WORKER = "no_worker"


@dataclass(frozen=True, slots=True)
class Offer:
    """The candidates rotation may choose among; empty when no engine is eligible."""

    candidates: tuple[Assessment, ...]
    why: Why


def offer(survey: Survey) -> Offer:
    """The preferred tier's candidates; paid without any local candidate, though some are configured, is a fallback."""
    is_fallback = bool(survey.paid) and survey.has_local and not survey.local
    return Offer(preferred_tier(survey), Why.FALLBACK if is_fallback else Why.ASSIGN)


def preferred_tier(survey: Survey) -> tuple[Assessment, ...]:
    """The local candidates, or the paid ones when there is none."""
    return survey.local or survey.paid
