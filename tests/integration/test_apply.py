"""Applying: one generation in force for everybody, what it does to live and queued work, and the way back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cli import write_config
from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.errors import Refused
from vibey.domain.outcome import Success
from vibey.services import control, modes, pulse
from vibey.services.apply import apply, history, plan, variables_not_in_force
from vibey.services.audit import audit
from vibey.services.following import Follower
from vibey.services.route import route
from vibey.services.run import _start, carry_out
from vibey.services.settle import Held, settle
from vibey.services.tick import tick
from vibey.services.views import engines, slots, status
from vibey.settings import Source, load, settings_of
from vibey.store import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from vibey.services.installation import Installation


def changed(bench: Bench, environ: Mapping[str, str] | None = None, **tables: Any) -> Installation:
    """The installation of the bench as a process with another file, or other variables, would open it."""
    source = Source(None, bench.installation.file.services.data_dir, {**bench.tables, **tables})
    return bench.installation.reread(settings_of(source, environ or {}))


def start(bench: Bench) -> list[Held]:
    """Start every run that is granted."""
    live = [(run, token) for run, token, _ in bench.live()]
    return [Held.of(_start(bench.installation, run, token), token) for run, token in live]


def test_a_process_with_another_file_changes_nothing_by_being_there(open_bench: Callable[..., Bench]) -> None:
    """Routers, enqueuers and ticks of any file go by what was applied; only `apply` puts something else in force."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 1}, "max_attempts": 3})
    other = changed(bench, engine={"b": noop()}, engines={"slots": {"b": 9}, "max_attempts": 5, "mode": "hybrid"})
    bench.enqueue(2)
    tick(other)
    assert [engine for _, _, engine in bench.live()] == ["a"]
    assert bench.rows("select distinct max_attempts from jobs") == [(3,)]
    assert plan(other).differs
    assert not plan(bench.installation).differs


def test_an_engine_that_is_removed_ends_what_it_runs_and_gives_back_what_it_was_granted(
    open_bench: Callable[..., Bench],
) -> None:
    """Running goes on to its end and is shown; granted is withdrawn without an attempt lost; queued goes elsewhere."""
    bench = open_bench(engine={"a": noop(), "b": noop()}, engines={"slots": {"a": 1}}, pool=_only("a"))
    bench.enqueue(3)
    route(bench.installation, "main")
    [running] = start(bench)
    done = apply(changed(bench, engine={"b": noop()}, engines={"slots": {"b": 2}}, pool=_only("b")))
    assert done.plan.effects[0] == "1 running on a goes on to its end"
    shown = {each["name"]: each for each in engines(bench.installation)["engines"]}
    assert (shown["a"]["configured"], shown["a"]["remark"]) == (False, "removed, 1 running")
    assert [each["engine"] for each in slots(bench.installation)["slots"] if each["run_id"]] == ["a"]
    bench.staff("b")
    route(bench.installation, "main")
    assert sorted(engine for _, _, engine in bench.live()) == ["a", "b", "b"]
    settle(bench.installation, running, Success())
    assert "a" not in {each["name"] for each in engines(bench.installation)["engines"]}
    assert audit(bench.installation).violations == ()


@pytest.mark.parametrize("b", [None, noop(account="other"), noop(kind="command", argv=["true"])])
def test_grants_nobody_has_started_are_withdrawn_from_an_engine_that_is_another_now(
    open_bench: Callable[..., Bench], b: dict[str, Any] | None
) -> None:
    """Removed, or of another kind or account: the attempt is refunded, the job is queued with the reason."""
    bench = open_bench(engine={"a": noop(), "b": noop()}, pool=_only("b"))
    [job] = bench.enqueue(1)
    route(bench.installation, "main")
    kept = {} if b is None else {"b": b}
    done = apply(changed(bench, engine={"a": noop(), **kept}, pool=_only("b" if kept else "a")))
    assert done.withdrawn == 1
    assert bench.rows(f"select state, attempt, refunds from jobs where id = {job}") == [("queued", 0, 0)]
    assert bench.rows("select state, account from runs") == [("withdrawn", "b")]
    assert bench.rows("select array_length(engines, 1) from workers") == [(1,)]
    assert audit(bench.installation).violations == ()


