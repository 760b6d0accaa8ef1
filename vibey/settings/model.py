"""The tables of `vibey.toml`, one frozen model each, with every key's default and bounds.

The models hold what one table can know about itself. What needs two tables (an engine a pool names, a slot
count for an engine that does not exist) is judged in `vibey.settings.references`; what needs two keys of one
engine, in `vibey.settings.engine_rules`. Both then report together with the problems found here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from vibey.domain.layer import DAY_MINUTES, DAYS
from vibey.settings.urls import DatabaseUrl, RedisUrl, WebUrl
from vibey.settings.values import (
    LARGEST_COUNT,
    MILLIONTHS,
    Amount,
    Arguments,
    Clock,
    Location,
    Locations,
    Moment,
    OneOf,
    Program,
    Switch,
    Text,
    Weight,
    Whole,
    Words,
)

Mode = Literal["singleton", "hybrid", "auto"]
PaidFallback = Literal["allow", "count", "never"]
CapScope = Literal["project", "installation"]
CapCovers = Literal["exceptions", "all"]
Tier = Literal["local", "paid"]
Effort = Literal["trivial", "low", "standard", "high", "max", "ultra"]
Select = Literal["ordered", "weighted", "tiered"]
TierBy = Literal["tier", "weight"]
WhenFull = Literal["next", "wait"]
FlowerLogin = Literal["auto", "always", "never"]

NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,62}"
NAME_RULE = "1 to 63 lowercase letters, digits, dots, dashes and underscores, the first a letter or digit"
DEFAULT_LOCAL_SLOTS = 1
DEFAULT_PAID_SLOTS = 2

_HOURS_A_YEAR = 8760
_VARIABLE_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*"
_OBJECT_PATTERN = r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*"

Seconds = Annotated[int, PlainValidator(Whole(0, LARGEST_COUNT, "a whole number of seconds"))]
PositiveSeconds = Annotated[int, PlainValidator(Whole(1, LARGEST_COUNT, "a whole number of seconds"))]
Hours = Annotated[int, PlainValidator(Whole(1, _HOURS_A_YEAR, "a whole number of hours"))]
Truth = Annotated[bool, PlainValidator(Switch())]
Name = Annotated[str, PlainValidator(Text(NAME_RULE, NAME_PATTERN))]
Line = Annotated[str, PlainValidator(Text("one line of text, not empty"))]
Argv = Annotated[tuple[str, ...], PlainValidator(Arguments(program=True))]
Dollars = Annotated[Decimal, PlainValidator(Amount("dollars"))]
Millionths = Annotated[int, PlainValidator(Weight())]
AbsolutePath = Annotated[Path, PlainValidator(Location())]


Key = TypeVar("Key")
Value = TypeVar("Value")


def _frozen(table: Mapping[Key, Value]) -> Mapping[Key, Value]:
    return MappingProxyType(dict(table))


# Factories, because pydantic copies a default it cannot hash, and a mapping proxy cannot be copied.
def _no_counts() -> Mapping[str, int]:
    return MappingProxyType({})


def _no_efforts() -> Mapping[Effort, tuple[str, ...]]:
    return MappingProxyType({})


def _as_sequence(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _as_member(value: object) -> object:
    return {"engine": value} if isinstance(value, str) else value


SlotCounts = Annotated[
    Mapping[str, Annotated[int, PlainValidator(Whole(1, 1_000_000, "a whole number of slots"))]],
    AfterValidator(_frozen),
]
FairWeights = Annotated[
    Mapping[Name, Annotated[int, PlainValidator(Whole(1, 1000, "a project's part, a whole number"))]],
    AfterValidator(_frozen),
]
EffortArguments = Annotated[
    Mapping[
        Annotated[Effort, PlainValidator(OneOf(get_args(Effort)))],
        Annotated[tuple[str, ...], PlainValidator(Arguments())],
    ],
    AfterValidator(_frozen),
]


class Table(BaseModel):
    """One table: frozen, and closed to keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ServiceSettings(Table):
    """`[services]`: where the servers are, and how long ended jobs are kept there.

    An empty address means the embedded one under `data_dir`.
    """

    database_url: Annotated[str, PlainValidator(DatabaseUrl())] = ""
    redis_url: Annotated[str, PlainValidator(RedisUrl())] = ""
    data_dir: AbsolutePath = Field(default=Path(".vibey"), validate_default=True)
    redis_prefix: Annotated[
        str,
        PlainValidator(Text("1 to 64 letters, digits and any of : . _ - { }", r"[A-Za-z0-9:._{}-]{1,64}")),
    ] = "vibey:"
    flower_port: Annotated[int, PlainValidator(Whole(1, 65535, "a TCP port"))] = 5555
    flower_login: Annotated[FlowerLogin, PlainValidator(OneOf(get_args(FlowerLogin)))] = "auto"
    flower_open: Annotated[
        tuple[str, ...], PlainValidator(Words("pages out of metrics, healthcheck", "metrics|healthcheck"))
    ] = ()
    metrics_port: Annotated[int, PlainValidator(Whole(0, 65535, "a TCP port", "0 serves none"))] = 0
    keep_days: Annotated[int, PlainValidator(Whole(0, 36_500, "a whole number of days", "0 keeps for ever"))] = 90


