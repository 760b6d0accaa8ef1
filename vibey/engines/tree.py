"""The child process that makes a run's tree and takes home what became of it. Argument: `prepare`, `collect`, `bring`.

What to do arrives as one JSON object on standard input; the answer is a report in `VIBEY_RESULT_FILE`. Each step
is supervised like the work itself, so a lost lease or a cancel ends it, whatever it is at.

The objects of the source are borrowed, not copied: the tree's repository names the source's object folder as its
alternate. While the run is on, a reference of ours in the source (`refs/vibey/…`) keeps its base and all that
leads to it from every `gc`. That costs a reference, where a copy would cost the size of the repository each time.

After the work, nothing it could have written to is trusted. Its `.git` is read as a store of objects and one line
of text, never as a configuration: `collect` stages and commits with a repository it has just made. `bring` packs
what is new, has git check it object by object on its way into the source, and only then moves the one reference,
in one step. A process killed before that leaves the source as it was, but for objects nobody names, which `gc`
removes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibey.engines import changes
from vibey.engines.calling import DeclaredFailure, EngineFault
from vibey.engines.changes import LeftOut
from vibey.engines.git import Git, GitFailed, fresh
from vibey.engines.ours import write_report
from vibey.engines.plain import beginning
from vibey.engines.removal import remove
from vibey.engines.source import opened

if TYPE_CHECKING:
    from collections.abc import Callable

Document = dict[str, Any]

LARGEST_GROWTH = 1024 * 1024 * 1024
KEPT_FILE = "kept.json"
OWN_BRANCHES = "refs/heads/vibey/"
_KEPT = re.compile(r"refs/vibey/[0-9a-f]{12}/run-\d+")
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HEAD = re.compile(r"refs/[^\x00-\x20\x7f]{1,1000}")
_STALE_LOCK_SECONDS = 60
_MOST_HEADS = 200
_LARGEST_NOTE = 64 * 1024
_MIB = 1024 * 1024
_TREE_SETTINGS = """\
[core]
\thooksPath = /dev/null
\tfsmonitor = false
[credential]
\thelper =
[gc]
\tauto = 0
[maintenance]
\tauto = false
[submodule]
\trecurse = false
"""


def prepare(order: Document) -> Document:
    """Make the tree: the base commit checked out on the job's branch, in a repository of its own."""
    tree, control = Path(order["tree"]), Path(order["control"])
    source = opened(Path(order["repo"]), [Path(root) for root in order["roots"]])
    git = Git(source.repository)
    # First of all: a repository in a form that this git does not read is refused with git's own reason.
    object_format = git.line("rev-parse", "--show-object-format")
    base = _commit(git, order["ref"])
    if base is None:
        raise DeclaredFailure(f"{order['repo']} has no commit {order['ref']!r}")
    try:
        needed = sum(_sizes(git, base).values())
    except GitFailed as error:
        if "promisor" not in str(error):
            raise
        raise DeclaredFailure(f"{order['repo']} is a partial clone without all files of {base}: fetch them") from None
    _check_space(control, needed, order["min_free"])
    _keep(control, git, order["keep"], base)
    own = fresh(
        tree / ".git", bare=False, object_format=object_format, alternates=(source.objects,), shallow=source.shallow
    )
    own("config", "user.name", order["author"])
    own("config", "user.email", order["email"])
    with (tree / ".git" / "config").open("a", encoding="utf-8") as file:
        file.write(_TREE_SETTINGS)
    work = replace(own, tree=tree)
    work("checkout", "--quiet", "-b", order["branch"], base, "--")
    return {
        "converts_nothing": changes.keep_unconverted(work, base, control / "start.index"),
        "base": base,
        "repository": str(source.repository),
        "objects": str(source.objects),
        "format": object_format,
        "shallow": source.shallow.decode("ascii", "replace"),
    }


def collect(order: Document) -> Document:
    """Commit what the work changed: `commit` is None if that is nothing. `left_out` names what is not taken."""
    tree, base = Path(order["tree"]), order["base"]
    walked = _tame(tree)
    git = _trusted(order, "collected.git", _own_objects(tree))
    if order["converts_nothing"]:
        changes.convert_nothing(git)
    parent = _tip(tree / ".git", git, base)
    work = replace(git, tree=tree)
    work("read-tree", parent)
    _check_growth(work, order)
    index = _copied_index(tree / ".git", Path(order["control"]) / "own.index")
    staged = changes.stage(work, base, parent, lambda: _begun(order), walked, index)
    left_out = [*staged.left_out, *_commits_elsewhere(tree / ".git", git, parent)]
    found = {"remarks": staged.remarks[: changes.MOST_NAMED], **changes.summary(left_out)}
    if staged.rewritten:
        parent = base
    if staged.tree == git.line("rev-parse", f"{base}^{{tree}}"):
        return {"commit": None, **found}
    same = staged.tree == git.line("rev-parse", f"{parent}^{{tree}}")
    commit = parent if same else _committed(work, order, staged.tree, parent)
    return {"commit": commit, "diffstat": _diffstat(git, base, commit), **found}


