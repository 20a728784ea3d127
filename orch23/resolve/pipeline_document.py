"""The pipeline language, top level: settings of the file, and forms with the keys of step kinds."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from keyword import iskeyword
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from orch23.model.diagnostic import quoted_names
from orch23.model.digest import Json
from orch23.model.errors import CUSTOM_EXIT_CODE_NAMES, MAX_CUSTOM_EXIT_CODE, MIN_CUSTOM_EXIT_CODE
from orch23.model.language import (
    DISTRIBUTION_PATTERN,
    END_OF_TEXT,
    LITERAL_NODE,
    NAME_PATTERN,
    PUBLIC_KEY_PATTERN,
    SIZE_PATTERN,
    Count,
    Document,
    Duration,
    Name,
    RateText,
    Text,
    TokenRate,
    keys_of,
    language_of,
)
from orch23.model.parsing import as_mapping
from orch23.model.step import VerifyStep
from orch23.resolve.document import (
    STEPS_MEANING,
    VERIFY_MEANING,
    CommonDocument,
    StageDocument,
    StopConditionsDocument,
    VerifyDocument,
    VerifyStepDocument,
)
from orch23.steps.registry import kinds_of


class RunStopConditionsDocument(StopConditionsDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a run. The next build continues where this one stopped."""

    max_wall: Annotated[Duration | UnsetType, Meta(description="The maximum time of a run.")] = UNSET
    max_failed_stages: Annotated[
        Count, Meta(description="The run ends after this many failed stages. `-k` removes the limit.")
    ] = 1


class PriceDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The price of one model, in US dollars per million tokens."""

    input: Annotated[TokenRate, Meta(description="Per million tokens of prompts.")]
    output: Annotated[TokenRate, Meta(description="Per million tokens of responses.")]
    cache_read: Annotated[
        TokenRate | UnsetType,
        Meta(description="Per million tokens read from the provider's prompt cache. Default: the price of `input`."),
    ] = UNSET
    cache_write: Annotated[
        TokenRate | UnsetType,
        Meta(description="Per million tokens written to the prompt cache. Default: the price of `input`."),
    ] = UNSET


class RatesDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rate limits of a provider or a model, each as a number per time: `10/min`, `20/s`, `30k/min`, `500/30s`."""

    requests: Annotated[RateText | UnsetType, Meta(description="Requests.")] = UNSET
    tokens: Annotated[RateText | UnsetType, Meta(description="Tokens of prompts and responses together.")] = UNSET
    input_tokens: Annotated[RateText | UnsetType, Meta(description="Tokens of prompts.")] = UNSET
    output_tokens: Annotated[RateText | UnsetType, Meta(description="Tokens of responses.")] = UNSET


class SharedCacheDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cache of results that several people or machines share."""

    url: Annotated[
        Text | UnsetType,
        Meta(
            description="The absolute path of a directory, or the address of a server (`https://...`). It is used only "
            "after `orch23 trust`, since its results are written into the project. `--cache` and ORCH23_CACHE_URL "
            "replace it. Default: no shared cache."
        ),
    ] = UNSET
    mode: Annotated[
        Literal["read", "read-write", "off"] | UnsetType,
        Meta(
            description="read: never write to the cache, unless `--cache-write` is given. read-write: also write to "
            "the server that `url` names. off: use no cache, unless `--cache` names one, as if there were no `mode`. "
            "Default: read and write a directory, and only read a server."
        ),
    ] = UNSET
    responses: Annotated[
        bool,
        Meta(description="Whether recorded responses of models are shared too. They contain the prompts."),
    ] = False
    verify: Annotated[
        Literal["always", "never"],
        Meta(
            description="always: verify a result of the cache on this machine before it is used. never: its "
            "verification on the machine that made it counts."
        ),
    ] = "never"
    platform: Annotated[
        Text | UnsetType,
        Meta(
            description="A text that names the environment, such as the digest of a container image. Results are "
            "shared between machines with the same text. Default: what orch23 finds out about the installed packages "
            "and programs of each stage."
        ),
    ] = UNSET
    tier: Annotated[
        Literal["A", "B", "none"] | UnsetType,
        Meta(
            description="The lowest tier of the sandbox in which the steps of a result may have run: A (namespaces), "
            "B (Landlock) or none. Default: that of this machine; A for steps that run elsewhere."
        ),
    ] = UNSET
    signed_by: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    pattern=PUBLIC_KEY_PATTERN,
                    description="A public key: `ed25519:`, 44 characters of base64, and a name after a blank.",
                    extra_json_schema={
                        "examples": [f"ed25519:{'A' * 43}="],  # stands for an expression
                        "x-form": "write the line that `orch23 cache key new NAME` prints: `ed25519:BASE64 NAME`",
                    },
                ),
            ],
            ...,
        ],
        Meta(
            # Removing the last key must not switch the requirement off.
            min_length=1,
            description="Public keys. A result counts only if it has a signature of one of them. Default: any result.",
            extra_json_schema={"x-form": "list a key, or remove `signed_by` to accept any result"},
        ),
    ] = ()


_NAMED_LITERALLY: dict[str, Any] = {
    **LITERAL_NODE,
    "x-form": "write the name itself, with letters, digits and . _ -; an expression is not allowed here",
}


_MOST_OF_A_RESOURCE = 1_000_000_000_000_000
Quantity: TypeAlias = Annotated[
    Annotated[int, Meta(gt=0, le=_MOST_OF_A_RESOURCE)]
    | Annotated[float, Meta(gt=0, le=_MOST_OF_A_RESOURCE)]
    | Annotated[str, Meta(pattern=SIZE_PATTERN)],
    Meta(extra_json_schema={"x-code": "E815", "x-form": "write a number, or a size such as 512MiB or 8GiB"}),
]


class PoolDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many stages of a pool run at the same time, and where."""

    size: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType,
        Meta(description="Maximum number of stages that run at the same time. Default: no limit but `jobs`."),
    ] = UNSET
    executor: Annotated[
        Annotated[str, Meta(pattern=DISTRIBUTION_PATTERN)] | UnsetType,
        Meta(
            description="Where the steps of the stages run: `local` for this machine, `dask`, `reapi`, or the name of "
            "an executor of a plugin. It replaces `executor` of the file and `--executor`."
        ),
    ] = UNSET
    resources: Annotated[
        Mapping[Annotated[str, Meta(pattern=NAME_PATTERN, description="a name that the workers declare")], Quantity]
        | UnsetType,
        Meta(
            description="What a step takes of the resources of its worker, by name, as a number or a size. Resources "
            "of several pools add up. On this machine they limit nothing."
        ),
    ] = UNSET


_FREE = "write `0` for a model that costs nothing, otherwise `{input: ..., output: ...}`"


