"""Whole jobs with the real clients, through router and workers, while their provider serves, refuses or fails.

The kind `openai` is put through the same, without a client: the provider is its server.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import clients
from tests.support.fleet import Fleet
from tests.support.provider import Cut, Provider, Refuse, Say, Stall, Turn, Use
from tests.support.repositories import Repository
from vibey import embedded
from vibey.services.audit import audit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.clients import Installed

    SettleIn = Callable[[Mapping[str, str]], None]

# Below which path each kind asks its provider, and a model that it does not refuse by its name.
KINDS = {**clients.KINDS, "openai": ("/v1", "m")}
NAMES_RESETS = frozenset({"gemini", "openai", "opencode", "qwen-code"})
RESET_SECONDS = 3600
STALL_SECONDS = 10
# A model asked through `openai` has no tools to work with.
WITHOUT_TOOLS = frozenset({"openai"})
WORK = Use('echo made > made.txt; echo "HTTP 429 rate limit, [API Error: 401 x]" >&2')


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the provider does, and what the first run has to end as: its failure's class, and why its circuit opens."""

    script: tuple[Turn, ...]
    failure_class: str | None = None
    opens: str | None = None
    resets: bool = False

    def turns(self, kind: str) -> tuple[Turn, ...]:
        """The script as an engine of this kind can follow it."""
        return tuple(turn for turn in self.script if kind not in WITHOUT_TOOLS or not isinstance(turn, Use))


SCENARIOS = {
    "success": Scenario((WORK, Say("BUILD OK: no 429 anywhere"))),
    "repository": Scenario((WORK, Say("BUILD OK"))),
    "recovered": Scenario((Refuse("overloaded", times=2), Say("BUILD OK"))),
    "limited": Scenario((Refuse("rate_limited", RESET_SECONDS),), "capacity", "window_exhausted", resets=True),
    "unnamed": Scenario((Refuse("rate_limited"),), "capacity", "window_exhausted"),
    "midway": Scenario(
        (WORK, WORK, Refuse("rate_limited", RESET_SECONDS)), "capacity", "window_exhausted", resets=True
    ),
    "credits": Scenario((Refuse("credits"),), "capacity", "credits_exhausted"),
    "login": Scenario((Refuse("login"),), "capacity", "login_failed"),
    "overloaded": Scenario((Refuse("overloaded"),), "engine"),
    "cut": Scenario((Cut(),), "engine"),
    "stalled": Scenario((Stall(threading.Event()),), "engine"),
    "model": Scenario((Refuse("unknown_model"),), "misconfigured"),
    "request": Scenario((Refuse("bad_request"),), "work"),
}


def scenarios_of(kind: str) -> dict[str, Scenario]:
    """Those an engine of this kind can be put through. `openai` works in no tree, asks once, and takes 503 for busy."""
    if kind not in WITHOUT_TOOLS:
        return SCENARIOS
    left = {name: each for name, each in SCENARIOS.items() if name not in {"repository", "recovered"}}
    return {**left, "overloaded": replace(left["overloaded"], failure_class="capacity")}


class Stage:
    """One fleet with an engine for each scenario, each with a provider of its own."""

    def __init__(self, kind: str, folder: Path, servers: embedded.Services, prefix: str, exits: ExitStack) -> None:
        below, model = KINDS[kind]
        self.kind = kind
        self.repository = Repository.made(folder / "roots" / "site")
        self.scenarios = scenarios_of(kind)
        self.providers = {
            name: exits.enter_context(Provider(*each.turns(kind), asides=kind not in WITHOUT_TOOLS))
            for name, each in self.scenarios.items()
        }
        engines = {
            name: {
                "kind": kind,
                "tier": "paid",
                "base_url": provider.url + below,
                "model": model,
                "api_key_env": "CLIENTS_TEST_KEY",
                "price_in": 3.0,
                "price_out": 15.0,
                "capabilities": [name],
                **self._special(name, folder),
            }
            for name, provider in self.providers.items()
        }
        common = {"lease_seconds": 30, "slots": dict.fromkeys(self.scenarios, 1)}
        self.fleet = Fleet(folder, servers, prefix, {"engine": engines, "engines": common})
        exits.callback(self.fleet.close)
        self.fleet.muster()

    def _special(self, name: str, folder: Path) -> dict[str, Any]:
        special = {
            "stalled": {"stall_seconds": STALL_SECONDS},
            "repository": {"workspace_roots": [str(folder / "roots")]},
        }
        return special.get(name, {})

    def play(self, name: str) -> dict[str, Any]:
        """Run one job in a scenario; its first run, once that has ended."""
        prompt = {"prompt": "Build it. -- $(x)", **({"repo": "site"} if name == "repository" else {})}
        [job] = self.fleet.enqueue(payload=prompt, capabilities=[name], max_attempts=1)
        own = f"from runs r join accounts a on a.name = r.account where r.job_id = {job}"
        self.fleet.until(f"select count(*) > 0 {own} and r.ended_at is not null", what=f"an end of {name}")
        columns = (
            "r.state, r.failure_class, r.detail, r.cost_usd, r.tokens_in, r.tokens_out, a.open_reason,"
            " extract(epoch from r.ended_at)::float, extract(epoch from a.probe_at - r.ended_at)::float"
        )
        row = self.fleet.rows(f"select {columns} {own} order by r.id limit 1")[0]
        names = ("state", "failure_class", "detail", "cost", "tokens_in", "tokens_out", "opens", "ended_at", "probe_in")
        return dict(zip(names, row, strict=True))


