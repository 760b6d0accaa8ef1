"""Written: a decision as the line it has in a file of decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibey.domain.engine import EngineFacts
    from vibey.simulate.queue import Job


def line_of(now_ms: int, job: Job, outcome: str, engine: EngineFacts | None, reason: str | None = None) -> str:
    """The line of a decision about a job at an instant, in one way only."""
    where = f'"engine":"{engine.name}","tier":"{engine.tier.value}"' if engine else '"engine":null,"tier":null'
    why = "null" if reason is None else f'"{reason}"'
    attempt = job.attempts + 1
    at = seconds(now_ms)
    return f'{{"at":{at},"job":{job.shown},"attempt":{attempt},"outcome":"{outcome}",{where},"reason":{why}}}\n'


def seconds(milliseconds: int) -> str:
    """Milliseconds as seconds, written in one way only."""
    whole, rest = divmod(milliseconds, 1000)
    return str(whole) if not rest else f"{whole}.{rest:03}".rstrip("0")
