"""Diagnostic codes of running actions and judging pytest: title, meaning and solution of each."""

from collections.abc import Mapping

EXECUTE_CODES: Mapping[str, tuple[str, str]] = {
    "E665": (
        "no such git revision",
        "The project must be in a git repository that has the revision. orch23 does not fetch: in a shallow or "
        "partial clone, run `git fetch` first.",
    ),
    "E301": (
        "a test failed",
        "A test, a fixture or the import of a test file failed. Fix the code or the test.",
    ),
    "E320": (
        "pytest did not succeed",
        "pytest reported no failed test, but did not exit with status 0: a wrong option, an internal error, or "
        "pytest is not installed. Read the last lines of its output.",
    ),
    "E322": (
        "a new test does not fail without the code",
        "With `must_fail`, tests run without the code that they test, and each must fail. A test that passes would "
        "pass with any code; a skipped test, or an expected failure, proves nothing. Let the test call the code and "
        "check its result, or remove the test.",
    ),
    "E305": (
        "tests are missing",
        "No test was collected, all were skipped, or a test of the staged test files (or of `pytest.expect`) was not "
        "run. Add the tests to the inputs, and do not deselect them; to run only some, name these in "
        "`pytest.expect`. So that a model cannot disable tests, a skip counts only if the test file itself raises "
        "it: by a mark, `pytest.skip`, or `pytest.importorskip` of a module that no stage can write.",
    ),
    "E307": (
        "a module of the project was loaded from elsewhere",
        "A module of the sandbox directory was imported from outside of it, so other code than the result was "
        "tested. Usually the project is installed in the interpreter (an editable install), or a module has the name "
        "of a standard library module. Uninstall the project, set `pytest.pythonpath`, or rename the module.",
    ),
    "E308": (
        "the report of pytest is incomplete or forged",
        "The process ended without a complete test report: it called os._exit, a hook changed the outcome, or "
        "something else wrote the report; or a function of pytest or unittest was replaced by something other than a "
        "plugin or a conftest.py. Let the tests end normally.",
    ),
    "E487": (
        "no worker could run a step",
        "The scheduler, its workers or the shared cache failed too often, so the build stopped. This is not a failure "
        "of the stage: no attempt was used. Check that the scheduler and its workers run and can use the cache, then "
        "build again. If no worker has a resource that a pool of the stage needs, start one with "
        "`orch23 worker --resource NAME=AMOUNT`, or correct the pool.",
    ),
    "E488": (
        "the scheduler cannot be used",
        "`--executor dask` needs `--scheduler` and a `--cache` that workers can use too. Everyone who can connect to a "
        "scheduler can run programs on its workers and on this machine: unless it is on this machine, its address must "
        "be `tls://`, with the certificates that dask is configured with. `--executor reapi` needs `--scheduler` with "
        "`grpcs://`, or `grpc://` on this machine. Its workers must have orch23, except for some steps with "
        "`sandbox: off`.",
    ),
    "E480": (
        "no Python interpreter",
        "The interpreter that the pipeline or the environment names does not exist or cannot be run. Set `python:` "
        "to another one, or create a virtual environment at `.venv`.",
    ),
    "E481": (
        "the interpreter's version is unknown",
        "The version is read from pyvenv.cfg, the name pythonX.Y or the library directory; the interpreter is not "
        "started. Set `python:` to the interpreter itself, not to a wrapper script.",
    ),
    "E733": (
        "the credential helper of the shared cache failed",
        "ORCH23_CACHE_CREDENTIAL_HELPER names a program that prints the credentials of a server, by the protocol of "
        "Bazel's credential helpers. It is missing, failed, took longer than ten seconds or printed something else. "
        "What it prints is not shown, since it may be a secret: run it by hand, as the hint says. It gets your "
        "environment, starts in `/`, and must not ask questions.",
    ),
    "E483": (
        "no sandbox works on this machine",
        "Steps may run code of a model, so they need a sandbox: bubblewrap, user namespaces, or Landlock and seccomp "
        "(Linux 6.2 or newer). The message says why none works, or that the one that works isolates less than "
        "`sandbox: namespaces` of a stage requires. In a container, allow user namespaces. `--allow-unsandboxed` "
        "runs steps with all your permissions.",
    ),
    "E484": (
        "a stage without a sandbox",
        "`sandbox: off` also needs `--allow-unsandboxed` on the command line. Check what the stage runs before you "
        "allow it.",
    ),
    "E485": (
        "the sandbox of a step could not be created",
        "A limit of namespaces or mounts was reached, or a directory of the interpreter was removed. The step was "
        "not run. Run `orch23 doctor` to test the sandbox again.",
    ),
    "E486": (
        "a file changed while a program ran",
        "While the program of `llm.command` ran, a project file that this build did not write was changed, added or "
        "removed, so the response is not used. The program can change files without a sandbox, and file modes in the "
        "Landlock sandbox. If it changed the file, undo the change: a program must respond on stdout only. If you "
        "changed it, build again.",
    ),
    "E610": ("a result holds a symbolic link", "Results are regular files and directories. Copy the file instead."),
    "E611": (
        "a result holds a special file",
        "FIFOs, sockets and devices cannot be promoted. Create them below TMPDIR, or list their names in `scratch`.",
    ),
    "E612": (
        "a result holds a hard link",
        "A file has a second name. Copy the file instead of linking it.",
    ),
    "E613": (
        "a result holds a setuid or setgid file",
        "Results keep only the executable bit of the file mode. Remove the other bits at the end of the command: "
        "`chmod u-s,g-s`.",
    ),
    "E614": (
        "a result has a name that is not allowed",
        "Names must be UTF-8, without control characters, and at most 200 bytes long. Choose another name.",
    ),
    "E615": (
        "a result has too many files",
        "The result has more than 100,000 files and directories. Write fewer, or list their names in `scratch`.",
    ),
    "E616": (
        "a result is nested too deep",
        "Directories are nested deeper than 64 levels. Use fewer levels.",
    ),
    "E617": (
        "a result is too large",
        "The files of the result have more than 4 GiB in total. Write less, or list their names in `scratch`.",
    ),
    "E619": (
        "processes of a step could not be killed",
        "They were sent SIGKILL and still exist, for example because the kernel blocks them; or their supervisor was "
        "killed, so some may be left. Find them with ps and kill them.",
    ),
    "E620": (
        "a step used more than its limits",
        "The step was killed because it exceeded the stage's `limits` of memory, processes, files or disk. The "
        "message names the limit; temporary files count. Use less, raise the limit, or split the stage.",
    ),
    "E618": (
        "the working directory of the sandbox was replaced",
        "The process removed or replaced its working directory. Change only the files in it.",
    ),
    "E489": (
        "an offline build would send steps to another machine",
        "With `--offline` nothing is sent to another machine, and the scheduler or the cache of the workers is on one. "
        "Build without `--offline`, or name a scheduler and a cache on this machine.",
    ),
}
