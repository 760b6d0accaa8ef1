"""Show: small pieces of HTML, and words, that the templates are made with. What goes in as text comes out escaped."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tornado.escape import xhtml_escape

from vibey.services import display
from vibey.services.display import clock, lasting, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

BAR_WIDTH = 100
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
NOTHING = "-"
SHOWN_CHARACTERS = 4000
# A sign beside each word, so that colour says nothing alone.
STATES = {
    "queued": ("wait", "◷"),
    "waiting": ("wait", "◷"),
    "held": ("wait", "Ⅱ"),
    "granted": ("work", "◇"),
    "running": ("work", "▶"),
    "succeeded": ("good", "✓"),
    "failed": ("bad", "✗"),
    "lost": ("bad", "✗"),
    "cancelled": ("warn", "⊘"),
    "withdrawn": ("warn", "↶"),
    "closed": ("good", "✓"),
    "half_open": ("warn", "◐"),
    "open": ("bad", "✗"),
    "paused": ("warn", "Ⅱ"),
}
VERDICTS = {"chosen": ("good", "✓"), "full": ("wait", "■"), "excluded": ("bad", "✗")}
PLAIN = ("plain", "·")


def when(instant: str | None, as_of: str) -> str:
    """An instant as a `time` element: its distance from `as_of` in words, all of it in UTC as its title."""
    if instant is None:
        return NOTHING
    seconds = (datetime.fromisoformat(as_of) - datetime.fromisoformat(instant)).total_seconds()
    words = f"{lasting(seconds)} ago" if seconds >= 0 else f"in {lasting(-seconds)}"
    return f'<time datetime="{xhtml_escape(instant)}" title="{clock(instant)} UTC" data-ago>{words}</time>'


def since(instant: str | None, as_of: str) -> str:
    """How long ago an instant was, without a word for it, as a `time` element."""
    if instant is None:
        return NOTHING
    seconds = (datetime.fromisoformat(as_of) - datetime.fromisoformat(instant)).total_seconds()
    shown = f'datetime="{xhtml_escape(instant)}" title="since {clock(instant)} UTC"'
    return f"<time {shown} data-since>{lasting(seconds)}</time>"


def told(text: str, as_of: str) -> str:
    """A sentence with its instants as times of day, and their dates where that is another; all of each as its title."""

    def shown(found: re.Match[str]) -> str:
        whole = f"{clock(found[0])} UTC"
        return (
            f'<time datetime="{found[0]}" title="{whole}">{whole[11:] if found[0][:10] == as_of[:10] else whole}</time>'
        )

    return INSTANT.sub(shown, xhtml_escape(text))


def state(word: str) -> str:
    """A state of a job, run or circuit as a small label: a sign, a word and a colour."""
    return _label(word.replace("_", " "), *STATES.get(word, PLAIN))


def verdict(word: str) -> str:
    """What became of an engine, as a small label."""
    return _label(display.VERDICTS[word], *VERDICTS.get(word, PLAIN))


def _label(words: str, kind: str, sign: str) -> str:
    return f'<span class="word word-{kind}"><span aria-hidden="true">{sign}</span> {xhtml_escape(words)}</span>'


def bars(share: float, expected: float) -> str:
    """A share of the runs over the expected one, as two bars; the numbers stand beside them as text."""
    bar = '<rect class="{}" x="0" y="{}" width="{:.1f}" height="5" rx="1"></rect>'
    drawn = bar.format("bar-share", 0, share * BAR_WIDTH) + bar.format("bar-expected", 7, expected * BAR_WIDTH)
    back = f'<rect class="bar-back" x="0" y="0" width="{BAR_WIDTH}" height="12" rx="2"></rect>'
    return f'<svg class="bars" viewBox="0 0 {BAR_WIDTH} 12" aria-hidden="true" focusable="false">{back}{drawn}</svg>'


def money(dollars: float | None) -> str:
    """Dollars, to a hundredth of a cent where there is less than one."""
    if dollars is None:
        return NOTHING
    return f"${dollars:.4f}" if 0 < dollars < 0.01 else f"${dollars:.2f}"


def pretty(value: object) -> str:
    """A JSON value over several lines, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def inline(value: object) -> str:
    """A JSON value on one line, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 2000 else f"{text[:2000]}…"


def layers(found: Mapping[str, Any]) -> str:
    """What an engine's weight takes for a while, in words."""
    return "; ".join(
        f"{each['kind']} × {each['factor']:g}"
        + (f" until {clock(each['until'])}" if each["until"] else "")
        + (f" ({each['note']})" if each["note"] else "")
        for each in found["layers"]
    )


def took(run: Mapping[str, Any]) -> str:
    """How long an ended run ran."""
    if run["started_at"] is None or run["ended_at"] is None:
        return NOTHING
    ran = datetime.fromisoformat(run["ended_at"]) - datetime.fromisoformat(run["started_at"])
    return str(lasting(ran.total_seconds()))


def with_query(path: str, asked: Mapping[str, str], **changes: object) -> str:
    """A link to a page with its filters as they are, bar some changes; None takes one away."""
    query = {**asked, **{name: None if value is None else str(value) for name, value in changes.items()}}
    kept = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(kept)}" if kept else path


FUNCTIONS: dict[str, Any] = {
    "when": when,
    "since": since,
    "told": told,
    "state": state,
    "verdict": verdict,
    "bars": bars,
    "money": money,
    "pretty": pretty,
    "inline": inline,
    "layers": layers,
    "took": took,
    "with_query": with_query,
    "lasting": lasting,
    "clock": clock,
    "percent": percent,
    "factors": display.factors,
    "outside_cap": display.outside_cap,
    "class_words": display.class_words,
    "found_words": display.FOUND,
    "turn_words": display.TURNS,
}
