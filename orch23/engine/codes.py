"""Diagnostic codes of the engine: title, meaning and solution of each."""

from collections.abc import Mapping

ENGINE_CODES: Mapping[str, tuple[str, str]] = {
    "E302": (
        "a condition on the result is not met",
        "`ensures` names a file that must, or must not, exist after the stage. Create or remove the file, or remove "
        "the condition.",
    ),
    "E303": (
        "a declared output was not made",
        "The stage ended without an error, but did not make all of its `outputs`. Fix the command or the prompt, or "
        "remove the path from `outputs`.",
    ),
    "E304": (
        "a step took too long",
        "The step and its child processes were killed after `timeout`. Raise `timeout`, or make the step faster.",
    ),
    "E306": (
        "a step wrote outside its write scope",
        "A process changed an input, a protected path, or a path outside `outputs` and `allowed_paths.write`. No "
        "file reached the workspace. Declare the path, or list its name in `scratch` to discard the file. A name "
        "that configures tools or tests (SECURITY.md lists them) must be spelled out, as in "
        "`vendor/**/pyproject.toml`; `**` is not enough.",
    ),
    "W306": (
        "a file that configures a tool",
        "A tool, such as a package manager, a shell or a task runner, reads this file by its name, and the pipeline "
        "does not name it. Read the file before you run the tool. If you expect it, name it in `outputs` or "
        "`allowed_paths.write`, or spell its name in a pattern, as in `web/**/package.json`.",
    ),
    "E309": (
        "a process could not be started",
        "The program or the interpreter does not exist or cannot be run. orch23 sets PATH and does not inherit it: "
        "install the program in a system directory or in the virtual environment of the project.",
    ),
    "E321": (
        "a file that configures tests was made by a model",
        "A `conftest.py`, or the file in `pytest.config`, can make any test pass. It is not trusted if an llm stage, "
        "or a stage downstream of one, made it. Do not make it in the pipeline; or read it, and name it literally in "
        "`pytest.trust`.",
    ),
    "E323": (
        "a verification step wrote to its sandbox directory",
        "The sandbox directory is read-only during verification: otherwise code under test could rewrite the tests. "
        "Only TMPDIR, HOME, the paths in `scratch` and the outputs of a pytest stage are writable. Write below "
        "TMPDIR (in pytest: `tmp_path`), or list the path in `scratch`: a directory with `/` at its end, or a file, "
        "which is created empty. A pattern makes only the directory before its first wildcard writable.",
    ),
    "E324": (
        "a module hides a library module",
        "pytest imports modules in `pythonpath` and beside the tests before installed modules, so a module with the "
        "name of a standard library module or of an installed test library could make tests pass. A module that a "
        "model made must not hide any installed module, nor a project module that the model did not make. Rename it; "
        "or read it, and name it literally in `pytest.trust`.",
    ),
    "E325": (
        "the tests cannot pass, whatever the stage writes",
        "A file that the stage cannot write keeps pytest from collecting the tests: it has a syntax error, or imports "
        "a module or a name that is missing. A syntax error in your own test is found before the first model call; "
        "any other such error ends the attempts. Correct the file, install the module, or add it to `verify.inputs`. "
        "If the stage should write the module, add it to `outputs`.",
    ),
    "E326": (
        "a model would supply a module that tests import",
        "Tests, or files that they use, import a module that is not installed and that a model may write: a stub of a "
        "library could make any test pass. Install the library. If the pipeline is to make the module, name it by a "
        "literal output, by a directory in `outputs` (`src/app/`), or by `pytest: {provides: [app]}`. The literal "
        "outputs of items do not count if a model made their list. A dependency of the project (pyproject.toml, "
        "setup.cfg, requirements files) is never made by a model.",
    ),
    "E318": (
        "a condition of the stage is not met",
        "`requires` names a file that must, or must not, exist before the stage runs. Nothing was run. Create or "
        "remove the file, or remove the condition.",
    ),
    "E482": (
        "a declared tool is missing",
        "A program in `tools` is neither in the system directories nor beside the interpreter. Install it there; "
        "orch23 sets PATH and does not inherit it. A worker of a cluster must have the same program as the machine "
        "that builds.",
    ),
    "E501": (
        "the limit of calls is reached",
        "The run, or the stage in the message, made as many calls as `stop_conditions.max_llm_calls` allows. "
        "Recorded responses and requests that the server refused with status 429 do not count. Raise the limit and "
        "build again; no response is paid for twice.",
    ),
    "E502": (
        "the budget is spent",
        "The request was not sent: its maximum cost could exceed `stop_conditions.max_cost_usd` of the run (or "
        "`--budget`), or of the stage in the message. All builds of an `orch23 watch` share one limit. Raise the "
        "limit, or lower `llm.max_tokens`, which is most of the cost, and build again. `orch23 help budgets` explains "
        "how cost is counted.",
    ),
    "E503": (
        "the limit of tokens is reached",
        "The request was not sent: its maximum of tokens, input and output, could exceed "
        "`stop_conditions.max_tokens` of the run, or of the stage in the message. Raise the limit, or lower "
        "`llm.max_tokens`, and build again.",
    ),
    "E504": (
        "the wall time limit is reached",
        "`stop_conditions.max_wall` of the run, or of the stage in the message, has passed. Finished results are "
        "kept. Build again (the wall time starts at 0), or raise the limit.",
    ),
    "E601": (
        "the prompt would send a secret",
        "The request contains the value of a secret in your environment, or text in the format of a vendor's key. It "
        "was not sent or recorded. Remove the secret from the file, or set `llm.secrets: redact` to send `[redacted "
        "NAME]` instead. `orch23 help secrets` explains what counts as a secret, and false alarms.",
    ),
    "E602": (
        "a secret would be stored with the result",
        "A stage's definition (command, `env`, parameters, endpoint, item) is stored in the lock file, which is "
        "committed; an accepted edit is stored with the transcripts. Remove the secret from it. Steps get no "
        "secrets, and a provider takes its key from the environment of orch23.",
    ),
    "E603": (
        "a response contained a secret",
        "The model's response contained a secret. It was removed before the response was recorded, so the proposed "
        "file is not complete. The next attempt gets this error. Let the code read the value from the environment. "
        "With `llm.secrets: redact`, keep files with secrets out of `allowed_paths.write`: the model does not see "
        "the secret, and would write the file without it.",
    ),
    "E642": (
        "there is nothing to accept",
        "Only outputs that you edited can be accepted; `orch23 plan` shows them as `edited`. If an upstream stage "
        "has no result yet, build that stage first.",
    ),
    "E696": (
        "a result of the lock file does not pass",
        "The lock file says that these outputs passed, but the store has no such result, so orch23 verified them, "
        "and they fail. If you edited an output, undo the edit. Otherwise check where the lock file comes from; "
        "`orch23 build --resample STAGE` requests a new result from the model.",
    ),
    "W684": (
        "results of the shared cache ran in a lower tier of the sandbox",
        "A result counts if the tier in which its steps ran (A, B or none; none in entries of earlier versions) is not "
        "lower than that of this machine, or than `cache: {tier: ...}` of the pipeline. The stages were built.",
    ),
    "W685": (
        "the lock file and the shared cache disagree",
        "The lock file names other outputs of the same key, so the stage was built. Two calls of a model give "
        "different results; otherwise, check who can write to the cache.",
    ),
    "W697": (
        "a result of the shared cache does not pass",
        "With `cache: {verify: always}`, orch23 verified a result of the shared cache, and it failed. The stage ran as "
        "if there were no result. Its tests may depend on something that is not an input, such as the time, or the "
        "result was forged: check who can write to the cache.",
    ),
    "W698": (
        "a result in the shared cache is ignored",
        "An entry of the shared cache is damaged, or the cache has wrong bytes for a file of it, or it is not a result "
        "that the stage can have: it has files that the stage may not write, lacks outputs, or exceeds its limits. The "
        "stage was built. If you did not expect it, check the disk of the cache, and who can write to it.",
    ),
    "W699": (
        "a result with a secret is not shared",
        "An output has a value of this environment that looks like a secret, so the result stays on this machine. "
        "Remove the secret from the output, or give the variable another name if it is not secret "
        "(`orch23 help secrets`).",
    ),
    "E710": (
        "stored bytes are lost",
        "A stage needs bytes that are in neither the store, the transcripts, the project nor git, such as the file "
        "that it started from. Restore one of these. Or run `orch23 release STAGE`: the next build then starts from "
        "the file on disk.",
    ),
    "E711": (
        "inputs changed while a stage was prepared",
        "The inputs changed several times before the stage ran. Stop the program that writes them, and build again.",
    ),
    "E712": (
        "two owners of one path",
        "A stage would write a file that the lock file of another pipeline gives to one of its stages, so each build "
        "would overwrite the other's result. Run `orch23 release OTHER.yaml STAGE` and remove that stage, or make "
        "both items of one sequential `foreach`.",
    ),
    "E828": (
        "unknown check",
        "Correct the name; the hint lists the checks. For a check of a plugin, list its distribution in `plugins`.",
    ),
    "E846": (
        "unknown executor",
        "`executor` of the file or of a pool is `local` (this machine), `dask`, `reapi`, or the name of an executor of "
        "a distribution in `plugins`. Correct the name, or install the distribution.",
    ),
}