def bring(order: Document) -> Document:
    """Take the commit home as `reference`; with none, only drop the job's own `stale` references.

    Where the repository has references that leave no room for this one, the branch gets a name without a folder.
    """
    source = Git(Path(order["repository"]))
    taken = _checked_out(source)
    done: Document = {}
    if order["commit"] is not None:
        reference = order["reference"] if _has_room(source, order["reference"]) else _without_folder(order["reference"])
        name = reference.removeprefix("refs/heads/")
        if reference in taken:
            raise DeclaredFailure(f"{name} is checked out in {order['repository']}, and is left alone; switch it away")
        _transfer(order)
        _unlock(source, reference)
        source("update-ref", "--no-deref", reference, order["commit"])
        done = {"branch": name}
    for reference in order["stale"]:
        for each in (reference, _without_folder(reference)):
            if each not in taken:
                # The commit is home: a reference that somebody holds fast does not undo that.
                source.says("update-ref", "--no-deref", "-d", each)
    return done


def _has_room(source: Git, reference: str) -> bool:
    """Whether no other reference stands where this one needs a folder, or is in a folder of its name."""
    parts = reference.split("/")
    above = ("/".join(parts[:length]) for length in range(3, len(parts)))
    if any(source.says("show-ref", "--verify", "--quiet", each) for each in above):
        return False
    return not source("for-each-ref", "--count=1", "--format=%(refname)", f"{reference}/")


def _without_folder(reference: str) -> str:
    """`refs/heads/vibey/7` as `refs/heads/vibey-7`."""
    name = reference.removeprefix("refs/heads/")
    return f"refs/heads/{name.replace('/', '-')}"


