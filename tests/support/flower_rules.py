"""The rules of the application that Flower makes with our configuration, one address for each, as JSON.

A program of its own: to bring the pages into Flower changes Flower's modules for good.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from celery import Celery
from flower import urls
from flower.app import Flower

from vibey.flower import seam

if TYPE_CHECKING:
    from collections.abc import Iterator

# What groups of their patterns are tried with.
WORDS = ("x", "1", "pause", "favicon.ico", "robots.txt")
ANYTHING = "/there/is/no/such/page"


def main() -> None:
    """Print an address for each rule; LookupError for a rule that none is known for."""
    seam.install()
    application = Flower(capp=Celery(), **urls.settings)
    sys.stdout.write(json.dumps(sorted({address(rule) for rule in rules(application.default_router)})))


def rules(router: Any) -> Iterator[Any]:
    """Every rule of a router and of those within that leads to a handler."""
    for rule in router.rules:
        if hasattr(rule.target, "rules"):
            yield from rules(rule.target)
        else:
            yield rule


def address(rule: Any) -> str:
    """An address that a rule matches."""
    pattern = rule.matcher.regex
    plain = pattern.pattern.removesuffix("$").replace("/?", "/").replace("\\", "")
    tried = (ANYTHING, *(re.sub(r"\([^()]*\)", word, plain) for word in WORDS))
    found = next((path for path in tried if pattern.match(path)), None)
    if found is None:
        raise LookupError(f"no address is known for {pattern.pattern!r}; see WORDS")
    return found


if __name__ == "__main__":
    main()
