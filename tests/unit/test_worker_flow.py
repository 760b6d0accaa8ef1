"""The worker's loop: what it keeps of what is over."""

from __future__ import annotations

from kombu.asynchronous.timer import Timer

from vibey.worker.flow import sweep


def test_cancelled_timers_are_dropped_and_the_others_fire_in_order() -> None:
    """Also while the loop has begun to look for the next, and none is dropped that was not cancelled."""
    timer, fired = Timer(), []
    kept = {seconds: timer.call_after(seconds, fired.append, (seconds,)) for seconds in (3600, -2, -1, 1800)}
    limits = [timer.call_after(7200 - number, print) for number in range(1000)]
    scheduler = iter(timer)
    _, first = next(scheduler)
    timer.apply_entry(first)
    for limit in limits:
        limit.cancel()
    kept[1800].cancel()
    sweep(timer)
    assert len(timer) == 2
    _, second = next(scheduler)
    timer.apply_entry(second)
    wait, nothing = next(scheduler)
    assert fired == [-2, -1]
    assert nothing is None
    assert wait > 0
    assert [each.entry for each in timer._queue] == [kept[3600]]  # noqa: SLF001
