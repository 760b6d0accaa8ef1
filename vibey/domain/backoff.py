"""Backoff: how long a job pauses before its next attempt.

Full jitter (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015): anything between nothing and
a ceiling that doubles with each attempt. The jitter is a hash of job and attempt, so the same history gives the
same delays.
"""

from __future__ import annotations

from hashlib import blake2b

CEILING_MS = 900_000


def delay_ms(job_id: int, attempt: int, base_ms: int) -> int:
    """Milliseconds until the next attempt, after this many attempts (counted from 1)."""
    ceiling = min(CEILING_MS, base_ms << min(max(attempt, 1), 32))
    return fraction(f"{job_id}:{attempt}", ceiling + 1)


def fraction(seed: str, parts: int) -> int:
    """A number from 0 to parts − 1 that depends on the seed alone and is evenly spread over seeds."""
    digest = int.from_bytes(blake2b(seed.encode(), digest_size=8).digest(), "big")
    return digest * parts >> 64