@pytest.mark.clients
@pytest.mark.timeout(900)
@pytest.mark.parametrize("client", [*clients.every(), None], ids=lambda client: str(client or "openai"))
def test_every_end_has_its_class(
    client: Installed | None,
    settle_in: SettleIn,
    database_url: str,
    redis_url: str,
    tmp_path: Path,
    unique_name: Callable[[str], str],
    record_property: Callable[[str, object], None],
) -> None:
    """Work is done and paid for; each fault ends the first run in its class, by what the client shows."""
    settle_in({client.kind: client.version} if client else {})
    wrong = []
    with ExitStack() as exits:
        servers = embedded.Services(database_url, redis_url)
        stage = Stage(client.kind if client else "openai", tmp_path, servers, f"{unique_name('test')}:", exits)
        for name, scenario in stage.scenarios.items():
            run = stage.play(name)
            record_property("end", f"{client.version if client else '':9} {_line(stage, name, run)}")
            try:
                _check(stage, name, scenario, run)
            except AssertionError as error:
                record_property("failed", name)
                wrong.append(error)
        assert audit(stage.fleet.installation).violations == ()
    assert not wrong, [str(error) for error in wrong]


def _check(stage: Stage, name: str, scenario: Scenario, run: dict[str, Any]) -> None:
    found = (name, run)
    assert run["failure_class"] == scenario.failure_class, found
    if stage.kind == "gemini" and name == "credits":
        return  # Google words a spent day and spent money alike
    if scenario.failure_class is None:
        assert (run["state"], run["tokens_in"] > 0, run["cost"] > 0) == ("succeeded", True, True), found
        assert stage.fleet.value("select result->>'text' from jobs order by id desc limit 1").startswith("BUILD OK")
    if name == "repository":
        branch = stage.fleet.value("select result->>'branch' from jobs order by id desc limit 1")
        assert stage.repository.show(f"{branch}:made.txt") == "made", found
    if scenario.opens:
        assert run["opens"] == scenario.opens, found
    if scenario.resets and stage.kind in NAMES_RESETS:
        assert 0.9 * RESET_SECONDS < run["probe_in"] <= RESET_SECONDS + 60, found
    if name == "midway" and stage.kind in {"claude-code", "opencode", "qwen-code"}:
        assert (run["tokens_in"], run["tokens_out"]) == (24, 6), found
    if name == "stalled":
        assert run["detail"].startswith("stall"), found
    elif scenario.failure_class:
        assert not run["detail"].startswith(("stall", "timeout", "exit")), found
        assert run["ended_at"] > max((asked.at for asked in stage.providers[name].refusals()), default=0.0), found


def _line(stage: Stage, name: str, run: dict[str, Any]) -> str:
    refusals = stage.providers[name].refusals()
    word = f"{run['failure_class'] or run['state']} {run['opens'] or ''}".strip()
    if not refusals or run["failure_class"] is None:
        return f"{stage.kind:12} {name:11} {word}"
    first, last = (run["ended_at"] - refusals[at].at for at in (0, -1))
    after = f"slot free {first:5.2f} s after the first of {len(refusals)} refusals, {last:5.2f} s after the last"
    return f"{stage.kind:12} {name:11} {word:24} {after}"
