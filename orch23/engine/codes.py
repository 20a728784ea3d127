"""The diagnostics of the engine: code -> (title, what it means and the way out)."""

from collections.abc import Mapping

CODES: Mapping[str, tuple[str, str]] = {
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
        "of it reached the workspace. Declare the path, or list its name in `scratch` if it is to be thrown away.",
    ),
    "E309": (
        "a process could not be started",
        "The program does not exist, cannot be run, or there is no interpreter. PATH is made by orch23 and not "
        "inherited: install the program in a system folder or in the project's virtual environment.",
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
        "`stop_conditions.max_llm_calls` were made in this run. Raise it; a further build goes on where this one "
        "stopped.",
    ),
    "E642": (
        "there is nothing to accept",
        "`orch23 accept` is for outputs that were edited by hand, which the plan shows as `edited`. Where a stage "
        "before it has no result yet, build that one first.",
    ),
    "E710": (
        "stored bytes are lost",
        "A stage needs the bytes of a file that neither the workspace nor the store nor the transcripts hold any more. "
        "Restore the file from version control, or build with `--force STAGE` for the stage that made it.",
    ),
    "E711": (
        "inputs do not hold still",
        "Files that a stage reads changed again and again while it was prepared, before anything was run. Stop what "
        "writes there, and build again.",
    ),
    "E828": (
        "unknown check",
        "A step of `verify` names a validator that does not exist. Correct its spelling; the hint lists them.",
    ),
}