def test_slots_of_live_runs_count_when_the_name_returns(open_bench: Callable[..., Bench]) -> None:
    """An engine taken out and put back while its run goes on has that slot in use."""
    bench = open_bench(engine={"a": noop(), "b": noop()}, engines={"slots": {"a": 1}}, pool=_only("a"))
    bench.enqueue(2)
    route(bench.installation, "main")
    start(bench)
    apply(changed(bench, engine={"b": noop()}, engines={}, pool=_only("b")))
    apply(bench.installation)
    bench.staff()
    assert route(bench.installation, "main") == 0
    assert [engine for _, _, engine in bench.live()] == ["a"]


def test_slots_that_are_lowered_kill_nothing(open_bench: Callable[..., Bench]) -> None:
    """Live runs above the new number go on; nothing is granted until there are fewer."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 3}})
    bench.enqueue(5)
    route(bench.installation, "main")
    held = start(bench)
    done = apply(changed(bench, engines={"mode": "singleton", "slots": {"a": 1}}))
    assert done.plan.effects[0] == "3 at work on a go on; no more until fewer than 1 are"
    assert (len(bench.live()), route(bench.installation, "main")) == (3, 0)
    for each in held:
        settle(bench.installation, each, Success())
    assert route(bench.installation, "main") == 1
    assert audit(bench.installation).violations == ()


def test_slots_above_what_live_workers_can_run_are_full(open_bench: Callable[..., Bench]) -> None:
    """A worker offers what it started with; who is to be restarted for the others is said."""
    bench = open_bench(engine={"a": noop()}, engines={"slots": {"a": 2}})
    bench.enqueue(8)
    number = apply(changed(bench, engines={"mode": "singleton", "slots": {"a": 6}})).generation
    pulse.appear(bench.installation, pulse.Worker("worker@test", ("a",), 3, (2,), number))
    assert route(bench.installation, "main") == 2
    [shown] = engines(bench.installation)["engines"]
    assert (shown["slots"], shown["offered"], shown["remark"]) == (
        6,
        2,
        "restart worker@test for 4 more slots: on its machine run vibey down, then vibey up",
    )
    pulse.appear(bench.installation, pulse.Worker("second@test", ("a",), 4, (3,), number))
    assert route(bench.installation, "main") == 3
    assert audit(bench.installation).violations == ()


def test_a_worker_that_read_its_file_for_another_generation_serves_nothing(open_bench: Callable[..., Bench]) -> None:
    """A beat under way when another generation is put in force takes no engine for a worker that does not know it."""
    bench = open_bench(engine={"a": noop()})
    worker = pulse.Worker("old@test", ("a",), 4, (2,), 1)
    pulse.appear(bench.installation, worker)
    assert bench.rows("select engines from workers where name = 'old@test'") == [(["a"],)]
    apply(changed(bench, engines={"slots": {"a": 3}}))
    pulse.appear(bench.installation, worker)
    assert bench.rows("select engines, slots from workers where name = 'old@test'") == [([], [])]


def test_a_run_is_given_back_where_the_file_would_run_its_engine_in_another_way(
    open_bench: Callable[..., Bench],
) -> None:
    """The holder checks by the generation it starts the run in: the attempt is refunded, and nothing has run."""
    bench = open_bench(engine={"a": {"kind": "command", "tier": "local", "argv": ["true"]}})
    [job] = bench.enqueue(1)
    apply(changed(bench, engine={"a": {"kind": "command", "tier": "local", "argv": ["false"]}}))
    bench.staff()
    route(bench.installation, "main")
    [(run, token, _)] = bench.live()
    assert carry_out(bench.installation, run, token) == "withdrawn"
    assert bench.rows(f"select state, attempt from jobs where id = {job}") == [("queued", 0)]
    assert "another argv for a" in bench.value(f"select reason from jobs where id = {job}")
    assert audit(bench.installation).violations == ()


def test_a_process_that_runs_jobs_reads_a_corrected_file_again(
    open_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    """Under one generation: wrong and unreadable it gives runs back, corrected it carries them out."""
    bench = open_bench(engine={"a": {"kind": "command", "tier": "local", "argv": ["true"]}})
    [job] = bench.enqueue(1)
    file = tmp_path / "vibey.toml"

    def write(program: str) -> None:
        engine = f'[engine.a]\nkind = "command"\ntier = "local"\nargv = ["{program}"]\n'
        write_config(file, bench.tables["services"], f'[engines]\nmode = "singleton"\n{engine}')

    def carried_out() -> str:
        route(bench.installation, "main")
        [(run, token, _)] = bench.live()
        return carry_out(follower.installation, run, token, follower.follow)

    write("false")
    follower = Follower(bench.installation.reread(load(file, {})), lambda: load(file, {}))
    follower.catch_up()
    assert carried_out() == "withdrawn"
    file.write_text("not TOML", encoding="utf-8")
    assert carried_out() == "withdrawn"
    assert "its file cannot be read" in follower.problem
    write("true")
    assert carried_out() == "succeeded"
    assert (follower.problem, follower.installation.disagreements()) == ("", {})
    assert bench.rows(f"select state, attempt from jobs where id = {job}") == [("succeeded", 1)]
    # Where all agree an edit waits until it is applied.
    write("false")
    assert follower.catch_up().disagreements() == {}
    assert audit(bench.installation).violations == ()


def test_jobs_of_a_pool_that_is_removed_wait_and_say_so(open_bench: Callable[..., Bench]) -> None:
    """They wait with a reason, replay to it, and run when the pool is there again; new ones are refused."""
    bench = open_bench(engine={"a": noop()}, pool={"side": {"members": ["a"]}})
    [job] = bench.enqueue(1, pool="side")
    done = apply(changed(bench, pool={}))
    assert "1 queued in pool side waits until there is such a pool again" in done.plan.effects
    route(bench.installation, "side")
    assert bench.rows("select pool, reason from group_states") == [("side", "no_such_pool")]
    with pytest.raises(Refused, match="unknown pool 'side'"):
        bench.enqueue(1, pool="side")
    apply(bench.installation)
    route(bench.installation, "side")
    assert [engine for _, _, engine in bench.live()] == ["a"]
    assert bench.value(f"select state from jobs where id = {job}") == "granted"
    assert audit(bench.installation).violations == ()


@pytest.mark.parametrize("key", [{"lease_seconds": 30}, {"paid_daily_cap_scope": "installation"}])
def test_what_live_runs_depend_on_changes_only_without_one(
    open_bench: Callable[..., Bench], key: dict[str, Any]
) -> None:
    """Refused, naming the runs and what to do, and nothing is changed; without a live run it is put in force."""
    bench = open_bench(engine={"a": noop()})
    [job] = bench.enqueue(1)
    route(bench.installation, "main")
    [held] = start(bench)
    other = changed(bench, engines={"mode": "hybrid", **key})
    with pytest.raises(
        Refused, match=rf"{next(iter(key))} cannot change .* run {held.run_id} of job {job} on a; pause"
    ):
        apply(other)
    assert (status(bench.installation)["generation"], status(bench.installation)["mode"]) == (1, "singleton")
    settle(bench.installation, held, Success())
    assert apply(other).generation == 2


def test_the_implicit_project_follows_and_others_keep_their_copy(open_bench: Callable[..., Bench]) -> None:
    """`default` has what was applied; a project made before keeps what was in force then; neither is set by hand."""
    bench = open_bench(engine={"a": noop()}, engines={"paid_daily_cap": 10})
    control.new_project(changed(bench, engines={"paid_daily_cap": 99}), "web")
    apply(changed(bench, engines={"mode": "singleton", "paid_daily_cap": 2}))
    caps = "select name, policy->>'paid_daily_cap' from projects order by name"
    assert bench.rows(caps) == [("default", "2"), ("web", "10")]
    with pytest.raises(Refused, match=r"project 'default' follows the file; edit \[engines\] in .*paid_daily_cap = 3"):
        control.set_project(bench.installation, "default", {"paid_daily_cap": "3"})
    assert bench.value("select data->>'paid_daily_cap' from ledger where kind = 'ProjectChanged'") == "2"


def test_three_variables_are_laid_over_by_the_router_and_others_are_named(open_bench: Callable[..., Bench]) -> None:
    """The cap of a router's environment counts at once; a lease of it does not, and is reported."""
    bench = open_bench(engine={"a": noop()})
    environ = {"VIBEY_ENGINES_PAID_DAILY_CAP": "3", "VIBEY_ENGINES_LEASE_SECONDS": "9", "VIBEY_ENGINES_LEARN": "true"}
    own = changed(bench, environ).current()
    resolved = own.database.run(lambda connection: modes.resolve(connection, own, ["default"], environ))
    assert (resolved["default"].policy.cap, own.settings.engines.paid_daily_cap) == (3, 3)
    assert own.settings.engines.lease_seconds == 60
    assert variables_not_in_force(own) == [
        ("VIBEY_ENGINES_LEARN", True, False),
        ("VIBEY_ENGINES_LEASE_SECONDS", 9, 60),
    ]
    assert variables_not_in_force(changed(bench, {"VIBEY_ENGINES_LEASE_SECONDS": "60"}).current()) == []


