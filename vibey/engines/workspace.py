"""Workspace: any engine, working in an isolated clone of a repository that its job names.

A job's payload says `{"repo": path, "ref": "main", "verify": "unit"}`, all but `repo` optional. The run gets a
tree of its own, and its engine's processes start there. When the engine has ended well, what it changed is
committed on top of its own commits, the operator's check of that name runs in the tree, and the commits go home
as the branch `vibey/<job>`, which replaces that of an earlier run of the same job and no other. The result says
`{"branch", "commit", "base", "diffstat": {"files", "insertions", "deletions"}, "verify": {"name", "ok", "exit",
"seconds", "tail"}}` beside the engine's own. Nothing changed: `branch` is None, and nothing is checked.

A check that fails is the work's failure. Its commits are paid for and worth a look, but are no result: they go to
`vibey/failed/<job>`, until a run of the job succeeds. An engine that fails leaves nothing behind.

Whose fault what is: a payload that names what it may not have, WORK; no git here, MISCONFIGURED; no space, ENGINE,
so that another engine may try; an engine without roots hands the job off, should one reach it (routing knows the roots,
see `vibey.domain.workspace`, but a configuration may have changed since). How a tree is made and taken home is
told in `vibey.engines.tree`, what git is kept from in `vibey.engines.git`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from vibey.domain.outcome import Failure, FailureClass, Outcome, Success, one_line
from vibey.domain.workspace import READS_THE_PAYLOAD, REPOSITORY
from vibey.engines import tree, verify
from vibey.engines.calling import DeclaredFailure
from vibey.engines.contract import (
    Check,
    Context,
    Description,
    Engine,
    EngineConfig,
    Health,
    Job,
    Progress,
    RunSteps,
)
from vibey.engines.environment import allowed
from vibey.engines.handover import LastLine, outcome_of
from vibey.engines.ours import import_path, program
from vibey.engines.process import find_program
from vibey.engines.removal import remove
from vibey.engines.results import Report, read_report
from vibey.engines.source import located
from vibey.engines.within import TreeContext

if TYPE_CHECKING:
    from pathlib import Path

MIN_FREE_BYTES = 1024 * 1024 * 1024
TREE, CONTROL = "tree", "workspace"
_LONGEST_REF = 4096
# What is in no reference's name and in no way to spell a commit by one: ranges, paths in a commit, searches, patterns.
_NO_REF = re.compile(r"[\x00-\x20\x7f:?*\[\\\ud800-\udfff]|\.\.")
_AUTHOR = re.compile(r"\s*([^<>]+?)\s*<([^<>\s]+)>\s*")

Steps = Generator[Progress, None, Outcome]


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks for: the real folder of its repository, the commit's name, and the check, if any."""

    repo: Path
    ref: str
    verify: str | None
    check: Check | None

    @classmethod
    def of(cls, payload: Mapping[str, object], config: EngineConfig) -> Request:
        """The request of a payload that has a `repo`; DeclaredFailure says what is wrong with it."""
        repo, ref, verify = payload[REPOSITORY], payload.get("ref") or "HEAD", payload.get("verify")
        if not isinstance(repo, str):
            raise DeclaredFailure("payload.repo is not the path of a repository")
        if not isinstance(ref, str) or len(ref) > _LONGEST_REF or _NO_REF.search(ref):
            raise DeclaredFailure(f"payload.ref {str(ref)[:100]!r} is not the name of one commit")
        found = located(repo, config.workspace_roots)
        if verify is None:
            return cls(found, ref, None, None)
        check = config.checks.get(verify) if isinstance(verify, str) else None
        if check is None:
            known = ", ".join(sorted(config.checks)) or "none is configured"
            raise DeclaredFailure(f"payload.verify {str(verify)[:100]!r} is no check of the operator's; known: {known}")
        return cls(found, ref, str(verify), check)