def release(control: Path) -> None:
    """Let go of the base that a run holds in its source, as its folder says; nothing is raised."""
    try:
        kept = json.loads(beginning(control / KEPT_FILE, _LARGEST_NOTE))
        drop(str(kept["repository"]), str(kept["reference"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return


def drop(repository: str, reference: str) -> None:
    """Remove a reference that keeps a base, and no other kind; nothing is raised."""
    if _KEPT.fullmatch(reference) and Path(repository).is_dir():
        with suppress(GitFailed, OSError):
            Git(Path(repository), patience=10.0)("update-ref", "--no-deref", "-d", reference)


def _keep(control: Path, git: Git, reference: str, base: str) -> None:
    # Written down first: whoever cleans up after us must know of the reference before it exists.
    kept = json.dumps({"repository": str(git.repository), "reference": reference})
    (control / KEPT_FILE).write_text(kept, encoding="utf-8")
    git("update-ref", "--no-deref", reference, base)


def _commit(git: Git, name: str) -> str | None:
    """The commit of this name; a branch that is named like an object is one as well."""
    for spelled in (name, f"refs/heads/{name}"):
        try:
            found = git.line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{spelled}^{{commit}}")
        except GitFailed:
            continue
        if _HASH.fullmatch(found):
            return found
    return None


def _trusted(order: Document, name: str, more: tuple[Path, ...]) -> Git:
    """A new repository of our own that sees the source's objects and the work's."""
    repository = Path(order["control"]) / name
    remove(repository)
    alternates = (Path(order["objects"]), *more)
    shallow = order["shallow"].encode()
    return fresh(repository, bare=True, object_format=order["format"], alternates=alternates, shallow=shallow)


def _begun(order: Document) -> Git:
    """An empty repository with an empty tree, for the files as they were when the work began."""
    git = _trusted(order, "begun.git", _own_objects(Path(order["tree"])))
    tree = Path(order["control"]) / "begun"
    remove(tree)
    tree.mkdir()
    return replace(git, tree=tree)


def _tame(tree: Path) -> list[LeftOut]:
    """Make the tree readable to us, and plain: a repository within it would have git run its own affairs there.

    Returns what cannot be made so, or is no file.
    """
    if tree.is_symlink() or not tree.is_dir():
        raise DeclaredFailure("the work removed its tree")
    left_out: list[LeftOut] = []
    left = [str(tree)]
    while left:
        folder = left.pop()
        try:
            _permit(folder, 0o700)
            entries = list(os.scandir(folder))
        except OSError as error:
            left_out.append(_unreadable(tree, folder, error))
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False) and entry.name.lower() != ".git":
                    left.append(entry.path)
                elif why := _tamed(entry, own=folder == str(tree)):
                    left_out.append(_left_out(tree, entry.path, why))
            except OSError as error:
                left_out.append(_unreadable(tree, entry.path, error))
    return left_out


def _tamed(entry: os.DirEntry[str], *, own: bool) -> str:
    """Make one entry readable, or remove it if it is a repository within the tree; why it is not taken, if so."""
    if entry.name.lower() == ".git":
        if not own:
            remove(Path(entry.path))
            return "a repository of its own: its history is not taken"
        if entry.is_dir(follow_symlinks=False):
            _permit(entry.path, 0o700)
    elif entry.is_file(follow_symlinks=False):
        _permit(entry.path, 0o400)
    elif not entry.is_symlink():
        return "a pipe, a socket or a device"
    return ""


def _left_out(tree: Path, path: str, why: str) -> LeftOut:
    return LeftOut(os.fsencode(os.path.relpath(path, tree)), why)


def _unreadable(tree: Path, path: str, error: OSError) -> LeftOut:
    return _left_out(tree, path, f"it cannot be read: {error.strerror}")


def _permit(path: str, wanted: int) -> None:
    mode = os.lstat(path).st_mode
    if mode & wanted != wanted:
        os.chmod(path, (mode & 0o7777) | wanted)  # noqa: PTH101  (no Path for each of so many)


def _own_objects(tree: Path) -> tuple[Path, ...]:
    objects = tree / ".git" / "objects"
    plain = objects.is_dir() and not (objects.is_symlink() or objects.parent.is_symlink())
    return (objects,) if plain else ()


def _tip(work: Path, git: Git, base: str) -> str:
    """The last commit the work made itself, if it goes back to the base; else the base."""
    tip = _head(work)
    if tip is None or tip == base or not git.says("merge-base", "--is-ancestor", base, tip):
        return base
    return tip


def _head(work: Path) -> str | None:
    if work.is_symlink():
        return None
    said = _first_line(work / "HEAD").removeprefix("ref: ")
    if _HASH.fullmatch(said):
        return said
    if not _HEAD.fullmatch(said) or ".." in said:
        return None
    loose = _first_line(work / said)
    if _HASH.fullmatch(loose):
        return loose
    packed = _text(work / "packed-refs", 16 * _MIB)
    found = (line.split(" ", 1)[0] for line in packed.splitlines() if line.endswith(f" {said}"))
    return next((name for name in found if _HASH.fullmatch(name)), None)


def _copied_index(work: Path, copy: Path) -> Path | None:
    """A copy of the work's own index, of which git reads no more than names."""
    index = work / "index"
    remove(copy)
    try:
        if work.is_symlink() or not stat.S_ISREG(index.lstat().st_mode):
            return None
        shutil.copyfile(index, copy)
    except OSError:
        return None
    return copy


def _commits_elsewhere(work: Path, git: Git, parent: str) -> list[LeftOut]:
    """Branches, a stash and a HEAD of the work's with commits that the branch of the result does not lead to."""
    names = {name: commit for name, commit in _heads(work).items() if commit != parent}
    held = {commit: _leads_to(git, parent, commit) for commit in islice(sorted(set(names.values())), _MOST_HEADS)}
    why = "commits that the branch of the result does not lead to are not taken"
    return [LeftOut(os.fsencode(f".git/{name}"), why) for name, commit in names.items() if not held.get(commit, True)]


def _leads_to(git: Git, parent: str, commit: str) -> bool:
    """Whether the commit is among what `parent` leads to, or is none at all."""
    return git.says("merge-base", "--is-ancestor", commit, parent) or not git.says(
        "cat-file", "-e", f"{commit}^{{commit}}"
    )


def _heads(work: Path) -> dict[str, str]:
    """Where the work's HEAD, if it is on no branch, its branches and its stash point."""
    if work.is_symlink() or (work / "refs").is_symlink():
        return {}
    packed = (line.split(" ", 1) for line in _text(work / "packed-refs", 16 * _MIB).splitlines() if " " in line)
    found = {name: commit for commit, name in packed}
    for folder, _, names in os.walk(work / "refs" / "heads"):
        paths = (Path(folder, name) for name in names)
        found.update({str(path.relative_to(work)): _first_line(path) for path in islice(paths, _MOST_HEADS)})
    found["refs/stash"] = _first_line(work / "refs" / "stash") or found.get("refs/stash", "")
    found["HEAD"] = _first_line(work / "HEAD")
    kept = {name: commit for name, commit in found.items() if _HASH.fullmatch(commit)}
    return {name: commit for name, commit in kept.items() if name.startswith(("refs/heads/", "refs/stash", "HEAD"))}


def _first_line(path: Path) -> str:
    return _text(path, 4096).partition("\n")[0].strip(" \t\r")


def _text(path: Path, most: int) -> str:
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _sizes(git: Git, commit: str) -> dict[bytes, int]:
    """Bytes of each file of a commit."""
    rows = (row.split(b"\t", 1) for row in git("ls-tree", "-r", "-l", "-z", commit).split(b"\0") if row)
    return {path: int(facts.split()[3]) for facts, path in rows if facts.split()[3].isdigit()}


def _check_growth(work: Git, order: Document) -> None:
    assert work.tree is not None  # noqa: S101  (for the type checker: there is a tree to look at)
    before = _sizes(work, order["base"])
    others = work("ls-files", "-z", "--others", "--exclude-standard").split(b"\0")
    grown = 0
    for path in {*before, *filter(None, others)}:
        try:
            size = os.lstat(os.path.join(os.fsencode(work.tree), path)).st_size  # noqa: PTH118  (paths of bytes)
        except OSError:
            continue
        grown += max(0, size - before.get(path, 0))
    if grown > LARGEST_GROWTH:
        most = LARGEST_GROWTH // _MIB
        raise DeclaredFailure(f"the work wrote {grown // _MIB} MiB into its tree; at most {most} MiB are taken home")
    _check_space(Path(order["control"]), grown, order["min_free"])


def _check_space(folder: Path, needed: int, min_free: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + min_free:
        wanted = (needed + min_free) // _MIB
        raise EngineFault(f"no space: {free // _MIB} MiB are free under {folder}, and {wanted} MiB are needed")


def _committed(work: Git, order: Document, staged: str, parent: str) -> str:
    person = {"NAME": order["author"], "EMAIL": order["email"]}
    names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in person.items()}
    message = order["message"].encode("utf-8", "replace")
    return (
        replace(work, variables=names)("commit-tree", "-p", parent, "-F", "-", staged, given=message).decode().strip()
    )


def _diffstat(git: Git, base: str, commit: str) -> Document:
    options = ("--no-renames", "--no-ext-diff", "--no-textconv")
    rows = [row.split(b"\t") for row in git("diff-tree", "-r", "-z", "--numstat", *options, base, commit).split(b"\0")]
    counted = [row for row in rows if len(row) >= 3]
    insertions = sum(int(row[0]) for row in counted if row[0].isdigit())
    deletions = sum(int(row[1]) for row in counted if row[1].isdigit())
    return {"files": len(counted), "insertions": insertions, "deletions": deletions}


def _checked_out(source: Git) -> set[str]:
    lines = source("worktree", "list", "--porcelain").decode("utf-8", "replace").splitlines()
    return {line.removeprefix("branch ") for line in lines if line.startswith("branch ")}


def _transfer(order: Document) -> None:
    """Put what the commit adds to its base into the source, checked. Nothing names it there yet."""
    collected = Path(order["control"]) / "collected.git" / "objects"
    git = _trusted(order, "bring.git", (collected, *_own_objects(Path(order["tree"]))))
    wanted = f"{order['commit']}\n^{order['base']}\n".encode()
    place = Path(order["control"]) / "bring"
    name = git("pack-objects", "--revs", "--quiet", "--delta-base-offset", str(place), given=wanted).decode().strip()
    pack = place.with_name(f"bring-{name}.pack")
    _check_space(Path(order["objects"]), pack.stat().st_size, order["min_free"])
    replace(git, objects=Path(order["objects"]))("index-pack", "--stdin", "--strict", stdin=pack)


def _unlock(source: Git, reference: str) -> None:
    """Remove the lock of a process that was killed in the act: only the job's one run writes its reference."""
    lock = Path(source.line("rev-parse", "--git-path", f"{reference}.lock"))
    try:
        if time.time() - lock.lstat().st_mtime > _STALE_LOCK_SECONDS:
            lock.unlink()
    except OSError:
        return


STEPS: dict[str, Callable[[Document], Document]] = {"prepare": prepare, "collect": collect, "bring": bring}


def main(step: str) -> int:
    """Exit status 0: the report says how it went."""
    order = json.load(sys.stdin)
    report: Document
    try:
        report = {"result": STEPS[step](order)}
    except DeclaredFailure as declared:
        report = {"failure": declared.document()}
    except (GitFailed, OSError) as error:
        fault = EngineFault if "No space left on device" in str(error) else DeclaredFailure
        report = {"failure": fault(f"workspace: {error}").document()}
    write_report(Path(os.environ["VIBEY_RESULT_FILE"]), report)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
