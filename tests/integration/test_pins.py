"""What a job needs is known before it is routed: pins, repositories, handoffs, and jobs that nothing can ever serve."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from alembic import command
from alembic.config import Config

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.domain.call import TaskCall
from vibey.domain.effort import Effort
from vibey.domain.errors import InvalidInput, Refused, Unservable
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.domain.requirement import Requirement
from vibey.services import control, requirements, views
from vibey.services.apply import apply
from vibey.services.batch import place_lines
from vibey.services.enqueue import Order, place
from vibey.services.explain import explain
from vibey.services.installation import Installation
from vibey.services.replay import replay
from vibey.services.route import route
from vibey.services.run import _start
from vibey.services.settle import Held, settle
from vibey.services.tick import tick
from vibey.settings import Source, settings_of
from vibey.store import endings, migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from vibey.domain.outcome import Outcome

HANDOFF = Failure(FailureClass.HANDOFF, "works in no repository")


def server(**more: Any) -> dict[str, Any]:
    """A local model server, which works in no repository."""
    return {"kind": "openai", "tier": "local", "base_url": "http://127.0.0.1:1/v1", "model": "m", **more}


def coder(*roots: str | Path, tier: str = "paid", **more: Any) -> dict[str, Any]:
    """An engine that works in repositories under these roots."""
    return noop(tier, workspace_roots=[str(root) for root in roots], **more)


def configure(bench: Bench, /, **engines: dict[str, Any]) -> None:
    """Write another fleet, as a restart with an edited file does, and let a worker serve it."""
    tables = {**bench.tables, "engine": engines}
    changed = Installation.open(settings_of(Source(None, Path("/"), tables), {}))
    try:
        apply(changed)
    finally:
        changed.close()
    bench.staff(*engines)


def granted(bench: Bench) -> list[str]:
    """Route once; the engines of all live runs."""
    route(bench.installation, "main")
    return [engine for _, _, engine in bench.live()]


def end(bench: Bench, outcome: Outcome) -> str:
    """End the oldest live run; its engine."""
    run, token, engine = bench.live()[0]
    started = _start(bench.installation, run, token)
    assert started is not None
    assert settle(bench.installation, Held.of(started, token), outcome) is not None
    return engine


def grounds(bench: Bench, job: int) -> dict[str, str]:
    """Why each engine does not have a waiting job."""
    return {each["engine"]: each["ground"] for each in explain(bench.installation, job)["waiting"]["engines"]}


def test_an_engine_that_appears_later_never_runs_a_pinned_job(open_bench: Callable[..., Bench]) -> None:
    """Neither a local one nor a paid one that is free while the pinned one is full."""
    bench = open_bench(engine={"private": noop()}, engines={"mode": "hybrid", "overflow_after_seconds": 0})
    bench.enqueue(2, engines=["private"], payload={"secret": 1})
    assert granted(bench) == ["private"]
    configure(bench, private=noop(), extra=noop(), cloud=noop("paid"))
    assert granted(bench) == ["private"]
    waiting = views.job(bench.installation, 2)
    assert (waiting["engines"], waiting["exclude"]) == (["private"], [])
    assert grounds(bench, 2) == {"private": "slots", "extra": "not_pinned", "cloud": "not_pinned"}
    end(bench, Success())
    assert granted(bench) == ["private"]


def test_a_pinned_engine_that_is_renamed_leaves_the_job_waiting_with_that_reason(
    open_bench: Callable[..., Bench],
) -> None:
    """Job, list, explanation and queue name it; configured again it runs the job; cancelling helps, too."""
    bench = open_bench(engine={"desk": noop()})
    first, second = bench.enqueue(2, engines=["desk"])
    configure(bench, bench=noop(), extra=noop())
    assert granted(bench) == []
    told = views.job(bench.installation, first)
    assert told["engines"] == ["desk"]
    assert "may run only on desk, and desk is not configured" in told["reason"]
    assert grounds(bench, first) == {"bench": "not_pinned", "extra": "not_pinned"}
    details = {each["detail"] for each in explain(bench.installation, first)["waiting"]["engines"]}
    assert details == {"the job may run only on desk; not configured: desk"}
    told = explain(bench.installation, first)
    assert told["waiting"]["earliest"]["words"].startswith("no instant is known: desk has to be configured again")
    query(bench.url, "update group_states set reason = 'slots_full'")
    assert explain(bench.installation, first)["reason"] == told["reason"]
    control.cancel(bench.installation, second)
    configure(bench, bench=noop(), desk=noop())
    assert granted(bench) == ["desk"]
    assert replay(bench.installation).differing == ()


def test_a_pin_to_several_engines_names_those_that_are_gone(open_bench: Callable[..., Bench]) -> None:
    """While another of them could serve it, it is no reason; when none may, the missing one is named."""
    bench = open_bench(engine={"a": noop(), "b": noop()})
    (job,) = bench.enqueue(1, engines=["a", "b"])
    configure(bench, b=noop(enabled=False), c=noop())
    assert granted(bench) == []
    assert "only on a, b, and a is not configured" in views.job(bench.installation, job)["reason"]
    configure(bench, b=noop(), c=noop())
    assert granted(bench) == ["b"]


def test_an_engine_for_celery_tasks_added_later_takes_no_other_job(open_bench: Callable[..., Bench]) -> None:
    """It is known by what it can do, not by its name at the time a job was enqueued."""
    bench = open_bench(engine={"a": noop()})
    jobs = bench.enqueue(2)
    configure(bench, a=noop(), press={"kind": "celery", "app": "pkg.module:app", "tier": "local"})
    assert granted(bench) == ["a"]
    assert views.job(bench.installation, jobs[1])["exclude"] == []
    assert grounds(bench, jobs[1]) == {"a": "slots", "press": "missing_capability"}


def test_a_routed_call_is_pinned_like_any_job(open_bench: Callable[..., Bench]) -> None:
    """`engines=` of a routed task: an engine with the same app that is added later neither runs nor ends the call."""
    app = {"app": "pkg.module:app", "tier": "local"}
    bench = open_bench(engine={"press": {"kind": "celery", **app}, "hand": noop()})
    call = TaskCall("an-id", "shop.print", {}, {}, "[[], {}, {}]", "application/json", "utf-8")
    jobs = bench.enqueue(2, payload=call.payload(), engines=["press"])
    configure(bench, press={"kind": "celery", **app}, second={"kind": "celery", **app}, hand=noop())
    assert granted(bench) == ["press"]
    assert grounds(bench, jobs[1]) == {"press": "slots", "second": "not_pinned", "hand": "not_pinned"}
    control.cancel(bench.installation, jobs[1])
    claimed = [
        bench.installation.database.statement(
            lambda connection, name=name: endings.CLAIM.all(connection, task=None, engines=[name], limit=9, claim_s=60)
        )
        for name in ("second", "press")
    ]
    assert [[row.id for row in rows] for rows in claimed] == [[], [jobs[1]]]
    with pytest.raises(Unservable, match="second, hand: not an engine the job names"):
        bench.enqueue(1, payload=call.payload(), engines=["press"], exclude=["press"])


def test_a_job_with_a_repository_never_meets_an_engine_that_works_in_none(open_bench: Callable[..., Bench]) -> None:
    """A local server beside idle coding engines: no handoff, a fallback to one of those, and the reason is told."""
    bench = open_bench(
        engine={"server": server(), "claude": coder("/srv"), "codex": coder("/srv")},
        engines={"slots": {"claude": 1, "codex": 1}},
    )
    first, second = bench.enqueue(2, payload={"prompt": "p", "repo": "site"})
    assert sorted(granted(bench)) == ["claude", "codex"]
    assert bench.rows("select distinct why from runs") == [("fallback",)]
    assert views.job(bench.installation, first)["workspace_engines"] == ["claude", "codex"]
    end(bench, Success())
    end(bench, Success())
    bench.enqueue(3, payload={"prompt": "p", "repo": "site"})
    bench.enqueue(1, payload={"prompt": "plain"})
    assert sorted(granted(bench)) == ["claude", "codex", "server"]
    waiting = bench.value("select min(id) from jobs where state = 'queued'")
    assert grounds(bench, waiting) == {"server": "no_workspace", "claude": "slots", "codex": "slots"}
    assert bench.value("select sum(handoffs) from jobs") == 0
    assert second
    assert replay(bench.installation).differing == ()


def test_a_thousand_repositories_are_one_group(open_bench: Callable[..., Bench]) -> None:
    """The set of engines is what jobs wait for; where they work is not."""
    bench = open_bench(engine={"a": coder("/srv", tier="local"), "b": coder("/home", tier="local")})
    place(bench.installation, [Order(payload={"repo": f"/srv/r{number}"}) for number in range(1000)])
    place(bench.installation, [Order(payload={"repo": f"/home/r{number}"}) for number in range(10)])
    place(bench.installation, [Order(payload={"repo": f"r{number}"}) for number in range(10)])
    found = bench.rows("select workspace, count(distinct requirement_key), count(*) from jobs group by 1 order by 1")
    assert found == [(["a"], 1, 1000), (["a", "b"], 1, 10), (["b"], 1, 10)]


def test_a_change_of_roots_moves_queued_jobs_to_their_new_group(open_bench: Callable[..., Bench]) -> None:
    """As if they had been enqueued now; running jobs when they come back; jobs without a repository not at all."""
    bench = open_bench(engine={"a": coder("/srv", tier="local"), "b": coder("/home", tier="local")})
    orders = [Order(payload={"repo": f"/{top}/r{number}"}) for top in ("srv", "home") for number in range(3)]
    place(bench.installation, [*orders, Order()])
    assert sorted(granted(bench)) == ["a", "b"]
    configure(bench, a=coder("/home", tier="local"), b=coder("/home", "/srv", tier="local"))
    sets = dict(bench.rows("select payload ->> 'repo', workspace from jobs where payload ? 'repo'"))
    assert sets == {f"/{top}/r{n}": ["b"] if top == "srv" else ["a", "b"] for top in ("srv", "home") for n in range(3)}
    for _ in range(2):
        end(bench, Failure(FailureClass.WORK, "no"))
    keys = dict(bench.rows("select id, requirement_key from jobs where payload ? 'repo'"))
    place(bench.installation, [*orders, Order()])
    fresh = bench.rows(
        "select o.id, n.requirement_key from jobs o join jobs n on n.payload = o.payload and n.id > o.id "
        "where o.payload ? 'repo' and o.effort_now = n.effort_now"
    )
    assert len(fresh) == 6
    assert dict(fresh) == {job: keys[job] for job, _ in fresh}


def test_a_retried_job_asks_by_the_roots_of_today(open_bench: Callable[..., Bench]) -> None:
    """While it had ended, configurations passed it by."""
    bench = open_bench(engine={"a": coder("/srv", tier="local"), "b": server()})
    (job,) = bench.enqueue(1, payload={"repo": "/srv/x"})
    control.cancel(bench.installation, job)
    configure(bench, a=noop(), b=coder("/srv", tier="local"))
    assert views.job(bench.installation, job)["workspace_engines"] == ["a"]
    control.retry(bench.installation, job)
    assert views.job(bench.installation, job)["workspace_engines"] == ["b"]
    assert granted(bench) == ["b"]


def test_jobs_enqueued_while_the_configuration_changed_are_found_by_the_tick(open_bench: Callable[..., Bench]) -> None:
    """A producer that had read the roots before may write its job after; within ten minutes it is put right."""
    bench = open_bench(engine={"a": coder("/srv", tier="local")})
    (job,) = bench.enqueue(1, payload={"repo": "/srv/x"})
    query(bench.url, f"update jobs set workspace = '{{b}}' where id = {job}")
    query(bench.url, "update installation set last_clean_at = clock_timestamp() - interval '11 minutes'")
    tick(bench.installation)
    assert views.job(bench.installation, job)["workspace_engines"] == ["a"]


def test_no_root_is_left(open_bench: Callable[..., Bench]) -> None:
    """The job waits and says for what."""
    bench = open_bench(engine={"a": coder("/srv", tier="local"), "b": noop()})
    (job,) = bench.enqueue(1, payload={"repo": "/srv/x"})
    configure(bench, a=coder("/home", tier="local"), b=noop())
    assert granted(bench) == []
    told = views.job(bench.installation, job)
    assert told["workspace_engines"] == []
    assert "no configured engine has workspace_roots that contain the repository it names" in told["reason"]
    assert grounds(bench, job) == {"a": "no_workspace", "b": "no_workspace"}


def test_links_count_by_name_and_by_where_they_lead(open_bench: Callable[..., Bench], tmp_path: Path) -> None:
    """A root that is a link holds repositories under its own name and under that of its folder."""
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    bench = open_bench(engine={"a": coder(link, tier="local"), "b": server()})
    for repo in (link / "x", real / "x"):
        (job,) = bench.enqueue(1, payload={"repo": str(repo)})
        assert views.job(bench.installation, job)["workspace_engines"] == ["a"]


def test_rows_of_an_earlier_version_keep_no_job_out(open_bench: Callable[..., Bench]) -> None:
    """Until the configuration is written again their roots are unknown, and a run finds out."""
    bench = open_bench(engine={"a": coder("/srv", tier="local")})
    query(bench.url, "update engines set workspace_roots = null")
    bench.enqueue(1, payload={"repo": "/elsewhere/x"})
    assert granted(bench) == ["a"]


FLEET = {
    "server": server(capabilities=["chat"]),
    "claude": coder("/srv", capabilities=["web"]),
    "off": coder("/srv", enabled=False, capabilities=["far"]),
    "press": {"kind": "celery", "app": "pkg.module:app", "tier": "local"},
}


@pytest.mark.parametrize(
    ("wishes", "parts"),
    [
        (
            {"payload": {"repo": "/home/x"}},
            [
                "server, press: works in no repository (it has no workspace_roots)",
                "claude, off: repository '/home/x' is not under its workspace_roots",
            ],
        ),
        (
            {"payload": {"repo": "x"}, "engines": ["server"]},
            ["server: works in no repository", "claude, off, press: not an engine the job names"],
        ),
        (
            {"capabilities": ["web", "chat"]},
            ["server: lacks web", "claude: lacks chat", "off, press: lacks chat, web"],
        ),
        (
            {"exclude": ["server", "claude", "off"]},
            ["server, claude, off: excluded by the job", "press: runs only calls"],
        ),
        ({"engines": ["press"]}, ["press: runs only calls of Celery tasks"]),
        ({"pool": "small", "capabilities": ["web"]}, ["server: lacks web", "claude, off, press: not in pool small"]),
    ],
)
def test_what_nothing_can_ever_serve_is_refused(
    open_bench: Callable[..., Bench], wishes: dict[str, Any], parts: list[str]
) -> None:
    """With what is missing for each engine, disabled ones too; `anyway` has it wait all the same."""
    bench = open_bench(engine=FLEET, pool={"small": {"select": "ordered", "members": ["server"]}})
    with pytest.raises(Unservable) as refused:
        place(bench.installation, [Order(), Order(**wishes)])
    assert bench.value("select count(*) from jobs") == 0
    for part in parts:
        assert part in str(refused.value)
    assert "--anyway" in refused.value.remedy
    bench.enqueue(1, anyway=True, **wishes)
    assert granted(bench) == []
    assert bench.rows("select state from jobs") == [("queued",)]


@pytest.mark.parametrize(
    ("wishes", "fix"),
    [
        ({"payload": {"repo": "/home/x"}}, "add the folder above its repository to workspace_roots of claude, off in"),
        ({"payload": {"repo": "/home/x"}, "engines": ["off"]}, "to workspace_roots of off in vibey.toml and run vibey"),
        ({"payload": {"repo": "/home/x"}, "engines": ["server"]}, "configure such an engine"),
        ({"capabilities": ["web", "chat"]}, "configure such an engine"),
    ],
)
def test_a_refusal_for_want_of_roots_says_what_to_add(
    open_bench: Callable[..., Bench], wishes: dict[str, Any], fix: str
) -> None:
    """To the engines that lack nothing else and can use roots; the same from a batch, which names the line."""
    bench = open_bench(engine=FLEET)
    with pytest.raises(Unservable) as refused:
        place(bench.installation, [Order(**wishes)])
    assert fix in refused.value.remedy
    with pytest.raises(Unservable, match="line 1, nothing was enqueued") as in_batch:
        place_lines(bench.installation, [json.dumps(wishes).encode()], {}, noted=lambda *_: None)
    assert fix in in_batch.value.remedy


def test_a_disabled_engine_counts_as_configured(open_bench: Callable[..., Bench]) -> None:
    """Somebody will enable it."""
    bench = open_bench(engine=FLEET)
    bench.enqueue(1, engines=["off"], payload={"repo": "/srv/x"}, capabilities=["far"])
    assert granted(bench) == []


def test_forty_engines_are_told_in_few_words(open_bench: Callable[..., Bench]) -> None:
    """Each reason once, with a few of the engines it holds for and how many more."""
    bench = open_bench(engine={f"e{number:02}": noop(capabilities=[f"c{number}"]) for number in range(40)})
    with pytest.raises(Unservable, match=r"e00, e01, e02, e03, e04 and 35 more: excluded by the job"):
        bench.enqueue(1, exclude=[f"e{number:02}" for number in range(40)])
    with pytest.raises(Unservable, match=r"e00: lacks c1; e01: lacks c0; e02, .* and 33 more: lacks c0, c1"):
        bench.enqueue(1, capabilities=["c0", "c1"])
    bench = open_bench(engine={f"e{n:02}": noop(capabilities=["c0", "c1", "c2", f"d{n}"]) for n in range(40)})
    with pytest.raises(Unservable, match=r"e00: lacks d1, .* and 32 more engines"):
        bench.enqueue(1, capabilities=[f"d{n}" for n in range(40)])


def test_a_fleet_without_engines_refuses_and_may_be_told_to_wait(open_bench: Callable[..., Bench]) -> None:
    """A job may come before the engine that it is for, if its producer says so; names are then believed."""
    bench = open_bench(engine={})
    with pytest.raises(Unservable, match="no engine is configured"):
        bench.enqueue(1)
    (job,) = bench.enqueue(1, engines=["soon"], capabilities=["web"], anyway=True)
    assert granted(bench) == []
    assert "only on soon" in views.job(bench.installation, job)["reason"]
    configure(bench, soon=noop(capabilities=["web"]), other=noop(capabilities=["web"]))
    assert granted(bench) == ["soon"]
    with pytest.raises(InvalidInput, match="anyway: 'yes' is not usable; expected true or false"):
        bench.enqueue(1, anyway="yes")


def test_a_repeated_key_leads_to_its_job_though_nothing_can_serve_it_any_more(
    open_bench: Callable[..., Bench],
) -> None:
    """A producer that tries again after an outage is told the job it had, not that it cannot be enqueued."""
    bench = open_bench(engine={"a": coder("/srv", tier="local"), "b": noop()})
    order = Order(payload={"repo": "/srv/x"}, idempotency_key="k")
    first = place(bench.installation, [order])
    configure(bench, a=noop(), b=coder("/home", tier="local"))
    again = place(bench.installation, [order])
    assert [(each.job_id, each.created) for each in again] == [(first[0].job_id, False)]


def test_a_batch_names_the_line_that_nothing_can_serve(open_bench: Callable[..., Bench]) -> None:
    """And the one with an engine that is unknown; a line may say that it is meant so."""
    bench = open_bench(engine={"a": noop(), "b": coder("/srv", tier="local")})
    lines = [b'{"payload": {"n": 1}}', b"", b'{"payload": {"repo": "/home/x"}}']
    with pytest.raises(Refused, match=r"line 3, nothing was enqueued: no configured engine .* not under"):
        place_lines(bench.installation, lines, {}, noted=lambda *_: None)
    with pytest.raises(Refused, match=r"line 1: unknown engine 'zz'"):
        place_lines(bench.installation, [b'{"engines": ["zz"]}'], {}, noted=lambda *_: None)
    assert bench.value("select count(*) from jobs") == 0
    lines[2] = b'{"payload": {"repo": "/home/x"}, "anyway": true}'
    assert place_lines(bench.installation, lines, {}, noted=lambda *_: None).created == 2


def test_a_handoff_leaves_the_tier_and_is_a_fallback(open_bench: Callable[..., Bench]) -> None:
    """The only local engine gave the job back: it goes to the paid one, which is no handoff's waiver."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")})
    (job,) = bench.enqueue(1)
    route(bench.installation, "main")
    assert end(bench, HANDOFF) == "l"
    assert granted(bench) == ["p"]
    told = explain(bench.installation, job)["runs"][0]
    assert (told["why"], told["grounds"]["waived"]) == ("fallback", False)
    ours = next(each for each in told["engines"] if each["engine"] == "l")
    assert (ours["verdict"], ours["ground"]) == ("excluded", "excluded_by_job")
    assert "it gave the job back" in ours["detail"]
    assert views.job(bench.installation, job)["handed_off"] == ["l"]
    assert replay(bench.installation).differing == ()


