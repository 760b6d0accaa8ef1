"""Result files: what a program may say about its own run, and how far it is believed.

A JSON object of at most 256 KiB, every key optional:
`{"result": …, "cost_usd": 0.12, "tokens_in": 900, "tokens_out": 120, "near_quota": 1800}`, or, to be refused
with a reason, `{"failure": {"class": "work|engine|capacity|handoff|misconfigured", "kind":
"window|credits|login|busy", "detail": "…", "resets_in": 3600, "final": true}}` (`kind` and `resets_in`, in seconds,
with capacity only; `final`, which means that no further attempt shall be made, with work only). A declared failure
counts whatever the exit code. A result counts only with exit 0; cost, tokens and `near_quota` always do. A result that
is no object is wrapped as `{"value": …}`.

`near_quota` says that the quota behind the engine is nearly spent and will be for so many seconds: until then the
engines of its account serve last (`vibey.domain.selection`).
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, TypeVar

from vibey.domain.depth import DEEP, is_too_deep
from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import (
    LARGEST_COST,
    LARGEST_COUNT,
    CapacityKind,
    Failure,
    FailureClass,
    Outcome,
    Success,
    one_line,
)

if TYPE_CHECKING:
    from pathlib import Path

LARGEST_RESULT = 256 * 1024
LONGEST_RESET_SECONDS = 31 * 24 * 3600
"""The longest wait that is believed, whatever a program says."""
_DECLARABLE = tuple(kind for kind in FailureClass if kind is not FailureClass.VIBEY)
_Word = TypeVar("_Word", FailureClass, CapacityKind)


@dataclass(frozen=True, slots=True)
class Report:
    """What a program said about its run."""

    result: Mapping[str, object] | None = None
    failure: Failure | None = None
    cost_usd: Decimal | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    near_quota_ms: int | None = None

    def outcome(self, failure: Failure | None) -> Outcome:
        """The run's outcome, given the failure its exit means (None: it ended well)."""
        failed = self.failure or failure
        if failed is None:
            return Success(self.result, self.cost_usd, self.tokens_in, self.tokens_out, self.near_quota_ms)
        return replace(
            failed,
            cost_usd=self.cost_usd,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            near_quota_ms=self.near_quota_ms,
        )


def read_report(path: Path) -> Report | None:
    """The report in a file, None if there is no file; raises InvalidInput for one that cannot be believed."""
    text = _contents(path)
    return None if text is None else parse_report(text)


def parse_report(text: bytes) -> Report:
    """The report these bytes are; raises InvalidInput."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("result file", text[:60], f"a JSON object ({one_line(str(error), 80)})") from None
    if not isinstance(said, dict):
        raise InvalidInput("result file", type(said).__name__, "a JSON object")
    if is_too_deep(said.get("result")):
        raise InvalidInput("result", *DEEP)
    result = said.get("result")
    return Report(
        result=wrapped(storable(result)) if result is not None else None,
        failure=_failure(said["failure"]) if said.get("failure") is not None else None,
        cost_usd=_cost(said.get("cost_usd")),
        tokens_in=_count(said, "tokens_in"),
        tokens_out=_count(said, "tokens_out"),
        near_quota_ms=_wait_ms("near_quota", said.get("near_quota")),
    )


def storable(value: object) -> object:
    """The same value without NUL and lone surrogates, which jsonb refuses; InvalidInput for NaN."""
    if isinstance(value, str):
        return "".join("\ufffd" if mark == "\0" or "\ud800" <= mark <= "\udfff" else mark for mark in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput("result", value, "finite numbers")
    if isinstance(value, Mapping):
        return {str(storable(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def storable_outcome(outcome: Outcome) -> Outcome:
    """The same outcome with words and a result that can be stored; an error where the result is no JSON object.

    Each value of a result has at most `MOST_LEVELS` levels: a result that is no object is put into one.
    """
    if isinstance(outcome, Failure):
        return replace(outcome, detail=one_line(outcome.detail))
    if outcome.result is None:
        return outcome
    if any(is_too_deep(value) for value in outcome.result.values()):
        raise InvalidInput("result", *DEEP)
    result = wrapped(storable(outcome.result))
    # What came from a file in UTF-8 takes up to three times the bytes in ASCII; kinds add to what a program reports.
    if (size := len(json.dumps(result, allow_nan=False))) > 4 * LARGEST_RESULT:
        raise InvalidInput("result", f"{size} bytes", f"at most {4 * LARGEST_RESULT} bytes")
    return replace(outcome, result=result)


def wrapped(value: object) -> Mapping[str, object]:
    """An object as it is, anything else under the key `value`."""
    return value if isinstance(value, dict) else {"value": value}


def _contents(path: Path) -> bytes | None:
    # The program could have left a pipe, which must not block us, or a link to a file that is not its own.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidInput("result file", path.name, f"a plain file ({error.strerror})") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInput("result file", path.name, "a plain file")
        if found.st_size > LARGEST_RESULT:
            raise InvalidInput("result file", f"{found.st_size} bytes", f"at most {LARGEST_RESULT} bytes")
        return os.read(descriptor, LARGEST_RESULT)
    finally:
        os.close(descriptor)


def _failure(said: object) -> Failure:
    if not isinstance(said, dict):
        raise InvalidInput("failure", said, "an object")
    failure_class = _one_of("failure.class", said.get("class"), _DECLARABLE)
    capacity = failure_class is FailureClass.CAPACITY
    kind = _one_of("failure.kind", said.get("kind", "busy"), tuple(CapacityKind)) if capacity else None
    resets_in_ms = _wait_ms("failure.resets_in", said.get("resets_in")) if capacity else None
    detail = one_line(str(said.get("detail") or failure_class.value))
    final = said.get("final", False)
    if not isinstance(final, bool) or (final and failure_class is not FailureClass.WORK):
        raise InvalidInput("failure.final", final, "true or false, and true for class work only")
    return Failure(failure_class, detail, kind, resets_in_ms=resets_in_ms, final=final)


def _wait_ms(field: str, seconds: object) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise InvalidInput(field, seconds, "seconds, 0 or more")
    return int(min(seconds, LONGEST_RESET_SECONDS) * 1000)


def _one_of(field: str, value: object, known: tuple[_Word, ...]) -> _Word:
    for candidate in known:
        if candidate.value == value:
            return candidate
    raise InvalidInput(field, value, f"one of {', '.join(candidate.value for candidate in known)}")


def _cost(value: object) -> Decimal | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST_COST:
        raise InvalidInput("cost_usd", value, "dollars, 0 or more")
    return Decimal(str(value))


def _count(said: Mapping[str, object], name: str) -> int | None:
    value = said.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_COUNT:
        raise InvalidInput(name, value, "a count, 0 or more")
    return value
