"""Diagnostic codes of running actions and judging pytest: title, meaning and solution of each."""

from collections.abc import Mapping

EXECUTE_CODES: Mapping[str, tuple[str, str]] = {
    "E665": (
        "no such git revision",
        "The project must be in a git repository that has the revision. A shallow or partial clone may lack it: fetch "
        "it first. orch23 fetches nothing.",
    ),
    "E301": (
        "a test failed",
        "pytest ran, and at least one test, fixture or import of a test file failed. Fix the code or the test.",
    ),
    "E320": (
        "pytest did not succeed",
        "No test failed, but pytest exited with a status other than 0: a wrong option, an internal error, or pytest is "
        "missing. See the last lines of its output. Run the same command in the stage's cwd.",
    ),
    "E322": (
        "a new test does not fail without the code",
        "The step says `must_fail`: it runs new tests on a skeleton, without the code that they test. Each of them "
        "must fail there: a test that passes would pass whatever the code does, and one that is skipped or marked as "
        "an expected failure proves nothing. Let the test call the code and check its result, or remove it.",
    ),
    "E305": (
        "tests are missing",
        "No test was collected, all were skipped, or a test of the staged test files (or of `pytest.expect`) was not "
        "collected or not run. Add the tests to the inputs, and do not deselect them; if you want only some of them, "
        "name these in `pytest.expect`. A skip counts only if the test file itself raises it: by a mark, `pytest.skip` "
        "or `pytest.importorskip` of a module that no stage can write. A skip from other code, or for a module that a "
        "stage can write, is a failure: otherwise a model could disable tests.",
    ),
    "E307": (
        "a module of the project was loaded from elsewhere",
        "A module of the sandbox directory was imported from outside of it, so the tested code is not the code that "
        "would be promoted. Usually the project is installed in the interpreter (an editable install), or a module has "
        "the name of one in the standard library. Uninstall it, set `pytest.pythonpath`, or rename the module.",
    ),
    "E308": (
        "the report of pytest is incomplete or forged",
        "The process ended without a complete report of its tests: it called os._exit, a hook changed the outcome, or "
        "something else wrote the report. Without a report the exit code does not count. Let the tests end normally.",
    ),
    "E480": (
        "no Python interpreter",
        "The interpreter that the pipeline or the environment names does not exist or cannot be run. Set `python:` to "
        "one that can, or create a virtual environment at `.venv`.",
    ),
    "E481": (
        "the interpreter's version is unknown",
        "The version is read from pyvenv.cfg, from the name pythonX.Y or from the library folder; the interpreter is "
        "not started for that. Name the interpreter itself in `python:`, not a wrapper script.",
    ),
    "E483": (
        "no sandbox works on this machine",
        "Steps run code that a model may have written, so they run in a sandbox: bubblewrap, user namespaces, or "
        "Landlock and seccomp (Linux 6.2 or newer). All were tested, and none works; the message says why. In a "
        "container, allow user namespaces. `--allow-unsandboxed` runs steps with all rights of this user.",
    ),
    "E484": (
        "a stage without a sandbox",
        "The stage says `sandbox: off`. A pipeline alone cannot decide that: the build needs `--allow-unsandboxed` "
        "too. Check first what the stage runs.",
    ),
    "E485": (
        "the sandbox of a step could not be made",
        "The sandbox passed its self-test, but could not be made this time: a limit of namespaces or mounts was "
        "reached, or a folder of the interpreter was removed. The step was not run. `orch23 doctor` tests the "
        "sandbox again.",
    ),
    "E486": (
        "a file changed while a program ran",
        "The program of `llm.command` ran where it can change files (without a sandbox, with `--allow-unsandboxed`) or "
        "modes of files (in the Landlock sandbox). Meanwhile a file of the project that this build did not write was "
        "changed, added or removed. The response is not used. If the program changed the file, undo the change: a "
        "program must respond on stdout only. If you changed it, build again.",
    ),
    "E610": ("a result holds a symbolic link", "Results are regular files and directories. Copy the file instead."),
    "E611": (
        "a result holds a special file",
        "FIFOs, sockets and devices cannot be promoted. Create them below TMPDIR, or name them in `scratch`.",
    ),
    "E612": ("a result holds a hard link", "A file must not have a second name. Copy the file instead of linking it."),
    "E613": (
        "a result holds a setuid or setgid file",
        "Of the mode, results keep the executable bit only. Remove the bits at the end of the command: `chmod "
        "u-s,g-s`.",
    ),
    "E614": (
        "a result has a name that no project can hold",
        "Names are UTF-8, without control characters, and at most 200 bytes long. Choose another name.",
    ),
    "E615": (
        "a result has too many files",
        "There are more than 100,000 files and directories. Write fewer, or name them in `scratch`.",
    ),
    "E616": (
        "a result is nested too deep",
        "Directories are nested deeper than 64 levels. Write flatter directories.",
    ),
    "E617": (
        "a result is too large",
        "The files have more than 4 GiB in total, by their sizes. Write less, or name the files in `scratch`.",
    ),
    "E619": (
        "processes of a step could not be killed",
        "They were sent SIGKILL and still exist, as a process that is stuck in the kernel can; or their supervisor was "
        "killed, so some may be left. Find them with ps and kill them.",
    ),
    "E620": (
        "a step used more than its limits",
        "It was killed because it used more memory, processes, files or disk than `limits` of the stage allow. The "
        "message names the limit. Temporary files count. Use less, raise the limit, or split the stage.",
    ),
    "E618": (
        "the working directory of the sandbox was replaced",
        "The process removed or replaced the directory that it worked in. Leave the directory itself in place.",
    ),
}
