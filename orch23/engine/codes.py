"""Diagnostic codes of the engine: title, meaning and solution of each."""

from collections.abc import Mapping

ENGINE_CODES: Mapping[str, tuple[str, str]] = {
    "E302": (
        "a condition on the result does not hold",
        "`ensures` names a file that must, or must not, be there when the stage is done. Make it so, or drop the "
        "condition.",
    ),
    "E303": (
        "a declared output was not made",
        "The stage ended well, and yet a path of its `outputs` is not there. A stage makes every output that it "
        "declares: mend the command or the prompt, or take the path off the list.",
    ),
    "E304": (
        "a step took too long",
        "It was killed, with all that it had started, when its time was up. Raise `timeout`, or make it faster.",
    ),
    "E306": (
        "a step wrote what it must not",
        "A process changed an input, a protected path, or a path outside `outputs` and `allowed_paths.write`. Nothing "
        "of it reached the workspace. Declare the path, or list its name in `scratch` if it is to be thrown away. "
        "Names that configure tools or tests are protected (SECURITY.md lists them): a pattern such as `**` does not "
        "declare them, but a path, or a pattern that spells the name, as in `vendor/**/pyproject.toml`, does.",
    ),
    "W306": (
        "a file that configures a tool",
        "A stage wrote a file that a package manager, a shell, a task runner or another tool reads by its name, and "
        "the pipeline does not name it. It is in the workspace: read it before you run that tool. If it is meant, name "
        "it in `outputs` or `allowed_paths.write`, or spell its name in a pattern, as in `web/**/package.json`.",
    ),
    "E309": (
        "a process could not be started",
        "The program does not exist, cannot be run, or there is no interpreter. PATH is made by orch23 and not "
        "inherited: install the program in a system folder or in the project's virtual environment.",
    ),
    "E321": (
        "a file that configures tests was made by a model",
        "A `conftest.py`, or the file that `pytest.config` names, runs before the tests and can make any of them pass. "
        "It is trusted if no llm stage made it, nor a stage that comes after one. Leave it out of what is made, or "
        "name it literally under `pytest.trust`, and read it.",
    ),
    "E323": (
        "a step that verifies wrote to its tree",
        "While a result is verified, its tree is read-only: code under test could otherwise rewrite the tests. Only "
        "TMPDIR, HOME and what `scratch` names can be written, in a pytest stage also its outputs. Let the test write "
        "below TMPDIR (in pytest: `tmp_path`), or list the path in `scratch`: a folder with a `/` at its end, or a "
        "file that is made empty. A pattern with a wildcard makes nothing writable but the folder that it begins with.",
    ),
    "E324": (
        "a module hides one of a library",
        "pytest imports the modules of `pythonpath`, and those beside the tests, before those that are installed. A "
        "module with the name of one of the standard library or of an installed test library would be used by the "
        "tests in its place, and could make any of them pass; what a model made may hide no installed module at all, "
        "and none of the tree that it did not make. Rename it, or name it literally under `pytest.trust`, and read it.",
    ),
    "E318": (
        "a condition before the stage does not hold",
        "`requires` names a file that must, or must not, be there before the stage runs. Nothing was run and no model "
        "was asked. Make it so, or drop the condition.",
    ),
    "E482": (
        "a declared tool is missing",
        "`tools` names a program that is not found in the system folders or beside the interpreter. Install it there; "
        "PATH is made by orch23 and not inherited.",
    ),
    "E501": (
        "the limit of calls is reached",
        "`stop_conditions.max_llm_calls` of the run, or of the stage that is named, were made. Recorded answers do not "
        "count, nor do requests that nobody worked on (a full server's 429). Raise it; a further build goes on where "
        "this one stopped, and answers that are paid for are not asked for again.",
    ),
    "E502": (
        "the budget is spent",
        "Before each request the most that it can cost is set aside, and this one would not fit into "
        "`stop_conditions.max_cost_usd` of the run (or `--budget`), or of the stage that is named. It was not sent. "
        "Raise the limit, or lower `llm.max_tokens`, which is most of what a request can cost; a further build goes on "
        "where this one stopped. docs/budgets.md tells how it is counted.",
    ),
    "E503": (
        "the limit of tokens is reached",
        "Before each request the most tokens that it can take, in and out, are set aside, and this one would not fit "
        "into `stop_conditions.max_tokens` of the run, or of the stage that is named. It was not sent. Raise the "
        "limit, or lower `llm.max_tokens`; a further build goes on where this one stopped.",
    ),
    "E504": (
        "the wall time is over",
        "`stop_conditions.max_wall` of the run, or of the stage that is named, has passed. Nothing more is begun; what "
        "was finished is kept. Raise it; a further build goes on where this one stopped, with its time counted anew.",
    ),
    "E601": (
        "the prompt would send a secret",
        "The request, as it would be sent, holds the value of one of your environment's secrets, or something of the "
        "form of a vendor's key. Nothing was sent and nothing recorded; the place is named, the value never is. Take "
        "it out of the file, or write `llm.secrets: redact` to send the prompt with `[redacted NAME]` in its place. "
        "docs/secrets.md says what counts as a secret and what to do if it is none.",
    ),
    "E602": (
        "a secret would be stored with the result",
        "What a stage is made of (its command, `env`, parameters, endpoint, item) is kept in the store and in the lock "
        "file, which is committed, and an edit that you accept is kept with the transcripts. A secret stands in it. "
        "Take it out of there: a step gets no secrets, and a provider takes its key from the environment of whoever "
        "runs orch23.",
    ),
    "E603": (
        "an answer that held a secret",
        "A secret was in the model's answer and was taken out before it was recorded, so the proposed file is not what "
        "the model meant. The next attempt is told. Let the code read the value from the environment. In a project "
        "that sends its prompts with `llm.secrets: redact` it also means that a file with a secret would be rewritten "
        "without it: keep that file out of the fence.",
    ),
    "E642": (
        "there is nothing to accept",
        "`orch23 accept` is for outputs that were edited by hand, which the plan shows as `edited`. Where a stage "
        "before it has no result yet, build that one first.",
    ),
    "E696": (
        "a result of the lock file does not pass",
        "Only the lock file says that a model wrote these outputs and that they passed: the store here has no such "
        "record. So they were verified as they are, and they do not pass. No model was asked. Look at where the "
        "lock file comes from. `orch23 build --resample STAGE` asks the model for a new result. If an edit of yours is "
        "the cause, undo it.",
    ),
    "E710": (
        "stored bytes are lost",
        "A stage needs bytes that are in neither the store, the transcripts, the project nor git: for example those "
        "that it started from, in a clone of a project that has no `transcripts` and no git history. Put one of these "
        "back. Or run `orch23 release STAGE`: the next build then starts from the file as it is on disk.",
    ),
    "E711": (
        "inputs do not hold still",
        "Files that a stage reads changed again and again while it was prepared, before anything was run. Stop what "
        "writes there, and build again.",
    ),
    "E712": (
        "two owners of one path",
        "A stage would write a file that the lock file of another pipeline gives to one of its stages, and that "
        "pipeline still declares it. Each build of one would overwrite the other's result. Release the file there with "
        "`orch23 release OTHER.yaml STAGE` and remove that stage, or make both items of one sequential `foreach`.",
    ),
    "E828": (
        "unknown check",
        "A step of `verify` names a validator that does not exist. Correct its spelling; the hint lists them. A check "
        "of an installed distribution is known only if the pipeline names that in `plugins`.",
    ),
    "E846": (
        "unknown executor",
        "`executor` names who runs the processes of stages: `local`, which is this machine, or an executor of a "
        "distribution that the pipeline names in `plugins`. Correct its spelling, or install what has it.",
    ),
}