def test_two_who_apply_at_once_come_one_after_the_other(open_bench: Callable[..., Bench]) -> None:
    """Each generation is one number; who agreed to a difference from another one than is in force is refused."""
    bench = open_bench(engine={"a": noop()})
    files = [changed(bench, engines={"paid_daily_cap": cap}) for cap in range(20, 28)]
    with ThreadPoolExecutor(len(files)) as pool:
        numbers = sorted(done.generation for done in pool.map(apply, files))
    assert numbers == list(range(2, 10))
    assert [each["generation"] for each in history(bench.installation)] == list(range(9, 0, -1))
    seen = plan(files[0])
    apply(files[1])
    if plan(files[0]).generation != seen.generation:
        with pytest.raises(Refused, match="was applied meanwhile"):
            apply(files[0], seen=seen)
    again = apply(files[1])
    assert (again.changed, again.generation) == (False, plan(files[1]).generation)


def test_nothing_is_routed_or_enqueued_before_a_configuration_is_applied(
    open_bench: Callable[..., Bench], empty_database_url: str
) -> None:
    """Routers and producers wait and say which command puts one in force."""
    bench = open_bench(engine={"a": noop()})
    migrate.upgrade(empty_database_url)
    services = {**bench.tables["services"], "database_url": empty_database_url}
    fresh = type(bench.installation).open(changed(bench, services=services).file)
    try:
        assert route(fresh, "main") == 0
        tick(fresh)
        with pytest.raises(Refused, match="no configuration has been applied yet; run: vibey apply"):
            bench.__class__.enqueue(_on(fresh), 1)
        assert apply(fresh).generation == 1
    finally:
        fresh.close()


