"""The program behind each of the demo's engines: one BUILD job, from a clone to a commit.

It reads the job on standard input, clones the repository the job names into the run's folder, makes the change the job
describes, builds the project, runs its tests, commits, and pushes the result to the branch `vibey/<job>`. It uses the
standard library and `git`, and imports nothing of Vibey: any program that does as much could take its place.

A job is data. Its repository is a name below `--repositories`, its change is one of the kinds of `CHANGES`, and every
word that reaches a file or a command line has been checked.

Two keys of a job show what is not a success. `first_try` holds values that replace the change's own at the first
attempt, so that the tests fail: exit 1, and Vibey tries again. `hand_over` makes the first engine that takes the job
save its work to the branch `wip/<job>` and wind down: exit 75, and Vibey gives the job to another, which goes on from
there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

EXIT_WORK = 1
EXIT_HAND_OVER = 75
NAME = re.compile(r"[a-z][a-z0-9_-]{0,40}")
CODE = re.compile(r"[A-Z][A-Z0-9]{0,20}")
FUNCTION = re.compile(r"[a-z][a-z0-9_]{0,60}")
FACTOR = re.compile(r"[0-9]{1,9}(\.[0-9]{1,12})?")
PYTHON = (sys.executable, "-I", "-B")

# Nobody's git configuration, hooks or credentials take part.
GIT = ("git", "-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
GIT_ENVIRONMENT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}

CONVERSION = '''

def {name}(amount: float) -> float:
    """Convert by a factor of {factor}."""
    return amount * {factor}
'''


class Workspace:
    """A clone of the job's repository in the run's folder."""

    def __init__(self, origin: Path, folder: Path, author: str) -> None:
        """Name the places; `clone` makes the folder."""
        self.folder = folder
        self._origin = origin
        who = {"NAME": author, "EMAIL": f"{author}@demo.invalid"}
        roles = {f"GIT_{role}_{key}": word for role in ("AUTHOR", "COMMITTER") for key, word in who.items()}
        self._environment = {**os.environ, **GIT_ENVIRONMENT, **roles}

    def has_branch(self, branch: str) -> bool:
        """Whether the repository it is cloned from has this branch."""
        command = (*GIT, "-C", str(self._origin), "show-ref", "--verify", "--quiet", f"refs/heads/{branch}")
        return subprocess.run(command, env=self._environment, check=False).returncode == 0

    def clone(self, branch: str) -> None:
        """Clone one branch; objects are shared with the repository it comes from."""
        options = ("clone", "--quiet", "--local", "--single-branch", "--no-tags", f"--branch={branch}")
        command = (*GIT, *options, "--", str(self._origin), str(self.folder))
        self._run(command, self.folder.parent, f"cannot clone {branch}")

    def git(self, *arguments: str) -> str:
        """Run git in the clone; return what it printed."""
        return self._run((*GIT, *arguments), self.folder, f"git {arguments[0]} failed")

    def python(self, *arguments: str, failure: str) -> str:
        """Run this Python in the clone; return what it printed, on either stream. `failure` is said when it fails."""
        return self._run((*PYTHON, *arguments), self.folder, failure)

    def edit(self, name: str, change: Callable[[Any], None]) -> None:
        """Change a JSON file of the clone."""
        path = self.folder / name
        table = json.loads(path.read_text("utf-8"))
        change(table)
        path.write_text(f"{json.dumps(table, indent=2)}\n", encoding="utf-8")

    def _run(self, command: Sequence[str], cwd: Path, failure: str) -> str:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            say(done.stdout.rstrip())
            raise SystemExit(fail(failure))
        return done.stdout


def main() -> int:
    """Do the job; exit 0 when its commit is on its branch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--author", required=True, help="who commits: the engine's name")
    parser.add_argument("--repositories", type=Path, required=True, help="the folder jobs name repositories in")
    parser.add_argument("--thorough", action="store_true", help="try the finished archive too")
    options = parser.parse_args()
    job = json.load(sys.stdin)
    payload = job["payload"]
    origin = options.repositories / word(payload["repo"], NAME)
    workspace = Workspace(origin, Path.cwd() / "work", options.author)
    unfinished = f"wip/{int(job['job_id'])}"
    if workspace.has_branch(unfinished):
        say(f"going on from {unfinished}")
        workspace.clone(unfinished)
    else:
        workspace.clone(word(payload["ref"], NAME))
        make_change(workspace, payload, int(job["attempt"]))
        if payload.get("hand_over"):
            return hand_over(workspace, unfinished)
    return finish(workspace, f"vibey/{int(job['job_id'])}", unfinished, thorough=options.thorough)


