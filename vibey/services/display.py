"""Display: values as people read them, on the command line and in the pages alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

VERDICTS = {
    "chosen": "chosen",
    "lost": "lost",
    "passed_over": "passed over",
    "not_offered": "not offered",
    "full": "full",
    "excluded": "excluded",
}
FOUND = {"closed": "nothing offered there", "full": "full"}
TURNS = {
    "only": "the only one free",
    "drawn": "drawn",
    "sticky": "the session's own",
    "yielded": "drawn, the session's own being full",
}
ONE = "1"
UNITS = ("bytes", "kB", "MB", "GB", "TB")
MEGA = 2


def verdict(judged: Mapping[str, Any]) -> str:
    """What became of an engine, in a word or two; one that nobody serves counts as full, and is not called that."""
    return "no worker" if judged["ground"] == "no_worker" else VERDICTS[judged["verdict"]]


def plain(text: str) -> str:
    """Text without anything a terminal would obey; ends of lines stay."""
    return "".join(mark if mark.isprintable() or mark == "\n" else "\ufffd" for mark in text)


def lasting(seconds: float | None) -> str | None:
    """A length of time in its two largest units: `12s`, `3m 04s`, `2h 11m`, `3d 4h`."""
    if seconds is None:
        return None
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def clock(instant: str | None) -> str | None:
    """An instant of a view, to the second: `2026-03-01 14:05:09`, in UTC."""
    return None if instant is None else instant[:19].replace("T", " ")


def percent(share: float) -> str:
    """A fraction of 1 in percent."""
    return f"{share * 100:.1f}%"


def size(count: int) -> str:
    """A number of bytes in the largest unit it fills: `812 kB`, `1.4 GB`."""
    power = min((len(str(count)) - 1) // 3, len(UNITS) - 1)
    value = count / 1000**power
    return f"{value:.1f} {UNITS[power]}" if power > MEGA else f"{value:.0f} {UNITS[power]}"


def database(kept: Mapping[str, Any]) -> str:
    """How large the database is and what it keeps, from the view's `database`."""
    days = kept["keep_days"]
    keeps = f"ended jobs are kept {many(days, 'day')}" if days else "ended jobs are kept for ever"
    begins = kept["record_begins"]
    gone = f"; {many(kept['removed_jobs'], 'job')} removed, the record begins {clock(begins)} UTC" if begins else ""
    return f"{size(kept['bytes'])}; {keeps}{gone}"


def cap(cap: Mapping[str, Any]) -> str:
    """How much of a view's `cap` has been used; more than all of it where it was lowered later in the day."""
    used, limit = cap["used"], cap["limit"]
    owner = "the project" if cap["scope"] == "project" else "all projects"
    if used > limit:
        return f"{many(used, 'paid unit')} of {owner} used on {cap['utc_day']} (UTC), cap {limit}: spent"
    spent = ": spent" if used == limit and limit else ""
    return f"{used} of {limit} paid units of {owner} used on {cap['utc_day']} (UTC){spent}"


def outside_cap(found: Mapping[str, Any]) -> str:
    """What a view with `paid_outside_cap_today` says of paid runs that took no unit; empty where the cap covers all."""
    runs, reasons = found["paid_outside_cap_today"], found["paid_outside_cap"]
    if not runs:
        return f"the cap does not cover all paid runs: {'; '.join(reasons)}" if reasons else ""
    return ": ".join(filter(None, [f"{many(runs, 'paid run')} of today took no unit of the cap", "; ".join(reasons)]))


def many(count: int, thing: str) -> str:
    """A count with its noun: `1 job`, `2 jobs`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def class_words(label: str) -> str:
    """A class of a pool, as the walk labels it, in words."""
    demoted = label.startswith("~")
    return f"class {label.removeprefix('~') or 'all'}{', demoted' if demoted else ''}"


def factors(factors: Mapping[str, Any]) -> str:
    """What the weight is the product of, if anything but its base takes part."""
    parts = [f"{each['kind']} {each['factor']:g}" for each in factors["layers"]]
    soft = {name: f"{factors[name]:.3g}" for name in ("health", "fidelity", "cost", "affinity")}
    parts += [f"{name} {value}" for name, value in soft.items() if value != ONE]
    return f"weight {factors['base']:g} × {' × '.join(parts)}" if parts else ""
