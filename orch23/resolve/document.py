"""The pipeline language: every key with its type, rules, default and meaning, declared once.

A document is a part of a pipeline file after its expressions are evaluated. The JSON schema, the reference page, the
lists of known keys and the conversion are generated from these classes. Rules that need more than one document (paths,
names of other stages, the item of a foreach) are checked by the other modules of this package. Each step kind
declares its own key.
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
    ModelDocument,
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

    path: Annotated[Text | UnsetType, Meta(description="The file, slice or pattern.")] = UNSET
    optional: Annotated[
        bool | UnsetType,
        Meta(description="Whether the file may be missing, or the pattern match no file. Default: `false`."),
    ] = UNSET
    schema: Annotated[
        Text | UnsetType,
        Meta(
            description="A JSON schema that the file must match before anything runs, of draft 7 unless its `$schema` "
            "names another one. Only for YAML and JSON files."
        ),
    ] = UNSET
    list: Annotated[
        Text | UnsetType,
        Meta(
            description="A pattern. The input is the sorted list of matching paths, without their contents and without "
            "files that this pipeline made. A program reads it from `.orch23/listings/1`, `2`, …"
        ),
    ] = UNSET


InputEntry: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1, description="A file, a glob, a slice or an exclusion.")] | InputDocument,
    Meta(
        description="A literal file, a glob (`src/**/*.py`, `src/`), a slice (`spec.md#Heading`, `plan.json#/tasks/0`: "
        "the stage sees only that part), an exclusion (`!src/vendor/**`), or one of these mappings."
    ),
]


class ConditionsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conditions by kind."""

    file_exists: Annotated[
        Paths | UnsetType,
        Meta(description="These files must exist. A directory, ending in `/`, must have at least one file."),
    ] = UNSET
    file_absent: Annotated[
        Paths | UnsetType,
        Meta(description="These files must not exist. A directory, ending in `/`, must have no file."),
    ] = UNSET


class ConditionDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One condition."""

    kind: Annotated[ConditionKind, Meta(description="The condition.")]
    path: Annotated[Text, Meta(description="A path relative to the root of the project.")]


Conditions: TypeAlias = (
    ConditionsDocument | Annotated[tuple[ConditionDocument, ...], Meta(description="A list of conditions.")]
)


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
            description="The list of commands: an expression with the item, a pointer into a file "
            "(`plan.json#/commands`), or the list itself."
        ),
    ]
    allow: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A program name without a path.")], ...],
        Meta(
            min_length=1,
            description="The programs that the commands may run. `python` is the project's interpreter; `pytest` runs "
            "as a pytest step.",
        ),
    ]


class VerifyStepDocument(
    OneOf, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"if_": "if", "options": "with"}
):
    """One step of verification. `stage_form` adds a key for each step kind."""

    exactly_one = ("check", "ensures", "commands")

    check: Annotated[Text | UnsetType, Meta(description="The name of a check.")] = UNSET
    options: Annotated[dict[str, Any] | UnsetType, Meta(description="Options of the check.")] = UNSET
    ensures: Annotated[
        Conditions | UnsetType, Meta(description="Files that the result must have or must not have.")
    ] = UNSET
    if_: Annotated[
        IfCondition,
        Meta(description="`true` or `false`, usually an expression of vars. With `false`, the step is left out."),
    ] = True
    commands: Annotated[
        CommandsDocument | UnsetType,
        Meta(
            description="Commands that a model wrote, each a program with arguments. They run without a shell, and all "
            "must succeed. A failure has the kind `acceptance_failed`."
        ),
    ] = UNSET


STEPS_MEANING = Meta(description="Checks run first. The other steps run in order and stop at the first failure.")
VerifySteps: TypeAlias = Annotated[tuple[VerifyStepDocument, ...], STEPS_MEANING]


class VerifyDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Verification steps with their own inputs."""

    inputs: Annotated[
        tuple[InputEntry, ...], Meta(description="Inputs for these steps only. Models do not see them.")
    ] = ()
    steps: VerifySteps = ()
    all: Annotated[bool, Meta(description="Run all steps, even after a failure.")] = False