def test_an_upgrade_makes_the_first_generation_of_what_the_database_holds(
    open_bench: Callable[..., Bench], empty_database_url: str
) -> None:
    """Engines, pools and the policy of `default` stay in force as they were, whatever the file says by now."""
    bench = open_bench(
        engine={"a": noop(weight=2, capabilities=["web"], efforts={"high": []}), "b": noop()},
        pool={"main": {"members": ["a", "b"]}},
        engines={"paid_daily_cap": 4, "slots": {"a": 3}},
    )
    _older(empty_database_url, bench)
    services = {**bench.tables["services"], "database_url": empty_database_url}
    file = changed(bench, services=services, engines={"paid_daily_cap": 9, "lease_seconds": 30}, pool={})
    upgraded = type(bench.installation).open(file.file)
    try:
        upgraded.upgrade_schema()
        current = upgraded.current()
        assert (current.generation, current.settings.engines.paid_daily_cap) == (1, 4)
        assert (current.settings.engines.lease_seconds, current.settings.slots_of("a")) == (30, 3)
        before = query(bench.url, "select content from generations")[0][0]
        stored = query(empty_database_url, "select content from generations")[0][0]
        assert stored["pool"] == before["pool"]
        for name, engine in stored["engine"].items():
            assert engine == {key: before["engine"][name][key] for key in engine}
        told = [str(change) for change in plan(upgraded).changes]
        assert "- pool main" in told
        assert "~ paid_daily_cap: 4 → 9 (project default; other projects keep theirs)" in told
        assert apply(upgraded).generation == 2
    finally:
        upgraded.close()


