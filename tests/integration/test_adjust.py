"""Preferences, demotions, warnings of a quota nearly spent, learned factors: from their source to what people see."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.installation import Bench, noop
from vibey.domain.errors import InvalidInput, UnknownName
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.services import adjust, doctor, views
from vibey.services.route import route
from vibey.services.run import _start, carry_out
from vibey.services.settle import Held, settle
from vibey.services.tick import tick
from vibey.services.wording import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.commandline import CommandLine
    from vibey.domain.outcome import Outcome

HOUR = 3600.0
LEFT = "extract(epoch from {} - clock_timestamp())::float"


def _changes(bench: Bench) -> list[dict[str, Any]]:
    return [data for (data,) in bench.rows("select data from ledger where kind = 'EngineChanged' order by id")]


def _end(bench: Bench, *outcomes: Outcome) -> list[Held]:
    """End the oldest live runs with these outcomes; whoever held them."""
    ended = []
    for (run, token, _), outcome in zip(bench.live(), outcomes, strict=False):
        started = _start(bench.installation, run, token)
        assert started is not None
        ended.append(Held.of(started, token))
        assert settle(bench.installation, ended[-1], outcome) is not None
    return ended


def _names(bench: Bench, condition: str) -> list[str]:
    return [name for (name,) in bench.rows(f"select name from engines where {condition} order by name")]


# --- by hand


def test_a_preference_and_its_end_on_the_command_line(vibey: CommandLine) -> None:
    """It is kept with its end and note, replaced and not compounded, cleared by 1, and on the ledger each time."""
    said = vibey("engine", "prefer", "near", "2.5", "--for", "90m", "--why", "quiet night", "--json").json
    assert (said["member"], said["factor"], said["note"]) == ("near", 2.5, "quiet night")
    row = f"select member, kind, factor, note, {LEFT.format('expires_at')} from adjustments"
    ((*kept, left),) = vibey.bench.rows(row)
    assert kept == ["near", "preference", 2_500_000, "quiet night"]
    assert 5340 < left <= 5400
    assert "weight × 0.5 until" in vibey("engine", "prefer", "near", "0.5").out
    assert vibey.bench.rows("select factor, note from adjustments") == [(500_000, "")]
    assert "its own weight again" in vibey("engine", "prefer", "near", "1.0").out
    assert vibey("engine", "prefer", "near", "1", "--json").json["until"] is None
    assert vibey.bench.rows("select * from adjustments") == []
    changes = _changes(vibey.bench)
    assert [(each["layer"], each["factor"]) for each in changes] == [("preference", f) for f in (2.5, 0.5, 1.0, 1.0)]
    assert changes[0]["until"] == said["until"]
    assert vibey.bench.rows("select distinct engine from ledger where kind = 'EngineChanged'") == [("near",)]


def test_a_demotion_and_its_end_on_the_command_line(vibey: CommandLine) -> None:
    """For as long as said, counted from now even if that is sooner; restore ends it, also where there was none."""
    left = f"select name, {LEFT.format('demoted_until')} from engines where demoted_until is not null"
    for length, least, most in (("2h", 7140, 7200), ("5m", 290, 300)):
        said = vibey("engine", "demote", "near", "--for", length, "--json").json
        assert (said["engine"], said["done"]) == ("near", "demoted")
        ((name, seconds),) = vibey.bench.rows(left)
        assert name == "near"
        assert least < seconds <= most
    assert "demoted until" in vibey("engine", "demote", "far").out
    for name in ("near", "far", "bought"):
        assert vibey("engine", "restore", name, "--json").json == {"engine": name, "done": "restored"}
    assert vibey.bench.rows(left) == []
    assert [each["demoted_until"] is None for each in _changes(vibey.bench)] == [False] * 3 + [True] * 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["prefer", "neer", "2"], 3, "unknown engine or nested pool 'neer'; did you mean near?"),
        (["prefer", "main", "2"], 3, "unknown engine or nested pool 'main'; known: near, far, bought"),
        (["prefer", "near", "0"], 2, "factor: '0' is not usable; expected a number above 0, up to 1000000"),
        (["prefer", "near", "1000001"], 2, "factor: '1000001' is not usable"),
        (["prefer", "near", "0.0000001"], 2, "at most six decimal places"),
        (["prefer", "near", "nan"], 2, "factor: 'nan' is not usable"),
        (["prefer", "near", "twice"], 2, "factor: 'twice' is not usable"),
        (["prefer", "near", "2", "--for", "soon"], 2, "'soon' is not a length of time"),
        (["prefer", "near", "2", "--for", "0"], 2, "for: '0 s' is not usable; expected a length of time above 0"),
        (["prefer", "near", "2", "--for", "367d"], 2, "up to 366 days"),
        (["prefer", "near", "2", "--why", "a\nb"], 2, "why: "),
        (["demote", "neer"], 3, "unknown engine 'neer'; did you mean near?"),
        (["demote", "near", "--for", "367d"], 2, "up to 366 days"),
        (["restore", "zzz"], 3, "unknown engine 'zzz'; known: near, far, bought"),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    vibey: CommandLine, arguments: list[str], code: int, words: str
) -> None:
    """One line, the right exit code, and neither a row nor an event."""
    said = vibey("engine", *arguments)
    assert said.code == code
    assert words in said.complaint
    assert vibey.bench.value("select count(*) from adjustments") == 0
    assert _changes(vibey.bench) == []


def test_pools_within_pools_can_be_preferred(open_bench: Callable[..., Bench]) -> None:
    """A nested pool is a member as an engine is; a root is nobody's member."""
    pool = {"main": {"members": [{"pool": "ours"}]}, "ours": {"select": "weighted", "members": ["a", "b"]}}
    bench = open_bench(engine={"a": noop(), "b": noop()}, pool=pool)
    assert adjust.prefer(bench.installation, "ours", "2", HOUR)["member"] == "ours"
    assert bench.rows("select engine, data ->> 'member' from ledger where kind = 'EngineChanged'") == [(None, "ours")]
    assert [(each["name"], each["layers"][0]["factor"]) for each in views.engines(bench.installation)["pools"]] == [
        ("ours", 2.0)
    ]
    with pytest.raises(UnknownName, match="known: ours, a, b"):
        adjust.prefer(bench.installation, "main", "2", HOUR)
    with pytest.raises(UnknownName):
        adjust.demote(bench.installation, "ours", HOUR)
    with pytest.raises(InvalidInput):
        adjust.demote(bench.installation, "a", float("nan"))


