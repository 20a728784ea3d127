"""The pipeline language: every key with its type, rules, default and meaning, declared once.

A document is what a user writes, after its expressions are evaluated. The JSON schema, the reference page, the lists of
known keys and the reader follow from these classes. What needs more than the document itself (paths, names of other
stages, the item of a foreach) is checked by the readers beside this module. Each kind of step declares its own key.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from orch23.model.language import (
    END_OF_TEXT,
    LITERAL_NODE,
    Amount,
    ConditionKind,
    Count,
    Document,
    Duration,
    IfCondition,
    OneOf,
    Path,
    Paths,
    Size,
    Text,
)
from orch23.model.pipeline import DEFAULT_RETRY_WHEN, MAX_RETRIES, FailureKind

# ---- inputs and conditions --------------------------------------------------------------------


class InputDocument(OneOf, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file with a condition, or a listing. Exactly one of `path` and `list`."""

    exactly_one = ("path", "list")

    path: Annotated[Text | UnsetType, Meta(description="The file or slice.")] = UNSET
    optional: Annotated[bool | UnsetType, Meta(description="A missing file is no error. Default: `false`.")] = UNSET
    schema: Annotated[
        Text | UnsetType,
        Meta(
            description="A JSON schema (draft 7) that the file is held to before anything runs. YAML or JSON files "
            "only."
        ),
    ] = UNSET
    list: Annotated[
        Text | UnsetType,
        Meta(
            description="A pattern whose matching paths, sorted, are the input: no content, and nothing that this "
            "pipeline made."
        ),
    ] = UNSET


InputEntry: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1, description="A file, a glob, a slice or an exclusion.")] | InputDocument,
    Meta(
        description="A literal file, a glob (`src/**/*.py`, `src/`), a slice (`spec.md#Heading`, `plan.json#/tasks/0`: "
        "only that part counts and is staged), an exclusion (`!src/vendor/**`), or one of these mappings."
    ),
]


class ConditionsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By kind."""

    file_exists: Annotated[
        Paths | UnsetType,
        Meta(description="These files must exist; below a directory, ending in `/`, at least one."),
    ] = UNSET
    file_absent: Annotated[
        Paths | UnsetType,
        Meta(description="These files must not exist; below a directory, ending in `/`, none."),
    ] = UNSET


class ConditionDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One condition."""

    kind: Annotated[ConditionKind, Meta(description="What must hold.")]
    path: Annotated[Text, Meta(description="A path relative to the root of the project.")]


Conditions: TypeAlias = ConditionsDocument | Annotated[tuple[ConditionDocument, ...], Meta(description="One by one.")]


# ---- verification -----------------------------------------------------------------------------


class CommandsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"source": "from"}):
    """Commands that a model wrote."""

    source: Annotated[
        Annotated[Text, Meta(description="A pointer into a JSON or YAML file.")]
        | Annotated[
            tuple[Annotated[str, Meta(description="One command.")], ...],
            Meta(description="The commands."),
        ],
        Meta(
            description="The list of commands: an expression of the item, a pointer into a file "
            "(`plan.json#/commands`), or the list itself."
        ),
    ]
    allow: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A plain name.")], ...],
        Meta(
            min_length=1,
            description="The programs that may be named. `python` is the project's interpreter; `pytest` is judged as "
            "a pytest step is.",
        ),
    ]


class VerifyStepDocument(
    OneOf, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"if_": "if", "options": "with"}
):
    """One step of verification, without those that are kinds of steps: `stage_form` adds the keys of those."""

    exactly_one = ("check", "ensures", "commands")

    check: Annotated[Text | UnsetType, Meta(description="A validator, by name.")] = UNSET
    options: Annotated[dict[str, Any] | UnsetType, Meta(description="Options of the check.")] = UNSET
    ensures: Annotated[
        Conditions | UnsetType, Meta(description="Files that the result must have, or must not have.")
    ] = UNSET
    if_: Annotated[
        IfCondition,
        Meta(
            description="`true` or `false`, as a rule an expression of vars. A step that it switches off is left out."
        ),
    ] = True
    commands: Annotated[
        CommandsDocument | UnsetType,
        Meta(
            description="Commands that a model wrote, each a program with arguments: no shell runs them, and all must "
            "succeed. A failure is of the kind `acceptance_failed`."
        ),
    ] = UNSET


STEPS_MEANING = Meta(description="Checks run first, then in order to the first failure.")
VerifySteps: TypeAlias = Annotated[tuple[VerifyStepDocument, ...], STEPS_MEANING]


class VerifyDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With inputs of its own."""

    inputs: Annotated[tuple[InputEntry, ...], Meta(description="Inputs for these steps only; no model sees them.")] = ()
    steps: VerifySteps = ()
    all: Annotated[bool, Meta(description="Run all steps, also after a failure.")] = False


# ---- stages -----------------------------------------------------------------------------------


class AllowedPathsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fence: where the stage may write."""

    write: Annotated[
        tuple[Path, ...] | UnsetType,
        Meta(
            description="Patterns that may be written; a protected name must be spelled in one. Default: the outputs."
        ),
    ] = UNSET
    protect: Annotated[
        tuple[Path, ...], Meta(description="Patterns that may not be written; stronger than `write`.")
    ] = ()
    delete: Annotated[tuple[Path, ...], Meta(description="Patterns that may be deleted. Default: none.")] = ()
    read: Annotated[
        tuple[Path, ...],
        Meta(
            description="Patterns that items may name as inputs. Default: the project without protected and ignored "
            "names."
        ),
    ] = ()


class RetryDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"start_from": "from"}):
    """How many, when and how."""

    max: Annotated[int, Meta(description=f"Attempts after the first, 0 to {MAX_RETRIES}.")] = 0
    when: Annotated[
        tuple[Annotated[FailureKind, Meta(description="A kind of failure.")], ...] | UnsetType,
        Meta(
            description="The kinds of failure that are worth another attempt. Default: "
            f"{', '.join(DEFAULT_RETRY_WHEN)}."
        ),
    ] = UNSET
    prompt: Annotated[
        Text | UnsetType, Meta(description="A Jinja2 file for later attempts. Default: the first prompt.")
    ] = UNSET
    start_from: Annotated[
        Literal["current", "baseline"],
        Meta(description="current: patch the last attempt. baseline: start over."),
    ] = "current"
    no_progress: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType,
        Meta(description="Give up after the same failure this often in a row."),
    ] = UNSET
    escalate: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A model's name.")], ...],
        Meta(description="Models by attempt instead of `llm.model`; the last one repeats."),
    ] = ()


class StopConditionsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ends the attempts of this stage; the limits of the run hold as well."""

    max_cost_usd: Annotated[
        Amount | UnsetType,
        Meta(description="The most that requests may cost, in US dollars. What does not fit is not sent."),
    ] = UNSET
    max_tokens: Annotated[Count | UnsetType, Meta(description="The most tokens, of prompts and answers together.")] = (
        UNSET
    )
    max_llm_calls: Annotated[Count | UnsetType, Meta(description="The most requests to models.")] = UNSET
    max_wall: Annotated[
        Duration | UnsetType, Meta(description="The longest that all attempts of the stage may take.")
    ] = UNSET


class RunStopConditionsDocument(StopConditionsDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ends a run; the next build goes on from there."""

    max_wall: Annotated[Duration | UnsetType, Meta(description="The longest a run may take.")] = UNSET
    max_failed_stages: Annotated[
        Count, Meta(description="How many stages may fail before the run ends; `-k` lifts the limit.")
    ] = 1


class LimitsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the machine each process of the stage may use."""

    memory: Annotated[Size, Meta(description="Memory of all its processes together.")] = "8GiB"
    processes: Annotated[Count, Meta(description="Processes at once.")] = 4096
    files: Annotated[
        Count, Meta(description="Files and directories in its sandbox directory, temporary ones included.")
    ] = "1M"
    disk: Annotated[Size, Meta(description="Bytes on disk in its sandbox directory, temporary files included.")] = (
        "8GiB"
    )
    address_space: Annotated[
        Size | UnsetType,
        Meta(
            description="Address space of each process (RLIMIT_AS). Node.js, Go and Java reserve much more than they "
            "use, and fail with it. Default: no limit."
        ),
    ] = UNSET


class ForeachDocument(
    OneOf,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"source": "from", "values": "in", "name": "as"},
):
    """Make one stage an item of a list. Exactly one of `from` and `in`."""

    exactly_one = ("source", "values")

    source: Annotated[
        Text | UnsetType, Meta(description="A list in a JSON or YAML file: `build/plan.json#/tasks`.")
    ] = UNSET
    values: Annotated[
        tuple[Annotated[Any, Meta(description="One item: any value.")], ...] | UnsetType,
        Meta(description="A list written here. It may be empty: then there are no items."),
    ] = UNSET
    key: Annotated[
        Text | UnsetType,
        Meta(description="The field of an item that names it. Items that are strings name themselves."),
    ] = UNSET
    name: Annotated[
        str,
        Meta(
            pattern=r"^(?!vars$)[A-Za-z_][A-Za-z0-9_]*" + END_OF_TEXT,
            description="What expressions call the item.",
            extra_json_schema=LITERAL_NODE,
        ),
    ] = "item"
    order: Annotated[
        Literal["sequential", "parallel"],
        Meta(description="sequential: items form a chain and may edit the same files. parallel: they may not."),
    ] = "parallel"
    needs: Annotated[
        Text | UnsetType, Meta(description="A field of an item that lists the keys of items it waits for.")
    ] = UNSET
    promote: Annotated[
        Text | UnsetType,
        Meta(
            description="together: no result reaches the workspace before all items are up to date; then all do, in "
            "one transaction. A name: the same, with all other stages of that promotion group, as `promote` of the "
            "stage. each: every item by itself. Default: `each`."
        ),
    ] = UNSET


VERIFY_MEANING = Meta(description="What a result must pass before it reaches the workspace.")


class CommonDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stage says for itself or takes from the defaults."""

    cwd: Annotated[
        Text | UnsetType,
        Meta(description="Where processes run, and what paths in a model's answer are relative to. Default: the root."),
    ] = UNSET
    allowed_paths: Annotated[
        AllowedPathsDocument | UnsetType, Meta(description="The fence: where the stage may write.")
    ] = UNSET
    verify: Annotated[VerifySteps | VerifyDocument, VERIFY_MEANING] = ()
    requires: Annotated[
        Conditions, Meta(description="What must hold before the stage runs; a model is not asked otherwise.")
    ] = ()
    ensures: Annotated[Conditions, Meta(description="What must hold of the result.")] = ()
    retry: Annotated[
        Annotated[int, Meta(description="How many.")] | RetryDocument,
        Meta(description=f"Attempts after the first, 0 to {MAX_RETRIES} (more is clamped, with a warning)."),
    ] = 0
    stop_conditions: Annotated[
        StopConditionsDocument | UnsetType,
        Meta(description="What ends the attempts of this stage; the limits of the run hold as well."),
    ] = UNSET
    on_failure: Annotated[
        Literal["rollback", "keep"],
        Meta(
            description="rollback: nothing reaches the workspace. keep: what the last attempt wrote within its write "
            "scope does, marked failed; also if its command failed or ran out of time."
        ),
    ] = "rollback"
    promote: Annotated[
        Text,
        Meta(
            description="The name of a promotion group: no result of its stages reaches the workspace before all of "
            "them are up to date; then all do, in one transaction. Stages of the group see each other's new results. "
            "`each`: the stage by itself. Never part of the key."
        ),
    ] = "each"
    timeout: Annotated[Duration, Meta(description="How long each process may take.")] = "300s"
    limits: Annotated[
        LimitsDocument | UnsetType,
        Meta(
            description="How much of the machine each process of the stage, with all that it starts, may use. A "
            "process that uses more is killed, and the stage fails with exit status 2. Never part of the key."
        ),
    ] = UNSET
    env: Annotated[
        Mapping[
            str,
            Annotated[
                str | int | float | bool,
                Meta(description="The value; numbers and booleans are written as in YAML."),
            ],
        ]
        | UnsetType,
        Meta(description="Variables for the stage's processes. No secrets: they would be part of the key."),
    ] = UNSET
    python: Annotated[
        Text | UnsetType,
        Meta(
            description="The interpreter that `python` means. Default: the active virtual environment, else `.venv` in "
            "the root, else orch23's own."
        ),
    ] = UNSET
    tools: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A program's name.")], ...],
        Meta(description="Programs whose version is part of the key."),
    ] = ()
    pools: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A name under `pools` of the file.")], ...],
        Meta(description="Pools of the file that the stage takes a place in while it runs, besides that of its kind."),
    ] = ()
    scratch: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A pattern.")], ...] | UnsetType,
        Meta(
            description="Name patterns of files that are thrown away. Steps of `verify` and pytest stages may write "
            "what is named literally (a folder ends with `/`), and nothing else of their tree but the outputs of a "
            "pytest stage."
        ),
    ] = UNSET
    cache: Annotated[
        bool | UnsetType,
        Meta(description="Whether a result may be used again. Default: true, but false with `network: true`."),
    ] = UNSET
    network: Annotated[bool, Meta(description="Let the stage's processes use the network.")] = False
    sandbox: Annotated[
        Literal["on", "off"],
        Meta(
            description="Whether the stage's processes are confined. `off` runs only with `--allow-unsandboxed` on the "
            "command line."
        ),
    ] = "on"
    salt: Annotated[str | int | float | UnsetType, Meta(description="Any text; another one makes the stage stale.")] = (
        UNSET
    )


class DefaultsDocument(CommonDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every stage has unless it says otherwise. Mappings are merged, the stage wins."""

    later = ("matrix", "approve", "pinned", "samples")


class StageDocument(CommonDocument, OneOf, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"if_": "if"}):
    """A unit of work, but for what it does: `stage_form` adds the keys of kinds of steps."""

    later = ("matrix", "approve", "pinned", "samples")

    desc: Annotated[str, Meta(description="What the stage is for. Never part of the key.")] = ""
    foreach: Annotated[
        ForeachDocument | UnsetType,
        Meta(description="Make one stage an item of a list. Exactly one of `from` and `in`."),
    ] = UNSET
    if_: Annotated[
        IfCondition,
        Meta(
            description="`true` or `false`, as a rule an expression of vars: `${{ vars.docs }}`. A stage that it "
            "switches off is skipped, as if it were not declared. Never part of the key."
        ),
    ] = True
    needs: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A stage's name.")], ...],
        Meta(description="Stages that come first, without any file of theirs being read."),
    ] = ()
    inputs: Annotated[
        tuple[InputEntry, ...],
        Meta(
            description="What the stage reads. Nothing else of the project is in its sandbox directory. `!PATTERN` "
            "removes files from the globs and listings before it in the list; a later entry can add them again."
        ),
    ] = ()
    outputs: Annotated[
        tuple[Path, ...],
        Meta(description="What the stage makes: literal files, or directories ending in `/`."),
    ] = ()
