"""The pipeline language: every key with its type, rules, default and meaning, declared once.

A document is a part of a pipeline file after its expressions are evaluated. The JSON schema, the reference page, the
lists of known keys and the conversion are generated from these classes. Rules that need more than one document (paths,
names of other stages, the item of a foreach) are checked by the other modules of this package. Each step kind
declares its own key.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import NODEFAULT, Meta, UnsetType

from orch23.language.key_readers import read_attempts, read_cwd, read_env, read_files, read_scratch, read_tools
from orch23.model.action import StepLimits
from orch23.model.language import (
    END_OF_TEXT,
    LITERAL,
    Amount,
    ConditionKind,
    Count,
    Document,
    Duration,
    File,
    IfCondition,
    Key,
    ModelEntry,
    OneOf,
    Path,
    Paths,
    Patterns,
    ProgramArguments,
    Size,
    Text,
    form,
    item,
    mapping_of,
    read_choices,
)
from orch23.model.pipeline import (
    DEFAULT_RETRY_WHEN,
    MAX_EXPLORE_TURNS,
    MAX_RERUNS,
    MAX_RETRIES,
    RetriedKind,
    StopConditions,
)

# ---- inputs and conditions --------------------------------------------------------------------


class InputDocument(OneOf):
    """A file with a condition, or a listing. Exactly one of `path` and `list`."""

    exactly_one = ("path", "list")

    path: Text | UnsetType = Key("build/plan.json").doc("The file, slice or pattern.")
    optional: bool | UnsetType = Key("true").doc("""
        Whether the file may be missing, or the pattern match no file. Default: `false`.""")
    schema: Text | UnsetType = Key("specs/plan.schema.json").doc("""
        A JSON schema that the file must match before anything runs, of draft 7 unless its `$schema` names another one.
        Only for YAML and JSON files.""")
    list: Text | UnsetType = Key("docs/**").doc("""
        A pattern. The input is the sorted list of matching paths, without their contents and without files that this
        pipeline made. A program reads it from `.orch23/listings/1`, `2`, …""")


InputEntry: TypeAlias = Annotated[
    Annotated[str, item("A file, a glob, a slice or an exclusion.")] | InputDocument,
    Meta(
        description="A literal file, a glob (`src/**/*.py`, `src/`), a slice (`spec.md#Heading`, `plan.json#/tasks/0`, "
        "`shop.py#def total`, `shop.c#L10-40`: the stage sees only that part), an exclusion (`!src/vendor/**`), or one "
        "of these mappings."
    ),
]


class ConditionsDocument(Document):
    """Conditions by kind."""

    file_exists: Paths | UnsetType = Key("[src/app.py, docs/]").doc("""
        These files must exist. A directory, ending in `/`, must have at least one file.""")
    file_absent: Paths | UnsetType = Key("src/old.py").doc("""
        These files must not exist. A directory, ending in `/`, must have no file.""")


class ConditionDocument(Document):
    """One condition."""

    kind: ConditionKind = Key("file_exists", default=NODEFAULT).doc("The condition.")
    path: Text = Key("src/app.py", default=NODEFAULT).doc("A path relative to the root of the project.")


Conditions: TypeAlias = (
    ConditionsDocument | Annotated[tuple[ConditionDocument, ...], Meta(description="A list of conditions.")]
)


# ---- verification -----------------------------------------------------------------------------


class CommandsDocument(Document):
    """Commands that a model wrote."""

    source: (
        Annotated[Text, Meta(description="A pointer into a JSON or YAML file.")]
        | Annotated[tuple[Annotated[str, Meta(description="One command.")], ...], Meta(description="The commands.")]
    ) = Key("build/plan.json#/checks", default=NODEFAULT, name="from").doc("""
        The list of commands: an expression with the item, a pointer into a file (`plan.json#/commands`), or the list
        itself.""")
    allow: Annotated[tuple[Annotated[str, item("A program name without a path.")], ...], Meta(min_length=1)] = Key(
        "[python, pytest]", default=NODEFAULT
    ).doc("""
        The programs that the commands may run. `python` is the project's interpreter; `pytest` runs as a pytest
        step.""")


class TestResultsDocument(OneOf):
    """Results of tests in one format: `stdout`, or a pattern of files that the step writes."""

    exactly_one = ("junit", "tap", "go", "regex")

    junit: Text | UnsetType = Key("build/*.xml").doc("JUnit XML.")
    tap: Text | UnsetType = Key("stdout").doc("TAP, as of tape, ava, bats, prove and `node --test`.")
    go: Text | UnsetType = Key("stdout").doc("The output of `go test -json`.")
    regex: Text | UnsetType = Key("stdout").doc("Text with a result in a line, as `line` says.")
    line: Text | UnsetType = Key("'^test (?P<id>.+) [.]{3} (?P<outcome>.+)'").doc("""
        For `regex`: a pattern (RE2) of a line with a result, with the groups `id` and `outcome`. `ok`, `pass`, `passed`
        and the like passed, `skipped`, `ignored` and the like were skipped, any other text is a failure.""")


class FindingsDocument(Document):
    """Findings of a linter: `stdout`, or a pattern of files that the step writes."""

    sarif: Text = Key("stdout", default=NODEFAULT).doc("SARIF 2.1.0.")


TestResults: TypeAlias = TestResultsDocument | UnsetType
Findings: TypeAlias = FindingsDocument | UnsetType
Reruns: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_RERUNS)]
_RERUNS: Final = f"""
    How often a shell or pytest step that failed runs again, until it passes: 0 to {MAX_RERUNS}. A test that
    failed and then passed is flaky: a warning names it, and the step passes."""
_FINDINGS: Final = """
    Where a shell step reports the findings of a linter, in a place as in `test_results`. The step passes if it
    exits with 0, and no finding has the level `error` without being suppressed."""
_RESULTS: Final = """
    Where a shell step reports the results of tests, as `stdout` or a pattern of files that it writes, below `$TMPDIR/`
    or in `scratch`. The step passes if it exits with 0, a test passed and none failed. Output that begins with
    `TAP version` and output of `go test -json` are read without the key."""


class DepfileDocument(Document):
    """A file in which the program of a stage names the files that it has read."""

    path: Text = Key("$TMPDIR/deps.d", default=NODEFAULT).doc("The file, below `$TMPDIR/` or in `scratch`.")
    syntax: Literal["make", "ninja", "json"] = Key("ninja", default="make").doc("""
        Rules of make, as compilers write them; `ninja`: the output of `ninja -t deps`; `json`: a list of paths, or an
        object with such a list, or with paths as keys, in `inputs`.""")


class VerifyStepDocument(OneOf):
    """One step of verification. `stage_form` adds a key for each step kind."""

    exactly_one = ("check", "ensures", "commands")

    check: Text | UnsetType = Key("python_syntax").doc("The name of a check.")
    options: dict[str, Any] | UnsetType = Key("{defines: {src/app.py: [main]}}", name="with").doc("""
        Options of the check.""")
    test_results: TestResults = Key("{tap: stdout}").doc(_RESULTS)
    findings: Findings = Key("{sarif: stdout}").doc(_FINDINGS)
    reruns: Reruns = Key("2", default=0).doc(_RERUNS)
    ensures: Conditions | UnsetType = Key("{file_exists: docs/}").doc("""
        Files that the result must have or must not have.""")
    if_: IfCondition = Key("${{ vars.strict }}", default=True, name="if").doc("""
        `true` or `false`, usually an expression of vars. With `false`, the step is left out.""")
    commands: CommandsDocument | UnsetType = Key("{from: 'build/plan.json#/checks', allow: [python]}").doc("""
        Commands that a model wrote, each a program with arguments. They run without a shell, and all must succeed. A
        failure has the kind `acceptance_failed`.""")


_tuple: Any = tuple
_STEPS: Final = "Checks run first. The other steps run in order and stop at the first failure."
VerifySteps: TypeAlias = Annotated[tuple[VerifyStepDocument, ...], Meta(description=_STEPS)]


def steps_of(step: type[VerifyStepDocument]) -> Any:
    """Return the type of a list of such steps."""
    return Annotated[_tuple[step, ...], Meta(description=_STEPS)]


class FormatStepDocument(Document):
    """One program that formats files."""

    shell: Annotated[str, Meta(min_length=1, description="A text for bash.")] | ProgramArguments = Key(
        "[ruff, format, src]", default=NODEFAULT
    ).doc("""
        A program that changes files in place. `$ORCH23_CHANGED` is a file with the paths of the answer's files, one a
        line, relative to `cwd`.""")


class VerifyDocument(Document):
    """Verification steps with their own inputs."""

    inputs: tuple[InputEntry, ...] = Key("[tests/test_app.py]", default=()).doc("""
        Inputs for these steps only. Models do not see them.""")
    steps: VerifySteps = Key("[{check: python_syntax}]", default=()).doc(_STEPS)
    all: bool = Key("true", default=False).doc("Run all steps, even after a failure.")
    first: Literal["auto", "off"] = Key("off", default="auto").doc("""
        auto: before the first model call, run the steps once on the files that the stage starts from. If they cannot
        pass with any answer, the stage fails without a call; otherwise retries and reports distinguish what failed
        before from what the answer broke. Not part of the stage key.""")
    may_fail: tuple[str, ...] | Literal["base"] = Key("[tests/test_old.py::test_clock]", default=()).doc("""
        Ids and patterns (`*`, `?`) of tests and findings that may fail, if they failed before the stage changed
        anything. base: all of these.""")
    fails_on_base: Patterns = Key("['tests/**']", default=()).doc("""
        Patterns of test files that prove the change. The stage must add or change one of them. The steps run again on
        the files as they were before the stage, with these files as the result has them: at least one test that passes
        in the result must fail there.""")


# ---- stages -----------------------------------------------------------------------------------


class AllowedPathsDocument(Document):
    """Where the stage may write."""

    write: Patterns | UnsetType = Key("['src/**']").doc("""
        Patterns of files that the stage may write. A protected name must be spelled out in a pattern. Default: the
        outputs.""")
    protect: Patterns = Key("[src/api.py]", default=()).doc("""
        Patterns of files that the stage may not write, even if `write` matches them.""")
    delete: Patterns = Key("['src/old/**']", default=()).doc("""
        Patterns of files that the stage may delete. Default: none.""")
    read: Patterns = Key("['docs/**']", default=()).doc("""
        Patterns of files that items may name as inputs. Default: all files of the project without protected and ignored
        names.""")


class RetryDocument(Document):
    """How often to retry, when, and how."""

    max: Annotated[int, Meta(ge=0)] = Key(
        "3", default=0, read=read_attempts, elsewhere="attempts count limit max_attempts max_retries retries times"
    ).doc(f"Attempts after the first, 0 to {MAX_RETRIES}.")
    when: (
        tuple[Annotated[Literal[RetriedKind, "truncated"], Meta(description="A kind of failure.")], ...] | UnsetType
    ) = Key("[verify_failed, timeout]", elsewhere="on").doc(f"""
        The kinds of failure that start another attempt. truncated: a response that was cut off, which is also an
        llm_output_invalid. Default: {", ".join(DEFAULT_RETRY_WHEN)}.""")
    prompt: File | UnsetType = Key("prompts/repair.md.j2").doc("""
        The prompt file (Jinja2) of later attempts. Default: the prompt of the first.""")
    start_from: Literal["current", "best", "baseline"] = Key("best", default="current", name="from").doc("""
        current: start from the files of the last attempt. best: start from those of the attempt with the fewest failing
        tests. baseline: start over.""")
    no_progress: Annotated[int, Meta(ge=1)] | UnsetType = Key("2").doc("""
        Stop after this many equal failures in a row, and after a response that was made before.""")
    escalate: tuple[ModelEntry, ...] = Key("[claude-sonnet-5, claude-opus-4-8]", default=(), read=read_choices).doc("""
        The models of the attempts, instead of `llm.model`. The last model is used for all later attempts. If a model
        refuses, the next one gets the same prompt. A mapping can also have another `provider`, `effort`, `thinking` or
        `max_tokens`.""")
    style: Literal["prompt", "conversation"] = Key("conversation", default="prompt").doc("""
        prompt: a later attempt sends a new prompt, with the feedback. conversation: it sends the first prompt
        unchanged, and then each former response and what failed as turns.""")


class StopConditionsDocument(Document):
    """Limits of all attempts of this stage. The limits of the run apply too."""

    max_cost_usd: Amount | UnsetType = Key("2.50").doc("""
        The maximum cost of requests to models, in US dollars. A request that could exceed it is not sent.""")
    max_tokens: Count | UnsetType = Key("600k").doc("The maximum number of tokens of prompts and responses.")
    max_llm_calls: Count | UnsetType = Key("40").doc("The maximum number of requests to models.")
    max_wall: Duration | UnsetType = Key("45m", to="max_wall_s").doc("The maximum time of all attempts of the stage.")


class LimitsDocument(Document):
    """Resources that each process of the stage may use."""

    memory: Size = Key("4GiB", default="8GiB").doc("Memory of the process and its child processes.")
    processes: Count = Key("200", default=4096).doc("Processes at the same time.")
    files: Count = Key("20k", default="1M").doc("""
        Files and directories that it has at once, including temporary ones.""")
    disk: Size = Key("2GiB", default="8GiB").doc("""
        Bytes on disk of its files, with temporary and open removed ones.""")
    address_space: Size | UnsetType = Key("8GiB").doc("""
        Address space of each process (RLIMIT_AS). Node.js, Go and Java reserve much more than they use, and fail with a
        limit. Default: no limit.""")


_GROUP: Final = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}" + END_OF_TEXT
GroupName: TypeAlias = Annotated[str, Meta(pattern=_GROUP), form("use 1 to 64 of A-Z a-z 0-9 . _ -", examples=["each"])]


class ForeachDocument(OneOf):
    """Make one stage for each item of a list. Exactly one of `from` and `in`."""

    exactly_one = ("source", "values")

    source: Text | UnsetType = Key("build/plan.json#/tasks", name="from", read=None).doc("""
        A list in a JSON or YAML file: `build/plan.json#/tasks`.""")
    values: tuple[Annotated[Any, Meta(description="One item: any value.")], ...] | UnsetType = Key(
        "[model, view]", name="in"
    ).doc("The list itself. It may be empty.")
    key: Text | UnsetType = Key("id").doc("""
        The field of an item with its key. An item that is a string or a number is its own key.""")
    name: Annotated[str, Meta(pattern="^(?!vars$)[A-Za-z_][A-Za-z0-9_]*" + END_OF_TEXT), LITERAL] = Key(
        "task", default="item", name="as"
    ).doc("The name of the item in expressions.")
    order: Literal["sequential", "parallel"] = Key(
        "sequential", default="parallel", to="sequential", read=lambda _at, _key, value: value == "sequential"
    ).doc("""
        sequential: items run one after another and may edit the same files. parallel: they may not.""")
    needs: Text | UnsetType = Key("depends_on", to="needs_field").doc("""
        The field of an item with the keys of the items that it waits for.""")
    promote: GroupName | UnsetType = Key("together", read=None).doc("""
        together: all results reach the workspace in one transaction, once all items are up to date. A name: the same,
        together with all other stages of that promotion group, like `promote` of the stage. each: each item by itself.
        Default: `each`.""")


SomePatterns: TypeAlias = Annotated[Patterns, Meta(min_length=1)]


class ExploreDocument(Document):
    """Files that the model may look at."""

    files: SomePatterns = Key("['src/**']", default=NODEFAULT).doc("Patterns of these files.")
    turns: Annotated[int, Meta(ge=1, le=MAX_EXPLORE_TURNS)] = Key("2", default=1, in_key=False).doc(f"""
        Requests in which the model names what it needs to see, for all attempts together, 1 to {MAX_EXPLORE_TURNS}.""")
    tokens: Count = Key("20k", default=15_000, in_key=False).doc("""
        The size of the first of these requests with its map, and of all parts that are shown, in tokens of three
        characters.""")


class ToolDocument(Document):
    """A program of a certain version."""

    name: Text = Key("node", default=NODEFAULT).doc("""
        The name of the program, or its path.""")
    version: Text | UnsetType = Key("'>=22'", in_key=False).doc("""
        A range of versions: `>=20,<23`, `^22.1`, `~1.2`, `22`. The version is read from files, and no program is
        started. Default: any.""")


class CommonDocument(Document):
    """Keys of a stage that may also be in `defaults`."""

    cwd: Text | UnsetType = Key("web", read=read_cwd, elsewhere="wdir workdir working_directory").doc("""
        The working directory of processes. Paths in a model's response are relative to it. Default: the root.""")
    allowed_paths: AllowedPathsDocument | UnsetType = Key("{write: ['src/**'], protect: [src/api.py]}", read=None).doc(
        "Where the stage may write."
    )
    format: tuple[FormatStepDocument, ...] = Key(
        "[{shell: [ruff, format, src]}]", default=(), read=None, elsewhere="fmt formatter formatters"
    ).doc("""
        Programs that change the files of an answer before it is verified, for llm stages. Changes to other files are
        put back. The programs also get the inputs of `verify`.""")
    verify: VerifySteps | VerifyDocument = Key(
        "[{check: python_syntax}, {shell: ruff check src}]", default=(), read=None
    ).doc("The steps that must succeed before a result reaches the workspace.")
    requires: Conditions = Key("{file_exists: specs/app.md}", default=(), read=None).doc("""
        Conditions that must hold before the stage runs and before a model is called.""")
    ensures: Conditions = Key("{file_exists: [src/app.py]}", default=(), read=None).doc("""
        Conditions that the result must meet.""")
    retry: Annotated[int, Meta(ge=0, description="The number.")] | RetryDocument = Key(
        "3", default=0, read=None, elsewhere="retries"
    ).doc(f"""
        Attempts after the first, 0 to {MAX_RETRIES}. A larger number counts as {MAX_RETRIES}, with a warning.""")
    stop_conditions: StopConditionsDocument | UnsetType = Key(
        "{max_cost_usd: 0.50}", read=mapping_of(StopConditions), to="stop"
    ).doc("Limits of all attempts of this stage. The limits of the run apply too.")
    on_failure: Literal["rollback", "keep"] = Key("keep", default="rollback").doc("""
        rollback: nothing reaches the workspace. keep: the files that the last attempt wrote within its write scope
        reach it, marked as failed, even if its command failed or timed out.""")
    on_edit: Literal["keep", "rerun"] = Key("rerun", default="keep", in_key=False).doc("""
        What follows if you edit an output of an llm stage and accept or commit it. keep: the edit is its result until
        the stage has to run. rerun: the stage runs, and starts from the edit.""")
    promote: GroupName = Key("release", default="each", in_key=False, read=None).doc("""
        The name of a promotion group: all results of its stages reach the workspace in one transaction, once all of
        them are up to date. Stages of the group see each other's new results. `each`: each stage by itself.""")
    timeout: Duration = Key("10m", default="300s", to="timeout_s").doc("How long each process may take.")
    limits: LimitsDocument | UnsetType = Key("{memory: 4GiB}", in_key=False, read=mapping_of(StepLimits)).doc("""
        Resources that each process of the stage, with its child processes, may use. A process that uses more is killed,
        and the stage fails with exit status 2.""")
    env: (
        Mapping[
            str,
            Annotated[
                str | int | float | bool,
                Meta(description="The value. Numbers and booleans are converted to text as in YAML."),
            ],
        ]
        | UnsetType
    ) = Key("{MODE: test}", read=read_env, elsewhere="environment").doc("""
        Environment variables of the stage's processes. Do not put secrets here: the values are part of the key.""")
    python: Text | UnsetType = Key(".venv/bin/python").doc("""
        The interpreter for `python`. Default: the first of these: the active virtual environment, `.venv` in the root,
        the interpreter of orch23 itself.""")
    tools: tuple[Annotated[Text, item("A program: its name, `/PATH` or `~/PATH`.")] | ToolDocument, ...] = Key(
        "[gcc, {name: node, version: '>=22'}]", default=(), read=read_tools
    ).doc("""
        Programs whose versions are part of the key. The stage's processes also see those that a version manager has
        installed, such as cargo from rustup, and those at a path, which need your consent outside of /usr, /opt and
        /nix/store. A stage whose programs start others is in a shared cache only if all of them are listed.""")
    pools: tuple[Annotated[str, item("A name under `pools` of the file.")], ...] = Key("[database]", default=()).doc("""
        Pools of the file in which the stage counts while it runs, in addition to the pool of its kind.""")
    scratch: tuple[Annotated[str, item("A pattern.")], ...] | UnsetType = Key(
        "[build/, '*.log']", read=read_scratch
    ).doc("""
        Name patterns of files that are not part of the result. Steps of `verify` and pytest stages may write files that
        are named literally here (a folder ends with `/`), the outputs of a pytest stage, and nothing else.""")
    cache: bool | UnsetType = Key("false", read=None).doc("""
        Whether a result may be reused. Default: true, or false with `network: true`.""")
    network: bool = Key("true", default=False).doc("Let the stage's processes use the network.")
    tool_caches: tuple[Literal["cargo", "npm", "go", "maven"], ...] = Key(
        "[cargo]", default=(), in_key=False, elsewhere="caches"
    ).doc("""
        Tools with a cache in the project, which stages without the network see. The stage with `network: true` that
        names it fills it, and runs also if it is empty. Steps of `verify` cannot write it, and what other steps
        write is dropped.""")
    sandbox: Literal["on", "namespaces", "off"] = Key("off", default="on", read=None).doc("""
        Whether the stage's processes run in a sandbox. `namespaces` refuses a machine or a worker whose sandbox
        isolates less than namespaces do. `off` needs `--allow-unsandboxed` on the command line.""")
    salt: str | int | float | UnsetType = Key("2026-11", read=lambda _at, _key, value: str(value)).doc("""
        Any text. A different text makes the stage stale.""")