def test_a_change_wakes_the_pools_that_have_work(open_bench: Callable[..., Bench]) -> None:
    """A waiting job is looked at again; without one nobody is woken."""
    bench = open_bench(engine={"a": noop()})
    adjust.prefer(bench.installation, "a", "2", HOUR)
    assert bench.messages() == 0
    bench.enqueue(1)
    for change in (
        lambda: adjust.prefer(bench.installation, "a", "2", HOUR),
        lambda: adjust.demote(bench.installation, "a", HOUR),
        lambda: adjust.restore(bench.installation, "a"),
    ):
        bench.wipe_redis()
        change()
        assert bench.messages() == 1


def test_what_is_over_is_forgotten_by_the_tick(open_bench: Callable[..., Bench]) -> None:
    """The clean-up drops adjustments past their end and no other."""
    bench = open_bench(engine={"a": noop(), "b": noop()})
    for name in ("a", "b"):
        adjust.prefer(bench.installation, name, "2", HOUR)
    bench.rows("update adjustments set expires_at = clock_timestamp() - interval '1 second' where member = 'a'")
    bench.rows("update installation set last_clean_at = clock_timestamp() - interval '11 minutes'")
    tick(bench.installation)
    assert bench.rows("select member from adjustments") == [("b",)]


# --- a quota nearly spent


def _accounts(open_bench: Callable[..., Bench], **first: Any) -> Bench:
    """Two engines of one account and a third of its own, in a tiered pool."""
    members = [{"engine": name, "tier": tier} for name, tier in (("a", 3), ("b", 2), ("c", 1))]
    engine = {"a": noop(account="shared") | first, "b": noop(account="shared"), "c": noop()}
    return open_bench(
        engine=engine,
        engines={"slots": dict.fromkeys("abc", 2)},
        pool={"main": {"select": "tiered", "members": members}},
    )


def test_a_program_can_warn_that_its_quota_is_nearly_spent(open_bench: Callable[..., Bench]) -> None:
    """A real program's result file demotes every engine of its account, and the next job goes elsewhere."""
    script = "import json, os; json.dump({'near_quota': 600, 'result': 1}, open(os.environ['VIBEY_RESULT_FILE'], 'w'))"
    bench = _accounts(open_bench, kind="command", argv=[sys.executable, "-I", "-c", script])
    bench.enqueue(1)
    route(bench.installation, "main")
    ((run, token, engine),) = bench.live()
    assert engine == "a"
    assert carry_out(bench.installation, run, token) == "succeeded"
    assert _names(bench, f"{LEFT.format('demoted_until')} between 540 and 600") == ["a", "b"]
    (change,) = _changes(bench)
    assert change["account"] == "shared"
    assert bench.value("select engine from ledger where kind = 'EngineChanged'") == "a"
    bench.enqueue(3)
    route(bench.installation, "main")
    assert [engine for _, _, engine in bench.live()] == ["c", "c", "a"]