class Workspaced:
    """An engine whose jobs may name a repository. `min_free` is the bytes of disk that are never touched."""

    def __init__(self, engine: Engine, config: EngineConfig, min_free: int = MIN_FREE_BYTES) -> None:
        self._engine = engine
        self._config = config
        self._min_free = min_free

    def describe(self) -> Description:
        """The engine's own."""
        return self._engine.describe()

    def doctor(self) -> Health:
        """The engine's own, unless git or a root is missing."""
        health = self._engine.doctor()
        if not health.good or not self._config.workspace_roots:
            return health
        if _no_git():
            return replace(health, installed=False, detail=_NO_GIT, fix=_GIT_FIX)
        missing = [str(root) for root in self._config.workspace_roots if not root.is_dir()]
        if missing:
            fix = f"make it, or correct engine.{self._config.name}.workspace_roots"
            return replace(health, installed=False, detail=f"no folder {', '.join(missing)}", fix=fix)
        return health

    def run(self, job: Job, context: Context) -> RunSteps:
        """Run the engine in a tree of the repository the job names, or as it is if the job names none."""
        config = self._config
        if REPOSITORY not in job.payload or (not config.workspace_roots and config.kind in READS_THE_PAYLOAD):
            return (yield from self._engine.run(job, context))
        if not config.workspace_roots:
            words = f"engine {config.name} works in no repository: it has no workspace_roots"
            return Failure(FailureClass.HANDOFF, words)
        if _no_git():
            return Failure(FailureClass.MISCONFIGURED, f"{_NO_GIT}; {_GIT_FIX}")
        try:
            request = Request.of(job.payload, config)
        except DeclaredFailure as declared:
            return Failure(FailureClass.WORK, one_line(str(declared)))
        workspace = _Workspace(request, config, job, context, self._min_free)
        try:
            return (yield from workspace.around(self._engine))
        finally:
            workspace.release()


@dataclass(slots=True)
class _Workspace:
    """The steps of one run."""

    request: Request
    config: EngineConfig
    job: Job
    context: Context
    min_free: int
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def tree(self) -> Path:
        return self.context.directory / TREE

    @property
    def control(self) -> Path:
        return self.context.directory / CONTROL

    def around(self, engine: Engine) -> Steps:
        """Make the tree, have the engine work in it, take home what it did."""
        self.tree.mkdir()
        self.control.mkdir()
        prepared = yield from self._step("prepare", self._preparation())
        if isinstance(prepared, Failure):
            return prepared
        self.made = dict(prepared.result or {})
        within = TreeContext(self.context, self.tree)
        outcome = yield from engine.run(self.job, within)
        if isinstance(outcome, Failure):
            return outcome
        within.end()
        return _with_cost((yield from self._taken_home(outcome)), outcome)

    def release(self) -> None:
        """Let go of the base in the source: by what the work could not change, once there was any work."""
        if self.made:
            tree.drop(self.made["repository"], self._kept)
        else:
            tree.release(self.control)

    def _taken_home(self, outcome: Success) -> Steps:
        collected = yield from self._step("collect", self._collection())
        if isinstance(collected, Failure):
            return collected
        found: dict[str, Any] = dict(collected.result or {})
        self._name_left_out(found)
        verified = None
        if found["commit"] is not None and self.request.check is not None:
            self.context.output.note(f"verify {self.request.verify}")
            within = TreeContext(self.context, self.tree)
            verified = yield from verify.run(str(self.request.verify), self.request.check, within)
        good = verified is None or verified["ok"]
        brought = yield from self._step("bring", self._home(found["commit"], good=good))
        if isinstance(brought, Failure):
            return brought
        branch = (brought.result or {}).get("branch")
        if verified is not None and not good:
            seen = f"see branch {branch}"
            return Failure(FailureClass.WORK, one_line(f"{verify.words(verified)}; {seen}"))
        if found["commit"] is None:
            changed = "nothing else" if "left_out" in found else "nothing"
            self.context.output.note(f"the work changed {changed} in its tree: no branch")
        result: dict[str, object] = {
            **(outcome.result or {}),
            "branch": branch,
            "commit": found["commit"] or self.made["base"],
            "base": self.made["base"],
            "diffstat": found.get("diffstat") or {"files": 0, "insertions": 0, "deletions": 0},
            "verify": verified,
            **{key: found[key] for key in ("left_out", "left_out_more") if key in found},
        }
        return replace(outcome, result=result)

    def _name_left_out(self, found: Mapping[str, Any]) -> None:
        note = self.context.output.note
        for each in found.get("left_out", []):
            note(f"left out: {each['path']}: {each['why']}")
        if "left_out_more" in found:
            note(f"left out: {found['left_out_more']} more")
        for remark in found.get("remarks", []):
            note(remark)

    def _preparation(self) -> dict[str, object]:
        config = self.config
        author, email = _person(config.workspace_author)
        return {
            "repo": str(self.request.repo),
            "roots": [str(root) for root in config.workspace_roots],
            "ref": self.request.ref,
            "branch": self._name,
            "keep": self._kept,
            "author": author,
            "email": email,
        }

    def _collection(self) -> dict[str, object]:
        author, email = _person(self.config.workspace_author)
        return {**self.made, "author": author, "email": email, "message": _message(self.job, self.config)}

    def _home(self, commit: str | None, *, good: bool) -> dict[str, object]:
        done, failed = f"{tree.OWN_BRANCHES}{self.job.job_id}", f"{tree.OWN_BRANCHES}failed/{self.job.job_id}"
        stale = [] if not good else [failed] if commit is not None else [done, failed]
        return {**self.made, "commit": commit, "reference": done if good else failed, "stale": stale}

    @property
    def _kept(self) -> str:
        owner = hashlib.sha256(self.job.installation.encode()).hexdigest()[:12]
        return f"refs/vibey/{owner}/run-{self.job.run_id}"

    @property
    def _name(self) -> str:
        return f"vibey/{self.job.job_id}"

    def _step(self, name: str, order: Mapping[str, object]) -> Steps:
        """One step of `vibey.engines.tree` in a process of its own; its outcome."""
        spoken = self.control / f"{name}.json"
        answer = self.control / f"{name}-answer.json"
        common = {"tree": str(self.tree), "control": str(self.control), "min_free": self.min_free}
        try:
            if self.control.is_symlink() or not self.control.is_dir():
                remove(self.control)
                self.control.mkdir()
            _replaced(spoken, json.dumps({**order, **common}))
            answer.unlink(missing_ok=True)
        except OSError as error:
            return Failure(FailureClass.WORK, one_line(f"the work spoiled its run's folder: {error}"))
        process = self.context.spawn(
            program("vibey.engines.tree", name),
            environment={**allowed(os.environ), **import_path(), "VIBEY_RESULT_FILE": str(answer)},
            stdin=spoken,
            is_step=True,
        )
        last = LastLine()
        for line in process.lines():
            progress = last.take(line)
            if progress is not None:
                yield progress
        ending = process.wait()
        report = read_report(answer) if ending.code == 0 else None
        outcome = outcome_of(ending, f"workspace {name}", last.text, report or Report())
        if isinstance(outcome, Failure) and report is None and ending.stopped is None:
            return replace(outcome, failure_class=FailureClass.VIBEY, capacity_kind=None)
        return outcome


