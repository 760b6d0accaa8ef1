"""Workspaces with real git and real processes: what a tree is, what comes home, and what the result says."""

from __future__ import annotations

import threading
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.support.carried import carried_out
from tests.support.repositories import Repository, Studio
from tests.support.wait import until
from vibey.domain.effort import Effort
from vibey.domain.outcome import Failure, FailureClass, Success
from vibey.engines.contract import (
    Check,
    Context,
    Description,
    EngineConfig,
    Health,
    Job,
    Progress,
    RunSteps,
)
from vibey.engines.registry import equipped
from vibey.engines.workspace import Workspaced

if TYPE_CHECKING:
    from pathlib import Path

    from vibey.domain.outcome import Outcome
    from vibey.engines.contract import Stopped

CHECK = {
    "unit": Check(("sh", "-c", "echo checking; test -f new"), 30),
    "bad": Check(("sh", "-c", "echo it is wrong; exit 3"), 30),
    "slow": Check(("sh", "-c", "echo begun; exec sleep 600"), 0.3),
    "missing": Check(("no-such-program",), 30),
}


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    """Where scripts run."""
    return Studio(tmp_path, checks=CHECK)


@pytest.fixture
def site(studio: Studio) -> Repository:
    """The repository most jobs name."""
    return Repository.made(studio.roots / "site", readme="hello\n", other="same\n")


def result_of(outcome: Outcome | Stopped) -> dict[str, object]:
    """The result of a success."""
    assert isinstance(outcome, Success), outcome
    return dict(outcome.result or {})


def failed(outcome: Outcome | Stopped) -> tuple[FailureClass, str]:
    """Class and words of a failure."""
    assert isinstance(outcome, Failure), outcome
    return outcome.failure_class, outcome.detail


def test_change_comes_home_as_a_branch(studio: Studio, site: Repository) -> None:
    """Uncommitted work is committed by Vibey, checked, brought home, counted; the source's own tree is untouched."""
    base = site.refs()["refs/heads/main"]
    outcome = studio.run("echo more >> readme; echo x > new; rm other", {"repo": str(site.path), "verify": "unit"})
    result = result_of(outcome)
    verify = result.pop("verify")
    commit = site.refs()["refs/heads/vibey/7"]
    assert result == {
        "branch": "vibey/7",
        "commit": commit,
        "base": base,
        "diffstat": {"files": 3, "insertions": 2, "deletions": 1},
    }
    assert isinstance(verify, dict)
    assert (verify["name"], verify["ok"], verify["exit"], verify["tail"]) == ("unit", True, 0, "checking")
    assert site.show("vibey/7:readme") == "hello\nmore"
    assert site.git("log", "-1", "--format=%an <%ae>|%s|%P", "vibey/7") == f"vibey <vibey@localhost>|vibey job 7|{base}"
    assert site.refs() == {"refs/heads/main": base, "refs/heads/vibey/7": commit}
    assert site.is_sound()


def test_commits_of_the_work_are_kept(studio: Studio, site: Repository) -> None:
    """What the engine committed itself stays a commit, by the operator's author; the rest comes on top."""
    studio.config["workspace_author"] = "The Fleet <fleet@example.org>"
    script = "git status -s; echo 1 > one; git add one; git commit -qm mine; git checkout -q --detach; echo 2 > two"
    assert result_of(studio.run(script, {"repo": "site"}))["branch"] == "vibey/7"
    assert site.git("log", "--format=%an %s", "main..vibey/7") == "The Fleet vibey job 7\nThe Fleet mine"
    assert site.files("vibey/7") == ["one", "other", "readme", "two"]


def test_history_that_forgot_the_base_is_not_kept(studio: Studio, site: Repository) -> None:
    """Of a history begun anew, only the files come home."""
    script = "git checkout -q --orphan new; git commit -qam rewritten; echo 2 > two"
    result_of(studio.run(script, {"repo": "site"}))
    assert site.git("log", "--format=%s", "vibey/7") == "vibey job 7\nfirst"
    assert site.files("vibey/7") == ["other", "readme", "two"]