def test_the_schema_is_not_upgraded_under_workers_that_do_not_know_it(
    open_bench: Callable[..., Bench], empty_database_url: str
) -> None:
    """Refused, naming them; once they are gone, or have ended on this machine without a word, it is done."""
    bench = open_bench(engine={"a": noop()})
    _older(empty_database_url, bench)
    query(
        empty_database_url,
        "insert into workers (name, host, pid, engines, concurrency) values ('build@far', 'far', 7, '{a}', 2)",
    )
    services = {**bench.tables["services"], "database_url": empty_database_url}
    installation = type(bench.installation).open(changed(bench, services=services).file)
    try:
        with pytest.raises(Refused, match=r"the schema is at 0003, .* alive: build@far \(pid 7 on far\)"):
            installation.upgrade_schema()
        query(empty_database_url, "update workers set seen_at = now() - interval '2 minutes'")
        installation.upgrade_schema()
        assert migrate.current(installation.database) == migrate.HEAD
    finally:
        installation.close()


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15)
def test_applying_and_undoing_restores_exactly(bench: Bench, data: st.DataObject) -> None:
    """Whatever is applied, `--undo` brings back engines, pools, policy and ageing as they were."""
    first, second = (changed(bench, **data.draw(configurations())) for _ in range(2))
    apply(first)
    before = _in_force(bench)
    if apply(second).changed:
        apply(second, undo=True)
    assert _in_force(bench) == before
    assert not plan(first).differs


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """One installation for every example: each begins by applying something."""
    return open_bench(engine={"a": noop()})


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Files that differ in everything that is applied."""
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, min_size=1))
    table = st.fixed_dictionaries(
        {"kind": st.just("noop"), "tier": st.sampled_from(["local", "paid"])},
        optional={
            "weight": st.sampled_from([1, 2, 0.5]),
            "account": st.sampled_from(["x", "y"]),
            "enabled": st.booleans(),
            "price_in": st.sampled_from([1, 2.5]),
            "efforts": st.just({"high": ["-x"]}),
        },
    )
    engine = {name: draw(table) for name in names}
    engines = draw(
        st.fixed_dictionaries(
            {"mode": st.sampled_from(["singleton", "hybrid"])},
            optional={
                "paid_daily_cap": st.integers(0, 9),
                "priority_age_seconds": st.sampled_from([0, 60]),
                "lease_seconds": st.sampled_from([30, 60]),
                "slots": st.just({names[0]: 5}),
            },
        )
    )
    pool = draw(st.sampled_from([{}, {"main": {"members": names}}, {"side": {"select": "weighted", "members": names}}]))
    return {"engine": engine, "engines": engines, "pool": pool}


def _in_force(bench: Bench) -> tuple[Any, ...]:
    return (
        bench.rows(
            "select name, account, kind, tier, ordinal, slots, weight, price, capabilities, efforts, enabled "
            "from engines where configured order by name"
        ),
        bench.rows("select name, definition from pools order by name"),
        bench.rows("select policy from projects where name = 'default'"),
        bench.rows("select age_ms from installation"),
        bench.rows("select content from generations order by number desc limit 1"),
    )


def _only(*names: str) -> dict[str, Any]:
    return {"main": {"members": list(names)}}


def _older(url: str, bench: Bench) -> None:
    """Make a database as the version before generations left it, with the bench's engines, pools and policy in it."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrate.__file__).replace("migrate.py", "migrations"))
    config.attributes["url"] = url
    command.upgrade(config, "0003")
    for row in bench.rows(
        "select account, name, tier, kind, ordinal, slots, weight, capabilities, efforts from engines"
    ):
        account, *engine = row
        query(url, f"insert into accounts (name) values ('{account}') on conflict do nothing")
        values = ", ".join(_literal(value) for value in (account, *engine))
        columns = "account, name, tier, kind, ordinal, slots, weight, capabilities, efforts"
        query(url, f"insert into engines ({columns}) values ({values})")
    for name, definition in bench.rows("select name, definition::text from pools"):
        query(url, f"insert into pools (name, definition) values ('{name}', '{definition}')")
    policy = bench.value("select policy::text from projects where name = 'default'")
    query(url, f"insert into projects (name, policy) values ('default', '{policy}')")


def _literal(value: object) -> str:
    if isinstance(value, list):
        return "'{" + ", ".join(map(str, value)) + "}'"
    return str(value) if isinstance(value, int) else f"'{value}'"


def _on(installation: Installation) -> Any:
    """What `Bench.enqueue` needs of a bench."""

    class Other:
        pass

    other = Other()
    other.installation = installation  # type: ignore[attr-defined]
    return other
