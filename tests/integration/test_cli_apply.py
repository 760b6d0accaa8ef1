"""What commands say of the configuration: what an undo leaves to edit, what the file changes, what workers lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.databases import query
from tests.support.json_output import described
from vibey.services import pulse

if TYPE_CHECKING:
    from tests.support.commandline import CommandLine

FAR = "[engine.far]\n"


def edit(vibey: CommandLine, old: str, new: str) -> str:
    """Replace words of the file; the text before."""
    text = vibey.config.read_text(encoding="utf-8")
    assert text.count(old) == 1
    vibey.config.write_text(text.replace(old, new), encoding="utf-8")
    return text


def tick(vibey: CommandLine) -> None:
    """Let doctor find a beat."""
    query(vibey.bench.url, "update installation set last_tick_at = now()")


def test_going_back_says_what_the_file_here_still_changes(vibey: CommandLine) -> None:
    """Which lines to edit, and which engines workers of this machine leave unserved; nothing where the file agrees."""
    vibey.set_default(paid_daily_cap=3)
    before = edit(vibey, FAR, f'{FAR}efforts = {{ high = ["-x"] }}\n')
    assert vibey("apply", "--yes").code == 0
    ahead, said = vibey("apply", "--undo", "--check"), vibey("apply", "--undo", "--yes")
    assert (ahead.code, said.code) == (1, 0)
    for each in (ahead, said):
        assert "here says otherwise than that; edit it, or the next vibey apply puts this in force again" in each.out
        assert "until it is edited, workers of this machine leave far unserved: another efforts for far" in each.out
    vibey.config.write_text(before, encoding="utf-8")
    assert vibey("apply", "--check").code == 0
    assert vibey("apply", "--undo", "--yes").code == 0
    again = vibey("apply", "--undo", "--yes")
    assert (again.code, "otherwise" in again.out, "unserved" in again.out) == (0, False, False)


def test_going_back_is_reported_to_programs_and_in_the_history(vibey: CommandLine) -> None:
    """The same as the text: what the file still changes, what stays unserved; later, which generation was undone."""
    vibey.set_default(paid_daily_cap=3)
    edit(vibey, FAR, f'{FAR}efforts = {{ high = ["-x"] }}\n')
    number = vibey("apply", "--yes", "--json").json["generation"]
    ahead = vibey("apply", "--undo", "--check", "--json").json
    described("apply", ahead)
    undone = vibey("apply", "--undo", "--yes", "--json")
    assert undone.code == 0
    assert [ahead[key] for key in ("file_changes", "unserved")] == [
        undone.json[key] for key in ("file_changes", "unserved")
    ]
    described("apply", undone.json)
    assert undone.json["unserved"] == {"far": "another efforts for far"}
    assert [each["name"] for each in undone.json["file_changes"]] == ["far"]
    assert "unserved" not in vibey("apply", "--yes", "--json").json
    told = vibey("apply", "--history", "--json").json["generations"]
    assert [each["undoes"] for each in told][:3] == [None, number, None]
    [row] = [line for line in vibey("apply", "--history").out.splitlines() if f" undoes generation {number}; " in line]
    assert row.split()[0] == str(number + 1)


def test_doctor_tells_a_file_that_differs_from_a_variable_that_does_not_count(vibey: CommandLine) -> None:
    """An edit is waiting to be applied, which is a warning; a variable that is not in force fails."""
    vibey.set_default(paid_daily_cap=3, paid_daily_cap_covers="all")
    tick(vibey)
    assert "configuration: generation" in vibey("doctor").out.replace("  ", " ")
    edit(vibey, "paid_daily_cap = 3", "paid_daily_cap = 4")
    found = vibey("doctor", "--json")
    [check] = [each for each in found.json["checks"] if each["name"] == "configuration"]
    assert (found.code, check["state"]) == (0, "warn")
    assert check["detail"].startswith("vibey.toml differs from what is in force (generation ")
    assert "paid_daily_cap: 3 → 4" in check["detail"]
    assert "vibey apply" in check["fix"]
    failed = vibey("doctor", VIBEY_ENGINES_LEASE_SECONDS="9")
    assert failed.code == 1
    assert "VIBEY_ENGINES_LEASE_SECONDS=9 is not in force, 60 is" in failed.out
    assert "unset VIBEY_ENGINES_LEASE_SECONDS, or run: vibey apply" in " ".join(failed.out.split())
    assert vibey("doctor", VIBEY_ENGINES_PAID_DAILY_CAP="9").code == 0


def test_doctor_names_a_worker_whose_file_differs(vibey: CommandLine) -> None:
    """A warning while another worker serves the engine, and a failure once none does."""
    vibey.set_default(paid_daily_cap_covers="all")
    tick(vibey)
    number = vibey("status", "--json").json["generation"]
    worker = pulse.Worker("build@far", ("near",), 4, (2,), number, {"far": "another argv for far"})
    pulse.appear(vibey.bench.installation, worker)
    found = vibey("doctor", "--json")
    checks = {each["detail"]: each for each in found.json["checks"]}
    check = checks["worker build@far: another argv for far"]
    assert (found.code, check["state"]) == (0, "warn")
    assert check["fix"] == "correct the file there, or put it in force: vibey apply"
    vibey.bench.staff("near", "bought")
    lacking = vibey("doctor", "--json")
    checks = {each["detail"]: each for each in lacking.json["checks"]}
    assert (lacking.code, checks["worker build@far: another argv for far"]["state"]) == (1, "fail")


def test_config_and_project_show_what_is_in_force_beside_what_the_file_says(vibey: CommandLine) -> None:
    """The value that was applied, the generation it comes from, and the file's where that is another one."""
    vibey.set_default(paid_daily_cap=3)
    number = vibey("status", "--json").json["generation"]
    assert "differs" not in vibey("config", "show").out
    edit(vibey, "paid_daily_cap = 3", "paid_daily_cap = 4")
    config = vibey("config", "show", COLUMNS="200")
    [row] = [line.split() for line in config.out.splitlines() if line.startswith("engines.paid_daily_cap ")]
    assert row == ["engines.paid_daily_cap", "3", "generation", str(number), "4"]
    assert f"vibey.toml differs from what is in force (generation {number}); run: vibey apply" in config.out
    assert "  ~ paid_daily_cap: 3 → 4" in config.out
    told = vibey("config", "show", "--json").json
    assert (told["generation"], len(told["differences"])) == (number, 1)
    [entry] = [each for each in told["settings"] if each["key"] == "engines.paid_daily_cap"]
    assert (entry["value"], entry["source"], entry["file"]) == (3, f"generation {number}", 4)
    project = vibey("project", "show", "default", COLUMNS="200")
    [row] = [line.split() for line in project.out.splitlines() if line.startswith("paid_daily_cap ")]
    assert row == ["paid_daily_cap", "3", "generation", str(number), "4"]
    laid = vibey("project", "show", "default", COLUMNS="200", VIBEY_ENGINES_PAID_DAILY_CAP="5").out
    [row] = [line.split() for line in laid.splitlines() if line.startswith("paid_daily_cap ")]
    assert row[:4] == ["paid_daily_cap", "5", "environment", "VIBEY_ENGINES_PAID_DAILY_CAP"]