def test_tree_is_apart_and_its_folder_is_clean(studio: Studio, site: Repository) -> None:
    """The work starts in a tree on its own branch; job and result files lie beside it, and no remote is known."""
    script = 'pwd; git symbolic-ref HEAD; git remote; git log --format=%s; ls -A; test -f "$VIBEY_JOB_FILE" && echo job'
    script += '; echo \'{"result": {"said": 1, "branch": "mine"}, "cost_usd": 2}\' > $VIBEY_RESULT_FILE; touch new'
    outcome = studio.run(script, {"repo": "site"})
    tree = studio.folder / "runs" / "run-70" / "tree"
    expected = [str(tree), "refs/heads/vibey/7", "first", ".git", "other", "readme", "job"]
    assert studio.log().splitlines() == expected
    result = result_of(outcome)
    assert (result["said"], result["branch"]) == (1, "vibey/7")
    assert isinstance(outcome, Success)
    assert outcome.cost_usd == Decimal(2)
    assert site.files("vibey/7") == ["new", "other", "readme"]


def test_nothing_changed_is_said(studio: Studio, site: Repository) -> None:
    """No change makes no branch and asks for no check; a branch of an earlier run of the job is dropped."""
    result_of(studio.run("touch new", {"repo": "site"}))
    before = site.refs()["refs/heads/main"]
    result = result_of(studio.run("echo nothing", {"repo": "site", "verify": "bad"}, run_id=71))
    assert result == {
        "branch": None,
        "commit": before,
        "base": before,
        "diffstat": {"files": 0, "insertions": 0, "deletions": 0},
        "verify": None,
    }
    assert "no branch" in studio.log(71)
    assert site.refs() == {"refs/heads/main": before}


@pytest.mark.parametrize("ref", ["topic", "refs/tags/v1", "main~1", "@{0}", None])
def test_base_is_the_commit_named(studio: Studio, site: Repository, ref: str | None) -> None:
    """Any name of one commit will do; without any, the source's HEAD."""
    first = site.git("rev-parse", "HEAD")
    site.git("tag", "-m", "annotated", "v1")
    site.git("branch", "topic")
    second = site.commit("second", readme="later\n")
    result = result_of(studio.run("touch new", {"repo": "site", **({"ref": ref} if ref else {})}))
    assert result["base"] == (second if ref in {"@{0}", None} else first)


def test_rerun_replaces_its_own_branch_only(studio: Studio, site: Repository) -> None:
    """A second run of a job starts from the base again; another job's branch stays as it is."""
    result_of(studio.run("echo 8 > eight", {"repo": "site"}, job_id=8))
    result_of(studio.run("echo 1 > one", {"repo": "site"}, run_id=71))
    other = site.refs()["refs/heads/vibey/8"]
    result_of(studio.run("test ! -f one; echo 2 > two", {"repo": "site"}, run_id=72))
    assert site.files("vibey/7") == ["other", "readme", "two"]
    assert site.refs()["refs/heads/vibey/8"] == other


@pytest.mark.parametrize(
    ("check", "words"),
    [("bad", "exit 3: it is wrong"), ("slow", "not done after 0.3 s"), ("missing", "No such file")],
)
def test_failed_check_is_the_works_failure(studio: Studio, site: Repository, check: str, words: str) -> None:
    """Work that fails its check is no result; it can be seen under another name until the job succeeds."""
    failure_class, detail = failed(studio.run("touch new", {"repo": "site", "verify": check}))
    assert failure_class is FailureClass.WORK
    assert f"verify {check} failed" in detail
    assert words in detail
    assert set(site.refs()) == {"refs/heads/main", "refs/heads/vibey/failed/7"}
    result_of(studio.run("touch new", {"repo": "site", "verify": "unit"}, run_id=71))
    assert set(site.refs()) == {"refs/heads/main", "refs/heads/vibey/7"}