def test_a_warning_never_shortens_and_is_told_with_any_end(open_bench: Callable[..., Bench]) -> None:
    """A shorter one changes nothing, a longer one lengthens; a failure carries it as a success does."""
    bench = _accounts(open_bench)
    bench.enqueue(4)
    route(bench.installation, "main")
    until = "select name, demoted_until from engines order by name"
    _end(bench, Success(near_quota_ms=600_000))
    first = bench.rows(until)
    assert bench.rows("select state from jobs order by id limit 1") == [("succeeded",)]
    _end(bench, Success(near_quota_ms=1000))
    assert bench.rows(until) == first
    assert len(_changes(bench)) == 1
    _end(bench, Failure(FailureClass.WORK, "exit 1", near_quota_ms=1_200_000))
    assert _names(bench, f"{LEFT.format('demoted_until')} between 1140 and 1200") == ["a", "b"]
    assert len(_changes(bench)) == 2
    bench.rows("update engines set configured = false, demoted_until = null where name = 'b'")
    _end(bench, Success(near_quota_ms=3_600_000))
    assert _names(bench, "demoted_until > clock_timestamp() + interval '50 minutes'") == ["a"]


def test_a_stale_holders_warning_counts_for_nothing(open_bench: Callable[..., Bench]) -> None:
    """What a holder says after its run was ended leaves no trace."""
    bench = _accounts(open_bench)
    bench.enqueue(1)
    route(bench.installation, "main")
    (held,) = _end(bench, Success())
    assert settle(bench.installation, held, Success(near_quota_ms=600_000)) is None
    assert _names(bench, "demoted_until is not null") == []
    assert _changes(bench) == []


# --- learned from runs


def _history(open_bench: Callable[..., Bench], *ends: str, learn: bool = True) -> Bench:
    """An engine whose runs came to these ends, and a peer that had none."""
    bench = open_bench(
        engine={"a": noop(), "b": noop()},
        engines={"learn": learn, "max_attempts": 1, "slots": {"a": len(ends), "b": 9}},
        pool={"main": {"select": "ordered", "members": ["a", "b"]}},
    )
    bench.enqueue(len(ends))
    route(bench.installation, "main")
    assert {engine for _, _, engine in bench.live()} == {"a"}
    _end(bench, *(Success() if end == "good" else Failure(FailureClass(end), "said so") for end in ends))
    return bench


def _clean(bench: Bench) -> None:
    bench.rows("update installation set last_clean_at = clock_timestamp() - interval '11 minutes'")
    tick(bench.installation)


def _learned(bench: Bench) -> list[tuple[Any, ...]]:
    return bench.rows("select member, factor, note from adjustments where kind = 'learned' order by member")


FAILING = ("engine", "good") * 3


def test_runs_that_fail_often_lower_the_weight_for_half_an_hour(open_bench: Callable[..., Bench]) -> None:
    """The tick lays the factor with its ground and its end, and says so on the ledger."""
    bench = _history(open_bench, *FAILING)
    _clean(bench)
    assert _learned(bench) == [("a", 100_000, "3 of 6 runs failed within the hour")]
    assert 1740 < bench.value(f"select {LEFT.format('expires_at')} from adjustments") <= 1800
    (change,) = _changes(bench)
    assert (change["layer"], change["member"], change["factor"]) == ("learned", "a", 0.1)
    (shown,) = views.engines(bench.installation)["engines"][0]["layers"]
    assert (shown["kind"], shown["factor"], shown["until"]) == ("learned", 0.1, change["until"])


def test_without_learn_nothing_is_learned(open_bench: Callable[..., Bench]) -> None:
    """It is off unless asked for."""
    bench = _history(open_bench, *FAILING, learn=False)
    _clean(bench)
    assert _learned(bench) == []


@pytest.mark.parametrize(
    ("ends", "factor"),
    [
        (("engine", "good", "engine", "good"), None),
        (("engine", *("good",) * 5), None),
        (("engine", *("good",) * 4), 500_000),
        (("engine", *("work", "vibey", "handoff") * 2), None),
        (("engine", *("good",) * 4, *("work",) * 5), 500_000),
    ],
    ids=["too few", "one of six", "one of five", "others' faults", "others' faults beside"],
)
def test_only_an_engines_own_ends_are_counted(
    open_bench: Callable[..., Bench], ends: tuple[str, ...], factor: int | None
) -> None:
    """Runs that say nothing about the engine count neither for nor against it."""
    bench = _history(open_bench, *ends)
    _clean(bench)
    assert [found for _, found, _ in _learned(bench)] == ([] if factor is None else [factor])


