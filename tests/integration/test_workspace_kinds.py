# ruff: noqa: E501  (each script is one line, so that a case is read as a row)
"""A second set of repositories and works, each with what its branch holds and what is left out."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field

import pytest

from tests.support.repositories import Repository, Studio, done, refused

pytestmark = pytest.mark.slow

POINTER = r"version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + r"\nsize 3\n"
LINK = "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),lib; "
MODULES = r"""printf '[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n' > .gitmodules; git add .gitmodules; """
MODULE = MODULES + LINK + "git commit -qm module; mkdir lib"
LFS = (
    "printf '*.bin filter=lfs -text\\n' > .gitattributes; printf '"
    + POINTER
    + "' > a.bin; git add -A; git commit -qm lfs"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A repository, made by `source` beside its first commit; a work; and what comes back."""

    source: str
    work: str
    changed: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    commits: tuple[str, ...] | None = None
    log: str = ""
    ref: str | None = None
    stat: tuple[int, int, int] | None = None
    base: str = "HEAD"


MORE = "echo more >> readme; "
ONE = {"readme": "M"}

CASES = {
    # Line endings, encodings, identifiers
    "auto, stored with CR": Case(
        r"mkdir sub; printf 'a\r\nb\r\n' > sub/x; git add -A; git commit -qm x; echo '* text=auto eol=lf' > sub/.gitattributes; git add sub/.gitattributes; git commit -qm a",
        "git stash; git reset -q --hard; git checkout -q -f HEAD; touch sub/x",
    ),
    "CR taken out on purpose": Case(
        r"printf 'a\r\nb\r\n' > w.bat; git add -A; git commit -qm x; echo '*.bat text eol=crlf' > .gitattributes; git add .gitattributes; git commit -qm a",
        r"sed -i 's/\r$//' w.bat",
        {"w.bat": "M"},
        stat=(1, 2, 2),
    ),
    "an encoding in order": Case(
        r"echo '*.ps1 text working-tree-encoding=UTF-16LE eol=crlf' > .gitattributes; printf 'a\0\r\0\n\0' > a.ps1; git add -A; git commit -qm a",
        r"printf 'b\0\r\0\n\0' >> a.ps1",
        {"a.ps1": "M"},
        stat=(1, 1, 0),
    ),
    "an identifier in order": Case(
        r"echo '*.c ident' > .gitattributes; printf '/* $Id$ */\nint v;\n' > v.c; git add -A; git commit -qm a",
        "grep -q 'Id: ' v.c && echo expanded; echo 'int w;' >> v.c",
        {"v.c": "M"},
        stat=(1, 1, 0),
        log="expanded",
    ),
    "attributes of the clone alone": Case(
        r"printf 'a\r\n' > w; git add -A; git commit -qm x; mkdir -p .git/info; echo '* text=auto eol=lf' > .git/info/attributes; git config core.autocrlf input",
        MORE + "touch w; cp /dev/null .git/info/attributes; echo '* text' > .git/info/attributes; git add -A",
        ONE,
    ),
    # Filters
    "a filter of the work's that fails": Case(
        "echo 'readme filter=up' > .gitattributes; git add -A; git commit -qm a",
        MORE + "git config filter.up.clean false; git config filter.up.required true; git add -A; echo x > new",
        {**ONE, "new": "A"},
        log="filter up is not run: 1 changed file taken as is",
    ),
    "a filter that is missing": Case(
        "echo '* filter=none' > .gitattributes; git add -A; git commit -qm a", "touch *; git add -A; git commit -qm e"
    ),
    "content of LFS, committed as pointers": Case(
        LFS,
        f'git config filter.lfs.clean "sh -c \\"cat >/dev/null; printf \'{POINTER.replace("size 3", "size 9")}\'\\""; printf abcdefghi > b.bin; git add b.bin; git commit -qm mine',
        {"b.bin": "A"},
        ("b.bin",),
        ("mine",),
        log="Git LFS",
    ),
    "an empty file of LFS": Case(LFS, ": > e.bin; chmod +x a.bin", {"e.bin": "A", "a.bin": "M"}),
    "LFS begun by the work": Case(
        ":",
        MORE + "mkdir as; echo '*.png filter=lfs' > as/.gitattributes; echo x > as/a.png; echo x > b.png",
        {**ONE, "as/.gitattributes": "A", "b.png": "A"},
        ("as/a.png",),
    ),
    # What git refuses
    "a folder named as git's": Case(
        ":", MORE + "mkdir -p sub/.Git; echo x > sub/.Git/config; echo y > sub/y", {**ONE, "sub/y": "A"}, ("sub/.Git",)
    ),
    "a name that is git's on another system": Case(
        ":",
        MORE
        + r"d=$(printf '.g\342\200\214it'); mkdir $d; echo x > $d/x; echo x > '.git::$INDEX_ALLOCATION'; mkdir d; echo x > 'd/.git '",
        ONE,
        (".git::$INDEX_ALLOCATION", ".g\\u200cit/x", "d/.git "),
    ),
    "links for git's own files": Case(
        ":",
        MORE + "ln -s readme .gitignore; ln -s keep .GITMODULES; ln -s /nowhere .gitattributes; ln -s keep .mailmap",
        {**ONE, ".gitignore": "A", ".gitattributes": "A", ".mailmap": "A"},
        (".GITMODULES",),
    ),
    "names that are no text": Case(
        ":",
        MORE + r"""f=$(printf 'p\377\nq'); mkfifo "$f"; echo x > "x$f" """,
        {**ONE, '"xp\\377\\nq"': "A"},
        ("p\\xff\\nq",),
    ),
    # Names of references
    "composed and decomposed": Case(
        "git branch é; git commit -q --allow-empty -m two; git branch e\u0301",
        MORE,
        ONE,
        ref="e\u0301",
        base="refs/heads/e\u0301",
    ),
    "a long part": Case(f"git branch {'ü' * 120}/🚀", MORE, ONE, ref="ü" * 120 + "/🚀"),
    "a branch named as an option": Case("git update-ref refs/heads/--all HEAD", MORE, ONE, ref="--all"),
    "a branch named as a commit": Case(
        "b=$(git rev-parse HEAD | cut -c1-7)x; git branch f/$b; git branch f/HEAD", MORE, ONE, ref="f/HEAD"
    ),
    "a tag of a tag": Case("git tag -a -m m v1; git tag -a -m m v2 v1", MORE, ONE, ref="v2"),
    "an ancestor": Case("git commit -q --allow-empty -m two", MORE, ONE, ref="main~1", base="main~1"),
    "empty folders in the way": Case("mkdir -p .git/refs/heads/vibey/7/a/b .git/refs/heads/vibey/failed", MORE, ONE),
    "the work's branch in the way": Case(
        ":",
        MORE + "git checkout -q --detach; git branch -D vibey/7; git checkout -qb vibey; git commit -qam mine",
        ONE,
        commits=("mine",),
    ),
    # Submodules
    "files in an empty submodule": Case(MODULE, MORE + "echo x > lib/x", ONE, ("lib",)),
    "an absorbed submodule": Case(
        MODULE,
        MORE
        + "git init -q --separate-git-dir .git/modules/lib lib; cd lib; echo x > x; git add x; git -c user.name=a -c user.email=b commit -qm x; git init -q deep; touch deep/x",
        ONE,
        ("lib", "lib/deep/.git"),
    ),
    "a submodule taken away": Case(MODULE, "git rm -q lib", {"lib": "D", ".gitmodules": "M"}),
    "a submodule became a file": Case(MODULE, "rmdir lib; echo x > lib", {"lib": "T"}),
    "a submodule moved on, committed": Case(MODULE, LINK + "git commit -qm bump", {"lib": "M"}, commits=("bump",)),
    "the folder of a submodule taken away": Case(MODULE, "rmdir lib; echo more >> readme", {**ONE, "lib": "D"}),
    # Modes, links, letters
    "only modes": Case(
        "echo t > tool; git add -A; git commit -qm t",
        "git config core.fileMode false; chmod 700 tool; chmod 600 readme",
        {"tool": "M"},
        stat=(1, 0, 0),
    ),
    "only letters": Case(
        "git config core.ignoreCase true; mkdir d; echo d > d/f; git add -A; git commit -qm d",
        "git mv readme README; mkdir D; echo 2 > D/f",
        {"readme": "D", "README": "A", "D/f": "A"},
    ),
    "kinds change places": Case(
        "mkdir d; echo d > d/f; ln -s d l; git add -A; git commit -qm d",
        "rm -r d l readme; ln -s /etc d; mkdir l; echo x > l/x; ln -s readme readme; ln -s ../../../../x up",
        {"d/f": "D", "d": "A", "l": "D", "l/x": "A", "readme": "T", "up": "A"},
    ),
    "same size, same time": Case(
        ":", "touch -r readme t; printf 'hellO\\n' > readme; touch -r t readme; rm t", ONE, stat=(1, 1, 1)
    ),
    # Sources
    "an empty commit": Case("git rm -rq .; git commit -qm none", "echo x > readme", {"readme": "A"}),
    "everything removed": Case(":", "git rm -rq .", {"readme": "D", "keep": "D"}),
    "an unborn head, another branch": Case(
        "git symbolic-ref HEAD refs/heads/unborn", MORE, ONE, ref="main", base="main"
    ),
    "in the middle of a merge": Case(
        "git checkout -qb t; echo t > readme; git commit -qam t; git checkout -q main; echo m > readme; git commit -qam m; git merge t || true",
        MORE,
        ONE,
    ),
    "objects replaced": Case(
        "git commit -q --allow-empty -m two; git replace HEAD HEAD~1; git pack-refs --all", MORE, ONE
    ),
    "a configuration of every sort": Case(
        "git config index.version 4; git config core.untrackedCache true; git config core.splitIndex true; git config core.fsmonitor true; git config core.hooksPath /nowhere; git config commit.gpgsign true; git config i18n.commitEncoding latin1; git config transfer.hideRefs refs/heads; git config core.worktree /nowhere; git config core.logAllRefUpdates always; git config core.bigFileThreshold 1; git config fetch.fsckObjects true; git config extensions.worktreeConfig true; git config diff.noprefix true; git config core.sharedRepository group; git config receive.denyDeletes true",
        MORE,
        ONE,
        stat=(1, 1, 0),
        base="main",
    ),
    # Works
    "configuration by the work": Case(
        ":",
        MORE
        + "echo x > new; git config index.version 4; git config core.splitIndex true; git config core.untrackedCache true; git config core.fsmonitor true; git config commit.gpgsign true; git config status.showUntrackedFiles no; git config core.excludesFile /etc/passwd; git config core.quotePath false; git config diff.renames copies; git update-index --split-index; git -c commit.gpgsign=false commit -qam mine; git update-index --skip-worktree keep; echo k >> keep; git update-index --assume-unchanged readme; echo k >> readme",
        {**ONE, "new": "A", "keep": "M"},
        commits=("vibey job 7", "mine"),
    ),
    "an amended base": Case(
        "git commit -q --allow-empty -m two",
        MORE + "git commit -qa --amend -m mine",
        ONE,
        left_out=(".git/refs/heads/vibey/7",),
    ),
    "amended and rebased": Case(
        ":",
        MORE
        + "git commit -qam a; echo x > x; git add x; git commit -qm b; echo y > y; git add y; git commit -q --amend -m c; git rebase -q --exec true HEAD~2; git tag t; git notes add -m n",
        {**ONE, "x": "A", "y": "A"},
        commits=("c", "a"),
    ),
    "a merge": Case(
        ":",
        MORE
        + "git commit -qam a; git checkout -qb t HEAD~1; echo x > x; git add x; git commit -qm b; git merge -q -m m vibey/7",
        {**ONE, "x": "A"},
        commits=("m", "b", "a"),
    ),
    "commits left on another branch": Case(
        ":",
        "git checkout -qb topic; echo x > x; git add x; git commit -qm mine; git checkout -q vibey/7; " + MORE,
        ONE,
        (".git/refs/heads/topic",),
    ),
    "a stash": Case(":", "echo x > x; git add x; git stash -q; " + MORE, ONE, (".git/refs/stash",)),
    "no index and a lock": Case(
        ":", MORE + "rm .git/index; touch .git/index.lock .git/HEAD.lock .git/refs/heads/vibey/7.lock", ONE
    ),
    "done and undone": Case(":", MORE + "git commit -qam mine; git revert --no-edit HEAD"),
    "done and undone, uncommitted": Case(":", MORE + "git commit -qam mine; git checkout -q HEAD~1 -- readme"),
    "an ignored file, committed by force": Case(
        "echo '*.log' > .gitignore; git add -A; git commit -qm i",
        "echo 1 > a.log; git add -f a.log; git commit -qm mine; echo 2 >> a.log; echo 1 > b.log",
        {"a.log": "A"},
        commits=("vibey job 7", "mine"),
        stat=(1, 2, 0),
    ),
    "no longer kept, committed": Case(
        ":",
        "echo keep > .gitignore; git rm -q --cached keep; git add .gitignore; git commit -qm mine",
        {"keep": "D", ".gitignore": "A"},
        commits=("mine",),
    ),
    "no longer kept, staged": Case(
        ":", "echo keep > .gitignore; git rm -q --cached keep; git add -A", {"keep": "D", ".gitignore": "A"}
    ),
    "meant to be added": Case(":", "echo x > new; git add -N new", {"new": "A"}),
    "repacked": Case(
        ":",
        MORE + "git commit -qam mine; git repack -adq; git gc -q --prune=now; echo y >> readme",
        ONE,
        commits=("vibey job 7", "mine"),
    ),
    "a worktree within": Case(
        ":",
        MORE + "git worktree add -q wt -b topic; echo x > wt/x",
        {**ONE, "wt/x": "A", "wt/readme": "A", "wt/keep": "A"},
        ("wt/.git",),
    ),
    "a message that is no text": Case(
        ":",
        MORE
        + r"printf 'm\351\n' | git -c i18n.commitEncoding=latin1 commit -qaF -; echo y > y; git add y; git commit -q --allow-empty-message -m ''",
        {**ONE, "y": "A"},
        commits=("", "m\u00e9"),
    ),
    "sparse by the work": Case(
        "mkdir a b; touch a/a b/b; git add -A; git commit -qm d",
        "git sparse-checkout set a; echo x > a/x",
        {"a/x": "A"},
    ),
}


