"""What a run's branch holds: exactly what the run changed, whatever the repository and the work are like."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.repositories import Repository, Studio, done, refused
from vibey.engines import changes

if TYPE_CHECKING:
    from collections.abc import Callable

NOTHING = {"files": 0, "insertions": 0, "deletions": 0}
ONE_LINE = {"files": 1, "insertions": 1, "deletions": 1}


@dataclass(frozen=True, slots=True)
class Stored:
    """Files as a repository holds them, and the attributes that came after them."""

    attributes: str
    files: dict[str, bytes]


UNCONVERTED = {
    "crlf": Stored("*.bat text eol=crlf\n*.txt text eol=lf\n", {"w.bat": b"a\r\nb\r\n", "r.txt": b"x\r\ny\r\n"}),
    "mixed": Stored("* text=auto\n*.txt text eol=crlf\n", {"m.txt": b"a\r\nb\n", "plain.txt": b"a\nb\n"}),
    "lone CR": Stored("* text\n", {"c": b"a\rb\r\nc\n"}),
    "ident": Stored("*.c ident\n", {"v.c": b"/* $Id: 0123456789 $ */\nint v;\n", "w.c": b"/* $Id$ */\nint w;\n"}),
    "encoding": Stored("*.u text working-tree-encoding=UTF-16\n", {"bad.u": b"\xff\xfe\x00", "good.u": b"text\n"}),
    "macro": Stored("[attr]dos text eol=crlf\n*.d dos\n", {"a.d": b"1\r\n2\r\n"}),
    "odd names": Stored("* text\n", dict.fromkeys(('a"b', "a b ", "[x]*?", "é\\", "n\nl", "!a", "#b"), b"1\r\n2\r\n")),
}


def made(studio: Studio, stored: Stored) -> Repository:
    """A repository whose files were committed before its attributes."""
    repository = Repository.made(studio.roots / "site")
    for name, text in stored.files.items():
        (repository.path / name).write_bytes(text)
    repository.commit("files")
    (repository.path / ".gitattributes").write_text(stored.attributes)
    repository.git("add", ".gitattributes")
    repository.git("commit", "--quiet", "-m", "attributes")
    return repository


def files_of(repository: Repository) -> dict[str, str]:
    """What the branch differs in, by git's letter."""
    rows = repository.git("diff", "--name-status", "--no-renames", "-z", "main", "vibey/7").split("\0")
    return dict(zip(rows[1::2], rows[0::2], strict=False))


@pytest.mark.parametrize("stored", UNCONVERTED.values(), ids=UNCONVERTED)
@pytest.mark.parametrize("script", ["touch -- *", "git add -A; git commit -qm mine --allow-empty"])
def test_nothing_changed_is_no_branch_however_files_are_stored(studio: Studio, stored: Stored, script: str) -> None:
    """Line endings, identifiers and encodings that git would store otherwise are no change; nor is an empty commit."""
    site = made(studio, stored)
    before = site.refs()
    result = done(studio.run(f"git status --short; {script}", {"repo": "site"}))
    assert (result["branch"], result["diffstat"]) == (None, NOTHING)
    assert site.refs() == before
    assert [line for line in studio.log().splitlines() if line.startswith((" M", "M"))] == []


def test_very_many_unnormalised_files(studio: Studio) -> None:
    """Where they are too many to be named one by one, no file is converted, those in order included."""
    many = {f"{number}.txt": b"1\r\n2\r\n" for number in range(1100)}
    made(studio, Stored("* text=auto\n*.txt text\n*.bat text eol=crlf\n", {**many, "w.bat": b"a\nb\n"}))
    assert done(studio.run("touch -- *; git add -A; git status -s", {"repo": "site"}))["branch"] is None
    assert studio.log().splitlines() == ["[vibey] the work changed nothing in its tree: no branch"]
    result = done(studio.run("printf '1\\r\\n3\\r\\n' > 7.txt; echo c >> w.bat", {"repo": "site"}, run_id=71))
    assert result["diffstat"] == {"files": 2, "insertions": 2, "deletions": 1}