def make_change(workspace: Workspace, payload: Mapping[str, Any], attempt: int) -> None:
    """Make the job's change and commit it in the clone."""
    change = dict(payload["change"])
    if attempt == 1:
        change |= payload.get("first_try", {})
    say(str(payload["title"]))
    CHANGES[change["kind"]](workspace, change)
    workspace.git("commit", "--quiet", "--all", f"--message={payload['title']}")


def hand_over(workspace: Workspace, branch: str) -> int:
    """Save the work for another engine, and say so with the exit code."""
    workspace.git("push", "--quiet", "origin", f"+HEAD:refs/heads/{branch}")
    say(f"wound down early; the work so far is on {branch}")
    return EXIT_HAND_OVER


def finish(workspace: Workspace, branch: str, unfinished: str, *, thorough: bool) -> int:
    """Build, test, push and report."""
    out = str(workspace.folder.parent / "out")
    built = json.loads(workspace.python("build.py", "--out", out, failure="the build failed").splitlines()[-1])
    say(f"built {Path(built['archive']).name}, {built['bytes']} bytes")
    tested = workspace.python("-m", "unittest", "discover", "-s", "tests", "-t", ".", failure="the tests failed")
    count = int(re.findall(r"^Ran (\d+) test", tested, re.MULTILINE)[-1])
    say(f"{count} tests passed")
    if thorough:
        say(workspace.python(built["archive"], "tea", "mug", failure="the archive does not run").rstrip())
    refs = [f"+HEAD:refs/heads/{branch}"]
    if workspace.has_branch(unfinished):
        refs.append(f":refs/heads/{unfinished}")
    workspace.git("push", "--quiet", "--atomic", "origin", *refs)
    commit = workspace.git("rev-parse", "HEAD").strip()
    say(f"commit {commit[:12]} is on {branch}")
    report({"branch": branch, "commit": commit, "tests": count, "archive_bytes": built["bytes"]})
    return 0


def set_flag(workspace: Workspace, change: Mapping[str, Any]) -> None:
    """Turn a flag on or off."""
    name, value = word(change["name"], NAME), bool(change["value"])
    workspace.edit("shop/flags.json", lambda flags: flags.update({name: value}))


def set_price(workspace: Workspace, change: Mapping[str, Any]) -> None:
    """Set an article's price, in cents."""
    name, cents = word(change["article"], NAME), int(change["cents"])
    workspace.edit("shop/catalog.json", lambda prices: prices.update({name: cents}))


def add_discount(workspace: Workspace, change: Mapping[str, Any]) -> None:
    """Add a discount code, and the test case that says what it must leave of an amount."""
    code, percent = word(change["code"], CODE), int(change["percent"])
    case = [code, int(change["cents"]), int(change["left"])]
    workspace.edit("shop/discounts.json", lambda discounts: discounts.update({code: percent}))
    workspace.edit("tests/cases.json", lambda cases: cases["discounts"].append(case))


def add_conversion(workspace: Workspace, change: Mapping[str, Any]) -> None:
    """Add a function that converts units, and its test case."""
    name, factor = word(change["name"], FUNCTION), word(change["factor"], FACTOR)
    case = [name, float(change["given"]), float(change["expected"])]
    with (workspace.folder / "shop" / "conversions.py").open("a", encoding="utf-8") as module:
        module.write(CONVERSION.format(name=name, factor=factor))
    workspace.edit("tests/cases.json", lambda cases: cases["conversions"].append(case))


CHANGES: dict[str, Callable[[Workspace, Mapping[str, Any]], None]] = {
    "flag": set_flag,
    "price": set_price,
    "discount": add_discount,
    "conversion": add_conversion,
}


def word(value: object, pattern: re.Pattern[str]) -> str:
    """The value, if it is text of this pattern; else the job fails."""
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    raise SystemExit(fail(f"the job says {value!r} where only {pattern.pattern} is understood"))


def report(result: Mapping[str, Any]) -> None:
    """Leave the result where Vibey looks for it."""
    Path(os.environ["VIBEY_RESULT_FILE"]).write_text(json.dumps({"result": result}), encoding="utf-8")


def fail(why: str) -> int:
    """Say why the job failed; the exit code for that."""
    say(why)
    return EXIT_WORK


def say(text: str) -> None:
    """Add a line to the run's log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