def shell(folder: Repository, script: str) -> None:
    """Run the commands that make a repository."""
    people = "export GIT_AUTHOR_NAME=S GIT_AUTHOR_EMAIL=s@x GIT_COMMITTER_NAME=S GIT_COMMITTER_EMAIL=s@x GIT_CONFIG_GLOBAL=/dev/null; "
    subprocess.run(["/bin/bash", "-ec", people + script], cwd=folder.path, check=True, capture_output=True)


def compare(studio: Studio, site: Repository, case: Case, repo: str = "site") -> None:
    """Run the work and compare all that came back."""
    base = site.git("--no-replace-objects", "rev-parse", f"{case.base}^{{commit}}", check=False)
    before = site.refs()
    payload: dict[str, object] = {"repo": repo} if case.ref is None else {"repo": repo, "ref": case.ref}
    result = done(studio.run(f"({case.work}\n) || true", payload))
    json.dumps(result, ensure_ascii=False).encode()
    left_out = result.get("left_out", [])
    assert isinstance(left_out, list)
    seen = {
        "branch": result["branch"],
        "left_out": sorted(each["path"] for each in left_out),
        "others": {name: commit for name, commit in site.refs().items() if name != "refs/heads/vibey/7"},
    }
    assert seen == {"branch": "vibey/7" if case.changed else None, "left_out": sorted(case.left_out), "others": before}
    if case.changed:
        assert result["base"] == base
        rows = site.git("--no-replace-objects", "diff", "--name-status", "--no-renames", base, "vibey/7").splitlines()
        assert {path: letter for letter, path in (row.split("\t") for row in rows)} == case.changed
        commits = site.git("--no-replace-objects", "log", "--topo-order", "--format=%s", f"{base}..vibey/7").split("\n")
        assert sorted(commits) == sorted(case.commits or ("vibey job 7",))
    if case.stat:
        assert result["diffstat"] == dict(zip(("files", "insertions", "deletions"), case.stat, strict=True))
    log = studio.log()
    assert case.log in log
    for path in case.left_out:
        assert f"left out: {path}: " in log


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_comes_back(studio: Studio, site: Repository, case: Case) -> None:
    """Branch, commits, what is left out, and the log."""
    shell(site, case.source)
    compare(studio, site, case)


