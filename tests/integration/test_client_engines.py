"""The engine of coding clients with real processes: a program of the client's name prints what a real one printed."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from tests.support.carried import outcome_of
from tests.support.recordings import CLIENTS, FOLDER
from vibey.domain.effort import Effort
from vibey.domain.errors import InvalidInput
from vibey.domain.outcome import CapacityKind, Failure, FailureClass, Success
from vibey.engines.clients.client import STALL_SECONDS
from vibey.engines.contract import EngineConfig, Job
from vibey.engines.registry import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vibey.domain.outcome import Outcome
    from vibey.engines.contract import Health

    Run = Callable[..., Outcome]

KINDS = sorted(CLIENTS)
KEY = "sk-planted-secret-key-0123456789"
LOGIN = FailureClass.CAPACITY, CapacityKind.LOGIN
# Recordings that show a refusal without the tap, whose word is another one in each run.
REFUSALS = {
    "claude-code": ("claude-code-login.stream", LOGIN),
    "codex": ("codex-login.stream", LOGIN),
    "gemini": ("gemini-unknown_model.stream", (FailureClass.MISCONFIGURED, None)),
    "opencode": ("opencode-bad_credentials.stdout", LOGIN),
    "qwen-code": ("qwen-code-login.stream", LOGIN),
}
HOSTILE = "--dangerously; $(touch owned) `x` \u00e9 \ud800"


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on the PATH; HOME is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEAM_KEY", KEY)
    monkeypatch.setenv("VIBEY_DATABASE_URL", "postgresql://u:p@localhost/vibey")
    return folder


@pytest.fixture
def install(bin_folder: Path) -> Callable[[str, str], None]:
    """Puts a script in a client's place."""

    def put(kind: str, script: str) -> None:
        program = bin_folder / CLIENTS[kind].binary
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)

    return put


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a payload; keyword arguments change the engine."""

    def begin(kind: str, payload: object = None, **config: object) -> Outcome:
        asked = {"prompt": HOSTILE} if payload is None else payload
        settings = {"api_key_env": "TEAM_KEY", "model": "m", **config}
        job = Job(7, 70, 9, 1, Effort.HIGH, asked, "site", installation=uuid.uuid4().hex)  # type: ignore[arg-type]
        return outcome_of(build(EngineConfig("e", kind, **settings)), job, tmp_path / "runs")  # type: ignore[arg-type]

    return begin


def printing(recording: str) -> str:
    """A command that prints a recording."""
    return f"cat '{FOLDER / recording}'"


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_arrives_on_input_alone(kind: str, run: Run, install: Callable[..., None], tmp_path: Path) -> None:
    """Nothing of the job is in arguments or environment, nothing of the worker's secrets but the engine's own key."""
    seen = tmp_path / "seen"
    seen.mkdir()
    keep = f"cd {seen}; cat > stdin; printf '%s\\n' \"$@\" > argv; env > environment"
    install(kind, f"{keep}; {printing(f'{kind}-success.stream')}")
    efforts = {Effort.LOW: ("--low",), Effort.STANDARD: ("--extra", "value with space")}
    outcome = run(kind, base_url="http://127.0.0.1:9/v1", efforts=efforts)
    assert isinstance(outcome, Success), outcome
    assert (seen / "stdin").read_bytes() == HOSTILE.encode("utf-8", "replace")
    argv = (seen / "argv").read_text().splitlines()
    assert argv[argv.index("--extra") :][:2] == ["--extra", "value with space"]
    assert "--low" not in argv
    assert not any("dangerously" in argument for argument in argv)
    environment = (seen / "environment").read_text()
    assert KEY in environment
    assert "VIBEY_DATABASE_URL" not in environment
    assert "TEAM_KEY" not in environment
    assert KEY not in " ".join(argv)


@pytest.mark.parametrize(
    ("prompt", "arrives"),
    [
        ("/quit", "The task:\n/quit"),
        (" \u00a0\t\n/clear all", "The task:\n \u00a0\t\n/clear all"),
        ("\ufeff/x", "The task:\n\ufeff/x"),
        ("mend /etc/x", "mend /etc/x"),
        ("!ls @x #y\n/quit", "!ls @x #y\n/quit"),
        ("\x1b[2J\x07 -x", "\x1b[2J\x07 -x"),
        ("x" * 250_000, "x" * 250_000),
    ],
)
def test_prompt_is_no_command(
    prompt: str, arrives: str, run: Run, install: Callable[..., None], tmp_path: Path
) -> None:
    """What a client would take for a command of its own arrives as the words of a sentence, all else as it is."""
    install("qwen-code", f"cat > {tmp_path}/stdin; {printing('qwen-code-success.stream')}")
    assert isinstance(run("qwen-code", {"prompt": prompt}), Success)
    assert (tmp_path / "stdin").read_bytes() == arrives.encode()


@pytest.mark.parametrize("payload", [{}, {"prompt": " \n"}, {"prompt": 5}, {"text": "x"}])
def test_job_without_a_prompt_is_its_own_fault(payload: object, run: Run) -> None:
    """The failure says what is missing; no client is needed to say so."""
    outcome = run("codex", payload)
    words = "payload.prompt is missing: a codex engine needs the text of the task"
    assert outcome == Failure(FailureClass.WORK, words, final=True, unstarted=True)


@pytest.mark.parametrize("kind", KINDS)
def test_refusal_ends_a_client_that_would_wait(kind: str, run: Run, install: Callable[..., None]) -> None:
    """The tree is ended by what it shows, though it ignores TERM and would go on for an hour."""
    recording, kept = REFUSALS[kind]
    install(kind, f"trap '' TERM; {printing(recording)}; sleep 3600 & sleep 3600")
    outcome = run(kind)
    assert isinstance(outcome, Failure)
    assert (outcome.failure_class, outcome.capacity_kind) == kept


def test_key_is_masked_and_reset_kept(run: Run, install: Callable[..., None], tmp_path: Path) -> None:
    """A client that shows its key shows it to nobody, and the instant a window opens again is kept."""
    install("claude-code", f'echo "$ANTHROPIC_API_KEY"; {printing("claude-code-subscription_window.stream")}')
    outcome = run("claude-code")
    assert isinstance(outcome, Failure)
    assert outcome.resets_at_ms is not None
    assert outcome.cost_usd is not None
    assert KEY not in (tmp_path / "runs" / "run-70" / "output.log").read_text()


def test_operators_prices_count_where_the_client_names_none(run: Run, install: Callable[..., None]) -> None:
    """24 tokens in and 6 out at three and fifteen dollars a million."""
    install("codex", printing("codex-success.stream"))
    assert run("codex", price_in=Decimal(3), price_out=Decimal(15)).cost_usd == Decimal("0.000162")


@pytest.mark.parametrize("kind", KINDS)
def test_missing_client_is_misconfigured(
    kind: str, run: Run, bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the run and the doctor say what is missing, the doctor also what to do."""
    monkeypatch.setenv("PATH", str(bin_folder))
    outcome = run(kind)
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.MISCONFIGURED
    health = build(EngineConfig("e", kind, api_key_env="TEAM_KEY")).doctor()
    assert not health.installed
    assert f"npm install -g {CLIENTS[kind].package}" in health.fix