class StageDocument(CommonDocument, OneOf):
    """A stage. `stage_form` adds a key for each step kind."""

    # Refused and not ignored: a pipeline for a later version must not run with another meaning.
    later = ("matrix", "pinned", "samples")

    desc: str = Key("Write the app from the spec.", default="", in_key=False, elsewhere="description").doc(
        "A description of the stage."
    )
    foreach: ForeachDocument | UnsetType = Key(
        "{from: 'build/plan.json#/tasks', key: id, as: task}", read=None, elsewhere="matrix"
    ).doc("Make one stage for each item of a list. Exactly one of `from` and `in`.")
    if_: IfCondition = (
        Key("${{ vars.docs }}", default=True, name="if", in_key=False, read=None, elsewhere="when")
    ).doc("""
        `true` or `false`, usually an expression of vars: `${{ vars.docs }}`. With `false`, the stage is skipped, as if
        it were not declared.""")
    needs: tuple[Annotated[str, item("The name of a stage.")], ...] = Key(
        "[migrate]", default=(), elsewhere="depends depends_on after deps dependencies"
    ).doc("Stages that run before this one even if it reads none of their files.")
    inputs: tuple[InputEntry, ...] = Key(
        "['specs/app.md#Rules', 'src/**/*.py', {list: 'docs/**'}]",
        default=(),
        read=None,
        elsewhere="deps dependencies sources srcs",
    ).doc("""
        The files that the stage reads. Its sandbox directory has no other files of the project. `!PATTERN` removes
        files from the globs and listings before it in the list; a later entry can add them again.""")
    outputs: tuple[Path, ...] = Key(
        "[src/app.py, docs/]", default=(), read=None, elsewhere="artifacts generates outs targets"
    ).doc("The files that the stage makes: literal files, or directories ending in `/`.")
    edits: Patterns = Key("['src/**']", default=(), read=None).doc("""
        Patterns of files that an llm or shell stage may change, create and delete. Those that it changed are its
        result. Not with `allowed_paths.write` and `allowed_paths.delete`.""")
    explore: SomePatterns | ExploreDocument | UnsetType = Key("['src/**']", read=None).doc("""
        Files that the model of an llm stage may look at: it gets a map of them, and names the parts to see. A list is
        short for `{files: [...]}`. The key has the patterns, and the parts that were shown.""")
    once: bool = Key("true", default=False, in_key=False).doc("""
        Whether the stage is done when its result is committed. Its files are yours then: they are not verified,
        restored or removed. It runs again, from the files as they are then, only if its task text changes: prompts,
        item, command, and inputs that `edits` and `outputs` do not match.""")
    approve: bool = Key("true", default=False, in_key=False).doc("""
        Whether a user has to approve the changes of the stage, or of its promotion group, before they reach the
        workspace: `orch23 approve STAGE`, `orch23 reject STAGE -m TEXT`.""")
    metrics: tuple[Path, ...] = Key("[build/scores.json]", default=(), in_key=False, read=read_files).doc("""
        Outputs with values that `orch23 diff` and `orch23 report` compare: `.json`, `.yaml` or `.yml` files.""")
    test_results: TestResults = Key("{junit: 'build/*.xml'}", read=None).doc(_RESULTS)
    findings: Findings = Key("{sarif: 'build/lint.sarif'}", read=None).doc(_FINDINGS)
    reruns: Reruns = Key("2", default=0, read=None).doc(_RERUNS)
    depfile: Text | DepfileDocument | UnsetType = Key("$TMPDIR/deps.d", read=None).doc("""
        Where the program of a shell stage names the files that it has read, as `gcc -MMD -MF FILE` does. Of the inputs
        that patterns match, the contents of these files count, and the names of all. Literal inputs always count.""")