ELSEWHERE = {
    "shallow": ("git commit -q --allow-empty -m two; git clone -q --depth 1 file://$PWD ../other", True),
    "linked": ("git worktree add -q --detach ../other", True),
    "bare": ("git clone -q --bare . ../other", True),
    "a folder of git's elsewhere": ("git clone -q --separate-git-dir ../store.git . ../other", True),
    "borrowing": ("git clone -q --shared . ../other", True),
    "absorbed": (
        "git init -q -b main ../sup; cd ../sup; git -c protocol.file.allow=always submodule -q add ../site sub; git commit -qm s; ln -s sup/sub ../other",
        True,
    ),
    "partial": (
        "git config uploadpack.allowFilter true; git clone -q --no-checkout --filter=blob:none file://$PWD ../other",
        False,
    ),
    "reftable": (
        "git clone -q . ../other; cd ../other; git config core.repositoryFormatVersion 1; git config extensions.refStorage reftable",
        False,
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_repositories_of_other_forms(studio: Studio, site: Repository, name: str) -> None:
    """What git reads is a source; what it does not is refused, with a reason."""
    source, works = ELSEWHERE[name]
    shell(site, source)
    other = Repository(studio.roots / "other")
    work = MORE + "git commit -qam mine; git log --oneline > /dev/null"
    if works:
        compare(studio, other, Case("", work, ONE, commits=("mine",), stat=(1, 1, 0)), "other")
        other.git("fsck", "--full", "--strict")
    else:
        words = refused(studio.run(work, {"repo": "other"}))
        assert name in words or "refstorage" in words, words
