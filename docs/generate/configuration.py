"""The keys of `vibey.toml`: default and meaning from config/vibey.toml, range from the models that check them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from docs.generate.markdown import code, table, words
from vibey.settings import model
from vibey.settings.source import SERVICE_VARIABLES, policy_variables
from vibey.settings.values import Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

EXAMPLE = Path(__file__).resolve().parents[2] / "config" / "vibey.toml"
TABLES: Mapping[str, type[model.Table]] = {
    "services": model.ServiceSettings,
    "engines": model.EngineDefaults,
    "engine.NAME": model.EngineSettings,
    "pool.NAME": model.PoolSettings,
    "schedule.NAME": model.ScheduleSettings,
    "verify.NAME": model.VerifySettings,
    "host.NAME.ENGINE": model.HostEngineSettings,
}
# Tables of names the operator chooses: the key of [engines] they are, and what their keys name.
COUNTS = {"engines.slots": ("slots", "an engine"), "engines.fair_weights": ("fair_weights", "a project")}
HEAD = re.compile(r"^(?:# )?\[(?P<table>[\w.-]+)\]$")
KEY = re.compile(r"^(?:# )?(?P<key>[a-z_]+) = (?P<value>.*?)\s*(?:#\s*(?P<meaning>.*))?$")
INTRODUCTION = """\
# Configuration

`vibey.toml` in the working folder, or the file that `$VIBEY_CONFIG` or `--config` names. Every key has a default, so
the file may be missing. `vibey config check` finds every mistake at once. What routing depends on is in force once
it is [applied](../how-to/change-the-configuration.md); `vibey config show` prints what is in force, where each value
came from, and where the file says something else. Below a key's meaning stands *what it may be*, and the variable that
overrides it.
[A file with every key](../../config/vibey.toml) says the same in TOML.
"""
LEADS = {
    "services": "Where the servers are. Belongs to each machine.",
    "engines": (
        "How the installation routes, waits, pays and retries. The project `default` follows the keys marked ◆ when "
        "they are applied; `vibey new` copies them into a project, where `vibey project set` changes them from then on."
    ),
    "engines.slots": "How many runs an engine may have at once.",
    "engines.fair_weights": "Each project's part of the slots under `fair_share`.",
    "engine.NAME": "One table per engine, in the order that breaks ties.",
    "pool.NAME": "Optional: how one of several engines is chosen ([explanation](../explanation/pools-and-tiers.md)).",
    "schedule.NAME": "Optional: hours in which the weight of a pool's member takes a factor.",
    "verify.NAME": "Optional: checks that a job may ask for by name ([how to](../how-to/workspaces.md)).",
    "host.NAME.ENGINE": (
        "Optional: paths of an engine that differ on one machine, which `$VIBEY_HOST` names, else its host name."
    ),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One key as config/vibey.toml has it."""

    key: str
    value: str
    meaning: str

    @property
    def default(self) -> str:
        """Its default as TOML; without one, that it is required, or what stands for it."""
        if "required:" in self.meaning:
            return "required" if self.meaning.startswith("required:") else "required for this kind"
        if told := re.search(r"default: ([^()]*?)\)?$", self.meaning):
            return words(told[1])
        if "(example" not in self.meaning:
            return code(self.value)
        told = re.search(r"\(example; ([^()]*)\)", self.meaning)
        return words(told[1]) if told else "none"

    @property
    def sentence(self) -> str:
        """Its meaning, without what other columns say."""
        plain = re.sub(
            r"\s*\(example[^()]*\)|; default: .*|^required: |, required(?=:)|\s+VIBEY_[A-Z_]+$", "", self.meaning
        )
        return words(plain)


def lines() -> Mapping[str, list[Line]]:
    """The lines of config/vibey.toml by table."""
    found: dict[str, list[Line]] = {}
    current = ""
    for text in EXAMPLE.read_text(encoding="utf-8").splitlines():
        if head := HEAD.fullmatch(text):
            name = head["table"]
            current = re.sub(r"^(engine|pool|schedule|verify)\..*", r"\1.NAME", name)
            current = re.sub(r"^host\..*", "host.NAME.ENGINE", current)
            found[current] = []
        elif current and (key := KEY.fullmatch(text)):
            found[current].append(Line(key["key"], key["value"], key["meaning"] or ""))
    return found


def allowed(table_model: type[model.Table], key: str) -> str:
    """What a key may be, in the words its check refuses other values with."""
    for unusable in (object(), {"x": object()}):
        try:
            table_model.model_validate({key: unusable}, context={"folder": Path("/")})
        except ValidationError as error:
            for each in error.errors():
                reason = each.get("ctx", {}).get("error")
                if each["loc"][0] == key and isinstance(reason, Unusable):
                    return f"each: {reason.expected}" if len(each["loc"]) > 1 else reason.expected
    return "a list of engines and pools"


def page() -> str:
    """The page, a section for each table."""
    parts = [INTRODUCTION]
    known = lines()
    for name, lead in LEADS.items():
        parts += [f"## `[{name}]`", lead, "\n".join(_section(name, known[name]))]
    parts += ["### A member of a pool", _members()]
    return "\n\n".join(parts)


def _section(name: str, known: list[Line]) -> Iterator[str]:
    if name in COUNTS:
        key, what = COUNTS[name]
        yield table(("key", "allowed"), [(f"the name of {what}", words(allowed(model.EngineDefaults, key)))])
        return
    variables = {"services": SERVICE_VARIABLES, "engines": policy_variables(model.EngineDefaults)}.get(name, {})
    yield table(("key", "default", "meaning"), (_row(TABLES[name], line, variables) for line in known))


def _row(table_model: type[model.Table], line: Line, variables: Mapping[str, str]) -> tuple[str, ...]:
    copied = " ◆" if table_model is model.EngineDefaults and line.key in model.PolicyKeys.model_fields else ""
    parts = [line.sentence, f"*{words(allowed(table_model, line.key))}*", code(variables.get(line.key, ""))]
    return code(line.key) + copied, line.default, "<br>".join(filter(None, parts))


def _members() -> str:
    keys = {
        "engine": "the engine, or",
        "pool": "the nested pool",
        "weight": "in place of the engine's own; 1 for a pool",
        "tier": "its pool tier, where `select` is tiered",
    }
    rows = ((code(key), meaning, words(allowed(model.MemberSettings, key))) for key, meaning in keys.items())
    return table(("key", "meaning", "allowed"), rows)
