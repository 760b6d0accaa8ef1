"""Workspaces under attack: hostile repositories, payloads and work, with real git and real processes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.repositories import Repository, Studio, done
from tests.support.trap import ATTRIBUTES, HOOKS, lay
from vibey.engines.contract import Check

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with a program that leaves a mark when it is run, as every hook, and a configuration that wants it."""
    folder = tmp_path / "trap"
    lay(folder)
    return folder


def test_the_trap_works(site: Repository, trap: Path) -> None:
    """Ordinary git would run the program: the tests below do not pass for want of bait."""
    (site.path / ".gitattributes").write_text(ATTRIBUTES)
    with (site.path / ".git" / "config").open("a") as config:
        config.write((trap / "settings").read_text())
    site.git("status", check=False)
    assert (trap / "sprung").exists()


def test_hostile_source_runs_nothing(studio: Studio, site: Repository, trap: Path) -> None:
    """Hooks, filters, monitors, includes and addresses of the source's configuration are all left alone."""
    site.commit("attributes", __gitattributes=ATTRIBUTES, __gitmodules='[submodule "s"]\n\tpath = s\n\turl = ext::x\n')
    for hook in HOOKS:
        (site.path / ".git" / "hooks").mkdir(exist_ok=True)
        (site.path / ".git" / "hooks" / hook).symlink_to(trap / "evil")
    with (site.path / ".git" / "config").open("a") as config:
        config.write((trap / "settings").read_text())
    result = done(studio.run("echo more >> readme", {"repo": "site", "verify": "unit"}))
    assert result["diffstat"] == {"files": 1, "insertions": 1, "deletions": 0}
    assert not (trap / "sprung").exists()


def test_hostile_work_runs_nothing_afterwards(studio: Studio, site: Repository, trap: Path) -> None:
    """What the work plants in its tree's `.git`, and in repositories within the tree, is never run by Vibey."""
    script = f"""
    cat {trap}/settings >> .git/config
    mkdir -p .git/hooks .git/info; cp -P {trap}/* .git/hooks/
    echo '* filter=evil diff=evil' | tee .gitattributes > .git/info/attributes
    mkdir -p deep/inner; cp -r .git deep/inner/.git; cp -r .git bare.git; echo x > deep/inner/file
    echo more >> readme
    """
    spoil = f"for g in ../workspace/*.git; do cat {trap}/settings >> $g/config; cp -rP {trap} $g/hooks; done"
    studio.checks["unit"] = Check(("sh", "-c", spoil), 30)
    done(studio.run(script, {"repo": "site", "verify": "unit"}))
    assert not (trap / "sprung").exists()
    files = site.files("vibey/7")
    assert "deep/inner/file" in files
    assert not [path for path in files if "/.git/" in path or path.startswith(".git/")]
    assert site.show("vibey/7:readme") == "hello\nmore"


def test_users_and_workers_configuration_is_not_read(
    studio: Studio, site: Repository, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the home folder's configuration nor git's own variables of the worker reach any git of a run."""
    home = studio.folder / "home"
    home.mkdir()
    (home / ".gitconfig").write_text((trap / "settings").read_text())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(trap / "evil"))
    monkeypatch.setenv("GIT_SSH_COMMAND", str(trap / "evil"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", f"'core.fsmonitor={trap}/evil'")
    done(studio.run("git status && echo more >> readme && git commit -qam mine", {"repo": "site", "verify": "unit"}))
    assert not (trap / "sprung").exists()
    assert site.git("log", "-1", "--format=%an %s", "vibey/7") == "vibey mine"


@pytest.mark.parametrize("entry", [".", "", "bin", "./bin"])
def test_programs_are_not_found_in_the_tree(
    studio: Studio, site: Repository, trap: Path, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose PATH leads through the folder it is in runs no `git`, `sh` or check of the repository's own."""
    for folder in (site.path, site.path / "bin"):
        folder.mkdir(exist_ok=True)
        for name in ("git", "sh", "true", "env"):
            shutil.copy(trap / "evil", folder / name)
    site.commit("programs")
    monkeypatch.chdir(site.path)
    monkeypatch.setenv("PATH", f"{entry}:/usr/bin:/bin")
    done(studio.run("git status; echo more >> readme", {"repo": "site", "verify": "unit"}))
    assert not (trap / "sprung").exists()


def test_nothing_of_a_payload_is_argument_variable_or_folder(
    studio: Studio, site: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of a payload that are named like settings set nothing, and what loads code passes from no worker."""
    names = ("NODE_OPTIONS", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "IFS")
    worker = dict.fromkeys((*names, "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "npm_config_registry"), "/evil")
    for name, value in worker.items():
        if not name.startswith("LD_"):  # the loader of the tests' own git would be told as well
            monkeypatch.setenv(name, value)
    payload = {
        **{key: ["touch", "ran"] for key in ("argv", "command", "efforts", "callable", "roots", "workspace_roots")},
        **{key: {"EVIL": "evil", "PATH": "/evil"} for key in ("env", "environment", "variables")},
        **dict.fromkeys(("cwd", "directory", "workspace", "tree", "control"), "/tmp"),  # noqa: S108
        "EVIL": "evil",
        "api_key_env": "HOME",
        "base_url": "http://evil",
        "stdin": "/etc/passwd",
        "repo": "site",
    }
    done(studio.run('env > seen; pwd > where; printf "%s\\n" "$0" "$@" > arguments', payload))
    seen = dict(line.split("=", 1) for line in site.show("vibey/7:seen").splitlines() if "=" in line)
    assert not set(worker).intersection(seen)
    assert "evil" not in str(seen)
    assert site.show("vibey/7:where") == str(studio.folder / "runs" / "run-70" / "tree")
    assert site.show("vibey/7:arguments") == "sh"
    assert not list(studio.folder.rglob("ran"))
