"""The pipeline language: every key of a pipeline file, with its type, rules, default and meaning, declared once.

A document is what a user writes, after its expressions are evaluated. The JSON schema, the reference page, the lists of
known keys and the reader follow from these classes. What needs more than the document itself (paths, names of other
stages, the item of a foreach) is checked by the readers beside this module.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import fields

from orch23.model.exit_numbers import LEAST, MOST
from orch23.model.pipeline import DEFAULT_RETRY_WHEN, MAX_RETRIES, FailureKind

MOST_TRUNCATED: Final = 3
MOST_FACTOR: Final = 8
_MOST_SECONDS: Final = 1_000_000_000
_MOST_DOLLARS: Final = 1_000_000_000_000
_END: Final = r"$(?!\n)"  # `$` of Python also matches before a line break at the end
_NAME: Final = r"^(?!\.+$)[A-Za-z0-9._-]{1,64}" + _END
_LITERAL: Final = {"x-literal": True}  # known before anything is rendered: no expression


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One mapping of the language. Keys that are not declared are refused."""

    exactly_one: ClassVar[tuple[str, ...]] = ()
    """Fields of which exactly one must be given."""
    later: ClassVar[tuple[str, ...]] = ()
    """Keys that a later version will have."""


class OneOf(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping that has exactly one of some keys."""

    def __post_init__(self) -> None:
        """Refuse none and more than one.

        Raises:
            ValueError: which msgspec turns into a ValidationError.

        """
        if sum(getattr(self, name) is not UNSET for name in self.exactly_one) != 1:
            message = f"exactly one of {', '.join(self.exactly_one)} is needed"
            raise ValueError(message)


# ---- scalars ----------------------------------------------------------------------------------

Text: TypeAlias = Annotated[str, Meta(pattern=r"\S")]
Word: TypeAlias = Annotated[str | int | float, Meta(description="One argument: a string or a number.")]
Path: TypeAlias = Annotated[str, Meta(min_length=1, description="A path relative to the root of the project.")]
Paths: TypeAlias = Path | Annotated[tuple[Path, ...], Meta(description="Several paths.")]
Program: TypeAlias = Annotated[tuple[Word, ...], Meta(min_length=1)]
Condition: TypeAlias = bool | str
ConditionKind: TypeAlias = Literal["file_exists", "file_absent"]
Name: TypeAlias = Annotated[str, Meta(pattern=_NAME, extra_json_schema=_LITERAL)]

Duration: TypeAlias = Annotated[
    Annotated[int, Meta(gt=0, le=_MOST_SECONDS)]
    | Annotated[float, Meta(gt=0, le=_MOST_SECONDS)]
    | Annotated[
        str,
        Meta(
            pattern=r"^(?=[0-9])(?:[0-9]{1,9}(?:\.[0-9]+)?|(?:[0-9]{1,5}h)?(?:[0-9]{1,7}m)?(?:[0-9]{1,9}(?:\.[0-9]+)?s)?)"
            + _END
        ),
    ],
    Meta(extra_json_schema={"x-code": "E815", "x-form": "write 300s, 45m, 2h, 1h30m or a number of seconds"}),
]
Count: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern="^[0-9]+[kM]?" + _END)],
    Meta(extra_json_schema={"x-code": "E815", "x-form": "write 4000, 4k or 2M"}),
]
Size: TypeAlias = Annotated[
    Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern=r"^[0-9]{1,12}(?:\.[0-9]{1,6})? ?(?:[KMGT]i?)?B?" + _END)],
    Meta(extra_json_schema={"x-code": "E815", "x-form": "write 512MiB, 4GiB or a number of bytes"}),
]
Amount: TypeAlias = Annotated[
    Annotated[int, Meta(gt=0, le=_MOST_DOLLARS)]
    | Annotated[float, Meta(gt=0, le=_MOST_DOLLARS)]
    | Annotated[str, Meta(pattern=r"^(?=.*[1-9])[0-9]{1,12}(?:\.[0-9]{1,12})?" + _END)],
    Meta(extra_json_schema={"x-code": "E815", "x-form": "write US dollars, more than 0: 2.50, or '2.50'"}),
]
Rate: TypeAlias = Annotated[
    Annotated[int, Meta(ge=0, le=_MOST_DOLLARS)]
    | Annotated[float, Meta(ge=0, le=_MOST_DOLLARS)]
    | Annotated[str, Meta(pattern=r"^[0-9]{1,12}(?:\.[0-9]{1,12})?" + _END)],
    Meta(extra_json_schema={"x-code": "E815", "x-form": "write US dollars for a million tokens: 2.50, or '2.50'"}),
]


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


Input: TypeAlias = Annotated[
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


# ---- steps ------------------------------------------------------------------------------------

Shell: TypeAlias = (
    Annotated[str, Meta(min_length=1, description="A text for bash.")] | Annotated[Program, Meta(description="argv.")]
)


class PytestDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With options."""

    args: Annotated[tuple[Word, ...], Meta(description="Further arguments.")] = ()
    paths: Annotated[
        tuple[Path, ...], Meta(description="Files, directories or test ids to run, relative to `cwd`.")
    ] = ()
    config: Annotated[
        Text | UnsetType, Meta(description="A configuration file to use instead of orch23's own empty one.")
    ] = UNSET
    plugins: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A plugin's module name.")], ...],
        Meta(description="Plugins to load; no others are."),
    ] = ()
    pythonpath: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A directory.")], ...] | UnsetType,
        Meta(description="Directories for imports, relative to `cwd`. Default: `cwd` itself."),
    ] = UNSET
    expect: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A test id.")], ...],
        Meta(
            description="Ids of tests that must have run and passed. Default: all test functions found in the staged "
            "test files."
        ),
    ] = ()
    trust: Annotated[
        tuple[Path, ...],
        Meta(
            description="Literal files that are trusted: `conftest.py` and configuration files although a model, or a "
            "stage after one, makes them; modules although they hide one of a library."
        ),
    ] = ()
    report: Annotated[Text | UnsetType, Meta(description="A JSON report to write. It is an output of the stage.")] = (
        UNSET
    )
    must_fail: Annotated[
        bool,
        Meta(description="Every test must be collected, and fail: for new tests, run without the code that they test."),
    ] = False


