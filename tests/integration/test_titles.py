"""Titles and labels on real data: stored, shown, listed and filtered as a plain reading of every job would."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.client import Vibey
from vibey.domain.errors import InvalidInput
from vibey.services import prune, views
from vibey.services.enqueue import Order, order_of, place
from vibey.services.views import JobsPage
from vibey.store import views as store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.commandline import CommandLine

DAY = timedelta(days=1)


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """An installation with one engine, and a key that it may use."""
    return open_bench(engine={"a": noop()})


@pytest.fixture
def client(bench: Bench) -> Iterator[Vibey]:
    """A client of it."""
    with Vibey(settings=bench.installation.settings) as made:
        yield made


def listed(bench: Bench, **page: Any) -> list[int]:
    """The jobs of a list, by number."""
    return [job["job_id"] for job in views.jobs(bench.installation, JobsPage(**page))["jobs"]]


def plan_of(bench: Bench, statement: store.Statement, **values: object) -> tuple[str, int]:
    """How Postgres ran a statement, and how many rows it read on the way, those it threw away included."""
    sql = "explain (analyze, format json) " + statement.sql
    with bench.installation.database.autocommit() as connection:
        (plan,) = connection.exec_driver_sql(sql, values).scalar()
    rows, nodes = 0, [plan["Plan"]]
    while nodes:
        node = nodes.pop()
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        rows += (node["Actual Rows"] + removed) * node["Actual Loops"]
        nodes.extend(node.get("Plans", []))
    return json.dumps(plan), rows


def test_default_title_is_of_the_prompt_or_the_task(client: Vibey) -> None:
    """A prompt's first line, a Celery call's task, or nothing; a given title comes before all of them."""
    first = client.enqueue("\n fix the\tflaky test \n\nIt fails on Mondays.")
    assert client.job(first).title == "fix the flaky test"
    assert client.job(client.enqueue({"task": "build"})).title == ""
    assert client.job(client.enqueue("fix it", title="Mondays")).title == "Mondays"
    long = client.job(client.enqueue("x" * 5000)).title
    assert (len(long), long[-1]) == (120, "…")


def test_secrets_are_masked_in_titles(open_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that an engine here uses is in no title, given or not, and the payload is the caller's own."""
    monkeypatch.setenv("SOME_KEY", "sk-very-secret-1234")
    engine = {"kind": "openai", "tier": "paid", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    bench = open_bench(engine={"a": {**engine, "api_key_env": "SOME_KEY"}})
    place(
        bench.installation,
        [
            Order(payload="why is sk-very-secret-1234 refused?"),
            Order(payload="x" * 110 + " sk-very-secret-1234"),
            Order(title="use sk-very-secret-1234", payload="go"),
        ],
    )
    titles = [row[0] for row in bench.rows("select title from jobs order by id")]
    assert "very-secret" not in "".join(titles)
    assert titles[0].startswith("why is ")
    assert titles[0].endswith(" refused?")


def test_filters_find_what_a_plain_reading_finds(bench: Bench) -> None:
    """Labels, words of the title, age and state, alone and together, beside jobs that have none of it."""
    orders = [
        Order(
            title=f"{('Build', 'Test', 'Ship')[n % 3]} 100% of part_{n}",
            labels={"team": ("web", "ops")[n % 2], **({"rare": "yes"} if n % 17 == 0 else {})},
        )
        for n in range(60)
    ]
    ids = [placed.job_id for placed in place(bench.installation, [*orders, Order(), Order(labels={"team": "web"})])]
    bench.rows(f"update jobs set created_at = created_at - interval '1 day' where id <= {ids[29]} returning id")
    jobs = bench.rows("select id, title, labels, created_at > clock_timestamp() - interval '2 hours' from jobs")

    def read(*, labels: dict[str, str] | None = None, search: str = "", recent: bool = False) -> list[int]:
        found = [
            number
            for number, title, held, is_recent in jobs
            if set((labels or {}).items()) <= set(held.items())
            and search.lower() in title.lower()
            and (is_recent or not recent)
        ]
        return sorted(found, reverse=True)

    recently = datetime.now(UTC) - timedelta(hours=2)
    web, rare = {"team": "web"}, {"rare": "yes"}
    assert listed(bench, labels=web, limit=99) == read(labels=web)
    assert listed(bench, labels={**web, **rare}, limit=99) == read(labels={**web, **rare})
    assert listed(bench, labels={**rare, **web}, limit=99) == read(labels={**web, **rare})
    assert listed(bench, labels={"team": "w"}) == []
    assert listed(bench, search="test 100%", limit=99) == read(search="test 100%")
    assert listed(bench, search="part_1", limit=99) == read(search="part_1")
    assert listed(bench, search="partx1") == []
    assert listed(bench, since=timedelta(hours=2), limit=99) == read(recent=True)
    assert listed(bench, since=recently, labels=web, search="SHIP", limit=99) == read(
        labels=web, search="ship", recent=True
    )
    assert listed(bench, since=DAY * 3, limit=99) == read()
    assert listed(bench, since=datetime.now(UTC) + DAY) == []
    assert listed(bench, labels=web, state="failed") == []


def test_pages_of_a_label_hold_each_job_once(bench: Bench) -> None:
    """Page after page, by `next_before`, until it is None."""
    place(bench.installation, [Order(labels={"n": str(n % 2)}) for n in range(25)])
    pages: list[list[int]] = []
    before = None
    while True:
        page = views.jobs(bench.installation, JobsPage(labels={"n": "0"}, before=before, limit=5))
        pages.append([job["job_id"] for job in page["jobs"]])
        before = page["next_before"]
        if before is None:
            break
    assert [len(page) for page in pages] == [5, 5, 3]
    assert [job for page in pages for job in page] == [
        row[0] for row in bench.rows("select id from jobs where labels->>'n' = '0' order by 1 desc")
    ]


def test_list_reads_few_of_many_jobs(bench: Bench) -> None:
    """A label that few or nearly all of 30,000 jobs have, and a look back, read about as many as they show.

    What no index serves stops at a bound: the page says that it is partial, and where the next one goes on.
    """
    fill = """
      with made as (
        insert into jobs (project_id, standing, requirement_key, title, labels, created_at)
        select 1, 0, 1, 'number ' || n,
               case when n in (7, 8) then '{"rare": "1", "all": "1"}'::jsonb else '{"all": "1"}' end,
               clock_timestamp() - (30000 - n) * interval '1 minute'
        from generate_series(1, 30000) n order by n returning id, labels)
      insert into job_labels select l.key, l.value, made.id from made cross join lateral jsonb_each_text(labels) l
      returning job_id"""
    query(bench.url, fill)
    query(bench.url, "analyze jobs, job_labels")
    values: dict[str, object] = {
        **dict.fromkeys(("project", "state", "engine", "since", "since_id", "search", "before", "key", "value")),
        "open": False,
        "labels": "{}",
        "limit": 20,
    }
    for label in ("rare", "all"):
        wanted = {**values, "key": label, "value": "1", "labels": json.dumps({label: "1"})}
        assert plan_of(bench, store.LABELLED_JOBS, **wanted)[1] < 1000, label
    assert plan_of(bench, store.JOBS, **values)[1] < 1000
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    plan, read = plan_of(bench, store.SINCE, since=hour_ago)
    assert read < 2000, plan
    page = views.jobs(bench.installation, JobsPage(since=hour_ago, limit=100))
    assert [job["title"] for job in page["jobs"]] == [
        f"number {n}" for n in range(30000, 30000 - len(page["jobs"]), -1)
    ]
    assert 59 <= len(page["jobs"]) <= 61
    assert plan_of(bench, store.JOBS, **{**values, "search": "no such title"})[1] < 10 * 30000


def test_search_stops_at_its_bound(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer jobs than the bound nothing is partial; beyond it the next page goes on where this one stopped."""
    ids = [placed.job_id for placed in place(bench.installation, [Order(title=f"number {n}") for n in range(30)])]
    for name in ("JOBS", "LOOKED_AT"):
        whole = getattr(store, name)
        sql = whole.sql.replace(f"limit {store.LOOKED_THROUGH}", "limit 10")
        sql = sql.replace(f"offset {store.LOOKED_THROUGH - 1}", "offset 9")
        monkeypatch.setattr(store, name, store.Statement(whole.name, whole.purpose, sql))
    page = views.jobs(bench.installation, JobsPage(search="number 1"))
    assert [job["job_id"] for job in page["jobs"]] == []
    assert (page["partial"], page["next_before"]) == (True, ids[20])
    page = views.jobs(bench.installation, JobsPage(search="number 1", before=ids[20]))
    assert [job["job_id"] for job in page["jobs"]] == ids[19:9:-1]
    assert (page["partial"], page["next_before"]) == (True, ids[10])
    page = views.jobs(bench.installation, JobsPage(search="number 1", before=ids[0]))
    assert (page["jobs"], page["partial"], page["next_before"]) == ([], False, None)


def test_removed_jobs_leave_no_labels(bench: Bench) -> None:
    """Pruning removes the labels of a job with it, and those of no other."""
    old, new = bench.enqueue(2, labels={"team": "web"})
    bench.rows(
        "update jobs set state = 'cancelled', created_at = '2020-01-01', ended_at = '2020-01-02' "
        f"where id = {old} returning id"
    )
    assert prune.prune(bench.installation, environ={}).jobs == 1
    assert bench.rows("select key, value, job_id from job_labels") == [("team", "web", new)]


def test_repeated_key_stores_no_second_labels(bench: Bench) -> None:
    """A duplicate leaves the title and labels of the first job."""
    first = place(bench.installation, [Order(idempotency_key="k", title="one", labels={"a": "1"})])[0]
    again = place(bench.installation, [Order(idempotency_key="k", title="two", labels={"b": "2"})])[0]
    assert again.job_id == first.job_id
    assert bench.rows("select title, labels from jobs") == [("one", {"a": "1"})]
    assert bench.rows("select key from job_labels") == [("a",)]


@pytest.mark.parametrize(
    "values",
    [{"title": ""}, {"title": "a\nb"}, {"title": "x" * 201}, {"title": 7}, {"labels": {"a": 1}}, {"labels": "a=b"}],
)
def test_bad_titles_and_labels_enqueue_nothing(bench: Bench, values: dict[str, Any]) -> None:
    """Each has its error, whoever asks."""
    with pytest.raises(InvalidInput, match=r"title|labels"):
        place(bench.installation, [order_of(values)])
    assert bench.value("select count(*) from jobs") == 0


def test_command_line_shows_and_filters(vibey: CommandLine) -> None:
    """What `enqueue` was told is in `job` and `jobs`, as text and as JSON, and `jobs` finds it."""
    made = vibey("enqueue", "fix it", "--title", "Flaky", "--label", "team=web", "--label", "pr=17", "--json").json
    vibey("enqueue", "something else", "--label", "team=ops")
    shown = vibey("job", made["job_id"])
    assert "title    Flaky" in shown.out
    assert "pr=17, team=web" in shown.out
    assert vibey("job", made["job_id"], "--json").json["labels"] == {"team": "web", "pr": "17"}
    for options in (["--label", "team=web"], ["-l", "team=web", "-l", "pr=17"], ["--search", "flak"]):
        (found,) = vibey("jobs", *options, "--since", "1h", "--json").json["jobs"]
        assert (found["job_id"], found["title"]) == (made["job_id"], "Flaky")
    assert "something else" in vibey("jobs").out
    assert vibey("jobs", "--since", "2999-01-01").out.startswith("no jobs")
    assert "the form key=value" in vibey("jobs", "--label", "web").complaint
    assert "is not an instant" in vibey("jobs", "--since", "2026-13-01").err