# ---- stages -----------------------------------------------------------------------------------


class AllowedPathsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the stage may write."""

    write: Annotated[
        tuple[Path, ...] | UnsetType,
        Meta(
            description="Patterns of files that the stage may write. A protected name must be spelled out "
            "in a pattern. Default: the outputs."
        ),
    ] = UNSET
    protect: Annotated[
        tuple[Path, ...],
        Meta(description="Patterns of files that the stage may not write, even if `write` matches them."),
    ] = ()
    delete: Annotated[
        tuple[Path, ...], Meta(description="Patterns of files that the stage may delete. Default: none.")
    ] = ()
    read: Annotated[
        tuple[Path, ...],
        Meta(
            description="Patterns of files that items may name as inputs. Default: all files of the project without "
            "protected and ignored names."
        ),
    ] = ()


class RetryDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"start_from": "from"}):
    """How often to retry, when, and how."""

    max: Annotated[int, Meta(description=f"Attempts after the first, 0 to {MAX_RETRIES}.")] = 0
    when: Annotated[
        tuple[Annotated[Literal[FailureKind, "truncated"], Meta(description="A kind of failure.")], ...] | UnsetType,
        Meta(
            description="The kinds of failure that start another attempt. truncated: a response that was cut off, "
            f"which is also an llm_output_invalid. Default: {', '.join(DEFAULT_RETRY_WHEN)}."
        ),
    ] = UNSET
    prompt: Annotated[
        Text | UnsetType,
        Meta(description="The prompt file (Jinja2) of later attempts. Default: the prompt of the first."),
    ] = UNSET
    start_from: Annotated[
        Literal["current", "best", "baseline"],
        Meta(
            description="current: start from the files of the last attempt. best: start from those of the attempt with "
            "the fewest failing tests. baseline: start over."
        ),
    ] = "current"
    no_progress: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType,
        Meta(description="Stop after this many equal failures in a row, and after a response that was made before."),
    ] = UNSET
    escalate: Annotated[
        tuple[
            Annotated[
                Annotated[str, Meta(min_length=1, description="A model's name.")] | ModelDocument,
                Meta(description="A model's name, or a mapping of the settings that differ."),
            ],
            ...,
        ],
        Meta(
            description="The models of the attempts, instead of `llm.model`. The last model is used for all later "
            "attempts. If a model refuses, the next one gets the same prompt. A mapping can also have another "
            "`provider`, `effort`, `thinking` or `max_tokens`."
        ),
    ] = ()
    style: Annotated[
        Literal["prompt", "conversation"],
        Meta(
            description="prompt: a later attempt sends a new prompt, with the feedback. conversation: it sends the "
            "first prompt unchanged, and then each former response and what failed as turns."
        ),
    ] = "prompt"


class StopConditionsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of all attempts of this stage. The limits of the run apply too."""

    max_cost_usd: Annotated[
        Amount | UnsetType,
        Meta(
            description="The maximum cost of requests to models, in US dollars. A request that could exceed it is not "
            "sent."
        ),
    ] = UNSET
    max_tokens: Annotated[
        Count | UnsetType, Meta(description="The maximum number of tokens of prompts and responses.")
    ] = UNSET
    max_llm_calls: Annotated[Count | UnsetType, Meta(description="The maximum number of requests to models.")] = UNSET
    max_wall: Annotated[Duration | UnsetType, Meta(description="The maximum time of all attempts of the stage.")] = (
        UNSET
    )


class LimitsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resources that each process of the stage may use."""

    memory: Annotated[Size, Meta(description="Memory of the process and its child processes.")] = "8GiB"
    processes: Annotated[Count, Meta(description="Processes at the same time.")] = 4096
    files: Annotated[
        Count, Meta(description="Files and directories that it has at once, including temporary ones.")
    ] = "1M"
    disk: Annotated[Size, Meta(description="Bytes on disk of its files, with temporary and open removed ones.")] = (
        "8GiB"
    )
    address_space: Annotated[
        Size | UnsetType,
        Meta(
            description="Address space of each process (RLIMIT_AS). Node.js, Go and Java reserve much more than they "
            "use, and fail with a limit. Default: no limit."
        ),
    ] = UNSET


class ForeachDocument(
    OneOf,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"source": "from", "values": "in", "name": "as"},
):
    """Make one stage for each item of a list. Exactly one of `from` and `in`."""

    exactly_one = ("source", "values")

    source: Annotated[
        Text | UnsetType, Meta(description="A list in a JSON or YAML file: `build/plan.json#/tasks`.")
    ] = UNSET
    values: Annotated[
        tuple[Annotated[Any, Meta(description="One item: any value.")], ...] | UnsetType,
        Meta(description="The list itself. It may be empty."),
    ] = UNSET
    key: Annotated[
        Text | UnsetType,
        Meta(description="The field of an item with its key. An item that is a string or a number is its own key."),
    ] = UNSET
    name: Annotated[
        str,
        Meta(
            pattern=r"^(?!vars$)[A-Za-z_][A-Za-z0-9_]*" + END_OF_TEXT,
            description="The name of the item in expressions.",
            extra_json_schema=LITERAL_NODE,
        ),
    ] = "item"
    order: Annotated[
        Literal["sequential", "parallel"],
        Meta(
            description="sequential: items run one after another and may edit the same files. parallel: they may not."
        ),
    ] = "parallel"
    needs: Annotated[
        Text | UnsetType, Meta(description="The field of an item with the keys of the items that it waits for.")
    ] = UNSET
    promote: Annotated[
        Text | UnsetType,
        Meta(
            description="together: all results reach the workspace in one transaction, once all items are up to date. "
            "A name: the same, together with all other stages of that promotion group, like `promote` of the stage. "
            "each: each item by itself. Default: `each`."
        ),
    ] = UNSET


VERIFY_MEANING = Meta(description="The steps that must succeed before a result reaches the workspace.")


class CommonDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a stage that may also be in `defaults`."""

    cwd: Annotated[
        Text | UnsetType,
        Meta(
            description="The working directory of processes. Paths in a model's response are relative to it. Default: "
            "the root."
        ),
    ] = UNSET
    allowed_paths: Annotated[AllowedPathsDocument | UnsetType, Meta(description="Where the stage may write.")] = UNSET
    verify: Annotated[VerifySteps | VerifyDocument, VERIFY_MEANING] = ()
    requires: Annotated[
        Conditions, Meta(description="Conditions that must hold before the stage runs and before a model is called.")
    ] = ()
    ensures: Annotated[Conditions, Meta(description="Conditions that the result must meet.")] = ()
    retry: Annotated[
        Annotated[int, Meta(description="The number.")] | RetryDocument,
        Meta(
            description=f"Attempts after the first, 0 to {MAX_RETRIES}. A larger number counts as {MAX_RETRIES}, with "
            "a warning.",
            extra_json_schema={
                "x-form": "write the number of attempts after the first, such as `retry: 2`, or a "
                "mapping, such as `retry: {max: 2, when: [timeout]}`"
            },
        ),
    ] = 0
    stop_conditions: Annotated[
        StopConditionsDocument | UnsetType,
        Meta(description="Limits of all attempts of this stage. The limits of the run apply too."),
    ] = UNSET
    on_failure: Annotated[
        Literal["rollback", "keep"],
        Meta(
            description="rollback: nothing reaches the workspace. keep: the files that the last attempt wrote within "
            "its write scope reach it, marked as failed, even if its command failed or timed out."
        ),
    ] = "rollback"
    promote: Annotated[
        Text,
        Meta(
            description="The name of a promotion group: all results of its stages reach the workspace in one "
            "transaction, once all of them are up to date. Stages of the group see each other's new results. "
            "`each`: each stage by itself. Not part of the key."
        ),
    ] = "each"
    timeout: Annotated[Duration, Meta(description="How long each process may take.")] = "300s"
    limits: Annotated[
        LimitsDocument | UnsetType,
        Meta(
            description="Resources that each process of the stage, with its child processes, may use. A process that "
            "uses more is killed, and the stage fails with exit status 2. Not part of the key."
        ),
    ] = UNSET
    env: Annotated[
        Mapping[
            str,
            Annotated[
                str | int | float | bool,
                Meta(description="The value. Numbers and booleans are converted to text as in YAML."),
            ],
        ]
        | UnsetType,
        Meta(
            description="Environment variables of the stage's processes. Do not put secrets here: the values are part "
            "of the key."
        ),
    ] = UNSET
    python: Annotated[
        Text | UnsetType,
        Meta(
            description="The interpreter for `python`. Default: that of the active virtual environment, of `.venv` in "
            "the root, or of orch23 itself, in this order."
        ),
    ] = UNSET
    tools: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="The name of a program.")], ...],
        Meta(
            description="Programs whose versions are part of the key. A stage whose programs start others is in a "
            "shared cache only if all of them are listed."
        ),
    ] = ()
    pools: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A name under `pools` of the file.")], ...],
        Meta(
            description="Pools of the file in which the stage counts while it runs, in addition to the pool of its "
            "kind."
        ),
    ] = ()
    scratch: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A pattern.")], ...] | UnsetType,
        Meta(
            description="Name patterns of files that are not part of the result. Steps of `verify` and pytest stages "
            "may write files that are named literally here (a folder ends with `/`), the outputs of a pytest stage, "
            "and nothing else."
        ),
    ] = UNSET
    cache: Annotated[
        bool | UnsetType,
        Meta(description="Whether a result may be reused. Default: true, or false with `network: true`."),
    ] = UNSET
    network: Annotated[bool, Meta(description="Let the stage's processes use the network.")] = False
    sandbox: Annotated[
        Literal["on", "namespaces", "off"],
        Meta(
            description="Whether the stage's processes run in a sandbox. `namespaces` refuses a machine or a worker "
            "whose sandbox isolates less than namespaces do. `off` needs `--allow-unsandboxed` on the command line."
        ),
    ] = "on"
    salt: Annotated[
        str | int | float | UnsetType, Meta(description="Any text. A different text makes the stage stale.")
    ] = UNSET


