"""Causes: whose fault a refusal is. One table for every kind of engine.

What a server or a client says decides first, in the order of the table: its codes, the figures it names, its words.
Only where it says nothing that is known does the HTTP status decide. `vibey.engines.errorbody` finds what was said, and
leaves out what was only quoted.

A *sentence* is a text that as a whole is a refusal, such as "You've hit your limit · resets 3pm (Europe/Berlin)".
Clients print them without any status, and some put them in the place of the answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibey.domain.outcome import CapacityKind, FailureClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vibey.engines.errorbody import ErrorBody

LONGEST_SENTENCE = 400
NO_STATUS: frozenset[int | None] = frozenset({None})
_REQUEST_STATUSES: frozenset[int | None] = frozenset({None, 400, 403, 404, 410, 422})
_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Cause:
    """One row. A refusal has this cause if it carries one of the codes, or its words match `says`.

    `among`: the statuses beside which codes and words count; None means any, and None within it no status at all.
    `statuses` decide where nothing was said. `sentence` matches a whole text that is such a refusal. `example` is what
    a server or client sends, `source` where that is documented or was recorded. `slots`: the server has slots of its
    own and is full or still loading; clients are not left to wait for that.
    """

    name: str
    failure_class: FailureClass
    kind: CapacityKind | None
    meaning: str
    example: str
    source: str
    codes: frozenset[str] = frozenset()
    says: re.Pattern[str] | None = None
    sentence: re.Pattern[str] | None = None
    statuses: frozenset[int] = frozenset()
    among: frozenset[int | None] | None = None
    slots: bool = False


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE | re.DOTALL)


def _sentence(*patterns: str) -> re.Pattern[str]:
    """A text of which the beginning is the refusal; what follows is a reset, or what to do about it."""
    begins = "|".join(f"(?:{pattern})" for pattern in patterns)
    before = r"(?:\[?API Error[^:]{0,40}: ?)?(?:Error: )?"
    then = r"\s+(?:resets?|resetting|try|please|your|run|upgrade|for|and|to|at|on|in|\d).*"
    after = rf"(?:\s*[.!|\u00b7\u2219\u2022,;:\](\u2014-].*|{then}|)"
    return re.compile(rf"{before}(?:{begins}){after}", re.IGNORECASE | re.DOTALL)


def _codes(names: str) -> frozenset[str]:
    return frozenset(names.split())


WORK, ENGINE, CAPACITY = FailureClass.WORK, FailureClass.ENGINE, FailureClass.CAPACITY
MISCONFIGURED = FailureClass.MISCONFIGURED
_LIMITED = (
    r"(?:usage|rate|session|weekly|daily|hourly|monthly|\d+[- ]hour|five[- ]hour|request|message|quota|account|plan"
    r"|opus|sonnet|haiku|fable|fast|pro|flash|free[- ]tier)"
)

_OF_A_TIME = (
    r"(?:\brate[- ]limit|\bper[- ](?:sec|min|hour|day|week|month)|\bresets?\b|\b(?:hourly|daily|weekly|monthly)\b"
    r"|\bagain (?:in|at|after)\b)"
)
_SPENDING = (
    r"(?:(?:your )?(?:\w+ )?spend(?:ing)? (?:cap|limit) (?:has been )?(?:reached|exceeded|hit)"
    r"|you(?:['\u2019]ve| have) (?:reached|exceeded|hit) (?:your|the) (?:[\w'\u2019-]+ ){0,3}"
    r"spend(?:ing)? (?:cap|limit))"
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        "larger_than_rate",
        WORK,
        None,
        "the request alone is larger than a minute's limit, so no wait helps",
        "Request too large for m on tokens per min (TPM): Limit 30000, Requested 47133.",
        "OpenAI and Groq `rate_limit_exceeded` with `Limit` below `Requested`; Anthropic's `long context` entitlement",
        says=_words(
            r"request too large\b",
            r"extra usage is required for (?:long|1m) context",
            r"requested tokens? exceeds? (?:the |your )?(?:rate|tokens? per minute|tpm)",
        ),
    ),
    Cause(
        "prompt_too_long",
        WORK,
        None,
        "the prompt is longer than the model's context",
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "OpenAI and Azure `context_length_exceeded`; Anthropic `prompt is too long`, `request_too_large`; "
        "Gemini, Bedrock, "
        "xAI, Groq, Mistral, Moonshot, MiniMax, DashScope; vLLM, SGLang, TGI, llama.cpp, Ollama, LM Studio; LiteLLM "
        "`ContextWindowExceededError`; claude, codex and opencode (recorded)",
        codes=_codes(
            "context_length_exceeded exceed_context_size_error context_window_exceeded model_context_window_exceeded"
            " contextwindowexceedederror contextoverflowerror string_above_max_length request_too_large"
            " tokens_limit_reached prompt_too_long input_too_long"
        ),
        says=_words(
            r"\bmaximum context length\b",
            r"\bmax(?:imum)? prompt length\b",
            r"context[ _](?:length|window|size)s?\b.{0,40}\bexceed",
            r"exceed\w*\b.{0,60}\bcontext[ _](?:length|window|size|limit)",
            r"exceed\w*\b.{0,60}\b(?:max_model_len\b|max(?:imum)? (?:input|prompt|model|sequence)\b)",
            # Gateways say the same of a limit of tokens within a time, and name that time or limit then.
            rf"^(?!.*{_OF_A_TIME}).*(?:\btoken limit (?:exceeded|reached)|\bexceed\w* the (?:input )?token limit\b)",
            r"\bmax(?:imum)? (?:input|prompt) (?:characters|tokens|length)\b(?! per\b)",
            r"(?:greater|longer|larger|bigger) than (?:the )?(?:model'?s? )?(?:max(?:imum)? |available )?"
            r"(?:model|context)\b",
            r"too many (?:input |prompt )?tokens for (?:the|this) model",
            r"too (?:large|long) for (?:the )?model with\b.{0,40}context",
            r"(?:prompt|input|conversation|request|message)s?(?: is| are|:)? too long\b",
            r"too many (?:input )?tokens\b.{0,80}\b(?:prompt|context|input)",
            r"tokens in the (?:request|prompt|input) (?:cannot|can not|must not|may not) exceed",
            r"input token count\b.{0,60}exceed",
            r"input tokens exceed",
            r"input length and \W*max_tokens\W* exceed context limit",
            r"prompt token count\b.{0,60}exceed",
            r"exceeded model token limit",
            r"context window exceeds? limit",
            r"context limit (?:reached|exceeded)",
            r"\b(?:prompt|input)s?\b.{0,40}\bexceeds? (?:the )?max(?:imum)? (?:length|number of tokens|input)",
            r"range of input length should be",
            r"reduce (?:the length of )?(?:the|your) (?:messages|prompt|input|message size)\b(?!.{0,60}\bper min)"
            r"(?!.{0,80}try again later)",
            r"\binputs?\W* tokens \+ \W*max_new_tokens\W* must be",
            r"\binputs\W* must have less than \d+ tokens",
            r"ContextWindowExceededError",
            r"ran out of room in the model'?s context window",
            r"(?:loaded with|reached) (?:a )?context length of",
            r"tokens? to keep from the initial prompt",
            r"input is too large to process",
            r"context shift is disabled",
            r"request (?:body )?(?:exceeds? the maximum size|too large for \S+ model)",
        ),
        sentence=_sentence(
            r"(?:your )?(?:prompt|input|conversation|context)(?: is)? too long",
            r"context (?:limit|window|length) (?:reached|exceeded)",
        ),
        statuses=frozenset({413}),
    ),
    Cause(
        "output_limit",
        WORK,
        None,
        "the job asks for, or needs, a longer answer than the model gives",
        "max_tokens is too large: 99999. This model supports at most 4096 completion tokens.",
        "OpenAI, Anthropic, Gemini, Groq, DeepSeek and DashScope on `max_tokens`; claude `response exceeded "
        "the … output "
        "token maximum`; opencode `MessageOutputLengthError`",
        codes=_codes("messageoutputlengtherror max_output_tokens output_limit_exceeded"),
        says=_words(
            r"max_?(?:new_|completion_|output_)?tokens?\W* .{0,60}(?:is too large|must be less than|valid range)",
            r"max_?(?:new_|completion_|output_)?tokens?\W.{0,80}(?:maximum allowed|which is the maximum)",
            r"(?:invalid|range of) \W*max_?(?:new_|completion_|output_)?tokens",
            r"maxOutputTokens\b.{0,80}(?:range|maximum|exceed)",
            r"output token (?:maximum|limit)|max(?:imum)? output (?:length|tokens?)\b",
            r"max_tokens or model output limit was reached",
            r"reason: max_output_tokens",
        ),
        sentence=_sentence(r"Claude'?\u2019?'?s response exceeded the \S+ output token maximum"),
    ),
    Cause(
        "content_refused",
        WORK,
        None,
        "the provider's filter refuses the job's content",
        "The response was filtered due to the prompt triggering the content management policy.",
        "Azure `content_filter`; OpenAI `content_policy_violation`; OpenRouter 403 moderation; DashScope "
        "`data_inspection_failed`; claude `Usage Policy`",
        codes=_codes(
            "content_filter content_policy_violation data_inspection_failed moderation_blocked prohibited_content"
        ),
        says=_words(
            r"content (?:management|filter\w*|policy|moderation)",
            r"input was flagged|requires moderation",
            r"violates? (?:our|the) usage polic",
            r"inappropriate content",
        ),
    ),
    Cause(
        "limit_until",
        CAPACITY,
        CapacityKind.WINDOW,
        "a limit on spending or use that ends at an instant the provider names",
        "You have reached your specified API usage limits. You will regain access on 2027-01-01 at 00:00 UTC.",
        "Anthropic 400 `specified API usage limits`; claude `Spending cap reached resets …`",
        says=_words(
            r"specified API usage limits?",
            r"(?:spend(?:ing)?|extra usage|usage) (?:cap|limit) (?:has been )?(?:reached|exceeded|hit)\b"
            r".{0,40}\bresets?\b",
            r"out of (?:extra )?usage\b.{0,40}\bresets?\b",
        ),
        sentence=_sentence(
            rf"(?=.*\bresets?\b){_SPENDING}",
            r"(?=.*\bresets?\b)you(?:['\u2019]re| are) out of (?:extra )?usage",
        ),
    ),
    Cause(
        "credits",
        CAPACITY,
        CapacityKind.CREDITS,
        "money, or a gateway's budget, is spent",
        "Budget has been exceeded! Current cost: 76.16, Max budget: 10.0",
        "OpenAI `insufficient_quota`, `billing_hard_limit_reached`; Anthropic `credit balance is too low`; LiteLLM "
        "`budget_exceeded`, `ExceededBudget`; OpenRouter 402, 403 `Key limit exceeded`; DeepSeek 402; Zhipu `1113`; "
        "Moonshot `exceeded_current_quota_error`; DashScope `Arrearage`; Fireworks 412; xAI 403; Groq "
        "`blocked_api_access`; claude, codex and opencode (recorded)",
        codes=_codes(
            "insufficient_quota insufficient_balance insufficient_balance_error insufficient_credits insufficient_funds"
            " billing_hard_limit_reached billing_not_active billing_error budget_exceeded budgetexceedederror"
            " exceeded_current_quota_error arrearage credits_exhausted payment_required quota_exhausted_credits"
            " spend_limit_exceeded exceededbudget exceededtokenbudget blocked_api_access"
        ),
        says=_words(
            r"insufficient (?:quota|balance|credits?|funds)",
            r"\bbalance (?:is |of )?(?:too low|insufficient|not enough|negative|exhausted|\$?-?0(?:\.0+)?(?!\.?\d))",
            r"(?:out of|no more|not enough|requires more|exhausted|used up)\b (?:all )?(?:of )?(?:your )?(?:\w+ )?"
            r"credits?\b",
            r"credits? (?:are|is|have been|has been) (?:depleted|exhausted|used up|spent)",
            r"(?<!thinking )(?<!reasoning )(?<!token )(?<!time )\bbudgets?\b"
            r".{0,60}\b(?:exceeded|reached|exhausted|spent)\b",
            r"\b(?:exceeded|over|crossed|exhausted) (?:\S+ ){0,3}(?<!thinking )(?<!token )(?<!time )budgets?\b",
            r"Exceeded(?:Token)?Budget|BudgetExceeded",
            r"max budget\b",
            r"crossed (?:spend|budget)",
            r"(?:hard|spend(?:ing)?|billing|credit|cost|key) (?:limit|cap) (?:has been |was )?(?:reached|exceeded|hit)",
            r"(?:reach(?:ed|ing)|exceed(?:ed|ing)|hit(?:ting)?) (?:its|your|the) (?:\w+ ){0,2}"
            r"(?:spend(?:ing)?|billing|credit)(?: \w+)? (?:limit|cap)",
            r"failure to pay\b|unpaid (?:invoices?|balance)|suspended\b.{0,60}\b(?:billing|payment)",
            r"(?:do|does)(?: not|n['\u2019]t) have (?:any |enough |sufficient )?(?:\w+ )?credits?\b",
            r"\bprepaid balance|\b(?:please )?(?:recharge|top up)\b|\bbudgets?\b.{0,60}\bused up",
            r"key limit exceeded",
            r"billing (?:is )?not active|account is not active.{0,40}billing|overdue (?:payment|balance)",
            r"account is in arrears|\u4f59\u989d\u4e0d\u8db3|\u6b20\u8d39",
            r"you(?:['\u2019]re| are) out of credits|workspace is out of credits",
        ),
        sentence=_sentence(
            r"(?:your )?credit balance is too low",
            r"(?:(?:you(?:['\u2019]re| are)|your workspace is) )?out of credits",
            r"(?:usage )?credits (?:are |have been )?exhausted",
            r"insufficient (?:quota|balance|credits?|funds)",
            r"budget has been exceeded",
            _SPENDING,
        ),
    ),
    Cause(
        "quota_of_a_clock",
        CAPACITY,
        CapacityKind.WINDOW,
        "a quota that is refilled by the clock",
        "Quota exceeded for quota metric: requests per day. Your quota will reset after 8h44m7s.",
        "Gemini and Vertex 429 `RESOURCE_EXHAUSTED` with `RetryInfo`; gemini `Your quota will reset after …`",
        codes=_codes("resource_exhausted ratelimitexceeded quota_exceeded"),
        says=_words(
            r"quota exceeded for (?:quota )?metric",
            r"exceeded your current quota\b.{0,300}\b(?:ai\.google\.dev|gemini)",
            r"quota will reset",
            r"exhausted your (?:daily |capacity|quota)",
            r"resource (?:has been )?exhausted",
            r"(?:free )?(?:daily |allocated )quota (?:has been )?(?:exceeded|reached|exhausted)",
        ),
        sentence=_sentence(
            r"you have exhausted your (?:daily |hourly )?(?:quota|capacity)(?: on this model)?",
            r"(?!.*\bdisk\b)(?:your )?(?:\w+ ){0,3}quota (?:has been )?(?:exceeded|reached|exhausted)"
            r"(?!\.? check your plan)",
        ),
    ),
    Cause(
        "quota_of_a_plan",
        CAPACITY,
        CapacityKind.CREDITS,
        "the quota that was paid for is spent, and only a person changes that",
        "You exceeded your current quota, please check your plan and billing details.",
        "OpenAI 429; codex `Quota exceeded. Check your plan and billing details.` (recorded)",
        says=_words(r"exceeded your current quota", r"check your plan and billing"),
        sentence=_sentence(r"quota exceeded\. check your plan and billing details", r"you exceeded your current quota"),
    ),
    Cause(
        "login",
        CAPACITY,
        CapacityKind.LOGIN,
        "the key or login is refused, or its account or region",
        "Incorrect API key provided",
        "OpenAI `invalid_api_key`; Anthropic `authentication_error`; Gemini 400 `API_KEY_INVALID`; Cohere 498; Groq "
        "`organization_restricted`; claude "
        "`Please run /login`; codex and opencode (recorded)",
        codes=_codes(
            "invalid_api_key authentication_error authentication_failed unauthenticated api_key_invalid invalid_token"
            " token_expired unauthorized invalid_authentication_error incorrect_api_key_error providerautherror"
            " oauth_org_not_allowed expired_api_key auth_error invalidapikey permission_denied organization_restricted"
            " account_deactivated unsupported_country_region_territory"
        ),
        says=_words(
            r"(?:incorrect|invalid|wrong|missing|no|expired|revoked) (?:x-)?api[- ](?:key|token)",
            r"api[- ]key (?:is |was |has )?(?:been )?(?:not valid|invalid|expired|revoked|disabled|missing)",
            r"(?:access|refresh|oauth|auth\w*|session|bearer|api) token (?:is |was |has |could not be )?(?:been )?"
            r"(?:expired|revoked|invalid|disabled|refreshed|already used)",
            r"(?:sign|log) (?:out and (?:sign|log) )?in again",
            r"run /login|not logged in|login (?:has )?expired",
            r"does not have access to claude",
            r"(?:organi[sz]ation|account) (?:has been|is|was) (?:\w+ )?"
            r"(?:disabled|deactivated|restricted|suspended|banned)",
            r"\b(?:location|country|region|territory)\b.{0,40}\b(?:not supported|unsupported)",
            r"organi[sz]ation has disabled\b.{0,40}\baccess",
        ),
        sentence=_sentence(
            r"invalid api key",
            r"please run /login",
            r"not logged in",
            r"oauth token (?:has )?(?:expired|(?:been )?revoked)",
            r"your (?:access|refresh) token .{0,80}",
            r"(?:your|this) organi[sz]ation has (?:been disabled|disabled (?:[\w'\u2019-]+ ){0,4}access)",
        ),
        statuses=frozenset({401, 403, 498}),
        among=frozenset({None, 400, 401, 403, 407, 429, 498, 500}),
    ),
    Cause(
        "unknown_model",
        MISCONFIGURED,
        None,
        "the server does not have the model",
        "The model `m` does not exist",
        "OpenAI `model_not_found`; Ollama `try pulling it first`; LM Studio `No models loaded`; gemini `is not found`; "
        "codex and opencode (recorded)",
        codes=_codes(
            "model_not_found modelnotfounderror providermodelnotfounderror model_not_available not_found_error"
        ),
        says=_words(
            r"\bmodels?\b(?! metadata).{0,200}?\b(?:not found|(?:does|do) not exist|not exist|is unknown"
            r"|not (?:been )?loaded)",
            r"\bmodel\b(?: \S+)? is not supported",
            r"(?:does|do) not have access to (?:the )?model",
            r"no such model|invalid model\b|unknown model\b|no models? loaded|not a valid model",
        ),
        among=_REQUEST_STATUSES,
    ),
    Cause(
        "no_slot",
        CAPACITY,
        CapacityKind.BUSY,
        "every slot of the server is in use, or its model is still loading",
        "Loading model",
        "llama.cpp 503 `Loading model`, `no slot available`; Ollama 503 `maximum pending requests exceeded`; "
        "TGI 429 and "
        "Hugging Face 503 with `estimated_time`",
        says=_words(
            r"loading model|model\b.{0,80}\bis (?:currently )?loading",
            r"no slots? available|slots? (?:is|are) (?:busy|full)",
            r"server (?:is )?busy",
            r"(?:maximum|too many|max) (?:pending|concurrent|queued)",
        ),
        slots=True,
    ),
    Cause(
        "overloaded",
        CAPACITY,
        CapacityKind.BUSY,
        "the provider has too much to do just now",
        "The model is overloaded. Please try again later.",
        "Anthropic 529 `overloaded_error`; Gemini 503 `UNAVAILABLE`; OpenAI 503 `slow_down`; Moonshot "
        "`engine_overloaded_error`; DeepSeek `insufficient_system_resource`; Mistral `capacity exceeded`",
        codes=_codes(
            "overloaded_error overloaded server_overloaded server_is_overloaded engine_overloaded "
            "engine_overloaded_error"
            " slow_down insufficient_system_resource capacity_exceeded service_tier_capacity_exceeded unavailable_error"
            " no_capacity"
        ),
        says=_words(
            r"\boverload",
            r"\b(?:service|system|model|engine|backend) is (?:currently |temporarily )?(?:too |very )?busy",
            r"\bqueue\b.{0,20}\bfull|queue is full|too many requests in (?:the )?queue",
            r"(?:is )?at capacity\b",
            r"(?:service tier )?capacity exceeded",
            r"experiencing (?:high|heavy) (?:demand|load|traffic)",
        ),
        sentence=_sentence(
            r"(?:the (?:server|model|engine|service) is )?(?:currently )?overloaded", r"selected model is at capacity"
        ),
        statuses=frozenset({529}),
    ),
    Cause(
        "window",
        CAPACITY,
        CapacityKind.WINDOW,
        "a limit of requests, tokens or use within a time is reached",
        "Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 25000, Requested 10000. Try again in 10s.",
        "any 429; OpenAI `rate_limit_exceeded`, `usage_limit_reached`; Anthropic `rate_limit_error`; Bedrock "
        "`ThrottlingException`; claude `You've hit your limit · resets …`, `usage limit reached|EPOCH`; "
        "codex `You've hit "
        "your usage limit` (recorded)",
        codes=_codes(
            "rate_limit_exceeded rate_limit_error rate_limited rate_limit ratelimiterror usage_limit_reached"
            " usage_limit_exceeded too_many_requests toomanyrequests throttlingexception throttling throttled "
            "limit_requests"
            " limit_burst_rate user_rate_limit_exceeded tokens_per_minute_limit_exceeded throttling_error"
        ),
        says=_words(
            r"\brate[- ]limit(?:s|ed|ing)?\b",
            r"\btoo many (?:requests|tokens)\b",
            rf"\b{_LIMITED}(?: \w+)? limits? (?:has been |was |is |have been )?(?:reached|exceeded|hit|exhausted)",
            rf"\b(?:hit|reached|exceeded|exhausted|used up) (?:your|the|its|all) (?:[\w.'-]+ ){{0,3}}{_LIMITED}"
            r"(?: \w+)? limits?\b",
            r"\byou(?:['\u2019]ve| have)? (?:hit|reached) your (?:[\w.-]+ ){0,3}limit\b",
            r"out of call volume quota|quota will be replenished",
            r"\b(?:TPM|RPM|TPD|RPD) limit\b",
            r"exceeded (?:the )?(?:token|request|call) (?:rate|quota|limit)",
            r"limit (?:reached|exceeded)\W.{0,40}\b(?:resets?|try again|retry)\b",
            r"(?:request|quota) (?:was )?(?:throttled|limited|throttling)|\bthrottl(?:ed|ing)\b",
            r"no deployments available",
            r"(?<!disk )\bquota\b.{0,60}\b(?:exceeded|exhausted|reached)\b",
            r"maximum number of (?:tokens|requests) allowed within",
        ),
        sentence=_sentence(
            r"you(?:['\u2019]ve| have) (?:hit|reached|used up|exceeded) (?:your|the) (?:[\w.'\u2019-]+ ){0,4}"
            r"(?:limits?|quota)(?: of your plan)?",
            r"your (?:[\w-]+ ){0,2}limit (?:will )?resets?",
            r"you(?:['\u2019]re| are) out of (?:[\w-]+ )?(?:messages|requests|prompts) until",
            r"you(?:['\u2019]re| are) (?:being )?rate[- ]limited",
            rf"(?:claude (?:ai |code )?|codex |gemini |qwen )?(?:your )?{_LIMITED}(?: \w+)? limits? (?:has been )?"
            r"(?:reached|exceeded|hit)",
            r"(?:request rejected \(429\)|limit reached(?= *\W? *resets?))",
            r"rate[- ]limit(?:ed)?(?: (?:reached|exceeded|hit))?"
            r"(?=[.!\])]?$|\. | (?:reached|exceeded|hit|for)\b| ?[\u00b7|])",
            r"(?:error:? )?429 too many requests|too many requests",
        ),
        statuses=frozenset({429}),
    ),
    Cause(
        "server_fault",
        ENGINE,
        None,
        "the server broke",
        "The server had an error while processing your request",
        "OpenAI `server_error`; Anthropic `api_error`; Gemini `INTERNAL`; any other 5xx, 408; 424 of TGI "
        "and Bedrock, whose model failed",
        codes=_codes(
            "server_error internal_error internal_server_error api_error internal deadline_exceeded timeout"
            " timeout_error apiconnectionerror service_unavailable unavailable"
        ),
        statuses=frozenset({408, 424}),
        among=NO_STATUS,
    ),
    Cause(
        "bad_request",
        WORK,
        None,
        "the request cannot be served as it is",
        "Invalid value for parameter temperature",
        "OpenAI and Anthropic `invalid_request_error`; any other 4xx",
        codes=_codes(
            "invalid_request_error invalid_request bad_request badrequesterror badrequest invalid_argument"
            " invalid_parameter invalidparameter unprocessable_entity validation_error invalid_value"
        ),
        statuses=frozenset({400, 422}),
        among=NO_STATUS,
    ),
    Cause(
        "not_there",
        MISCONFIGURED,
        None,
        "there is no such path, or the server sends to another address",
        "404 page not found",
        "404, 405, any 3xx",
        statuses=frozenset({404, 405}),
    ),
    Cause(
        "payment",
        CAPACITY,
        CapacityKind.CREDITS,
        "the status asks for a payment",
        "Payment Required",
        "402: OpenRouter, DeepSeek, Vercel",
        statuses=frozenset({402}),
    ),
)
BY_NAME: Mapping[str, Cause] = {cause.name: cause for cause in CAUSES}

_FIGURE = r"(\d[\d,]*)"
_LIMIT = re.compile(rf"\blimit(?:\W{{0,3}}| is | of | was ){_FIGURE}", re.IGNORECASE)
_REQUESTED = re.compile(
    rf"\brequested\W{{0,3}}{_FIGURE}|\brequest\b[^.\d]{{0,40}}?\b{_FIGURE} tokens|\brequires? {_FIGURE} tokens",
    re.IGNORECASE,
)
_RATE = re.compile(r"\bper[- ](?:sec|min|hour|day)|\b[TR]P[SMHD]\b|\brate\b", re.IGNORECASE)
_VALIDATES = 422
_REJECTS: frozenset[int | None] = frozenset({400, 404, 413})
_REJECTED = re.compile(
    r"\b(?:invalid|unexpected|unknown|unsupported|malformed)\b[^:.]{0,60}:.*|\bis not (?:a )?valid\b[^:.]{0,40}:.*",
    re.IGNORECASE | re.DOTALL,
)


def cause_of(said: ErrorBody, status: int | None, *, may_retry: bool = False) -> Cause:
    """The cause of a refusal, whatever it is; `may_retry`: the server says when to come back."""
    spoken = spoken_cause(said, status)
    if spoken is not None:
        return spoken
    for cause in CAUSES:
        if status in cause.statuses:
            return cause
    if status is None or status >= 500:
        return BY_NAME["no_slot" if status == _UNAVAILABLE and may_retry else "server_fault"]
    return BY_NAME["not_there" if 300 <= status < 400 else "bad_request"]


def spoken_cause(said: ErrorBody, status: int | None) -> Cause | None:
    """The cause that an error names by its codes, figures or words; None if it says nothing that is known."""
    text = said.text
    # What a server rejects of a request, it names: that is the job's text, and says nothing of the account.
    of_account = _REJECTED.sub("", text) if status in _REJECTS else text
    for cause in CAUSES:
        on_account = cause.failure_class is FailureClass.CAPACITY
        if (cause.among is not None and status not in cause.among) or (on_account and status == _VALIDATES):
            continue
        words = of_account if on_account else text
        if cause.name == "larger_than_rate":
            asks_more = _asks_more(text)
            if asks_more or (asks_more is None and cause.says is not None and cause.says.search(text)):
                return cause
        elif not cause.codes.isdisjoint(said.codes) or (cause.says is not None and cause.says.search(words)):
            return cause
    return None


def sentence_cause(text: str) -> Cause | None:
    """The cause that a whole text is a sentence of; None for any other text, such as one that speaks of limits."""
    text = text.strip()
    if not text or len(text) > LONGEST_SENTENCE or text.count("\n") > 3:
        return None
    return next((cause for cause in CAUSES if cause.sentence is not None and cause.sentence.fullmatch(text)), None)


def _asks_more(text: str) -> bool | None:
    """Whether the figures say that one request is larger than the whole limit; None without figures."""
    limit, requested = _LIMIT.search(text), _REQUESTED.search(text)
    if limit is None or requested is None or _RATE.search(text) is None:
        return None
    asked = next(figure for figure in requested.groups() if figure is not None)
    return int(asked.replace(",", "")) > int(limit[1].replace(",", ""))