_NO_GIT = "git is not on the PATH jobs get"
_GIT_FIX = "install git, or leave workspace_roots out"


def _no_git() -> bool:
    return find_program("git", allowed(os.environ)) is None


def _person(author: str) -> tuple[str, str]:
    found = _AUTHOR.fullmatch(author)
    return (found[1], found[2]) if found else ("vibey", "vibey@localhost")


def _message(job: Job, config: EngineConfig) -> str:
    """The message of the commit: what the job is called, and who worked on it."""
    subject = f"vibey job {job.job_id}: {job.title}" if job.title else f"vibey job {job.job_id}"
    program = f" {PurePath(config.argv[0]).name}" if config.argv else ""
    model = f", model {config.model}" if config.model else ""
    client = f"{config.kind}{program}{model}"
    told: dict[str, object] = {"Job": job.job_id, "Run": job.run_id, "Engine": config.name, "Client": client}
    return f"{subject}\n\n" + "".join(f"Vibey-{name}: {value}\n" for name, value in told.items())


def _with_cost(outcome: Outcome, engine: Success) -> Outcome:
    """The outcome with what the engine's work cost, however taking it home went."""
    return replace(
        outcome,
        cost_usd=engine.cost_usd,
        tokens_in=engine.tokens_in,
        tokens_out=engine.tokens_out,
        near_quota_ms=engine.near_quota_ms,
    )


def _replaced(path: Path, text: str) -> None:
    # Whatever the work has put in its place, a link perhaps, is removed and not written through.
    path.unlink(missing_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