class StageDocument(CommonDocument, OneOf, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"if_": "if"}):
    """A stage. `stage_form` adds a key for each step kind."""

    # Refused and not ignored: a pipeline for a later version must not run with another meaning.
    later = ("matrix", "approve", "pinned", "samples")

    desc: Annotated[str, Meta(description="A description of the stage. Not part of the key.")] = ""
    foreach: Annotated[
        ForeachDocument | UnsetType,
        Meta(description="Make one stage for each item of a list. Exactly one of `from` and `in`."),
    ] = UNSET
    if_: Annotated[
        IfCondition,
        Meta(
            description="`true` or `false`, usually an expression of vars: `${{ vars.docs }}`. With `false`, the stage "
            "is skipped, as if it were not declared. Not part of the key."
        ),
    ] = True
    needs: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="The name of a stage.")], ...],
        Meta(description="Stages that run before this one even if it reads none of their files."),
    ] = ()
    inputs: Annotated[
        tuple[InputEntry, ...],
        Meta(
            description="The files that the stage reads. Its sandbox directory has no other files of the project. "
            "`!PATTERN` removes files from the globs and listings before it in the list; a later entry can add them "
            "again."
        ),
    ] = ()
    outputs: Annotated[
        tuple[Path, ...],
        Meta(description="The files that the stage makes: literal files, or directories ending in `/`."),
    ] = ()
    metrics: Annotated[
        tuple[Path, ...],
        Meta(
            description="Outputs with values that `orch23 diff` and `orch23 report` compare: `.json`, `.yaml` or "
            "`.yml` files. Not part of the key."
        ),
    ] = ()