def test_a_handoff_is_waived_when_nobody_is_left_and_the_next_one_counts(open_bench: Callable[..., Bench]) -> None:
    """Recorded as waived, retried after a pause, and over when the attempts are."""
    bench = open_bench(engine={"l": noop(), "p": noop("paid")}, engines={"max_attempts": 2})
    (job,) = bench.enqueue(1)
    seen = []
    for _ in range(4):
        route(bench.installation, "main")
        seen.append(end(bench, HANDOFF))
        bench.let_time_pass(3600)
        tick(bench.installation)
        if bench.live():
            continue
        if bench.value("select state from jobs") == "failed":
            break
    assert seen[:2] == ["l", "p"]
    assert len(seen) == 4
    assert bench.rows("select state, attempt, handoffs from jobs") == [("failed", 2, 2)]
    waived = [each["grounds"]["waived"] for each in explain(bench.installation, job, every_run=True)["runs"]]
    assert waived[-2:] == [False, False]
    assert all(waived[:-2])
    assert replay(bench.installation).differing == ()


def test_jobs_handed_off_by_an_earlier_version_keep_their_exclusions(open_bench: Callable[..., Bench]) -> None:
    """Their engines are still written where rises of effort are; settling puts them where they belong."""
    bench = open_bench(engine={"a": noop(), "b": noop()})
    bench.enqueue(1, exclude=["b"])
    route(bench.installation, "main")
    query(bench.url, "update jobs set handoffs = 1, avoided = '{b}'")
    end(bench, Failure(FailureClass.WORK, "no"))
    assert bench.rows("select avoided, handed_off from jobs") == [([], ["b"])]


