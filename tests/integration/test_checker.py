"""The checker of the fault tests is worth something only if it sees each kind of breach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checker import most_at_once, violations
from tests.support.databases import query
from tests.support.installation import Bench, noop
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECOND = 1_000_000_000

TAMPERED = {
    "neither ended nor queued": "update jobs set state = 'queued', ended_at = null, reason = '' where id = 1",
    "do not agree": "update jobs set state = 'running', run_id = 99, ended_at = null where id = 1",
    "were live at once": "update runs set job_id = 1, granted_at = (select granted_at from runs where id = 1) "
    "where id = 2",
    "instants are out of order": "update runs set ended_at = granted_at - interval '1 second' where id = 1",
    "has no decision, or several": "delete from decisions where run_id = 1",
    "does not say what its run is": "update decisions set engine = 'b' where run_id = 1",
    "do not sum to zero": "update credits set credit = credit + 1",
    "count of picks": "update engines set selected_count = selected_count + 1 where name = 'a'",
    "succeeded more or less than once": "update runs set state = 'failed' where id = 1",
    "more attempts than it has": "update jobs set max_attempts = 0 where id = 1",
    "are not those of its runs": "update jobs set attempt = 2 where id = 1",
    "replay does not lead": "update jobs set state = 'failed' where id = 1",
    "ledger moves job 1": "insert into ledger (kind, job_id) values ('RunStarted', 1)",
    "(grants, ends)": "insert into ledger (kind, job_id, run_id) values ('JobFailed', 1, 1)",
    "runs at once on a": "update runs set granted_at = (select min(granted_at) from runs), "
    "ended_at = (select max(ended_at) from runs)",
    "let itself be changed": "drop trigger ledger_append_only on ledger",
}


@pytest.fixture
def bench(open_bench: Callable[..., Bench], tmp_path: Path) -> Bench:
    """Three jobs done, one after the other, and what their programs would have written."""
    bench = open_bench(engine={"a": noop(), "b": noop("paid")})
    bench.enqueue(3)
    route(bench.installation, "main")
    while live := bench.live():
        carry_out(bench.installation, *live[0][:2])
    lines = [
        f"{word} {run} {job} a 7 {instant}"
        for run, job, first, last in bench.rows(
            "select id, job_id, (extract(epoch from started_at) * 1000000000)::bigint + 1, "
            "(extract(epoch from ended_at) * 1000000000)::bigint - 1 from runs order by id"
        )
        for word, instant in (("start", first), ("end", last))
    ]
    (tmp_path / "labour.log").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return bench


def test_a_sound_installation_has_no_violations(bench: Bench, tmp_path: Path) -> None:
    """Jobs that simply ran break no rule."""
    assert violations(bench.url, tmp_path / "labour.log") == []


@pytest.mark.parametrize(("words", "tampering"), TAMPERED.items(), ids=TAMPERED)
def test_each_breach_in_the_tables_is_seen(bench: Bench, tmp_path: Path, words: str, tampering: str) -> None:
    """Each rule is broken by hand and named."""
    query(bench.url, tampering)
    found = violations(bench.url, tmp_path / "labour.log")
    assert any(words in violation for violation in found), found


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("run 1 was still at work when run 2 began", "alive 2 1 a 8 {first}"),
        ("was at work outside its time", "alive 1 1 a 7 {late}"),
        ("process trees at once on a", "alive 3 3 a 7 {first}"),
    ],
)
def test_each_breach_of_the_programs_is_seen(bench: Bench, tmp_path: Path, words: str, line: str) -> None:
    """A sign of life at the wrong time is enough."""
    log = tmp_path / "labour.log"
    first = int(log.read_text(encoding="utf-8").split()[5])
    with log.open("a", encoding="utf-8") as more:
        more.write(line.format(first=first, late=first + 3600 * SECOND) + "\n")
    found = violations(bench.url, log)
    assert any(words in violation for violation in found), found


def test_a_success_whose_program_never_ended_is_seen(bench: Bench, tmp_path: Path) -> None:
    """A run that claims more than its program did."""
    log = tmp_path / "labour.log"
    log.write_text(log.read_text(encoding="utf-8").replace("end 1 ", "alive 1 "), encoding="utf-8")
    assert violations(bench.url, log) == ["run 1 succeeded, but its program never came to its end"]


def test_most_at_once() -> None:
    """Touching intervals share no instant; nested and crossing ones do."""
    assert most_at_once([(0, 2), (2, 4)]) == 1
    assert most_at_once([(0, 3), (2, 4), (3, 5)]) == 2
    assert most_at_once([(0, 9), (1, 2), (1, 8)]) == 3