@pytest.mark.parametrize("commit", ["", "; git commit -qam mine"], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("name", ["crlf", "odd names", "macro"])
def test_a_changed_line_of_an_unnormalised_file_is_one_line(studio: Studio, name: str, commit: str) -> None:
    """The rest of the file, and every other file, stay byte for byte as they were stored."""
    site = made(studio, UNCONVERTED[name])
    first = next(iter(UNCONVERTED[name].files))
    (studio.folder / "edit.py").write_text(
        f"from pathlib import Path\np = Path({first!r})\ntext = p.read_bytes()\np.write_bytes(b'Z' + text[1:])\n"
    )
    result = done(studio.run(f"python3 {studio.folder}/edit.py{commit}", {"repo": "site"}))
    assert result["diffstat"] == ONE_LINE
    assert list(files_of(site)) == [first]


@pytest.mark.parametrize(
    "script", ["echo '* text=auto eol=lf' > .gitattributes", "rm .gitattributes", "echo '* -text' > sub/.gitattributes"]
)
def test_new_attributes_change_no_file_that_is_the_same(studio: Studio, script: str) -> None:
    """Work that changes the attributes changes these, and no file whose bytes are what they were."""
    site = made(studio, Stored("w.bat text eol=crlf\n", {"w.bat": b"a\nb\n", "r.txt": b"x\r\ny\r\n"}))
    result = done(studio.run(f"mkdir sub; {script}; git add -A; true", {"repo": "site"}))
    assert result["branch"] == "vibey/7"
    assert [path.rpartition("/")[2] for path in files_of(site)] == [".gitattributes"]


def test_conversions_of_a_repository_in_order_go_on(studio: Studio) -> None:
    """Files that git stores as it should are converted for the work, and back."""
    site = made(studio, Stored("*.bat text eol=crlf\n", {"w.bat": b"a\nb\n"}))
    result = done(studio.run("od -c w.bat | head -1; printf 'c\\r\\n' >> w.bat", {"repo": "site"}))
    assert r"a  \r  \n" in studio.log()
    assert result["diffstat"] == {"files": 1, "insertions": 1, "deletions": 0}
    assert site.git("cat-file", "-s", "vibey/7:w.bat") == "6"


REFUSED = {
    "a name git keeps": ("mkdir -p d/.git~1 'git~1' && echo x > git~1/x && echo y > d/y", "git~1/x"),
    "a link git keeps": ("ln -s readme .gitmodules", ".gitmodules"),
    "an encoding that fits not": ("echo '*.u working-tree-encoding=UTF-16' > .gitattributes; printf abc > x.u", "x.u"),
    "an encoding nobody has": ("echo '*.u working-tree-encoding=none' > .gitattributes; printf abc > x.u", "x.u"),
    "attributes git does not accept": ("head -c 5000 /dev/zero | tr '\\0' a > .gitattributes", ".gitattributes"),
    "modules git does not accept": (
        "printf '[submodule \"a\"]\\n\\tpath = a\\n\\turl = --upload-pack=x\\n' > .gitmodules",
        ".gitmodules",
    ),
    "modules committed": (
        "printf '[submodule \"a\"]\\n\\tpath = a\\n\\turl = --x\\n' > .gitmodules; git add -A; git commit -qm m",
        ".gitmodules",
    ),
    "a pipe for a file": ("rm keep; mkfifo keep", "keep"),
    "a pipe": ("mkfifo pipe", "pipe"),
    "a socket": (
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"",
        "sock",
    ),
    "a repository within": ("git init -q inner; echo x > inner/x", "inner/.git"),
    "a repository with a commit": (
        "git init -q inner; cd inner; echo x > x; git add x; git -c user.name=a -c user.email=b commit -qm x",
        "inner/.git",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_git_refuses_does_not_lose_the_rest(studio: Studio, site: Repository, case: tuple[str, str]) -> None:
    """One path that cannot be taken is left out, and named in log and result; everything else comes home."""
    script, path = case
    (site.path / ".gitignore").write_text("ignored\n")
    site.commit("ignore")
    result = done(studio.run(f"mkfifo ignored; echo more >> readme; echo new > new; ({script})", {"repo": "site"}))
    assert [each["path"] for each in result["left_out"]] == [path]  # type: ignore[attr-defined]
    assert all(each["why"] for each in result["left_out"])  # type: ignore[attr-defined]
    assert f"left out: {path}: " in studio.log()
    changed = files_of(site)
    assert {"readme", "new"} <= set(changed)
    assert path not in changed
    if path.startswith("inner"):
        assert changed["inner/x"] == "A"
    assert site.is_sound()


@pytest.mark.skipif(os.getuid() != 0, reason="a file of another user needs root to be made")
def test_files_of_another_user_are_left_out(studio: Studio, site: Repository) -> None:
    """Root reads everything; this only shows that foreign files are taken where they can be read."""
    done(
        studio.run("echo x > foreign; chown 65534 foreign; chmod 600 foreign; mkdir d; chown 65534 d", {"repo": "site"})
    )
    assert list(files_of(site)) == ["foreign"]


def test_many_left_out_are_counted(studio: Studio, site: Repository) -> None:
    """A result names some and counts the rest."""
    result = done(studio.run("for n in $(seq 60); do mkfifo p$n; done; echo more >> readme", {"repo": "site"}))
    assert len(result["left_out"]) == changes.MOST_NAMED  # type: ignore[arg-type]
    assert result["left_out_more"] == 10
    assert "left out: 10 more" in studio.log()
    assert files_of(site) == {"readme": "M"}
    assert json.dumps(result)


def test_work_in_a_submodule_is_named(studio: Studio, site: Repository) -> None:
    """A submodule stays the commit it was; what the work did in its folder is left out, and said to be."""
    other = Repository.made(studio.folder / "other")
    site.git("submodule", "--quiet", "add", str(other.path), "sub")
    site.commit("with a submodule")
    result = done(studio.run("touch sub/x; echo more >> readme", {"repo": "site"}))
    assert result["left_out"] == [{"path": "sub", "why": "a submodule: work inside it is not taken"}]
    assert files_of(site) == {"readme": "M"}
    inner = "cd sub; git init -q .; echo x > x; git add x; git -c user.name=a -c user.email=b commit -qm x"
    result = done(studio.run(inner, {"repo": "site"}, run_id=71))
    assert result["branch"] is None
    assert "sub" in [each["path"] for each in result["left_out"]]  # type: ignore[attr-defined]
    result = done(studio.run("git rm -q sub", {"repo": "site"}, run_id=72))
    assert files_of(site) == {".gitmodules": "M", "sub": "D"}
    assert "left_out" not in result
    assert "left_out" not in done(studio.run("true", {"repo": "site"}, run_id=73))


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 3\n"


def test_files_of_lfs_stay_pointers(studio: Studio, site: Repository) -> None:
    """Content that belongs into Git LFS is left out and named, pointers are files like any other."""
    site.commit("lfs", __gitattributes="*.bin filter=lfs diff=lfs -text\n", **{"a.bin": POINTER.format("0" * 64)})
    script = "printf abc > a.bin; printf xyz > new.bin; echo more >> readme"
    result = done(studio.run(script, {"repo": "site"}))
    assert [each["path"] for each in result["left_out"]] == ["a.bin", "new.bin"]  # type: ignore[attr-defined]
    assert "Git LFS" in studio.log()
    assert files_of(site) == {"readme": "M"}
    result = done(
        studio.run(f"printf '{POINTER.format('1' * 64)}' > a.bin; git mv a.bin b.bin", {"repo": "site"}, run_id=71)
    )
    assert "left_out" not in result
    assert files_of(site) == {"a.bin": "D", "b.bin": "A"}
    done(studio.run("printf abc > a.bin", {"repo": "site"}, run_id=72))
    assert set(site.refs()) == {"refs/heads/main"}


def test_filters_that_fail_are_not_run(studio: Studio, site: Repository) -> None:
    """A required filter of the source's configuration cannot fail what it is not asked for, and is remarked on."""
    site.commit("attributes", __gitattributes="* filter=broken\n")
    for name in ("clean", "smudge"):
        site.git("config", f"filter.broken.{name}", "false")
    site.git("config", "filter.broken.required", "true")
    assert done(studio.run("true", {"repo": "site"}))["branch"] is None
    done(studio.run("echo more >> readme", {"repo": "site"}, run_id=71))
    assert files_of(site) == {"readme": "M"}
    assert "filter broken is not run: 1 changed file taken as is" in studio.log(71)


def _configured(site: Repository) -> None:
    for name, value in {
        "commit.gpgsign": "true",
        "gpg.program": "false",
        "user.useConfigOnly": "true",
        "core.autocrlf": "true",
        "core.ignoreCase": "true",
        "core.fileMode": "false",
        "core.symlinks": "false",
        "core.safecrlf": "true",
    }.items():
        site.git("config", name, value)


def _locked(site: Repository) -> None:
    for name in ("index.lock", "HEAD.lock", "packed-refs.lock", "config.lock", "shallow.lock"):
        (site.path / ".git" / name).touch()


def _sparse(site: Repository) -> None:
    site.git("sparse-checkout", "set", "nowhere")


def _detached(site: Repository) -> None:
    site.git("checkout", "-q", "--detach")


def _packed(site: Repository) -> None:
    site.git("pack-refs", "--all")
    site.git("repack", "-adq")


@pytest.mark.parametrize("surroundings", [_configured, _locked, _sparse, _detached, _packed])
def test_surroundings_of_the_source_change_nothing(
    studio: Studio, site: Repository, surroundings: Callable[[Repository], None]
) -> None:
    """Configuration, locks that were left, a sparse or detached working tree: the branch is the same."""
    site.commit("link and mode", tool="#!/bin/sh\n", crlf="a\r\n")
    surroundings(site)
    script = "chmod +x tool; git mv keep KEEP; ln -s readme link; printf 'b\\r\\n' >> crlf"
    result = done(studio.run(script, {"repo": "site"}))
    assert files_of(site) == {"tool": "M", "keep": "D", "KEEP": "A", "link": "A", "crlf": "M"}
    assert result["diffstat"] == {"files": 5, "insertions": 3, "deletions": 1}
    assert "left_out" not in result


NAMES = [
    *(
        "feature/#123-fix",
        "fix(ui)!",
        "a=b,c",
        "user&co",
        "joe's",
        'say"x"',
        "größe/漢字",
        "a@b",
        "x{y}z",
        "$HOME",
        "%s",
        "a;b",
    ),
    *(
        "-x",
        "a|b",
        "<tag>",
        "`id`",
        "a+b",
        "HEAD-1",
        "main-1-gdeadbee",
        "z" * 200 + "/" + "y" * 100,
        "refs/x",
        "\u200bzero",
    ),
    *("0123456789" * 4, "@/a", "tags/main", "!important", "dot.dot", "\u00a0"),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_git_allows_is_a_base(studio: Studio, site: Repository, name: str) -> None:
    """Any branch can be named, and the work's own branch may have that name, and keeps its commits."""
    first = site.git("rev-parse", "HEAD")
    site.commit("second", more="x\n")
    site.git("update-ref", f"refs/heads/{name}", first)
    (studio.folder / "name").write_text(name)
    script = (
        f'name="refs/heads/$(cat {studio.folder}/name)"; git update-ref "$name" HEAD; git symbolic-ref HEAD "$name"'
    )
    script += "; touch own; git add own; git commit -qm mine"
    result = done(studio.run(script, {"repo": "site", "ref": name}))
    assert result["base"] == first
    assert site.git("log", "--format=%s", f"{first}..vibey/7") == "mine"


def test_a_whole_name_is_a_base(studio: Studio, site: Repository) -> None:
    """The long form serves where a short one could mean something else."""
    first = site.git("rev-parse", "HEAD")
    site.commit("second", more="x\n")
    site.git("update-ref", "refs/heads/größe/#1", first)
    site.git("tag", "größe/#1")
    assert done(studio.run("touch new", {"repo": "site", "ref": "refs/heads/größe/#1"}))["base"] == first


@pytest.mark.parametrize(
    "ref", ["^main", "main^!", "main^@", "a b", "main:", "[x]", "main\\", "@{u}", "main^{tree}", "\ud800"]
)
def test_what_names_no_commit_is_refused(studio: Studio, site: Repository, ref: str) -> None:
    """Ranges, exclusions, paths and patterns are no bases."""
    before = site.refs()
    assert "commit" in refused(studio.run("touch new", {"repo": "site", "ref": ref}))
    assert site.refs() == before


@pytest.mark.parametrize("taken", ["vibey", "vibey/7/x", "vibey/failed"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_in_the_way_costs_a_name_only(studio: Studio, site: Repository, taken: str, packed: bool) -> None:  # noqa: FBT001
    """Where a reference leaves no room for `vibey/7` or `vibey/failed/7`, the work comes home under another name."""
    site.git("branch", taken)
    if packed:
        site.git("pack-refs", "--all")
    studio.checks["bad"] = studio.checks["unit"].__class__(("false",), 30)
    detail = refused(studio.run("touch new", {"repo": "site", "verify": "bad"}))
    name = "vibey/failed/7" if taken == "vibey/7/x" else "vibey-failed-7"
    assert detail.endswith(f"see branch {name}")
    assert set(site.refs()) == {"refs/heads/main", f"refs/heads/{taken}", f"refs/heads/{name}"}
    result = done(studio.run("touch new", {"repo": "site"}, run_id=71))
    assert result["branch"] == ("vibey/7" if taken == "vibey/failed" else "vibey-7")
    assert set(site.refs()) == {"refs/heads/main", f"refs/heads/{taken}", f"refs/heads/{result['branch']}"}
    assert done(studio.run("true", {"repo": "site"}, run_id=72))["branch"] is None
    assert set(site.refs()) == {"refs/heads/main", f"refs/heads/{taken}"}


def test_an_unborn_branch_is_no_base(studio: Studio) -> None:
    """A repository without a commit has nothing to start from."""
    (studio.roots / "empty").mkdir(parents=True)
    Repository(studio.roots / "empty").git("init", "-q", "-b", "main")
    assert "has no commit 'HEAD'" in refused(studio.run("touch new", {"repo": "empty"}))


def test_message_says_what_and_who(studio: Studio, site: Repository) -> None:
    """Title, engine and client are in the message of the commit."""
    studio.title = "Größe: fix the “login” #form"
    done(studio.run("touch new", {"repo": "site"}))
    message = site.git("log", "-1", "--format=%B", "vibey/7")
    trailers = "Vibey-Job: 7\nVibey-Run: 70\nVibey-Engine: shell\nVibey-Client: command sh"
    assert message == f"vibey job 7: Größe: fix the “login” #form\n\n{trailers}"


def test_other_object_names_are_as_good(studio: Studio) -> None:
    """A repository of SHA-256 objects: unnormalised files, refused ones and content of LFS, all at once."""
    (studio.roots / "site").mkdir(parents=True)
    site = Repository(studio.roots / "site")
    site.git("init", "--quiet", "-b", "main", "--object-format=sha256")
    (site.path / "r.txt").write_bytes(b"x\r\ny\r\n")
    site.commit("first", keep="same\n")
    (site.path / ".gitattributes").write_text("*.txt text\n*.bin filter=lfs\n")
    site.git("add", ".gitattributes")
    site.git("commit", "--quiet", "-m", "attributes")
    before = site.refs()
    assert done(studio.run("touch *; git add -A", {"repo": "site"}))["branch"] is None
    assert site.refs() == before
    script = "printf 'z\\r\\n' >> r.txt; echo x > a.bin; ln -s keep .gitmodules"
    result = done(studio.run(script, {"repo": "site"}, run_id=71))
    assert [each["path"] for each in result["left_out"]] == [".gitmodules", "a.bin"]  # type: ignore[attr-defined]
    assert files_of(site) == {"r.txt": "M"}
    assert result["diffstat"] == {"files": 1, "insertions": 1, "deletions": 0}
    assert result["commit"] == site.git("rev-parse", "vibey/7")


def test_work_may_take_the_attributes_away_and_change_files(studio: Studio) -> None:
    """Both changes are in the branch, and no other file."""
    stored = Stored("w.bat text eol=crlf\n*.txt text\n", {"w.bat": b"a\nb\n", "v.txt": b"a\nb\n", "r.txt": b"x\r\n"})
    site = made(studio, stored)
    result = done(studio.run("rm .gitattributes; echo c >> v.txt", {"repo": "site"}))
    assert files_of(site) == {".gitattributes": "D", "v.txt": "M"}
    assert result["diffstat"] == {"files": 2, "insertions": 1, "deletions": 2}


def test_a_lock_that_was_left_on_the_branch_is_removed(studio: Studio, site: Repository) -> None:
    """A process that was killed while it moved the branch keeps no later run of the job from doing so."""
    lock = site.path / ".git" / "refs" / "heads" / "vibey" / "7.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    long_ago = time.time() - 120
    os.utime(lock, (long_ago, long_ago))
    assert done(studio.run("touch new", {"repo": "site"}))["branch"] == "vibey/7"
    assert files_of(site) == {"new": "A"}