def test_failed_work_leaves_nothing(studio: Studio, site: Repository) -> None:
    """An engine that fails brings nothing home, and holds nothing of the source."""
    before = site.refs()
    assert failed(studio.run("touch new; exit 75", {"repo": "site"}))[0] is FailureClass.HANDOFF
    assert site.refs() == before


@pytest.mark.usefixtures("site")
def test_check_gets_nothing_of_the_engines(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's extra variables are not for what it wrote."""
    monkeypatch.setenv("MODEL_KEY", "planted-secret-value")
    studio.config["env"] = ("MODEL_KEY",)
    studio.checks["env"] = Check(("sh", "-c", "env > ../seen"), 30)
    result_of(studio.run("touch new", {"repo": "site", "verify": "env"}))
    assert "planted" not in (studio.folder / "runs" / "run-70" / "seen").read_text()


def test_two_jobs_share_no_tree(studio: Studio, site: Repository) -> None:
    """Two runs at once on one repository do not see one another, and both come home."""
    outcomes: list[Outcome | Stopped] = []

    def begin(number: int) -> None:
        script = (
            f"echo {number} > mine; touch ../../../at-{number}; while [ ! -f ../../../go ]; do sleep 0.02; done; ls"
        )
        outcomes.append(studio.run(script, {"repo": "site"}, job_id=number, run_id=number))

    threads = [threading.Thread(target=begin, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    until(lambda: all((studio.folder / f"at-{number}").exists() for number in (1, 2)), what="both at work")
    assert len([ref for ref in site.refs() if ref.startswith("refs/vibey/")]) == 2
    (studio.folder / "go").touch()
    for thread in threads:
        thread.join()
    assert [result_of(outcome)["diffstat"] for outcome in outcomes] == [
        {"files": 1, "insertions": 1, "deletions": 0}
    ] * 2
    assert [site.show(f"vibey/{number}:mine") for number in (1, 2)] == ["1", "2"]
    assert not [ref for ref in site.refs() if ref.startswith("refs/vibey/")]


def test_gc_in_the_source_takes_nothing_from_a_run(
    studio: Studio, site: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base whose branch is deleted and pruned during the run stays whole until the run is over."""
    site.git("checkout", "-q", "-b", "topic")
    base = site.commit("on topic", big="x" * 10_000)
    site.git("checkout", "-q", "main")
    script = "cd $SITE && git branch -D topic && git reflog expire --expire=now --all && git gc -q --prune=now; cd - "
    script += "&& git log --format=%s && echo more >> big"
    monkeypatch.setenv("SITE", str(site.path))
    studio.config["env"] = ("SITE",)
    result = result_of(studio.run(script, {"repo": "site", "ref": "topic"}))
    assert result["base"] == base
    assert site.show("vibey/7:big").endswith("more")
    assert site.is_sound()


def test_bare_worktree_and_shallow_sources(studio: Studio, site: Repository) -> None:
    """A bare repository, a second working tree and a shallow clone are sources like any other."""
    site.commit("second", readme="later\n")
    site.git("clone", "-q", "--bare", str(site.path), str(studio.roots / "bare.git"))
    site.git("worktree", "add", "-q", "-b", "side", str(studio.roots / "side"))
    site.git("clone", "-q", "--depth=1", f"file://{site.path}", str(studio.roots / "shallow"))
    for name in ("bare.git", "side", "shallow"):
        assert result_of(studio.run("git log -2 >&2; touch new", {"repo": name}))["branch"] == "vibey/7"
        source = Repository(studio.roots / name)
        assert source.files("vibey/7") == ["new", "other", "readme"]
        source.git("update-ref", "-d", "refs/heads/vibey/7")


def test_ignored_files_stay_behind(studio: Studio) -> None:
    """What the repository ignores is not taken home, however large."""
    ignoring = Repository.made(studio.roots / "ignoring", __gitignore="built\n")
    result_of(studio.run("truncate -s 20G built; echo 1 > one", {"repo": "ignoring"}))
    assert ignoring.files("vibey/7") == [".gitignore", "one"]


def test_payload_is_the_programs_own_without_roots(studio: Studio, site: Repository) -> None:
    """A command engine without roots makes of `repo` what it likes; no git is involved."""
    studio.config["workspace_roots"] = ()
    assert studio.run("test ! -e .git", {"repo": "anything at all"}) == Success()
    assert site.is_sound()


def test_engine_without_roots_hands_the_job_off(tmp_path: Path) -> None:
    """A kind that would work in a folder refuses a job whose repository it may not have."""
    config = EngineConfig("e", "openai", base_url="http://127.0.0.1:1/v1", model="m")
    job = Job(7, 70, 1, 1, Effort.LOW, {"repo": "site", "prompt": "x"}, "default")
    outcome = carried_out(equipped(config), job, tmp_path)
    assert failed(outcome)[0] is FailureClass.HANDOFF
    assert "workspace_roots" in failed(outcome)[1]


class LeavesAtOnce:
    """A third party's engine that answers while its process still writes."""

    def describe(self) -> Description:
        """Nothing special."""
        return Description("leaves")

    def doctor(self) -> Health:
        """Always well."""
        return Health(installed=True)

    def run(self, job: Job, context: Context) -> RunSteps:  # noqa: ARG002
        """Answer once the process has begun."""
        script = "while :; do date +%N > ticking; echo; done"
        process = context.spawn(("sh", "-c", script), environment={"PATH": "/bin:/usr/bin"})
        yield Progress(next(process.lines()))
        return Success(near_quota_ms=5)


def test_nothing_is_written_while_it_is_read(studio: Studio, site: Repository) -> None:
    """A process that an adapter has left running is dead before its tree is read, and that spoils no result."""
    config = EngineConfig("e", "third", workspace_roots=(studio.roots,))
    job = Job(7, 70, 1, 1, Effort.LOW, {"repo": "site"}, "default", installation=uuid.uuid4().hex)
    outcome = carried_out(Workspaced(LeavesAtOnce(), config), job, studio.folder / "runs")
    assert result_of(outcome)["branch"] == "vibey/7"
    assert isinstance(outcome, Success)
    assert outcome.near_quota_ms == 5
    written = (studio.folder / "runs" / "run-70" / "tree" / "ticking").read_text()
    assert site.show("vibey/7:ticking") == written.rstrip("\n")


def test_no_space_lets_another_engine_try(studio: Studio, site: Repository) -> None:
    """Where the disk is nearly full nothing is begun, and the engine is to blame, not the job."""
    studio.min_free = 10**18
    failure_class, detail = failed(studio.run("touch new", {"repo": "site"}))
    assert (failure_class, "no space" in detail) == (FailureClass.ENGINE, True)
    assert set(site.refs()) == {"refs/heads/main"}


def test_without_git_the_operator_is_told(
    studio: Studio, site: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No git on the path jobs get: the run and the doctor say what to do."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    failure_class, detail = failed(studio.run("touch new", {"repo": str(site.path)}))
    assert (failure_class, "install git" in detail) == (FailureClass.MISCONFIGURED, True)
    health = equipped(EngineConfig("e", "command", argv=("sh",), workspace_roots=(studio.roots,))).doctor()
    assert (health.good, "install git" in health.fix) == (False, True)


def test_doctor_misses_a_root(tmp_path: Path) -> None:
    """A root that is not there is found before a job is."""
    health = equipped(EngineConfig("e", "command", argv=("sh",), workspace_roots=(tmp_path / "none",))).doctor()
    assert not health.good
    assert "engine.e.workspace_roots" in health.fix
