"""Diagnostic codes of the engine: title, meaning and solution of each."""

from collections.abc import Mapping

ENGINE_CODES: Mapping[str, tuple[str, str]] = {
    "E302": (
        "a condition on the result is not met",
        "`ensures` names a file that must, or must not, exist when the stage is done. Create or remove it, or drop "
        "the condition.",
    ),
    "E303": (
        "a declared output was not made",
        "The stage ended without an error, but a path of its `outputs` does not exist. A stage must make every output "
        "that it declares: fix the command or the prompt, or remove the path from `outputs`.",
    ),
    "E304": (
        "a step took too long",
        "The step and all processes that it had started were killed after `timeout`. Raise `timeout`, or make the "
        "step faster.",
    ),
    "E306": (
        "a step wrote what it must not",
        "A process changed an input, a protected path, or a path outside `outputs` and `allowed_paths.write`. None of "
        "its files reached the workspace. Declare the path, or list its name in `scratch` if the file may be "
        "discarded. Names that configure tools or tests are protected (SECURITY.md lists them): a pattern such as "
        "`**` does not declare them, but a path, or a pattern that spells the name, as in `vendor/**/pyproject.toml`, "
        "does.",
    ),
    "W306": (
        "a file that configures a tool",
        "A stage wrote a file that a package manager, a shell, a task runner or another tool reads by its name, and "
        "the pipeline does not name it. It is in the workspace: read it before you run that tool. If it is meant, "
        "name it in `outputs` or `allowed_paths.write`, or spell its name in a pattern, as in `web/**/package.json`.",
    ),
    "E309": (
        "a process could not be started",
        "The program does not exist or cannot be run, or there is no interpreter. orch23 sets PATH and does not "
        "inherit it: install the program in a system directory or in the virtual environment of the project.",
    ),
    "E321": (
        "a file that configures tests was made by a model",
        "A `conftest.py`, or the file in `pytest.config`, runs before the tests and can make any of them pass. It is "
        "trusted if it was made neither by an llm stage nor downstream of one. Do not make it in the pipeline; or "
        "name it literally in `pytest.trust`, and read it.",
    ),
    "E323": (
        "a step that verifies wrote to its tree",
        "While a result is verified, its tree is read-only: code under test could otherwise rewrite the tests. Only "
        "TMPDIR, HOME and the paths in `scratch` are writable, in a pytest stage also its outputs. Let the test write "
        "below TMPDIR (in pytest: `tmp_path`), or list the path in `scratch`: a directory with a `/` at its end, or a "
        "file, which is created empty. A pattern with a wildcard makes only the directory before the wildcard "
        "writable.",
    ),
    "E324": (
        "a module hides one of a library",
        "pytest imports the modules of `pythonpath`, and those beside the tests, before installed ones. A module with "
        "the name of a module of the standard library or of an installed test library would replace it in the tests, "
        "and could make any of them pass. A module that a model made must not hide any installed module, nor any "
        "module of the tree that the model did not make. Rename it; or name it literally in `pytest.trust`, and read "
        "it.",
    ),
    "E318": (
        "a condition of the stage is not met",
        "`requires` names a file that must, or must not, exist before the stage runs. Nothing was run and no model "
        "was called. Create or remove the file, or drop the condition.",
    ),
    "E482": (
        "a declared tool is missing",
        "`tools` names a program that is neither in the system directories nor beside the interpreter. Install it "
        "there; orch23 sets PATH and does not inherit it.",
    ),
    "E501": (
        "the limit of calls is reached",
        "The run, or the stage that is named, made as many calls as `stop_conditions.max_llm_calls` allows. Recorded "
        "responses do not count, nor do requests that the server did not process (429 of a full server). Raise the "
        "limit; the next build continues where this one stopped, and no response is paid for twice.",
    ),
    "E502": (
        "the budget is spent",
        "Before each request its maximum cost is reserved, and this one would exceed `stop_conditions.max_cost_usd` "
        "of the run (or `--budget`), or of the stage that is named. It was not sent. Raise the limit, or lower "
        "`llm.max_tokens`, which is most of what a request can cost; the next build continues where this one stopped. "
        "docs/budgets.md explains how cost is counted.",
    ),
    "E503": (
        "the limit of tokens is reached",
        "Before each request its maximum number of tokens, input and output, is reserved, and this one would exceed "
        "`stop_conditions.max_tokens` of the run, or of the stage that is named. It was not sent. Raise the limit, or "
        "lower `llm.max_tokens`; the next build continues where this one stopped.",
    ),
    "E504": (
        "the wall time is over",
        "`stop_conditions.max_wall` of the run, or of the stage that is named, has passed. Nothing more is started; "
        "finished results are kept. Raise the limit; the next build continues where this one stopped, and its wall "
        "time starts at 0.",
    ),
    "E601": (
        "the prompt would send a secret",
        "The request contains the value of a secret in your environment, or a text in the format of a vendor's key. "
        "Nothing was sent and nothing recorded; the place is shown, the value never is. Remove it from the file, or "
        "set `llm.secrets: redact` to send the prompt with `[redacted NAME]` in its place. docs/secrets.md explains "
        "what counts as a secret, and what to do about a false alarm.",
    ),
    "E602": (
        "a secret would be stored with the result",
        "The definition of a stage (its command, `env`, parameters, endpoint, item) is kept in the store and in the "
        "lock file, which is committed, and an edit that you accept is kept with the transcripts. It contains a "
        "secret. Remove it: a step gets no secrets, and a provider takes its key from the environment of orch23.",
    ),
    "E603": (
        "a response contained a secret",
        "A secret was in the model's response and was removed before the response was recorded, so the proposed file "
        "is not what the model meant. The next attempt gets this error as feedback. Let the code read the value from "
        "the environment. In a project that sends its prompts with `llm.secrets: redact`, this error also means that "
        "a file with a secret would be rewritten without it: keep that file out of `allowed_paths.write`.",
    ),
    "E642": (
        "there is nothing to accept",
        "`orch23 accept` is for outputs that you edited, which the plan shows as `edited`. If an upstream stage has "
        "no result yet, build that one first.",
    ),
    "E696": (
        "a result of the lock file does not pass",
        "Only the lock file says that a model wrote these outputs and that they passed: the store on this machine has "
        "no such record. So they were verified as they are, and they do not pass. No model was called. Check where "
        "the lock file comes from. `orch23 build --resample STAGE` requests a new result from the model. If an edit "
        "of yours is the cause, undo it.",
    ),
    "E710": (
        "stored bytes are lost",
        "A stage needs bytes that are in neither the store, the transcripts, the project nor git: for example those "
        "that it started from, in a clone of a project without `transcripts` and without git history. Restore one of "
        "these. Or run `orch23 release STAGE`: the next build then starts from the file as it is on disk.",
    ),
    "E711": (
        "inputs changed while a stage was prepared",
        "Files that a stage reads changed several times while it was prepared, before anything was run. Stop the "
        "program that writes there, and build again.",
    ),
    "E712": (
        "two owners of one path",
        "A stage would write a file that the lock file of another pipeline gives to one of its stages, and that "
        "pipeline still declares it. Each build of one would overwrite the other's result. Release the file there "
        "with `orch23 release OTHER.yaml STAGE` and remove that stage, or make both items of one sequential "
        "`foreach`.",
    ),
    "E828": (
        "unknown check",
        "A step of `verify` names a validator that does not exist. Correct its spelling; the hint lists them. A check "
        "of an installed distribution is known only if the pipeline names that in `plugins`.",
    ),
    "E846": (
        "unknown executor",
        "`executor` names the executor that runs the processes of stages: `local`, which is this machine, or one of a "
        "distribution that the pipeline names in `plugins`. Correct the spelling, or install the distribution.",
    ),
}