class SettingsDocument(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a whole run. They may have expressions of vars."""

    stop_conditions: Annotated[
        RunStopConditionsDocument | UnsetType,
        Meta(description="Limits of a run. The next build continues where this one stopped."),
    ] = UNSET
    prices: Annotated[
        Mapping[
            Annotated[str, Meta(min_length=1, description="a model's name, or PROVIDER/MODEL")],
            Annotated[int, Meta(ge=0, le=0, description=_FREE)] | PriceDocument,
        ]
        | UnsetType,
        Meta(
            description="Prices that are missing or wrong in the packaged price table, by `MODEL` or `PROVIDER/MODEL`; "
            "`0` for a model that costs nothing."
        ),
    ] = UNSET
    rates: Annotated[
        Mapping[
            Annotated[str, Meta(min_length=1, description="a provider's or model's name, or PROVIDER/MODEL")],
            RatesDocument,
        ]
        | UnsetType,
        Meta(
            description="Rate limits of your account. Those of `PROVIDER` hold for all its models together, those of "
            "`PROVIDER/MODEL`, or else `MODEL`, for one model. Limits in replies of the server hold too. Not part of "
            "the key."
        ),
    ] = UNSET
    jobs: Annotated[
        Annotated[int, Meta(ge=1)] | UnsetType,
        Meta(
            description="Maximum number of stages that run at the same time. Default: the number of cores; for stages "
            "on a cluster, that of its slots."
        ),
    ] = UNSET
    pools: Annotated[
        Mapping[
            Annotated[
                str,
                Meta(pattern=NAME_PATTERN, description="a step kind, or a name made of letters, digits and . _ -"),
            ],
            Annotated[int, Meta(ge=1, description="Maximum number of stages, 1 or more.")] | PoolDocument,
        ]
        | UnsetType,
        Meta(
            description="Maximum number of stages that run at the same time, by step kind (`llm`, `shell`) or by a "
            "name under `pools` of stages; as a mapping also where their steps run. Not part of the key."
        ),
    ] = UNSET
    exit_codes: Annotated[
        Mapping[
            Annotated[
                str,
                Meta(
                    pattern=rf"^(E[0-9]{{1,3}}|({'|'.join(CUSTOM_EXIT_CODE_NAMES)})(/E[0-9]{{1,3}})?){END_OF_TEXT}",
                    description="a diagnostic code or its beginning (E and 1 to 3 digits), the name of an exit code, "
                    "or both as in FAILED/E8",
                ),
            ],
            Annotated[
                int,
                Meta(
                    ge=MIN_CUSTOM_EXIT_CODE,
                    le=MAX_CUSTOM_EXIT_CODE,
                    description=f"The exit status, {MIN_CUSTOM_EXIT_CODE} to {MAX_CUSTOM_EXIT_CODE}.",
                ),
            ],
        ]
        | UnsetType,
        Meta(
            description="Exit codes for diagnostic codes or their beginnings, for all errors with the exit code of a "
            "name, or for those with both; the longest match wins: `{E201: 4, FAILED/E8: 2, PROVIDER: 3}`. The exit "
            "codes 0, 2, 77, 129, 130 and 143 cannot be changed."
        ),
    ] = UNSET
    run_log: Annotated[
        Text | UnsetType,
        Meta(description="A Jinja2 file that each run renders with its `events` into `logs/RUN/`."),
    ] = UNSET
    plugins: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    pattern=DISTRIBUTION_PATTERN,
                    description="The name of an installed distribution.",
                    extra_json_schema=_NAMED_LITERALLY,
                ),
            ],
            ...,
        ],
        Meta(
            extra_json_schema=LITERAL_NODE,
            description="Installed distributions whose checks, providers, step kinds, executors and output formats "
            "this pipeline can use. Their names and versions are part of the keys of the stages that use them.",
        ),
    ] = ()
    executor: Annotated[
        str,
        Meta(
            pattern=DISTRIBUTION_PATTERN,
            description="The executor of the stages' processes: `local` for this machine, `dask`, `reapi`, or the name "
            "of an executor of a plugin.",
            extra_json_schema=_NAMED_LITERALLY,
        ),
    ] = "local"
    cache: Annotated[
        SharedCacheDocument | UnsetType,
        Meta(description="A cache of results that several people or machines share. Not part of the key."),
    ] = UNSET


class DefaultsDocument(CommonDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defaults of all stages. Mappings are merged with those of a stage; the stage wins."""

    later = ("matrix", "approve", "pinned", "samples")


_StageName: TypeAlias = Annotated[
    str,
    Meta(pattern=NAME_PATTERN, description="a name is made of letters, digits and . _ - (at most 64, not dots alone)"),
]


class PipelineDocument(SettingsDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline of orch23, version 1."""  # `pipeline_form` adds the keys of step kinds

    later = ("include",)

    version: Annotated[
        Literal[1], Meta(description="The version of the pipeline language.", extra_json_schema=LITERAL_NODE)
    ]
    name: Annotated[Name | UnsetType, Meta(description="The name of the pipeline. Default: the name of the file.")] = (
        UNSET
    )
    vars: Annotated[
        Mapping[
            Annotated[
                str,
                Meta(
                    pattern="^[A-Za-z_][A-Za-z0-9_]*" + END_OF_TEXT,
                    description="a name is made of letters, digits and _",
                ),
            ],
            Any,
        ]
        | UnsetType,
        Meta(description="Values for `${{ vars.NAME }}`. A var may use other vars."),
    ] = UNSET
    defaults: Annotated[
        DefaultsDocument | UnsetType,
        Meta(description="Defaults of all stages. Mappings are merged with those of a stage; the stage wins."),
    ] = UNSET
    stages: Annotated[Mapping[_StageName, StageDocument], Meta(min_length=1, description="The stages, by name.")]


# ---- step kinds ---------------------------------------------------------------------------


_annotated: Any = Annotated
_mapping: Any = Mapping
_tuple: Any = tuple


class KindsInUse(Struct, frozen=True, kw_only=True):
    """The step kinds that a document may have: of stages, of their defaults, of steps of `verify`.

    `plugins` are those of the pipeline.
    """

    plugins: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()


@cache
def all_kinds(plugins: tuple[str, ...] = ()) -> KindsInUse:
    """Load and return all kinds that a pipeline with these plugins can use.

    Raises:
        ConfigurationError: an object of a plugin cannot be a step kind.

    """
    names = _names(plugins)
    return KindsInUse(plugins=plugins, stages=names, defaults=names, verify=_verifying(plugins, names))


def kinds_in(tree: Json, plugins: tuple[str, ...]) -> KindsInUse:
    """Load and return the kinds that occur in a parsed pipeline.

    Raises:
        ConfigurationError: an object of a plugin cannot be a step kind.

    """
    # Only the kinds in use are loaded: defining the classes of a kind takes 1 ms (ADR 32).
    names = _names(plugins)
    whole = as_mapping(tree)
    defaults = as_mapping(whole.get("defaults"))
    bodies = [as_mapping(body) for body in as_mapping(whole.get("stages")).values()]
    keys = frozenset(key for body in bodies for key in body)
    steps = frozenset(keys for body in (*bodies, defaults) for keys in _keys_of_verify(body))
    return KindsInUse(
        plugins=plugins,
        stages=tuple(filter(keys.__contains__, names)),
        defaults=tuple(filter(defaults.__contains__, names)),
        verify=_kinds_of_verify(plugins, steps),
    )


def kinds_in_stage(body: Mapping[str, Json], plugins: tuple[str, ...]) -> KindsInUse:
    """Return the kinds that occur in the body of a stage; all kinds, if it does not have exactly one."""
    names = _names(plugins)
    written = tuple(name for name in names if name in body)
    stages = written if len(written) == 1 else names
    return KindsInUse(
        plugins=plugins, stages=stages, verify=_kinds_of_verify(plugins, frozenset(_keys_of_verify(body)))
    )


def _keys_of_verify(body: Mapping[str, Json]) -> Iterator[frozenset[str]]:
    """Yield the keys of each step of the `verify` of a stage, or of the defaults."""
    verify = body.get("verify")
    steps = verify.get("steps") if isinstance(verify, Mapping) else verify
    if isinstance(steps, Sequence) and not isinstance(steps, str):
        yield from (frozenset(step) for step in steps if isinstance(step, Mapping))


@cache
def _kinds_of_verify(plugins: tuple[str, ...], steps: frozenset[frozenset[str]]) -> tuple[str, ...]:
    """Return the kinds that occur in steps with these keys; all kinds that can verify, if a step has none of them.

    The error about such a step then names all keys that it may have.
    """
    occurring = tuple(name for name in _names(plugins) if any(name in keys for keys in steps))
    able = _verifying(plugins, occurring)
    known = {*VerifyStepDocument.exactly_one, *able}
    return able if all(keys & known for keys in steps) else all_kinds(plugins).verify


def _verifying(plugins: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the kinds that can be steps of `verify`."""
    return tuple(name for name in names if issubclass(kinds_of(plugins)[name], VerifyStep))


@cache
def _names(plugins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of all step kinds.

    Raises:
        ConfigurationError: a plugin has a kind whose name is a key of stages or of steps of `verify`.

    """
    kinds = kinds_of(plugins)
    owners: dict[type[Document], str] = {StageDocument: "a stage", VerifyStepDocument: "a step of `verify`"}
    for name in kinds.added:
        where = next((where for owner, where in owners.items() if name in (*keys_of(owner), *owner.later)), None)
        if where is not None:
            raise kinds.unusable(name, f"`{name}` is already a key of {where}; a step kind needs another name")
        if not (name.isascii() and name.isidentifier()) or iskeyword(name) or hasattr(StageDocument, name):
            raise kinds.unusable(name, "a step kind needs a name of letters, digits and `_` that is not reserved")
    return tuple(kinds)


def full_form(plugins: tuple[str, ...] = ()) -> type[PipelineDocument]:
    """Return the class of all pipelines that have these plugins."""
    return pipeline_form(all_kinds(plugins))


@cache
def pipeline_form(kinds: KindsInUse) -> type[PipelineDocument]:
    """Return the class of pipelines whose stages, defaults and verifications are of these kinds."""
    stages = _annotated[_mapping[_StageName, stage_form(kinds)], Meta(min_length=1, description="The stages, by name.")]
    usual = _annotated[
        _defaults_form(kinds) | UnsetType,
        Meta(description="Defaults of all stages. Mappings are merged with those of a stage; the stage wins."),
    ]
    fields = [("defaults", usual, UNSET), ("stages", stages)]
    return _derived("PipelineDocument", fields, PipelineDocument, {"__doc__": PipelineDocument.__doc__})


@cache
def stage_form(kinds: KindsInUse) -> type[StageDocument]:
    """Return the class of stages whose steps, and steps of `verify`, are of these kinds."""
    names = kinds.stages
    fields = [
        (name, _annotated[one.form | UnsetType, Meta(description=one.description)], UNSET)
        for name in names
        for one in (language_of(kinds_of(kinds.plugins)[name]),)
    ]
    doc = f"A stage: exactly one of {quoted_names(names)}, with its inputs and outputs."
    namespace = {"exactly_one": names, "__doc__": doc}
    return _derived("StageDocument", [*fields, _verify_field(kinds)], StageDocument, namespace)


@cache
def _defaults_form(kinds: KindsInUse) -> type[DefaultsDocument]:
    fields = [
        (name, _annotated[one.defaults | UnsetType, Meta(description=f"Defaults of {name} stages.")], UNSET)
        for name in kinds.defaults
        for one in (language_of(kinds_of(kinds.plugins)[name]),)
        if one.defaults is not None
    ]
    namespace = {"__doc__": DefaultsDocument.__doc__}
    return _derived("DefaultsDocument", [*fields, _verify_field(kinds)], DefaultsDocument, namespace)


def _verify_field(kinds: KindsInUse) -> tuple[str, Any, Any]:
    """Return the key `verify` with steps of these kinds."""
    steps, whole = _verify_forms(kinds.plugins, kinds.verify)
    return "verify", _annotated[steps | whole, VERIFY_MEANING], ()


@cache
def _verify_forms(plugins: tuple[str, ...], names: tuple[str, ...]) -> tuple[Any, type[VerifyDocument]]:
    """Return the type of a list of steps of `verify`, and the class of a `verify` with inputs of its own."""
    languages = {name: language_of(kinds_of(plugins)[name]) for name in names}
    fields = [
        (name, _annotated[one.form | UnsetType, Meta(description=one.verifies or one.description)], UNSET)
        for name, one in languages.items()
    ]
    first, *others = VerifyStepDocument.exactly_one
    keys = (first, *names, *others)
    namespace = {"exactly_one": keys, "__doc__": f"One step of verification: exactly one of {quoted_names(keys)}."}
    step = _derived("VerifyStepDocument", fields, VerifyStepDocument, namespace)
    steps = _annotated[_tuple[step, ...], STEPS_MEANING]
    whole = _derived("VerifyDocument", [("steps", steps, ())], VerifyDocument, {"__doc__": VerifyDocument.__doc__})
    return steps, whole


def _derived(name: str, fields: list[Any], base: type[Any], namespace: dict[str, Any]) -> type[Any]:
    """Return a class of the language with more keys than its base."""
    whole = {"__module__": __name__, **namespace}
    return defstruct(
        name, fields, bases=(base,), namespace=whole, frozen=True, kw_only=True, forbid_unknown_fields=True
    )
