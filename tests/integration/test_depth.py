"""One bound on the depth of JSON values, checked where each comes in: every way to enqueue, and every way to report."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import create_engine

from tests.support.installation import Bench, noop
from vibey import InvalidInput, Order, Vibey
from vibey.async_client import AsyncVibey
from vibey.domain.depth import MOST_LEVELS, is_too_deep
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.engines.calling import Answer
from vibey.engines.pycall import _report_of
from vibey.engines.results import parse_report, storable_outcome
from vibey.services.enqueue import order_of, place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def nested(shape: str, innermost: object = "x") -> Any:
    """A value with a list or object for each letter of the shape, l or o, the outermost first."""
    value = innermost
    for letter in reversed(shape):
        value = [value] if letter == "l" else {"k": value}
    return value


def levels(value: object) -> int:
    """How many lists and objects are in one another, by the definition."""
    if isinstance(value, dict):
        return 1 + max(map(levels, value.values()), default=0)
    return 1 + max(map(levels, value), default=0) if isinstance(value, list) else 0


@given(
    length=st.integers(MOST_LEVELS - 3, MOST_LEVELS + 3),
    letters=st.lists(st.sampled_from("lo"), min_size=1, max_size=5),
    innermost=st.sampled_from(["x", None, [], {}, [1, "a"], {"a": {"b": []}}]),
    beside=st.sampled_from([[], {}, [[[]]], {"a": {"b": 1}}]),
)
def test_levels_are_counted_as_defined(length: int, letters: list[str], innermost: object, beside: object) -> None:
    """Lists and objects in any mixture, with anything innermost, empty ones as well, and shallow ones beside them."""
    value = [beside, nested("".join(letters * MOST_LEVELS)[:length], innermost)]
    assert is_too_deep(value) == (levels(value) > MOST_LEVELS)


def _shapes() -> dict[str, bool]:
    """Payloads around the bound, and whether each is taken."""
    mixed = "ol" * MOST_LEVELS
    found = {}
    for count in (MOST_LEVELS, MOST_LEVELS + 1):
        for shape in (mixed[:count], "o" + "l" * (count - 1)):
            found[shape] = count <= MOST_LEVELS
    return {**found, "o" * 900: False}


def _by_caller(bench: Bench, payload: Mapping[str, Any]) -> None:
    engine = create_engine(bench.installation.settings.services.database_url)
    try:
        with Vibey(settings=bench.installation.settings) as vibey, engine.begin() as connection:
            vibey.enqueue(payload, connection=connection)
    finally:
        engine.dispose()


def _by_client(bench: Bench, payload: Mapping[str, Any]) -> None:
    with Vibey(settings=bench.installation.settings) as vibey:
        vibey.enqueue_many([Order(payload=payload)])


def _by_async_client(bench: Bench, payload: Mapping[str, Any]) -> None:
    async def body() -> None:
        async with AsyncVibey(settings=bench.installation.settings) as vibey:
            await vibey.enqueue(payload)

    asyncio.run(body())


WAYS: dict[str, Callable[[Bench, Mapping[str, Any]], object]] = {
    "service": lambda bench, payload: place(bench.installation, [Order(), Order(payload=payload)]),
    "message": lambda bench, payload: place(bench.installation, [order_of({"payload": payload})]),
    "client": _by_client,
    "async client": _by_async_client,
    "caller's transaction": _by_caller,
}


def test_every_way_to_enqueue_has_the_bound(open_bench: Callable[..., Bench]) -> None:
    """What is taken is stored as it was given; what is not leaves nothing behind."""
    bench = open_bench(engine={"a": noop()})
    for name, way in WAYS.items():
        for shape, is_taken in _shapes().items():
            before, payload = bench.value("select count(*) from jobs"), nested(shape)
            if is_taken:
                way(bench, payload)
                assert bench.value("select payload from jobs order by id desc limit 1") == payload, name
            else:
                with pytest.raises(InvalidInput, match=f"at most {MOST_LEVELS} levels"):
                    way(bench, payload)
                assert bench.value("select count(*) from jobs") == before, name


def _report(value: object) -> object:
    """What comes of a report file with this result: the result, or the class of the failure."""
    try:
        outcome = storable_outcome(parse_report(json.dumps({"result": value}).encode()).outcome(None))
    except InvalidInput:
        return FailureClass.WORK
    return outcome.result if isinstance(outcome, Success) else outcome


def test_every_way_to_report_has_the_bound() -> None:
    """A program's report file, a callable's answer on its way to one, and an adapter's own outcome."""
    for shape, is_taken in _shapes().items():
        value = nested(shape)
        assert _report(value) == (value if is_taken else FailureClass.WORK)
        listed = nested(shape[1:], [1])
        if is_taken and isinstance(listed, list):
            assert _report(listed) == {"value": listed}
        said = _report_of(Answer(value))
        assert ("failure" in said) or _report(said["result"]) == (value if is_taken else FailureClass.WORK)
        if is_taken:
            assert storable_outcome(Success({"v": value})) == Success({"v": value})
        else:
            with pytest.raises(InvalidInput, match=f"at most {MOST_LEVELS} levels"):
                storable_outcome(Success({"v": value}))
    assert storable_outcome(Failure(FailureClass.WORK, "x")) == Failure(FailureClass.WORK, "x")