class PolicyKeys(Table):
    """The keys of `[engines]` that a project carries a copy of."""

    mode: Annotated[Mode, PlainValidator(OneOf(get_args(Mode)))] = "auto"
    overflow_after_seconds: Seconds = 600
    paid_daily_cap: Annotated[
        int,
        PlainValidator(
            Whole(
                0,
                LARGEST_COUNT,
                "a whole number of paid runs per UTC day",
                "0 means none, and there is no uncapped value",
            )
        ),
    ] = 10
    paid_daily_cap_covers: Annotated[CapCovers, PlainValidator(OneOf(get_args(CapCovers)))] = "exceptions"
    paid_fallback: Annotated[PaidFallback, PlainValidator(OneOf(get_args(PaidFallback)))] = "count"
    auto_window_hours: Hours = 168
    auto_min_sessions: Annotated[int, PlainValidator(Whole(1, 1_000_000, "a whole number of sessions"))] = 20
    auto_min_contention: Annotated[Decimal, PlainValidator(Amount("the whole", high=1))] = Decimal("0.25")
    auto_max_age_hours: Hours = 24


class EngineDefaults(PolicyKeys):
    """`[engines]`: how the whole installation routes, waits, pays and retries."""

    paid_daily_cap_scope: Annotated[CapScope, PlainValidator(OneOf(get_args(CapScope)))] = "project"
    slot_poll_seconds: PositiveSeconds = 30
    cost_aware: Truth = True
    health_half_life_seconds: PositiveSeconds = 1800
    recheck_seconds: Seconds = 0
    lease_seconds: Annotated[int, PlainValidator(Whole(3, 3600, "a whole number of seconds"))] = 60
    run_timeout_seconds: PositiveSeconds = 7200
    max_attempts: Annotated[int, PlainValidator(Whole(1, 100, "a whole number of attempts"))] = 7
    retry_backoff_seconds: Seconds = 2
    paid_rerun_after_loss: Truth = True
    session_ttl_seconds: PositiveSeconds = 3600
    priority_age_seconds: Seconds = 0
    fair_share: Truth = False
    fair_weights: FairWeights = Field(default_factory=_no_counts)
    learn: Truth = False
    slots: SlotCounts = Field(default_factory=_no_counts)


