"""The worker killed at each step of a workspace: nothing lives on, nothing is half brought home, nothing is left."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.support import tree_holder
from tests.support.installation import noop
from tests.support.repositories import Repository
from tests.support.trees import living
from tests.support.wait import until
from vibey.engines.processes import kill_leftovers
from vibey.services.outputs import prune, runs_root, sweep, tidy
from vibey.services.route import route
from vibey.services.run import carry_out

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.installation import Bench

    Start = Callable[..., subprocess.Popen[bytes]]

WORK = "echo more >> readme; echo new > new; git add new; git commit -qm mine"
NOWHERE = "no git command has these words"


@pytest.fixture
def installation() -> Iterator[str]:
    """A mark no other test has; whatever still carries it at the end is killed."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    kill_leftovers(name, live=lambda _job, _run: False)


@pytest.fixture
def site(tmp_path: Path) -> Repository:
    """The repository the job names."""
    return Repository.made(tmp_path / "roots" / "site", readme="hello\n")


@pytest.fixture
def start(tmp_path: Path, installation: str, site: Repository) -> Iterator[Start]:
    """Starts a holder and waits until its run has come to where it waits."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(words: str, *, script: str = WORK, sign: str = "reached") -> subprocess.Popen[bytes]:
        payload: dict[str, object] = {"repo": str(site.path), "verify": "unit"}
        started.append(tree_holder.start(tmp_path, installation, payload, words=words, script=script))
        until((tmp_path / sign).exists, what=f"the step {words or sign}")
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def bench(open_bench: Callable[..., Bench]) -> Bench:
    """An installation whose data folder is the holder's, and whose database knows of no run 70."""
    return open_bench(engine={"local": noop()})


def swept(bench: Bench, folder: Path) -> list[str]:
    """What is left in the run's folder after a worker has started again."""
    assert sweep(bench.installation) == 1
    assert sweep(bench.installation) == 0
    return sorted(path.name for path in (folder / "data" / "runs" / "run-70").iterdir())


@pytest.mark.parametrize(
    "words",
    [
        "update-ref --no-deref refs/vibey/",
        "init --quiet",
        "checkout --quiet",
        "read-tree",
        "add --all",
        "commit-tree",
        "pack-objects",
        "index-pack",
        "update-ref --no-deref refs/heads/vibey/7",
    ],
)
def test_killed_while_git_works(
    start: Start, bench: Bench, site: Repository, tmp_path: Path, installation: str, words: str
) -> None:
    """Killed in the middle of making, reading or taking home its tree, a run leaves the source as it was."""
    before = site.refs()
    start(words).kill()
    until(lambda: not living(installation, without_supervisor=False), what="the death of the tree")
    (tmp_path / "go").touch()
    assert set(swept(bench, tmp_path)) <= {"output.log"}
    assert site.refs() == before
    assert site.is_sound()


@pytest.mark.parametrize(
    ("script", "sign"),
    [("touch slow ../../../../at-work; sleep 600", "at-work"), (f"touch slow; {WORK}", "checking")],
    ids=["work", "verify"],
)
def test_killed_while_others_work(
    start: Start, bench: Bench, site: Repository, tmp_path: Path, installation: str, script: str, sign: str
) -> None:
    """Killed during the work or its check, a run leaves nothing either; a live one would have been left alone."""
    before = site.refs()
    start(NOWHERE, script=script, sign=sign).kill()
    until(lambda: not living(installation, without_supervisor=False), what="the death of the tree")
    assert len(site.refs()) == len(before) + 1
    assert swept(bench, tmp_path) == ["output.log"]
    assert site.refs() == before
    assert site.is_sound()


def test_killed_once_it_is_home(
    start: Start, bench: Bench, site: Repository, tmp_path: Path, installation: str
) -> None:
    """Killed right after the branch has moved, a run has brought everything home."""
    start("update-ref --no-deref -d refs/heads/vibey/failed").kill()
    until(lambda: not living(installation, without_supervisor=False), what="the death of the tree")
    assert swept(bench, tmp_path) == ["output.log"]
    assert set(site.refs()) == {"refs/heads/main", "refs/heads/vibey/7"}
    assert site.git("log", "--format=%s", "vibey/7") == "vibey job 7\nmine\nfirst"
    assert site.show("vibey/7:readme") == "hello\nmore"
    assert site.is_sound()


def test_live_run_is_not_swept(bench: Bench, tmp_path: Path) -> None:
    """What a run that the database calls live has on disk is left alone, and an ended one's is not."""
    bench.enqueue()
    route(bench.installation, "main")
    [(run, token, _)] = bench.live()
    tree = tmp_path / "data" / "runs" / f"run-{run}" / "tree"
    tree.mkdir(parents=True)
    aside = tree.parent.with_name(f"run-{run}.old-1") / "tree"
    aside.mkdir(parents=True)
    assert sweep(bench.installation) == 1
    assert (tree.exists(), aside.exists()) == (True, False)
    carry_out(bench.installation, run, token)
    assert not tree.exists()


def test_job_in_a_repository_from_start_to_end(
    open_bench: Callable[..., Bench], site: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A routed job works in its tree, is checked and settled; its key is in no table, and its tree is gone."""
    key = "sk-planted-secret-0123456789"
    monkeypatch.setenv("TEAM_KEY", key)
    script = 'echo "$TEAM_KEY" | tee -a readme; echo "{\\"result\\": \\"$TEAM_KEY\\"}" > $VIBEY_RESULT_FILE'
    shell = {"kind": "command", "tier": "local", "argv": ["sh", "-c", script], "env": ["TEAM_KEY"]}
    bench = open_bench(
        engine={"shell": {**shell, "workspace_roots": [str(tmp_path / "roots")], "workspace_author": "Me <me@here>"}},
        verify={"unit": {"argv": ["tail", "-1", "readme"]}},
    )
    bench.enqueue(payload={"repo": "site", "verify": "unit", "prompt": "say it"})
    route(bench.installation, "main")
    [(run, token, _)] = bench.live()
    assert carry_out(bench.installation, run, token) == "succeeded"
    result = bench.value("select result from jobs")
    assert (result["branch"], result["verify"]["tail"], result["value"]) == ("vibey/1", "********", "********")
    assert site.git("log", "-1", "--format=%an %ae %s", "vibey/1") == "Me me@here vibey job 1: say it"
    assert [path.name for path in (tmp_path / "data" / "runs" / f"run-{run}").iterdir()] == ["output.log"]
    for table in ("jobs", "runs", "ledger"):
        assert key not in str(bench.rows(f"select * from {table}"))


def test_prune_survives_what_work_leaves(bench: Bench, tmp_path: Path) -> None:
    """A dangling link in an old run's folder keeps nobody from cleaning up."""
    folder = tmp_path / "data" / "runs" / "run-5"
    folder.mkdir(parents=True)
    (folder / "output.log").symlink_to(tmp_path / "nowhere")
    assert prune(bench.installation) == 0


def test_link_in_a_run_folders_place_leads_nowhere(bench: Bench, tmp_path: Path) -> None:
    """Whatever the work has made of its own folder, cleaning up removes nothing elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    os.utime(elsewhere / "precious", (0, 0))
    root = runs_root(bench.installation)
    root.mkdir(parents=True, exist_ok=True)
    (root / "run-70").symlink_to(elsewhere)
    tidy(bench.installation, 70)
    assert sweep(bench.installation) == 0
    prune(bench.installation)
    assert (elsewhere / "precious").exists()