def test_reviews_do_not_compound_nor_take_away(open_bench: Callable[..., Bench]) -> None:
    """Again and again the same is found; when the runs are too old the factor stays to its end, and is not renewed."""
    bench = _history(open_bench, *FAILING)
    for _ in range(3):
        _clean(bench)
    assert [factor for _, factor, _ in _learned(bench)] == [100_000]
    assert len(_changes(bench)) == 1
    bench.rows("update runs set ended_at = ended_at - interval '61 minutes'")
    before = bench.rows("select * from adjustments")
    _clean(bench)
    assert bench.rows("select * from adjustments") == before
    bench.rows("update adjustments set expires_at = clock_timestamp() - interval '1 second'")
    _clean(bench)
    assert _learned(bench) == []


def test_a_review_follows_the_runs_not_the_factor(open_bench: Callable[..., Bench]) -> None:
    """Good runs under a lowered weight turn a tenth into a half, and a preference beside it is left alone."""
    bench = _history(open_bench, *FAILING)
    adjust.prefer(bench.installation, "a", "7", HOUR)
    _clean(bench)
    bench.enqueue(6)
    route(bench.installation, "main")
    _end(bench, *[Success()] * 6)
    _clean(bench)
    assert _learned(bench) == [("a", 500_000, "3 of 12 runs failed within the hour")]
    assert bench.value("select factor from adjustments where kind = 'preference'") == 7_000_000


# --- how it is shown


def test_remarks_tell_how_each_engine_stands(vibey: CommandLine) -> None:
    """Active, standing by, demoted, kept out; and beside standing by, for how long nobody was there."""
    vibey.enqueued(3)
    assert {each["remark"] for each in vibey("engines", "--json").json["engines"]} == {""}
    vibey.route()
    vibey("engine", "demote", "far")
    near, far, bought = vibey("engines", "--json").json["engines"]
    assert (near["remark"], near["demoted_until"], near["layers"]) == ("", None, [])
    assert near["selected_at"].endswith("Z")
    assert far["remark"] == f"demoted until {in_words(datetime.fromisoformat(far['demoted_until']))}"
    assert (bought["remark"], bought["selected_at"], bought["expected_share"]) == ("not needed so far", None, 0)
    vibey.bench.rows("update installation set created_at = created_at - interval '30 days 1 hour'")
    vibey.bench.rows("update engines set selected_at = selected_at - interval '8 days 1 hour' where name = 'near'")
    vibey.bench.rows("update engines set demoted_until = now() - interval '1 hour' where name = 'far'")
    near, far, bought = vibey("engines", "--json").json["engines"]
    assert near["remark"] == "not exercised for 8 days"
    assert (far["remark"], far["demoted_until"]) == ("", None)
    assert bought["remark"] == "not needed so far; not exercised for 30 days"
    vibey("engine", "pause", "near")
    paused = vibey("engines", "--json").json["engines"][0]
    assert paused["remark"] == paused["detail"]
    assert "vibey engine resume near" in " ".join(vibey("engines").out.split())
    assert "not needed so far" in vibey("status").out


def test_layers_in_force_are_shown_with_their_ends(open_bench: Callable[..., Bench]) -> None:
    """Schedules of the hour first, then what was laid by hand; none that is over or yet to come."""
    hours = {
        "always": {"member": "a", "factor": 0.5},
        "never": {"member": "a", "factor": 3, "days": []},
    }
    bench = open_bench(engine={"a": noop(), "b": noop()}, schedule=hours)
    until = adjust.prefer(bench.installation, "a", "4", HOUR, "why not")["until"]
    tomorrow = "select ((now() at time zone 'utc')::date + 1)::text || 'T00:00:00.000Z'"
    midnights = [bench.value(tomorrow)]
    a, b = views.engines(bench.installation)["engines"]
    midnights.append(bench.value(tomorrow))
    scheduled, preferred = a["layers"]
    assert scheduled.pop("until") in midnights
    assert scheduled == {"kind": "schedule", "factor": 0.5, "note": "always"}
    assert preferred == {"kind": "preference", "factor": 4.0, "until": until, "note": "why not"}
    assert b["layers"] == []


def test_doctor_has_nothing_to_say_of_pools_that_wait_or_go_by_weight(open_bench: Callable[..., Bench]) -> None:
    """Both settings do what they say."""
    pool = {"main": {"select": "tiered", "tier_by": "weight", "when_full": "wait", "members": ["a"]}}
    bench = open_bench(engine={"a": noop()}, pool=pool)
    found = {each.name: each.state for each in doctor.check(bench.installation, staff=False)}
    assert not [name for name in found if name.startswith("pool.")]
    assert found["engine a"] == "ok"
