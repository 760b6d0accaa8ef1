"""Tap: reports what a client's provider answers, by a small script loaded into the client.

Several clients wait silently for an hour when they are told to. `tap.mjs` runs inside those that are JavaScript and
watches their requests to the provider. It prints each refusal with status, headers and body; that there was a request
at all, once; and the limits named beside successes, at most once in 10 s. Each line is signed with a word that only
this run knows. A version of a client whose requests the script cannot see prints none of them (`hiding`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vibey.domain.outcome import FailureClass
from vibey.engines.clients.rules import text_of
from vibey.engines.clients.signs import Sign, answered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.engines.clients.rules import Event

SCRIPT = Path(__file__).with_name("tap.mjs").as_uri()


@dataclass(frozen=True, slots=True)
class Tap:
    """The tap of one run."""

    word: str = field(default_factory=lambda: secrets.token_hex(16))

    def variables(self, base_url: str | None) -> dict[str, str]:
        """What the script reads; it looks only at requests below `base_url`, if there is one."""
        return {"VIBEY_TAP": self.word, "VIBEY_TAP_BASE": base_url or ""}

    def node_variables(self, base_url: str | None, passed: Mapping[str, str]) -> dict[str, str]:
        """As `variables`, and what has Node load the script; programs the client starts get the options as passed."""
        options = passed.get("NODE_OPTIONS", "")
        loaded = f"--import={SCRIPT} {options}".strip()
        return {**self.variables(base_url), "NODE_OPTIONS": loaded, "VIBEY_TAP_NODE_OPTIONS": options}

    def signed(self, event: Event) -> bool:
        """Whether this tap printed the line."""
        return event.get("key") == self.word and text_of(event.get("type")).startswith("vibey.")

    def sign(self, event: Event) -> Sign | None:
        """The sign in a refusal that this tap printed; None for anything else."""
        status, headers = event.get("status"), event.get("headers")
        if event.get("type") != "vibey.refusal" or not self.signed(event) or not isinstance(status, int):
            return None
        told = {str(name): str(value) for name, value in headers.items()} if isinstance(headers, dict) else {}
        sign = answered(status, text_of(event.get("body")), told)
        # A question on the side may name a model of its own; whether the client can do without, it says itself.
        return replace(sign, passing=True) if sign.failure_class is FailureClass.MISCONFIGURED else sign
