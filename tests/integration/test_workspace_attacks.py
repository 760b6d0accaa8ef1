"""Workspaces under attack by what payloads name and by the work itself, with real git and real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.repositories import Repository, Studio, done, refused
from vibey.domain.outcome import Failure
from vibey.engines.contract import Check
from vibey.engines.tree import release


@pytest.mark.parametrize(
    "repo",
    [
        "--upload-pack=touch sprung",
        "-c",
        "../outside",
        "site/../../outside",
        "https://example.org/x.git",
        "git@example.org:x.git",
        "ext::sh -c touch% sprung",
        "file:///etc",
        "site\0",
        "site\n--upload-pack=x",
        "",
        " ",
        "nosuch",
        "/etc",
        "link",
        "x" * 5000,
        "site/readme",
        "plain",
        7,
        None,
        ["site"],
    ],
)
def test_repository_out_of_reach_is_refused(studio: Studio, site: Repository, repo: object) -> None:
    """Only a repository under a root, links followed, and no word of the payload gets near a command line."""
    Repository.made(studio.folder / "outside")
    (studio.roots / "link").symlink_to(studio.folder / "outside")
    (studio.roots / "plain").mkdir()
    before = site.refs()
    detail = refused(studio.run("touch ran", {"repo": repo}))
    assert "repo" in detail
    assert detail.isprintable()
    assert not list(studio.folder.rglob("ran"))
    assert not list(studio.folder.rglob("sprung"))
    assert site.refs() == before


@pytest.mark.parametrize(
    "ref",
    [
        "--upload-pack=touch sprung",
        "-c",
        "--output=sprung",
        "main\n--x",
        "main\0",
        "main..topic",
        "../../etc/passwd",
        ":/first",
        "main:readme",
        "$(touch sprung)",
        "nosuch",
        "HEAD^{tree}",
        "@{-1}",
        "@{upstream}",
        "main@{1000 days ago}",
        "-x",
        "refs/../../x",
        "HEAD~99",
        "vibey.lock",
        "FETCH_HEAD",
        "x" * 300,
        5,
        ["main"],
    ],
)
def test_hostile_ref_is_refused(studio: Studio, site: Repository, ref: object) -> None:
    """A ref that looks like an option, a range, a path or a command names no commit."""
    before = site.refs()
    detail = refused(studio.run("touch ran", {"repo": "site", "ref": ref}))
    assert detail.isprintable()
    assert not list(studio.folder.rglob("ran"))
    assert not list(studio.folder.rglob("sprung"))
    assert site.refs() == before


@pytest.mark.parametrize(
    "verify", ["../../bin/sh", "--x", "unit\n", "sh -c touch sprung", "", 5, ["unit"], {"argv": 1}]
)
def test_unknown_check_is_refused(studio: Studio, site: Repository, verify: object) -> None:
    """A check is one of the operator's, by its exact name, and is asked for before anything is run."""
    detail = refused(studio.run("touch ran", {"repo": "site", "verify": verify}))
    assert "known: unit" in detail
    assert not list(studio.folder.rglob("ran"))
    assert site.is_sound()