Pytest: TypeAlias = PytestDocument | Annotated[tuple[Word, ...], Meta(description="Arguments only.")]


class RenderDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With its template."""

    template: Annotated[Text, Meta(description="A Jinja2 file.")]


Render: TypeAlias = Annotated[Text, Meta(description="The template.")] | RenderDocument


class ContextDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the model is shown beside the inputs."""

    own_outputs: Annotated[bool, Meta(description="Show the stage's last accepted result. Never part of the key.")] = (
        False
    )
    max_files: Annotated[Count, Meta(description="The most files in one request.")] = 10
    max_bytes: Annotated[Count, Meta(description="The most bytes of files in one request.")] = "200k"


class BriefDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the text of a failure is cut for the next attempt."""

    limit: Annotated[Count, Meta(description="Texts up to this length are not cut.")] = 4000
    head: Annotated[Count, Meta(description="Characters kept of the beginning.")] = 2500
    tail: Annotated[Count, Meta(description="Characters kept of the end.")] = 1000


class OnTruncatedDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What follows an answer that was cut off at `max_tokens`."""

    retries: Annotated[
        int,
        Meta(ge=0, le=MOST_TRUNCATED, description=f"Further requests within the attempt, 0 to {MOST_TRUNCATED}."),
    ] = 0
    factor: Annotated[
        int,
        Meta(ge=2, le=MOST_FACTOR, description=f"How many times more `max_tokens` each has, 2 to {MOST_FACTOR}."),
    ] = 2


class LLMDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask a model."""

    later = ("samples",)

    provider: Annotated[
        Text | UnsetType, Meta(description="Who answers: `anthropic`, `openai`, `local`, `command` or `scripted`.")
    ] = UNSET
    model: Annotated[Text | UnsetType, Meta(description="The model's name, as the provider calls it.")] = UNSET
    prompt: Annotated[
        Text | UnsetType,
        Meta(
            description="A Jinja2 file that renders the request. It sees "
            "`vars item inputs own previous brief attempt schema`."
        ),
    ] = UNSET
    system: Annotated[Text | UnsetType, Meta(description="A Jinja2 file that renders the system text.")] = UNSET
    returns: Annotated[
        Literal["files", "json", "text", "code"],
        Meta(
            description="The shape of the answer: whole files, JSON, text, or the first fenced block of code. The last "
            "three make exactly one output."
        ),
    ] = "files"
    schema: Annotated[Text | UnsetType, Meta(description="A JSON schema (draft 7) for `returns: json`.")] = UNSET
    max_tokens: Annotated[Count, Meta(description="The most tokens of one answer.")] = 32_000
    on_truncated: Annotated[
        OnTruncatedDocument | UnsetType,
        Meta(
            description="What follows an answer that was cut off at `max_tokens`. Default: what the provider is known "
            "to need. Never part of the key."
        ),
    ] = UNSET
    effort: Annotated[
        Text | UnsetType, Meta(description="How hard the model should think, in the provider's words.")
    ] = UNSET
    thinking: Annotated[
        Text | UnsetType, Meta(description="How the model may think aloud, in the provider's words.")
    ] = UNSET
    timeout: Annotated[Duration, Meta(description="How long one request may take.")] = "600s"
    mode: Annotated[
        Literal["cached", "record", "replay"],
        Meta(description="cached: use a recorded answer, else ask. record: always ask. replay: never ask."),
    ] = "cached"
    transcripts: Annotated[
        Text | UnsetType, Meta(description="A directory, fit for committing, where answers are recorded.")
    ] = UNSET
    context: Annotated[ContextDocument | UnsetType, Meta(description="What the model is shown beside the inputs.")] = (
        UNSET
    )
    brief: Annotated[
        BriefDocument | UnsetType, Meta(description="How the text of a failure is cut for the next attempt.")
    ] = UNSET
    structured_output: Annotated[
        bool,
        Meta(
            description="Whether the form of the answer is sent to the provider as a schema, so that the server holds "
            "the model to it. Switch it off for a model or a gateway that refuses requests with one; the answer is "
            "judged as strictly either way."
        ),
    ] = True
    secrets: Annotated[
        Literal["refuse", "redact"],
        Meta(
            description="What is done with a request that holds a secret of this machine. refuse: nothing is sent. "
            "redact: it is sent without."
        ),
    ] = "refuse"
    base_url: Annotated[
        Text | UnsetType,
        Meta(description="The address of a compatible server.", extra_json_schema={"format": "uri"}),
    ] = UNSET
    endpoint_alias: Annotated[
        Text | UnsetType,
        Meta(description="A name that stands for the address in keys, so that a moved server changes nothing."),
    ] = UNSET
    api: Annotated[
        Literal["responses", "chat"] | UnsetType,
        Meta(
            description="The interface that is spoken, where the provider has several. Default: `chat` with a "
            "`base_url`, else `responses`."
        ),
    ] = UNSET
    command: Annotated[Program | UnsetType, Meta(description="The program to ask, for `provider: command`.")] = UNSET
    read: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A file or a folder.")], ...],
        Meta(
            description="Files and folders that the program of `command` may read, besides itself, its arguments that "
            "are files of the project, and the system: paths of the project, which it gets as copies, or absolute "
            "paths and `~/...`."
        ),
    ] = ()
    pass_env: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="A name.")], ...],
        Meta(
            description="Names of environment variables that the program of `command` gets, such as its key. It gets "
            "no others of yours."
        ),
    ] = ()
    network: Annotated[bool, Meta(description="Let the program of `command` use the network.")] = False
    answers: Annotated[Text | UnsetType, Meta(description="A YAML file of answers, for `provider: scripted`.")] = UNSET
    seed: Annotated[int | UnsetType, Meta(description="The seed of sampling, where the provider has one.")] = UNSET
    temperature: Annotated[
        Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)] | UnsetType,
        Meta(description="The temperature of sampling, where the provider has one."),
    ] = UNSET


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
    """One step of verification: exactly one of `check`, `shell`, `pytest`, `ensures`, `commands`."""

    exactly_one = ("check", "shell", "pytest", "ensures", "commands")

    check: Annotated[Text | UnsetType, Meta(description="A validator of orch23, by name.")] = UNSET
    options: Annotated[dict[str, Any] | UnsetType, Meta(description="Options of the check.")] = UNSET
    shell: Annotated[Shell | UnsetType, Meta(description="A command that must succeed.")] = UNSET
    pytest: Annotated[Pytest | UnsetType, Meta(description="Tests that must pass.")] = UNSET
    ensures: Annotated[
        Conditions | UnsetType, Meta(description="Files that the result must have, or must not have.")
    ] = UNSET
    if_: Annotated[
        Condition,
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


VerifySteps: TypeAlias = Annotated[
    tuple[VerifyStepDocument, ...], Meta(description="Checks run first, then in order to the first failure.")
]


class VerifyDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With inputs of its own."""

    inputs: Annotated[tuple[Input, ...], Meta(description="Inputs for these steps only; no model sees them.")] = ()
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
            pattern=r"^(?!vars$)[A-Za-z_][A-Za-z0-9_]*" + _END,
            description="What expressions call the item.",
            extra_json_schema=_LITERAL,
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


class CommonDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stage says for itself or takes from the defaults."""

    cwd: Annotated[
        Text | UnsetType,
        Meta(description="Where processes run, and what paths in a model's answer are relative to. Default: the root."),
    ] = UNSET
    allowed_paths: Annotated[
        AllowedPathsDocument | UnsetType, Meta(description="The fence: where the stage may write.")
    ] = UNSET
    verify: Annotated[
        VerifySteps | VerifyDocument, Meta(description="What a result must pass before it reaches the workspace.")
    ] = ()
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

    llm: Annotated[LLMDocument | UnsetType, Meta(description="Defaults of llm stages.")] = UNSET
    pytest: Annotated[PytestDocument | UnsetType, Meta(description="Defaults of pytest stages.")] = UNSET


class StageDocument(CommonDocument, OneOf, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"if_": "if"}):
    """A unit of work: exactly one of `llm`, `shell`, `pytest`, `render`, and what it reads and makes."""

    exactly_one = ("llm", "shell", "pytest", "render")
    later = ("matrix", "approve", "pinned", "samples")

    desc: Annotated[str, Meta(description="What the stage is for. Never part of the key.")] = ""
    llm: Annotated[LLMDocument | UnsetType, Meta(description="Ask a model for files, JSON, text or code.")] = UNSET
    shell: Annotated[Shell | UnsetType, Meta(description="Run a program.")] = UNSET
    pytest: Annotated[Pytest | UnsetType, Meta(description="Run tests.")] = UNSET
    render: Annotated[Render | UnsetType, Meta(description="Render a Jinja2 file to the stage's one output.")] = UNSET
    foreach: Annotated[
        ForeachDocument | UnsetType,
        Meta(description="Make one stage an item of a list. Exactly one of `from` and `in`."),
    ] = UNSET
    if_: Annotated[
        Condition,
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
        tuple[Input, ...],
        Meta(
            description="What the stage reads. Nothing else of the project is in its sandbox directory. `!PATTERN` "
            "removes files from the globs and listings before it in the list; a later entry can add them again."
        ),
    ] = ()
    outputs: Annotated[
        tuple[Path, ...],
        Meta(description="What the stage makes: literal files, or directories ending in `/`."),
    ] = ()


# ---- the file ---------------------------------------------------------------------------------


class PriceDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of one model, in US dollars for a million tokens."""

    input: Annotated[Rate, Meta(description="A million tokens of prompts.")]
    output: Annotated[Rate, Meta(description="A million tokens of answers.")]
    cache_read: Annotated[
        Rate | UnsetType,
        Meta(description="A million tokens read from the provider's prompt cache. Default: as `input`."),
    ] = UNSET
    cache_write: Annotated[
        Rate | UnsetType, Meta(description="A million tokens written to it. Default: as `input`.")
    ] = UNSET


class SettingsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for a whole run, and may hold expressions of vars."""

    stop_conditions: Annotated[
        RunStopConditionsDocument | UnsetType,
        Meta(description="What ends a run; the next build goes on from there."),
    ] = UNSET
    prices: Annotated[
        Mapping[Annotated[str, Meta(min_length=1, description="a model's name, or PROVIDER/MODEL")], PriceDocument]
        | UnsetType,
        Meta(
            description="What models cost, where the packaged price table does not know it or does not hold: by "
            "`MODEL` or `PROVIDER/MODEL`."
        ),
    ] = UNSET
    jobs: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType,
        Meta(description="How many stages may run at once. Default: the number of cores."),
    ] = UNSET
    pools: Annotated[
        Mapping[
            Annotated[
                str,
                Meta(pattern=_NAME, description="a kind of step, or a name made of letters, digits and . _ -"),
            ],
            Annotated[int, Meta(ge=1, description="How many stages at once, 1 or more.")],
        ]
        | UnsetType,
        Meta(
            description="How many stages of a kind (`llm`, `shell`, `pytest`, `render`), or of a name that stages give "
            "under `pools`, may run at once. Never part of the key."
        ),
    ] = UNSET
    exit_codes: Annotated[
        Mapping[
            Annotated[
                str,
                Meta(
                    pattern="^E[0-9]{1,3}" + _END,
                    description="a diagnostic code or its beginning: E and 1 to 3 digits",
                ),
            ],
            Annotated[int, Meta(ge=LEAST, le=MOST, description=f"The number to end with, {LEAST} to {MOST}.")],
        ]
        | UnsetType,
        Meta(
            description="Numbers of your own to end with, by the diagnostic that stopped the run: a code or its "
            "beginning, the longest first. `{E201: 4, E1: 2, E4: 3}`. 0, 2 for safety, 129, 130 and 143 stay."
        ),
    ] = UNSET
    plugins: Annotated[
        tuple[Annotated[str, Meta(min_length=1, description="The name of an installed distribution.")], ...],
        Meta(
            description="Installed distributions whose checks (entry points of the group `orch23.checks`) this "
            "pipeline can name. Their names and versions are part of the keys of the stages that use them."
        ),
    ] = ()


class PipelineDocument(SettingsDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline of orch23, version 1."""

    later = ("include",)

    version: Annotated[
        Literal[1], Meta(description="The version of the pipeline language.", extra_json_schema=_LITERAL)
    ]
    name: Annotated[Name | UnsetType, Meta(description="What the pipeline is called. Default: the file's name.")] = (
        UNSET
    )
    vars: Annotated[
        Mapping[
            Annotated[
                str,
                Meta(
                    pattern="^[A-Za-z_][A-Za-z0-9_]*" + _END,
                    description="a name is made of letters, digits and _",
                ),
            ],
            Any,
        ]
        | UnsetType,
        Meta(description="Values for `${{ vars.NAME }}`. A var may use a var."),
    ] = UNSET
    defaults: Annotated[
        DefaultsDocument | UnsetType,
        Meta(description="What every stage has unless it says otherwise. Mappings are merged, the stage wins."),
    ] = UNSET
    stages: Annotated[
        Mapping[
            Annotated[
                str,
                Meta(
                    pattern=_NAME,
                    description="a name is made of letters, digits and . _ - (at most 64, not dots alone)",
                ),
            ],
            StageDocument,
        ],
        Meta(min_length=1, description="The stages, by name."),
    ]


def keys_of(kind: type[Document]) -> tuple[str, ...]:
    """Return the keys of a class: its own first, then those it inherits."""
    names = {field.name: field.encode_name for field in fields(kind)}
    bases = [base for base in kind.__mro__[1:] if issubclass(base, Document)]
    inherited = {name for base in bases for name in base.__struct_fields__}
    return tuple(names[name] for name in sorted(names, key=lambda name: name in inherited))
