"""Calling: what the callable of a `python` engine receives, may return and may raise.

```python
from vibey.engines.calling import Answer, CallInfo, CapacityRefused

def translate(payload, info):          # payload: the job's, info: a CallInfo
    if quota_is_spent():
        raise CapacityRefused("window", resets_in=1800)
    return {"text": "…"}               # or Answer({"text": "…"}, cost_usd=0.02)
```

What is returned must be JSON. Any other exception is the job's own failure, and is retried; `GivenUp` is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vibey.domain.errors import VibeyError
from vibey.domain.outcome import CapacityKind, FailureClass

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The run a callable works for. `run_directory` is its private folder and current working folder."""

    job_id: int
    run_id: int
    engine: str
    attempt: int
    effort: str
    project: str
    session: str | None
    run_directory: Path


@dataclass(frozen=True, slots=True)
class Answer:
    """A result with what it cost. Dollars and token counts, None when unknown.

    `near_quota` says that the quota behind the engine is nearly spent, and for how many seconds (`results`).
    """

    result: object = None
    cost_usd: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    near_quota: float | None = None


class DeclaredFailure(VibeyError):
    """A failure whose class the callable knows; raise one of its subclasses."""

    word: ClassVar[str] = "declared_failure"
    failure_class: ClassVar[FailureClass] = FailureClass.WORK
    kind: CapacityKind | None = None
    resets_in: float | None = None
    final: ClassVar[bool] = False

    def document(self) -> dict[str, object]:
        """The failure as a result file says it."""
        said: dict[str, object] = {"class": self.failure_class.value, "detail": str(self)}
        if self.final:
            return {**said, "final": True}
        if self.kind is None:
            return said
        return {**said, "kind": self.kind.value, "resets_in": self.resets_in}


class GivenUp(DeclaredFailure):
    """The job's own failure, and another attempt would lead to the same."""

    final = True


class EngineFault(DeclaredFailure):
    """The engine behind the callable broke; the job did nothing wrong."""

    failure_class = FailureClass.ENGINE


class HandOff(DeclaredFailure):
    """The work is wound down and its state saved; another engine shall go on."""

    failure_class = FailureClass.HANDOFF


class Misconfigured(DeclaredFailure):
    """Nothing can run here until a person acts."""

    failure_class = FailureClass.MISCONFIGURED


class CapacityRefused(DeclaredFailure):
    """The provider refused: `kind` is window, credits, login or busy, `resets_in` seconds or None."""

    failure_class = FailureClass.CAPACITY

    def __init__(self, kind: CapacityKind | str, resets_in: float | None = None, detail: str = "") -> None:
        self.kind = CapacityKind(kind)
        self.resets_in = resets_in
        super().__init__(detail or f"refused: {self.kind.value}")