def test_whom_a_unit_could_help(open_bench: Callable[..., Bench]) -> None:
    """What could ever serve a job is judged alike wherever it is asked."""
    bench = open_bench(engine=FLEET)
    bench.enqueue(1, payload={"repo": "/srv/x"})
    with bench.installation.database.begin() as connection:
        candidates = requirements.Candidates.load(connection)
    assert candidates.workspace({"repo": "/srv/x"}) == {"claude", "off"}
    assert candidates.workspace({"n": 1}) is None


def test_jobs_queued_by_an_earlier_version_go_on_as_they_were(
    empty_database_url: str, redis_url: str, tmp_path: Path
) -> None:
    """Their pins are exclusions, which an engine that comes later is none of; groups and keys stay as they are."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrate.__file__).parent / "migrations"))
    config.attributes["url"] = empty_database_url
    command.upgrade(config, "0002")
    query(empty_database_url, "insert into projects (name) values ('default')")
    query(empty_database_url, "insert into accounts (name) values ('a'), ('b')")
    query(
        empty_database_url,
        "insert into engines (name, account, kind, tier) select name, name, 'noop', 'local' from accounts",
    )
    old = Requirement("main", "default", Effort.LOW, excluded=frozenset({"b"}))
    query(
        empty_database_url,
        "insert into jobs (project_id, standing, excluded, requirement_key, payload) "
        f"""select 1, 0, '{{b}}', {old.key}, '{{"repo": "/srv/x"}}' from generate_series(1, 3)""",
    )
    migrate.upgrade(empty_database_url)
    bench = Bench(empty_database_url, redis_url, tmp_path, {"engine": {"a": noop(), "b": noop(), "c": noop()}})
    with closing(bench):
        bench.enqueue(1, exclude=["b"])
        assert granted(bench) == ["a", "c"]
        assert bench.rows("select distinct requirement_key, workspace, pinned from jobs") == [(old.key, None, [])]
        assert grounds(bench, 3) == {"a": "slots", "b": "excluded_by_job", "c": "slots"}


def test_a_job_without_a_prompt_is_refused_where_every_engine_needs_one(open_bench: Callable[..., Bench]) -> None:
    """One Enter too early would fail on each of them; an engine that reads the payload may have it."""
    bench = open_bench(engine={"server": server(), "claude": {"kind": "claude-code", "tier": "paid"}})
    for payload in ({}, {"prompt": " "}, {"task": "x"}):
        with pytest.raises(Unservable, match="needs a prompt"):
            bench.enqueue(1, payload=payload)
    bench.enqueue(1, payload={"prompt": "go"})
    mixed = open_bench(engine={"server": server(), "own": noop()})
    mixed.enqueue(1)
    with pytest.raises(Unservable, match="server: needs a prompt"):
        mixed.enqueue(1, engines=["server"])