class EngineSettings(Table):
    """`[engine.<name>]`: one way of running a job. `name` is the table's; no key of the file sets it."""

    name: Name
    kind: Annotated[
        str,
        PlainValidator(Text("the kind of an engine, in lowercase letters, digits and dashes", NAME_PATTERN)),
    ]
    tier: Annotated[Tier, PlainValidator(OneOf(get_args(Tier)))] = "paid"
    account: Line
    weight_millionths: Millionths = Field(default=MILLIONTHS, alias="weight")
    price_in: Dollars | None = None
    price_out: Dollars | None = None
    run_cost_limit_usd: Annotated[Decimal, PlainValidator(Amount("dollars", above_zero=True))] | None = None
    capabilities: Annotated[tuple[str, ...], PlainValidator(Words("capability names", NAME_PATTERN))] = ()
    efforts: EffortArguments = Field(default_factory=_no_efforts)
    enabled: Truth = True
    argv: Argv = ()
    callable: (
        Annotated[
            str,
            PlainValidator(Text("a Python callable written pkg.module:function", _OBJECT_PATTERN)),
        ]
        | None
    ) = None
    app: Annotated[str, PlainValidator(Text("a Celery app written pkg.module:app", _OBJECT_PATTERN))] | None = None
    base_url: Annotated[str, PlainValidator(WebUrl())] | None = None
    model: Line | None = None
    api_key_env: (
        Annotated[str, PlainValidator(Text("the name of an environment variable", _VARIABLE_PATTERN))] | None
    ) = None
    api_key_file: AbsolutePath | None = None
    env: Annotated[tuple[str, ...], PlainValidator(Words("environment variable names", _VARIABLE_PATTERN))] = ()
    stall_seconds: PositiveSeconds | None = None
    workspace_roots: Annotated[tuple[Path, ...], PlainValidator(Locations())] = ()
    workspace_author: Annotated[
        str, PlainValidator(Text("a name and an address, such as Vibey <vibey@example.org>", r"[^<>]+ <[^<>\s]+>"))
    ] = "vibey <vibey@localhost>"


class HostEngineSettings(Table):
    """What `[host.<name>]` says of one engine: the paths that are different on that machine."""

    argv: Annotated[tuple[str, ...], PlainValidator(Program())] | None = None
    workspace_roots: Annotated[tuple[Path, ...], PlainValidator(Locations())] | None = None


class MemberSettings(Table):
    """One member of a pool: an engine or another pool. No weight means the engine's own, or 1 for a pool."""

    engine: Name | None = None
    pool: Name | None = None
    weight_millionths: Millionths | None = Field(default=None, alias="weight")
    tier: Annotated[int, PlainValidator(Whole(-1_000_000, 1_000_000, "a pool tier (higher serves first)"))] | None = (
        None
    )


class PoolSettings(Table):
    """`[pool.<name>]`: how a pool chooses among its members.

    `tier_by` and a member's tier count only when `select` is tiered, and its weight only when it is not
    ordered; they may stand otherwise, so that one word switches a pool over and back.
    """

    select: Annotated[Select, PlainValidator(OneOf(get_args(Select)))] = "ordered"
    tier_by: Annotated[TierBy, PlainValidator(OneOf(get_args(TierBy)))] = "tier"
    when_full: Annotated[WhenFull, PlainValidator(OneOf(get_args(WhenFull)))] = "next"
    members: Annotated[
        tuple[Annotated[MemberSettings, BeforeValidator(_as_member)], ...], BeforeValidator(_as_sequence)
    ]


class ScheduleSettings(Table):
    """`[schedule.<name>]`: hours of the week, in UTC, in which a member's weight takes a factor.

    An end that is not after the start lies on the next day; `days` are those on which the window starts.
    """

    member: Name
    factor_millionths: Millionths = Field(alias="factor")
    days: Annotated[tuple[str, ...], PlainValidator(Words(f"days out of {', '.join(DAYS)}", "|".join(DAYS)))] = DAYS
    from_minute: Annotated[int, PlainValidator(Clock())] = Field(default=0, alias="from")
    to_minute: Annotated[int, PlainValidator(Clock())] = Field(default=DAY_MINUTES, alias="to")
    until: Annotated[datetime, PlainValidator(Moment())] | None = None


class VerifySettings(Table):
    """`[verify.<name>]`: a check a job may ask for by name; the operator alone says what it runs."""

    argv: Argv
    timeout_seconds: PositiveSeconds = 600