def test_objects_from_outside_are_refused(studio: Studio, site: Repository) -> None:
    """A repository under a root that borrows, or links to, the objects of one outside is no way in."""
    secret = Repository.made(studio.folder / "secret", secret="private\n")
    objects = secret.path / ".git" / "objects"
    alternates = site.path / ".git" / "objects" / "info" / "alternates"
    commit = secret.git("rev-parse", "HEAD")
    nested = Repository.made(studio.roots / "nested")
    for text in (f"{objects}\n", "../../../../secret/.git/objects\n", f"# x\n\n{nested.path}/.git/objects\n"):
        (nested.path / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        alternates.write_text(text)
        assert "workspace_roots" in refused(studio.run("touch ran", {"repo": "site", "ref": commit}))
    alternates.unlink()
    (site.path / ".git" / "objects" / "pack").rmdir()
    (site.path / ".git" / "objects" / "pack").symlink_to(objects / "pack")
    assert "workspace_roots" in refused(studio.run("touch ran", {"repo": "site"}))
    (studio.roots / "pointer").mkdir()
    (studio.roots / "pointer" / ".git").write_text(f"gitdir: {secret.path}/.git\n")
    assert "workspace_roots" in refused(studio.run("touch ran", {"repo": "pointer"}))
    assert not list(studio.folder.rglob("ran"))


@pytest.mark.parametrize("name", ["config", "HEAD", "packed-refs", "shallow", "objects/info/alternates"])
def test_pipe_in_a_source_does_not_hang(studio: Studio, site: Repository, name: str) -> None:
    """A pipe where git keeps a file is refused and not waited for."""
    (site.path / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(site.path / ".git" / name)
    detail = refused(studio.run("touch ran", {"repo": "site"}))
    assert "plain file" in detail or "no git repository" in detail


def test_links_out_of_the_tree_are_links(studio: Studio, site: Repository) -> None:
    """A link in the source or made by the work comes home as a link; nothing behind it is read or written."""
    outside = studio.folder / "outside"
    outside.mkdir()
    (outside / "private").write_text("private\n")
    (site.path / "way").symlink_to(outside)
    site.commit("a link")
    script = f"ln -s {outside} other; rm readme; ln -s {outside}/private readme"
    done(studio.run(script, {"repo": "site"}))
    modes = site.git("ls-tree", "vibey/7", "way", "other", "readme").splitlines()
    assert [line.split()[0] for line in modes] == ["120000"] * 3
    assert "private" not in site.files("vibey/7")
    assert sorted(path.name for path in outside.iterdir()) == ["private"]


@pytest.mark.parametrize(
    ("spoil", "comes_home"),
    [
        ("rm -rf .git; git status", True),
        ("rm -rf .git; ln -s $SECRET/.git .git; git status", True),
        ("rm -rf .git; echo 'gitdir: '$SECRET/.git > .git", True),
        (
            "rm -rf .git/objects; ln -s $SECRET/.git/objects .git/objects; cp $SECRET/.git/refs/heads/main .git/HEAD",
            True,
        ),
        ("echo $SECRET/.git/objects >> .git/objects/info/alternates; cp $SECRET/.git/refs/heads/main .git/HEAD", True),
        ("rm .git/HEAD; mkfifo .git/HEAD", True),
        ("echo 'ref: refs/../../../../etc/passwd' > .git/HEAD", True),
        ("echo 'ref: refs/heads/nosuch' > .git/HEAD", True),
        ("head -c 100000 /dev/urandom > .git/index; head -c 100 /dev/urandom > .git/HEAD", True),
        ("echo main > .git/packed-refs; chmod 000 .git", True),
        ("mkfifo pipe; chmod 000 keep; mkdir shut; touch shut/in; chmod 000 shut", True),
        ("chmod 000 .", True),
        ("rm -rf ../workspace; ln -s /tmp ../workspace", True),
        ("rm -rf ../tree; ln -s $SECRET ../tree", False),
        ("rm -rf ../tree", False),
        ("cd ..; rm -rf tree workspace", False),
        ("rm -rf ../../run-70", False),
        ("truncate -s 2G huge", False),
    ],
)
def test_spoiled_tree(
    studio: Studio,
    site: Repository,
    spoil: str,
    comes_home: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the work does to its tree, either its files come home whole, or it is to blame and nothing does."""
    secret = Repository.made(studio.folder / "secret", private="private\n")
    monkeypatch.setenv("SECRET", str(secret.path))
    studio.config["env"] = ("SECRET",)
    before = site.refs()
    outcome = studio.run(f"echo more >> readme; {spoil}; true", {"repo": "site", "verify": "unit"})
    if comes_home:
        done(outcome)
        assert site.show("vibey/7:readme") == "hello\nmore"
        assert "private" not in site.files("vibey/7")
        assert site.git("log", "--format=%s", "vibey/7") == "vibey job 7\nfirst"
    else:
        refused(outcome)
        assert site.refs() == before
    assert secret.is_sound()
    assert site.is_sound()


def test_commits_git_would_not_take_are_refused(studio: Studio, site: Repository) -> None:
    """Objects are checked on their way in: a tree with a `.git` of its own does not enter the source."""
    script = """
    blob=$(echo evil | git hash-object -w --stdin)
    inner=$(printf '100644 blob %s\\tconfig\\n' $blob | git mktree)
    tree=$(printf '040000 tree %s\\t.git\\n' $inner | git mktree)
    evil=$(git commit-tree -p HEAD -m evil $tree)
    git update-ref HEAD $(git commit-tree -p $evil -m "as if nothing were" HEAD^{{tree}})
    echo more >> readme
    """
    before = site.refs()
    assert "index-pack" in refused(studio.run(script, {"repo": "site"}))
    assert site.refs() == before


def test_background_process_does_not_write_on(studio: Studio, site: Repository) -> None:
    """What the work leaves running is dead before its tree is read."""
    script = "(setsid sh -c 'while :; do date +%N > ticking; done' &) ; while [ ! -f ticking ]; do :; done"
    done(studio.run(script, {"repo": "site"}))
    tree = studio.folder / "runs" / "run-70" / "tree"
    assert site.git("show", "vibey/7:ticking") == (tree / "ticking").read_text().rstrip("\n")


def test_own_branch_may_not_be_a_way_to_others(studio: Studio, site: Repository) -> None:
    """A branch of the job's name that is checked out, or stands for another, leads to no other branch."""
    site.git("symbolic-ref", "refs/heads/vibey/7", "refs/heads/main")
    main = site.git("rev-parse", "main")
    done(studio.run("touch new", {"repo": "site"}))
    assert site.git("rev-parse", "main") == main
    site.git("checkout", "-q", "vibey/7")
    here = site.git("rev-parse", "HEAD")
    assert "checked out" in refused(studio.run("touch other", {"repo": "site", "ref": "main"}, run_id=71))
    assert site.git("rev-parse", "HEAD") == here
    assert site.is_sound()


def test_planted_secrets_go_nowhere(studio: Studio, site: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of the engine, and an address with a password, show neither in log, nor result, nor error."""
    key, address = "sk-planted-secret-0123456789", "http://user:planted-password@proxy.example"
    monkeypatch.setenv("TEAM", key)
    monkeypatch.setenv("WAY", address)
    studio.config |= {"env": ("TEAM", "WAY"), "api_key_env": "TEAM"}
    studio.checks["show"] = Check(("sh", "-c", "cat notes; exit $(wc -l < notes)"), 30)
    report = 'echo "{\\"result\\": {\\"$TEAM\\": [\\"x $WAY\\"]}}" > $VIBEY_RESULT_FILE'
    outcome = studio.run(f'echo "$TEAM $WAY"; {report}; printf "$TEAM" > notes', {"repo": "site", "verify": "show"})
    kept = json.dumps(done(outcome)) + studio.log()
    assert "********" in kept
    assert "planted" not in kept
    outcome = studio.run('echo "$TEAM" > notes', {"repo": "site", "verify": "show"}, run_id=71)
    assert "planted" not in refused(outcome) + studio.log(71)
    fault = '{\\"failure\\": {\\"class\\": \\"engine\\", \\"detail\\": \\"bad key $TEAM\\"}}'
    outcome = studio.run(f'echo "{fault}" > $VIBEY_RESULT_FILE', {"repo": "site"}, run_id=72)
    assert isinstance(outcome, Failure)
    assert outcome.detail == "bad key ********"
    assert site.is_sound()


@pytest.mark.parametrize(
    "spoil", ["mkfifo $f", "ln -s /dev/zero $f", "mkdir $f", "echo [ > $f", "yes [ | head -c 60000 > $f"]
)
def test_spoiled_note_of_a_dead_run_keeps_nobody(studio: Studio, site: Repository, spoil: str) -> None:
    """Whoever cleans up after a run reads what the work has made of its folder, and goes on."""
    script = f"f=../workspace/kept.json; rm $f; {spoil}; touch new"
    done(studio.run(script, {"repo": "site"}))
    release(studio.folder / "runs" / "run-70" / "workspace")
    assert set(site.refs()) == {"refs/heads/main", "refs/heads/vibey/7"}


AS_NOBODY = """
import os, sys
from pathlib import Path
import vibey.engines.tree as tree
from vibey.engines.removal import remove
from tests.support.repositories import Repository
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
home = Path(sys.argv[1])
"""
BOTTOMLESS = """
(home / "left" / "shut").mkdir(parents=True)
(home / "left" / "shut" / "in").touch()
(home / "left" / "shut").chmod(0)
os.chdir(home / "left")
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
os.chdir("/")
(home / "left").chmod(0)
remove(home / "left")
sys.exit((home / "left").exists())
"""
SHUT = """
source = Repository.made(home / "source", readme="hello\\n", keep="same\\n")
work, control = home / "tree", home / "control"
control.mkdir()
common = {"tree": str(work), "control": str(control), "min_free": 0, "author": "a", "email": "b", "message": "m"}
asked = {"repo": str(source.path), "roots": [str(home)], "ref": "HEAD", "branch": "vibey/7"}
made = tree.prepare({**common, **asked, "keep": "refs/vibey/0123456789ab/run-70"})
(work / "keep").chmod(0)
(work / "shut").mkdir()
(work / "shut" / "in").touch()
for name in ("shut/in", "shut", ".git", "."):
    (work / name).chmod(0)
found = tree.collect({**common, **made})
tree.bring({**common, **made, "commit": found["commit"], "reference": "refs/heads/vibey/7", "stale": []})
tree.release(control)
assert source.files("vibey/7") == ["keep", "readme", "shut/in"], source.files("vibey/7")
assert set(source.refs()) == {"refs/heads/main", "refs/heads/vibey/7"}
"""


@pytest.mark.parametrize("script", [BOTTOMLESS, SHUT])
def test_closed_folders_are_opened(script: str) -> None:
    """What the work closed to its own user is brought home, and removed, all the same, however deep it is."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        command = (sys.executable, "-c", AS_NOBODY + script, folder)
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