def test_missing_key_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is not there is a person's to give."""
    monkeypatch.delenv("TEAM_KEY", raising=False)
    outcome = run("codex")
    assert isinstance(outcome, Failure)
    assert outcome.failure_class is FailureClass.MISCONFIGURED
    health = build(EngineConfig("e", "codex", api_key_env="TEAM_KEY")).doctor()
    assert (health.logged_in, health.fix) == (False, "set TEAM_KEY")


def test_doctor_asks_the_client_once_a_minute(install: Callable[..., None], tmp_path: Path) -> None:
    """Version and login come from the client's short commands, and not from every look, nor from every engine's."""
    calls = tmp_path / "calls"
    refuse = '[ "$1" = login ] && { echo Not logged in; exit 1; }'
    install("codex", f'echo "$*" >> {calls}; {refuse}; echo codex-cli 1.2.3')
    health = build(EngineConfig("one", "codex")).doctor()
    assert (health.installed, health.version, health.logged_in) == (True, "1.2.3", False)
    assert "codex login" in health.fix
    assert build(EngineConfig("other", "codex")).doctor() is health
    assert calls.read_text().splitlines() == ["--version", "login status"]


@pytest.mark.parametrize(
    ("kind", "file"), [("gemini", ".gemini/oauth_creds.json"), ("qwen-code", ".qwen/oauth_creds.json")]
)
def test_login_by_file(
    kind: str, file: str, install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login is one when its file is there."""
    install(kind, "echo 0.1.2")
    assert build(EngineConfig("e", kind)).doctor().logged_in is False
    login = tmp_path / "other" / file
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    assert build(EngineConfig("e", kind)).doctor().good


def test_login_of_opencode_is_by_provider(
    install: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider of the model counts; without an entry nothing is known."""
    install("opencode", "echo 1.18.33")
    data = tmp_path / "data" / "opencode"
    data.mkdir(parents=True)
    (data / "auth.json").write_text(json.dumps({"acme": {"type": "api"}}))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert build(EngineConfig("a", "opencode", model="acme/m")).doctor().logged_in is True
    assert build(EngineConfig("b", "opencode", model="other/m")).doctor().logged_in is None


@pytest.mark.parametrize("kind", KINDS)
def test_description_is_the_operators(kind: str) -> None:
    """Efforts are those with arguments of their own; silence has a limit unless another is set."""
    engine = build(EngineConfig("e", kind, efforts={Effort.HIGH: ("--x",), Effort.LOW: ()}))
    described = engine.describe()
    assert (described.kind, described.efforts) == (kind, (Effort.LOW, Effort.HIGH))
    assert described.stall_seconds == STALL_SECONDS


def test_settings_a_kind_cannot_use_are_refused() -> None:
    """A login in an address, a model that is missing."""
    with pytest.raises(InvalidInput, match=r"engine\.e\.base_url"):
        build(EngineConfig("e", "codex", base_url="http://u:p@host"))
    with pytest.raises(InvalidInput, match=r"engine\.e\.model"):
        build(EngineConfig("e", "opencode", base_url="http://host"))


TAPPED = sorted(kind for kind, client in CLIENTS.items() if client.taps)
HIDES = "this version hides its requests"
REQUEST = """printf '{"type":"vibey.request","key":"%s"}\\n' "$VIBEY_TAP" >&2; """


@pytest.mark.parametrize("kind", TAPPED)
def test_a_client_that_hides_its_requests_is_named(
    kind: str, run: Run, install: Callable[..., None], tmp_path: Path
) -> None:
    """By the log of the run that found it, once, and by the doctor, for that version and until a run is seen again."""
    log, state = tmp_path / "runs" / "run-70" / "output.log", tmp_path / "state"

    def found(version: str, before: str = "") -> tuple[int, Health]:
        install(
            kind, f'[ "$1" = --version ] && {{ echo {version}; exit; }}; {before}{printing(f"{kind}-success.stream")}'
        )
        assert isinstance(run(kind, state_dir=state), Success)
        health = build(EngineConfig("e", kind, model=version, api_key_env="TEAM_KEY", state_dir=state)).doctor()
        return log.read_text().count(f"[vibey] {HIDES}"), health

    count, health = found("0.0.1")
    assert (count, health.good) == (1, True)
    assert HIDES in health.detail
    assert f"npm install -g {CLIENTS[kind].package}@" in health.fix
    other = build(EngineConfig("e", kind, model="other", api_key_env="TEAM_KEY", state_dir=tmp_path / "none")).doctor()
    assert HIDES not in other.detail
    count, health = found("0.0.2", REQUEST)
    assert (count, HIDES in health.detail, list(state.iterdir())) == (0, False, [])


@pytest.mark.parametrize("kind", TAPPED)
def test_what_comes_before_the_models_answer_proves_nothing(
    kind: str, run: Run, install: Callable[..., None], tmp_path: Path
) -> None:
    """Clients print events before they have asked anything; only one that needed an answer shows that a request hid."""
    install(kind, """echo '{"type":"system","subtype":"init"}'; echo '{"type":"init"}'; exit 3""")
    assert isinstance(run(kind, state_dir=tmp_path / "state"), Failure)
    assert HIDES not in (tmp_path / "runs" / "run-70" / "output.log").read_text()
    assert not (tmp_path / "state").exists()
