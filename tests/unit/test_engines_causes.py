"""The table of causes: what servers, gateways and clients say, in every form; and text that only speaks of limits."""
# ruff: noqa: E501  (sentences as servers send them)

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibey.domain.circuit import Circuit, OpenReason
from vibey.domain.effort import Effort
from vibey.domain.engine import Phase
from vibey.domain.outcome import CapacityKind, Failure, FailureClass
from vibey.domain.settlement import Attempted, JobState, concerns_circuit, feed, is_busy, is_misconfigured, settle
from vibey.engines.causes import BY_NAME, CAUSES, Cause, sentence_cause
from vibey.engines.clients.signs import answered, worded
from vibey.engines.errorbody import ErrorBody
from vibey.engines.refusal import Refusal, message_of
from vibey.engines.results import parse_report

NOW = 1_800_000_000.0
HOUR_MS = 3_600_000


def error(message: str, **more: object) -> dict[str, Any]:
    """An error's body in the usual form."""
    return {"error": {"message": message, **more}}


def python(value: object) -> str:
    """An error as a gateway in Python repeats it."""
    return f"Error code: 400 - {value!r}"


TOO_LONG: list[tuple[int | None, object]] = [
    (400, error("This model's maximum context length is 8192 tokens", code="context_length_exceeded")),
    (400, error("Your input exceeds the context window of this model. Please adjust your input and try again.")),
    (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 2 > 1"}},
    ),
    (400, error("input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000, decrease input length")),
    (413, {"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
    (413, "too large"),
    (400, error("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", code=400)),
    (400, error("Input is too long for requested model.")),
    (400, error("This model's maximum prompt length is 131072 but the request contains 537812 tokens.")),
    (400, error("Please reduce the length of the messages or completion.", type="invalid_request_error")),
    (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens. However, you requested"}),
    (
        400,
        {
            "object": "error",
            "message": "The decoder prompt (length 9000) is longer than the maximum model length of",
        },
    ),
    (400, error("The input (9000 tokens) is longer than the model's context length (4096 tokens).")),
    (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000"}),
    (422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"}),
    (400, error("request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it", code=400)),
    (500, error("the request exceeds the available context size, try increasing it", type="server_error", code=500)),
    (400, error("prompt too long; exceeded max context length by 1234 tokens")),
    (400, error("the input length exceeds the context length")),
    (
        400,
        {
            "error": "Trying to keep the first 9000 tokens when the context overflows. However, the model is loaded with "
            "context length of only 4096 tokens, which is not enough."
        },
    ),
    (None, error("The number of tokens to keep from the initial prompt is greater than the context length")),
    (None, {"error": "prompt is too long: exceeds the context size"}),
    (400, error("litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too many", code="400")),
    (
        500,
        error(
            'litellm.APIError: AnthropicException - b\'{"type":"error","error":{"type":"invalid_request_error",'
            '"message":"prompt is too long: 213462 tokens > 200000 maximum"}}\''
        ),
    ),
    (429, error("This endpoint's maximum context length is 8192 tokens. However, you requested about 9000 tokens")),
    (400, error("Prompt contains 40000 tokens, too large for model with 32768 maximum context length")),
    (400, error("Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)")),
    (400, error("invalid params, context window exceeds limit (2013)")),
    (400, {"code": "InvalidParameter", "message": "Range of input length should be [1, 98304]"}),
    (400, error("Prompt exceeds max length", code="1261")),
    (400, error("prompt token count of 200000 exceeds the limit of 128000", code="model_max_prompt_tokens_exceeded")),
    (413, error("Request body too large for gpt-4o model. Max size: 8000 tokens.", code="tokens_limit_reached")),
    (400, error("too many tokens: total number of tokens in the prompt cannot exceed 4081")),
    (
        502,
        error(
            "Provider returned error",
            code=502,
            metadata={
                "provider_name": "Anthropic",
                "raw": '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 2 > 1"}}',
            },
        ),
    ),
    (400, python(error("This model's maximum context length is 8192 tokens", code="context_length_exceeded"))),
    (400, [error("The input token count exceeds the maximum number of tokens allowed", status="INVALID_ARGUMENT")]),
    (400, '{"error": {"message": "prompt is too long: 9 tokens", "metadata": {"cut off he'),
    (500, error("rpc error: code = Internal desc = prompt is longer than context window")),
    (400, error("the prompt contains too many tokens for the model: 9000 > 8192")),
    (400, error("The engine prompt length 5000 exceeds the max_model_len 4096. Please reduce prompt.")),
    (400, "input_tokens (9000) + max_new_tokens (1000) exceeds context size 8192"),
    (500, {"error": "Context size has been exceeded"}),
    (503, error("Conversation too long for the model")),
    (429, error("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.")),
]
OTHERS: list[tuple[int | None, object, str]] = [
    (429, error("Request too large for m in organization o on tokens per min (TPM): Limit 30000, Requested 47133. The "
                "input or output tokens must be reduced in order to run successfully.", type="tokens",
                code="rate_limit_exceeded"), "larger_than_rate"),
    (413, error("Request too large for model `llama` in organization `o` service tier `on_demand` on tokens per minute "
                "(TPM): Limit 6000, Requested 7041, please reduce your message size and try again.",
                code="rate_limit_exceeded"), "larger_than_rate"),
    (429, error("Rate limit reached for m on tokens per min (TPM): Limit 30,000, Used 0, Requested 47,133."),
     "larger_than_rate"),
    (429, error("litellm.RateLimitError: RateLimitError: OpenAIException - Request too large for gpt-5 on tokens per min "
                "(TPM): Limit 30000, Requested 36055."), "larger_than_rate"),
    (429, error("Extra usage is required for long context requests.", type="rate_limit_error"), "larger_than_rate"),
    (429, error("The request is too large: 200000 tokens, the tokens-per-minute limit is 100000"), "larger_than_rate"),
    (429, error("Your request requires 60000 tokens which exceeds your TPM limit of 30000 tokens"), "larger_than_rate"),
    (429, error("Rate limit: a request of 51000 tokens is larger than your limit of 40000 per minute"), "larger_than_rate"),
    (429, error("Request of 5000 tokens refused: TPM limit of 30000 tokens reached"), "window"),
    (None, error("Maximum output length exceeded"), "output_limit"),
    (400, error("max_tokens is too large: 99999. This model supports at most 4096 completion tokens"), "output_limit"),
    (400, error("max_tokens: 9000 > 8192, which is the maximum allowed number of output tokens"), "output_limit"),
    (400, error("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"), "output_limit"),
    (400, error("`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens`"), "output_limit"),
    (400, error("Unable to submit request because it has a maxOutputTokens value of 99999 but the supported range is from "
                "1 to 65537"), "output_limit"),
    (400, error("Could not finish the message because max_tokens or model output limit was reached."), "output_limit"),
    (400, {"code": "InvalidParameter", "message": "Range of max_tokens should be [1, 8192]"}, "output_limit"),
    (400, error("The response was filtered", code="content_filter"), "content_refused"),
    (403, error("Your chosen model requires moderation and your input was flagged", code=403,
                metadata={"flagged_input": "rate limit exceeded"}), "content_refused"),
    (429, error("You exceeded your current quota", code="insufficient_quota"), "credits"),
    (400, error("Your credit balance is too low to access the Anthropic API."), "credits"),
    (402, error("Insufficient credits"), "credits"),
    (402, error("This request requires more credits, or fewer max_tokens. You can only afford 4000"), "credits"),
    (402, "", "payment"),
    (403, error("This API key has exceeded its spending limit"), "credits"),
    (400, error("Your organization has reached its monthly spend limit", type="invalid_request_error"), "credits"),
    (403, error("Quota exhausted: prepaid balance is $0.00, please recharge"), "credits"),
    (500, error("The monthly budget for this project has been used up"), "credits"),
    (429, error("\u4f59\u989d\u4e0d\u8db3\u6216\u65e0\u53ef\u7528\u8d44\u6e90\u5305", code="1113"), "credits"),
    (403, error("Key limit exceeded (total limit). Manage it using the settings", code=403), "credits"),
    (400, error("Budget has been exceeded! Current cost: 76.16, Max budget: 10.0", type="budget_exceeded", code="400"),
     "credits"),
    (429, error("ExceededBudget: User=u over budget. Spend=10.2, Budget=10.0", type="budget_exceeded"), "credits"),
    (429, {"detail": "Max budget limit reached."}, "credits"),
    (403, {"title": "Monthly spending budget of $50 has been reached.", "status": 403, "error": "Monthly spending budget "
           "of $50 has been reached."}, "credits"),
    (500, error("Authentication Error, ExceededTokenBudget: Current spend for token: 7.2; Max Budget for Token: 2"),
     "credits"),
    (429, error("Your account is not active, please check your billing details", code="billing_not_active"), "credits"),
    (429, error("You exceeded your current quota, please check your plan and billing details."), "quota_of_a_plan"),
    (429, [error("You exceeded your current quota, please check your plan and billing details.", code=429,
                 status="RESOURCE_EXHAUSTED", details=[])], "quota_of_a_clock"),
    (429, error("You exceeded your current quota, please check your plan and billing details. For more information on this "
                "error, head to: https://ai.google.dev/gemini-api/docs/rate-limits."), "quota_of_a_clock"),
    (429, error("You have exhausted your capacity on this model. Your quota will reset after 8h44m7s."),
     "quota_of_a_clock"),
    (429, error(json.dumps(error("Resource has been exhausted (e.g. check quota).", status="RESOURCE_EXHAUSTED"))),
     "quota_of_a_clock"),
    (400, error("You have reached your specified API usage limits. You will regain access on 2027-02-01 at 00:00 UTC."),
     "limit_until"),
    (401, error("Incorrect API key provided", type="invalid_request_error", code="invalid_api_key"), "login"),
    (401, error("no words known", type="invalid_request_error"), "login"),
    (403, "forbidden", "login"),
    (400, error("API key not valid. Please pass a valid API key.", status="INVALID_ARGUMENT",
                details=[{"reason": "API_KEY_INVALID"}]), "login"),
    (404, error('model "m" not found, try pulling it first'), "unknown_model"),
    (404, error("The model `m` does not exist", code="model_not_found"), "unknown_model"),
    (404, error("No models loaded. Please load a model in the developer page.", code="model_not_found"), "unknown_model"),
    (404, "404 page not found", "not_there"),
    (307, "", "not_there"),
    (503, error("Loading model", type="unavailable_error"), "no_slot"),
    (503, error("no slot available"), "no_slot"),
    (503, error("server busy, please try again.  maximum pending requests exceeded"), "no_slot"),
    (503, {"error": "Model m is currently loading", "estimated_time": 20.0}, "no_slot"),
    (429, error("the engine is currently overloaded", type="engine_overloaded_error"), "overloaded"),
    (529, error("Overloaded", type="overloaded_error"), "overloaded"),
    (503, error("The model is overloaded. Please try again later.", status="UNAVAILABLE"), "overloaded"),
    (None, error("Provider returned error", code="server_error", metadata={"error_type": "overloaded"}), "overloaded"),
    (429, error("Service tier capacity exceeded for this model.", code="3505"), "overloaded"),
    (429, error("Rate limit reached for gpt", code="rate_limit_exceeded"), "window"),
    (429, error("Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 25000, Requested 10000."), "window"),
    (429, error("This request would exceed the rate limit for your organization of 20,000 input tokens per minute. Please "
                "reduce the prompt length or the maximum tokens requested, or try again later."), "window"),
    (429, error("slow down"), "window"),
    (429, error("Requests have exceeded token rate limit of your current tier. Please retry after 26 seconds."), "window"),
    (429, error("The usage limit has been reached", type="usage_limit_reached"), "window"),
    (500, error("litellm.RateLimitError: Rate limit exceeded. Limit resets at: 2027-01-15 09:00:00 UTC"), "window"),
    (403, {"statusCode": 403, "message": "Out of call volume quota. Quota will be replenished in 01:02:03."}, "window"),
    (429, error("No deployments available for selected model, Try again in 60 seconds.", code="429"), "window"),
    (None, error("slow down", code=429), "window"),
    (None, error("slow down", code="429"), "window"),
    (429, error("Provider returned error", code=429, metadata={"raw": "m is temporarily rate-limited upstream."}), "window"),
    (403, error("You do not have access to model m"), "unknown_model"),
    (500, error("disk quota exceeded"), "server_fault"),
    (500, error("memory limit reached"), "server_fault"),
    (504, error("Deadline exceeded: context deadline exceeded"), "server_fault"),
    (500, error("model requires more system memory than is available"), "server_fault"),
    (500, error("model runner has unexpectedly stopped, this may be due to resource limitations or an internal error"),
     "server_fault"),
    (503, "<html><title>503 Service Temporarily Unavailable</title></html>", "server_fault"),
    (502, "", "server_fault"),
    (408, "", "server_fault"),
    (None, error("x", code=7), "server_fault"),
    (None, {"error": [1]}, "server_fault"),
    (422, error("invalid"), "bad_request"),
    (None, error("x", type="invalid_request_error"), "bad_request"),
]  # fmt: skip
CASES = [*((status, body, "prompt_too_long") for status, body in TOO_LONG), *OTHERS]

# What a server repeats of a job about limits, and other limits than ours.
QUOTATIONS: list[tuple[int, object]] = [
    (422, {"detail": [{"type": "string_type", "loc": ["body"], "msg": "Input should be a valid string",
                       "input": "insufficient quota, rate limit reached, prompt is too long"}]}),
    (400, error("[{'type': 'missing', 'loc': ('body', 'model'), 'msg': 'Field required', 'input': {'messages': "
                "[{'role': 'user', 'content': \"You've hit your limit, out of credits\"}]}}]")),
    (400, error("1 validation error for Request\n input_value='budget has been exceeded', input_type=str")),
    (400, error("Invalid value: 'rate limit exceeded, invalid api key'. Supported values are: 'user' and 'system'.")),
    (400, error('Could not parse "Budget has been exceeded! Max budget: 10" as JSON')),
    (400, error("Invalid role", param="messages", messages=[{"content": "insufficient_quota: rate limit"}])),
    (400, error("The thinking budget 99999 is invalid. Please choose a value between 512 and 24576.")),
    (400, error("max_tokens must be greater than thinking.budget_tokens")),
    (422, {"detail": [{"loc": ["body"], "msg": "value is not valid: You've hit your limit", "type": "value_error"}]}),
    (400, error('Failed to parse tool call arguments: {"msg": "insufficient quota"}')),
    (400, error("Could not deserialize: {'messages': [{'role': 'user', 'content': 'You exceeded your current quota'}]}")),
    (400, error("Invalid input: rate limit exceeded is what was sent", type="invalid_request_error")),
    (400, error("too many images: the limit of images is 20")),
]  # fmt: skip
TALK = [
    "To handle a rate limit, wait and try again later. You've hit your limit when the server answers 429.",
    (
        "429 Too Many Requests means that the rate limit is exceeded; the client should back off before the next call to it.\n"
        "Here is an example:\n\n```python\nraise RateLimitError('Rate limit reached')\n```\n"
    ),
    'I fixed the bug: the message said "You\'ve hit your limit".',
    "The function now raises when the budget has been exceeded.",
    "Credit balances are shown in the table.",
    "BUILD OK, no 429 here",
    "The prompt is too long to fit on one line, so I wrapped it.",
    "We reached the limit of this approach",
    "",
]
SENTENCES = {
    "Claude AI usage limit reached|1800003600": "window",
    "Claude usage limit reached. Your limit will reset at 3pm (America/New_York).": "window",
    "You've hit your limit \u00b7 resets 3pm (Europe/Berlin)": "window",
    "You\u2019ve hit your session limit \u00b7 resets 2:50am (Asia/Muscat)": "window",
    "You've hit your weekly limit \u00b7 resets Dec 4, 3pm (America/New_York)": "window",
    "You've hit your Opus limit": "window",
    "You've reached your Fable 5 limit. Run /usage-credits to go on.": "window",
    "5-hour limit reached \u2219 resets 2am": "window",
    "Weekly limit reached \u00b7 resets 10am (Asia/Seoul) \u00b7 /upgrade to Max": "window",
    "Opus weekly limit reached \u2219 resets Oct 9 at 5pm": "window",
    "API Error: Rate limit reached": "window",
    "[API Error: Rate limit exceeded]": "window",
    "You've hit your usage limit. Upgrade to Pro or try again in 3 days 2 hours.": "window",
    "You've hit your org's monthly usage limit": "window",
    "Your limit resets at 3pm": "window",
    "You are being rate limited. Try again in 20s": "window",
    "Your credit balance is too low to access the API": "credits",
    "Spending cap reached resets 6pm": "limit_until",
    "You're out of extra usage \u00b7 resets 3pm": "limit_until",
    "Credit balance is too low": "credits",
    "Your workspace is out of credits. Ask an owner.": "credits",
    "Quota exceeded. Check your plan and billing details.": "quota_of_a_plan",
    "You have exhausted your daily quota on this model.": "quota_of_a_clock",
    "Invalid API key \u00b7 Please run /login": "login",
    "Prompt is too long": "prompt_too_long",
    "Prompt is too long \u00b7 the request is ~300000 tokens (limit 200000)": "prompt_too_long",
    "API Error: Claude's response exceeded the 32000 output token maximum. To configure it, set a variable.": "output_limit",
}


def text_of(body: object) -> str:
    """A body as it is sent."""
    return body if isinstance(body, str) else json.dumps(body)


def refusal(status: int | None, body: object) -> Refusal:
    """The refusal of a body, or of an event where there is no status."""
    if status is not None:
        return Refusal.answered(status, text_of(body), {}, NOW)
    said = body.get("error") if isinstance(body, dict) else body
    return Refusal.told(said, {}, NOW)


@pytest.mark.parametrize(("status", "body", "name"), CASES)
def test_cause_of_an_answer(status: int | None, body: object, name: str) -> None:
    """What is said decides, then the status; and the failure of the run is the row's."""
    found = refusal(status, body)
    assert found.cause.name == name
    failure = found.failure("m")
    assert (failure.failure_class, failure.kind) == (found.cause.failure_class, found.cause.kind)
    assert status is None or str(status) in str(failure)


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 413, 422, 429, 500, 502, 503, 529])
@pytest.mark.parametrize("form", ["body", "event", "bare", "nested"])
def test_prompt_too_long_is_the_jobs_by_any_status(status: int, form: str) -> None:
    """One long prompt never touches the engine of everybody, in whatever form the server says so."""
    words = "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."
    bodies = {"body": error(words), "event": {"error": words}, "bare": words, "nested": error(json.dumps(error(words)))}
    found = refusal(None if status == 200 else status, bodies[form])
    assert found.cause.name == "prompt_too_long"
    assert not concerns_circuit(Failure(found.cause.failure_class, "x", found.cause.kind))


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_row_is_what_it_says(cause: Cause) -> None:
    """The example and the codes of each row lead to it and to no row before it; every row names its source."""
    status = min(cause.statuses, default=None)
    assert refusal(status, error(cause.example)).cause is cause
    for code in cause.codes:
        assert Refusal.told({"code": code, "message": "x"}).cause is cause, code
    assert cause.source
    assert (cause.kind is None) is (cause.failure_class is not FailureClass.CAPACITY)


def test_every_status_has_one_row() -> None:
    """No status is in two rows."""
    statuses = [status for cause in CAUSES for status in cause.statuses]
    assert len(statuses) == len(set(statuses))
    assert len(BY_NAME) == len(CAUSES)


@pytest.mark.parametrize(("status", "body"), QUOTATIONS)
def test_what_is_quoted_does_not_count(status: int, body: object) -> None:
    """A server that repeats the job's own words is not refusing by them."""
    assert refusal(status, body).cause.failure_class is FailureClass.WORK
    assert refusal(status, body).cause.name in {"bad_request", "output_limit"}


def test_what_a_server_repeats_of_the_prompt_does_not_count() -> None:
    """Also without quotation marks: the words of the prompt are the job's. The status then decides."""
    prompt = "Translate this message: you have run out of credits, please top up your account. Thank you."
    repeated = "cannot process: you have run out of credits, please top up your account"
    assert Refusal.answered(400, text_of(error(repeated)), sent=prompt).cause.name == "bad_request"
    assert Refusal.answered(429, text_of(error(repeated)), sent=prompt).cause.name == "window"
    assert Refusal.told(repeated, sent=prompt).cause.name == "server_fault"
    assert Refusal.answered(400, text_of(error(repeated)), sent="Another task").cause.name == "credits"


@pytest.mark.parametrize("text", TALK)
def test_talk_of_limits_is_no_sentence(text: str) -> None:
    """An answer that speaks of limits is an answer."""
    assert sentence_cause(text) is None


@pytest.mark.parametrize(("text", "name"), SENTENCES.items())
def test_sentence_has_its_cause(text: str, name: str) -> None:
    """A refusal in a client's words, without any status."""
    cause = sentence_cause(text)
    assert cause is not None
    assert cause.name == name
    sign = worded(text)
    assert sign is not None
    assert (sign.failure_class, sign.kind) == (cause.failure_class, cause.kind)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_what_follows_from_each_cause(cause: Cause) -> None:
    """Circuit, attempts and the cap's unit after a refusal of each cause, on a healthy account and on its probe."""
    document = refusal(min(cause.statuses, default=None), error(cause.example)).failure("m").document()
    failure = parse_report(json.dumps({"failure": document}).encode()).outcome(None)
    assert isinstance(failure, Failure)
    job = Attempted(1, "e", attempt=1, max_attempts=3, effort=Effort.LOW)
    settled = settle(job, failure, backoff_ms=1000)
    closed = Circuit("a")
    after = closed
    for _ in range(3):
        after = feed(after, failure.dated(HOUR_MS), HOUR_MS, HOUR_MS, 4)
    assert settled.job_state is JobState.QUEUED
    if cause.failure_class is FailureClass.WORK:
        assert (after, settled.attempts, settled.release) == (closed, 1, False)
        opened = closed.refused(CapacityKind.WINDOW, None, 0, HOUR_MS)
        assert feed(opened, failure, HOUR_MS, HOUR_MS, 4) == opened
    elif cause.failure_class is FailureClass.ENGINE:
        assert (after.open_reason, settled.attempts) == (OpenReason.ENGINE_FAILURES, 1)
    elif cause.failure_class is FailureClass.MISCONFIGURED:
        assert (after, settled.attempts, is_misconfigured(failure)) == (closed, 0, True)
    elif cause.kind is CapacityKind.BUSY:
        assert (after, settled.attempts, settled.release, is_busy(failure)) == (closed, 0, True, True)
    else:
        reasons = {
            CapacityKind.WINDOW: OpenReason.WINDOW_EXHAUSTED,
            CapacityKind.CREDITS: OpenReason.CREDITS_EXHAUSTED,
            CapacityKind.LOGIN: OpenReason.LOGIN_FAILED,
        }
        assert after.open_reason is reasons[cause.kind] if cause.kind else False
        assert (after.phase(HOUR_MS), settled.attempts, settled.release) == (Phase.OPEN, 0, True)


def test_a_client_is_left_to_try_what_may_pass() -> None:
    """A full server ends a client's run at once, an overloaded provider and the job's own fault do not."""
    assert not answered(503, text_of(error("no slot available"))).passing
    assert answered(529, text_of(error("Overloaded"))).passing
    assert answered(429, text_of(error("This model's maximum context length is 8192 tokens"))).passing
    assert not answered(400, text_of(error("Budget has been exceeded! Max budget: 10"))).passing


def test_retry_word_makes_unavailable_busy() -> None:
    """A server that says when to come back is full, not broken."""
    failure = Refusal.answered(503, "", {"retry-after": "7"}, NOW).failure("m")
    assert (failure.kind, failure.resets_in) == (CapacityKind.BUSY, 7.0)


def test_credits_name_no_reset() -> None:
    """Money comes back when somebody pays, whatever a header says."""
    failure = Refusal.answered(429, text_of(error("x", code="insufficient_quota")), {"retry-after": "7"}, NOW).failure(
        "m"
    )
    assert (failure.kind, failure.resets_in) == (CapacityKind.CREDITS, None)


def test_fix_for_a_missing_model() -> None:
    """Where the server can fetch the model, the command to do so is named."""
    body = text_of(error('model "qwen" not found, try pulling it first'))
    assert "ollama pull qwen" in str(Refusal.answered(404, body).failure("qwen"))


@given(
    st.none() | st.integers(300, 599),
    st.text(max_size=80)
    | st.sampled_from([text_of(body) for _, body, _ in CASES]).flatmap(
        lambda body: st.integers(0, len(body)).map(lambda end: body[:end])
    ),
    st.dictionaries(st.sampled_from(["retry-after", "date", "x-ratelimit-reset"]), st.text()),
)
def test_any_answer_has_one_cause(status: int | None, body: str, headers: dict[str, str]) -> None:
    """Nothing that a server sends, or that is cut off on the way, breaks the table."""
    found = Refusal.answered(status, body, headers, NOW) if status else Refusal.told(body, headers, NOW)
    failure = found.failure("m")
    assert (failure.kind is None) == (failure.failure_class is not FailureClass.CAPACITY)
    assert failure.resets_in is None or failure.resets_in >= 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "details", "headers", "resets_at", "raw"]), inner
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_any_json_can_be_read(value: object) -> None:
    """Any value, as a value and as a text."""
    ErrorBody.of(value)
    Refusal.told(value, {}, NOW).failure("m")
    Refusal.answered(429, json.dumps(value), {}, NOW).failure("m")


@pytest.mark.parametrize("body", ["[[[", "[]", "{}", '{"error": null}', '{"error": {"error": {}}}', "[" * 100_000])
def test_odd_bodies_are_their_own_message(body: str) -> None:
    """A body of another form is shown as it is."""
    assert message_of(body) == body
