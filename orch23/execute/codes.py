"""Diagnostic codes of running actions and judging pytest: title, meaning and solution of each."""

from collections.abc import Mapping

EXECUTE_CODES: Mapping[str, tuple[str, str]] = {
    "E665": (
        "no such git revision",
        "The project must lie in a git repository that has the revision. A shallow or partial clone may lack it: fetch "
        "it first. Nothing is fetched by orch23.",
    ),
    "E301": (
        "a test failed",
        "pytest ran and at least one test, fixture or import of a test file failed. Mend the code, or the test.",
    ),
    "E320": (
        "pytest did not succeed",
        "No test was seen to fail, and yet pytest ended with another exit code than 0: a wrong option, an internal "
        "error, a missing pytest. The last lines of its output say which. Run the same command in the stage's cwd.",
    ),
    "E322": (
        "a new test does not fail without the code",
        "The step says `must_fail`: it runs new tests without the code that they test, on a skeleton. Each of them has "
        "to fail there; one that passes would pass whatever the code does, and one that is skipped or marked as an "
        "expected failure proves nothing. Let it call the code and assert what comes of it, or take it out.",
    ),
    "E305": (
        "tests are missing",
        "Nothing was collected, everything was skipped, or a test that stands in the staged test files (or in "
        "`pytest.expect`) was not collected or not run. Stage the tests as inputs, and do not deselect them; where "
        "a selection is meant, name it in `pytest.expect`. A skip counts only if the test file raises it itself: by a "
        "mark, `pytest.skip` or `pytest.importorskip` of a module that no stage may make. A skip out of other code, or "
        "for a module that a stage may make, is a failure: else a model could switch tests off.",
    ),
    "E307": (
        "a module of the project was loaded from elsewhere",
        "A module that stands in the room was imported from outside it, so the code that would be promoted is not "
        "what was tested. Usually the project is installed in the interpreter (an editable install), or a module is "
        "called like one of the standard library. Uninstall it, set `pytest.pythonpath`, or rename the module.",
    ),
    "E308": (
        "the report of pytest is incomplete or forged",
        "The process ended without a complete report of its own tests: it left by os._exit, a hook changed the "
        "outcome, something else wrote the report. No exit code is believed without it. Let the tests end normally.",
    ),
    "E480": (
        "no Python interpreter",
        "The interpreter that the pipeline or the environment names does not exist or cannot be run. Set "
        "`python:` to one that does, or make a virtual environment at `.venv`.",
    ),
    "E481": (
        "the interpreter's version is unknown",
        "The version is read from pyvenv.cfg, from the name pythonX.Y or from the library folder, never by "
        "starting it. Name the interpreter itself in `python:`, not a wrapper script.",
    ),
    "E483": (
        "there is no sandbox on this machine",
        "Steps run code that a model may have written, so they are confined: by bubblewrap, by user namespaces, or by "
        "Landlock and seccomp (Linux 6.2 or newer). All were tried, and none held here; the message says why. In a "
        "container, allow user namespaces. `--allow-unsandboxed` runs steps with all that this user may do.",
    ),
    "E484": (
        "a stage without a sandbox",
        "The stage says `sandbox: off`. A pipeline alone cannot decide that: whoever builds has to say "
        "`--allow-unsandboxed` too. Read first what the stage runs.",
    ),
    "E485": (
        "the sandbox of a step could not be made",
        "It works on this machine, and yet it did not this time: a limit of namespaces or mounts was reached, or a "
        "folder of the interpreter went away. Nothing of the step was run. `orch23 doctor` tries the sandbox again.",
    ),
    "E486": (
        "a file changed while a program ran",
        "The program of `llm.command` ran where it can change files (without a sandbox, with `--allow-unsandboxed`) or "
        "modes of files (in the Landlock sandbox), and one of the project that this build did not write was changed, "
        "added or removed meanwhile. The answer is not used. If it was the program, undo the change: a program answers "
        "on stdout alone. If it was you, build again.",
    ),
    "E610": ("a result holds a symbolic link", "Results are regular files and directories. Copy the file instead."),
    "E611": (
        "a result holds a special file",
        "FIFOs, sockets and devices cannot be promoted. Make them below TMPDIR, or name them in `scratch`.",
    ),
    "E612": ("a result holds a hard link", "Each file must be its own. Copy the file instead of linking it."),
    "E613": (
        "a result holds a setuid or setgid file",
        "Results carry an executable bit and nothing more. Take the bits away at the end of the command: `chmod "
        "u-s,g-s`.",
    ),
    "E614": (
        "a result has a name that no project can hold",
        "Names are UTF-8, without control characters, and at most 200 bytes long. Choose another name.",
    ),
    "E615": (
        "a result has too many files",
        "There are over 100,000 files and directories. Write fewer, or name them in `scratch`.",
    ),
    "E616": (
        "a result is nested too deep",
        "Directories stand in each other over more than 64 levels. Write to flatter ones.",
    ),
    "E617": (
        "a result is too large",
        "The files are over 4 GiB together, as their sizes say. Write less into the room, or name it in `scratch`.",
    ),
    "E619": (
        "processes of a step could not be killed",
        "They were sent SIGKILL and still exist, which a process stuck in the kernel can do; or the supervisor that "
        "ends them was killed, so that it is not known whether any are left. End them by hand.",
    ),
    "E620": (
        "a step used more than its limits",
        "It was killed while it ran: it used more memory, processes, files or disk than `limits` of the stage allow. "
        "The message names the limit. Temporary files count. Use less, raise the limit, or split the stage.",
    ),
    "E618": (
        "the room's own directory was replaced",
        "The process removed or replaced the directory it worked in. Leave the working tree itself in place.",
    ),
}
