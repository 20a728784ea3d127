"""The pipeline language, top level: settings of the file, and forms with the keys of step kinds."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from keyword import iskeyword
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import NODEFAULT, Meta, Struct, UnsetType

from orch23.language.document import (
    CommonDocument,
    StageDocument,
    StopConditionsDocument,
    VerifyDocument,
    VerifyStepDocument,
    steps_of,
)
from orch23.language.key_readers import read_cache, read_prices, read_rates
from orch23.model.diagnostic import quoted_names
from orch23.model.digest import Json
from orch23.model.errors import CUSTOM_EXIT_CODE_NAMES, MAX_CUSTOM_EXIT_CODE, MIN_CUSTOM_EXIT_CODE
from orch23.model.fields import Problems
from orch23.model.language import (
    DISTRIBUTION_PATTERN,
    END_OF_TEXT,
    LITERAL,
    NAME_PATTERN,
    PUBLIC_KEY_PATTERN,
    SIZE_PATTERN,
    Count,
    Document,
    DocumentType,
    Duration,
    File,
    Key,
    Language,
    Name,
    Patterns,
    RateText,
    Text,
    TokenRate,
    form,
    keys_of,
    language_of,
    mapping_of,
    quantity,
)
from orch23.model.parsing import as_mapping
from orch23.model.pipeline import StopConditions
from orch23.model.step import VerifyStep
from orch23.steps.registry import kinds_of, missing_kind


class RunStopConditionsDocument(StopConditionsDocument):
    """Limits of a run. The next build continues where this one stopped."""

    max_wall: Duration | UnsetType = Key("45m", to="max_wall_s").doc("The maximum time of a run.")
    max_failed_stages: Count = Key("3", default=1).doc("""
        The run ends after this many failed stages. `-k` removes the limit.""")


class PriceDocument(Document):
    """The price of one model, in US dollars per million tokens."""

    input: TokenRate = Key("3", default=NODEFAULT).doc("Per million tokens of prompts.")
    output: TokenRate = Key("15", default=NODEFAULT).doc("Per million tokens of responses.")
    cache_read: TokenRate | UnsetType = Key("0.30").doc("""
        Per million tokens read from the provider's prompt cache. Default: the price of `input`.""")
    cache_write: TokenRate | UnsetType = Key("3.75").doc("""
        Per million tokens written to the prompt cache. Default: the price of `input`.""")


class RatesDocument(Document):
    """The rate limits of a provider or a model, each as a number per time: `10/min`, `20/s`, `30k/min`, `500/30s`."""

    requests: RateText | UnsetType = Key("50/min").doc("Requests.")
    tokens: RateText | UnsetType = Key("400k/min").doc("Tokens of prompts and responses together.")
    input_tokens: RateText | UnsetType = Key("2M/day").doc("Tokens of prompts.")
    output_tokens: RateText | UnsetType = Key("8k/min").doc("Tokens of responses.")


class SharedCacheDocument(Document):
    """A cache of results that several people or machines share."""

    url: Text | UnsetType = Key("/srv/orch23-cache").doc("""
        The absolute path of a directory, or the address of a server (`https://...`). It is used only after `orch23
        trust`, since its results are written into the project. `--cache` and ORCH23_CACHE_URL replace it. Default: no
        shared cache.""")
    mode: Literal["read", "read-write", "off"] | UnsetType = Key("read").doc("""
        read: never write to the cache, unless `--cache-write` is given. read-write: also write to the server that `url`
        names. off: use no cache, unless `--cache` names one, as if there were no `mode`. Default: read and write a
        directory, and only read a server.""")
    responses: bool = Key("true", default=False).doc("""
        Whether recorded responses of models are shared too. They contain the prompts.""")
    verify: Literal["always", "never"] = Key("always", default="never").doc("""
        always: verify a result of the cache on this machine before it is used. never: its verification on the machine
        that made it counts.""")
    platform: Text | UnsetType = Key("builder-image-7").doc("""
        A text that names the environment, such as the digest of a container image. Results are shared between machines
        with the same text. Default: what orch23 finds out about the installed packages and programs of each stage.""")
    tier: Literal["A", "B", "none"] | UnsetType = Key("B").doc("""
        The lowest tier of the sandbox in which the steps of a result may have run: A (namespaces), B (Landlock) or
        none. Default: the tier of this machine; A for steps that run elsewhere.""")
    signed_by: Annotated[
        tuple[
            Annotated[
                str,
                Meta(
                    pattern=PUBLIC_KEY_PATTERN,
                    description="A public key: `ed25519:`, 44 characters of base64, and a name after a blank.",
                ),
                form(
                    "write the line that `orch23 cache key new NAME` prints: `ed25519:BASE64 NAME`",
                    examples=[f"ed25519:{'A' * 43}="],  # stands for an expression
                ),
            ],
            ...,
        ],
        Meta(min_length=1),  # removing the last key must not switch the requirement off
        form("remove `signed_by` to accept any result, or list a key"),
    ] = Key("['ed25519:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8= ci']", default=()).doc("""
        Public keys. A result counts only if it has a signature of one of them. Default: any result.""")


_DISTRIBUTION: TypeAlias = Annotated[
    str,
    Meta(pattern=DISTRIBUTION_PATTERN),
    LITERAL,
    form("write the name itself, with letters, digits and . _ -; an expression is not allowed here"),
]
_MOST_OF_A_RESOURCE = 1_000_000_000_000_000
Quantity: TypeAlias = Annotated[
    Annotated[int, Meta(gt=0, le=_MOST_OF_A_RESOURCE)]
    | Annotated[float, Meta(gt=0, le=_MOST_OF_A_RESOURCE)]
    | Annotated[str, Meta(pattern=SIZE_PATTERN)],
    quantity("write a number, or a size such as 512MiB or 8GiB", Problems.quantity),
]


class PoolDocument(Document):
    """How many stages of a pool run at the same time, and where."""

    size: Annotated[int, Meta(ge=1)] | UnsetType = Key("2").doc("""
        Maximum number of stages that run at the same time. Default: no limit but `jobs`.""")
    executor: Annotated[str, Meta(pattern=DISTRIBUTION_PATTERN)] | UnsetType = Key("dask").doc("""
        Where the steps of the stages run: `local` for this machine, `dask`, `reapi`, or the name of an executor of a
        plugin. It replaces `executor` of the file and `--executor`.""")
    resources: (
        Mapping[Annotated[str, Meta(pattern=NAME_PATTERN, description="a name that the workers declare")], Quantity]
        | UnsetType
    ) = Key("{gpu: 1, memory: 8GiB}").doc("""
        What a step takes of the resources of its worker, by name, as a number or a size. Resources of several pools add
        up. On this machine they limit nothing.""")


_FREE = "write `0` for a model that costs nothing, otherwise `{input: ..., output: ...}`"


class SettingsDocument(Document):
    """Settings of a whole run. They may have expressions of vars."""

    stop_conditions: RunStopConditionsDocument | UnsetType = Key(
        "{max_cost_usd: 2.50}", read=mapping_of(StopConditions), to="stop"
    ).doc("Limits of a run. The next build continues where this one stopped.")
    prices: (
        Mapping[
            Annotated[str, Meta(min_length=1, description="a model's name, or PROVIDER/MODEL")],
            Annotated[int, Meta(ge=0, le=0, description=_FREE)] | PriceDocument,
        ]
        | UnsetType
    ) = Key("{qwen2.5: 0}", read=read_prices).doc("""
        Prices that are missing or wrong in the packaged price table, by `MODEL` or `PROVIDER/MODEL`; `0` for a model
        that costs nothing.""")
    rates: (
        Mapping[
            Annotated[str, Meta(min_length=1, description="a provider's or model's name, or PROVIDER/MODEL")],
            RatesDocument,
        ]
        | UnsetType
    ) = Key("{anthropic: {requests: 50/min}}", in_key=False, read=read_rates).doc("""
        Rate limits of your account. Those of `PROVIDER` hold for all its models together, those of `PROVIDER/MODEL`, or
        else `MODEL`, for one model. Limits in replies of the server hold too.""")
    jobs: Annotated[int, Meta(ge=1)] | UnsetType = Key("4").doc("""
        Maximum number of stages that run at the same time. Default: the number of cores; for stages on a cluster, that
        of its slots.""")
    pools: (
        Mapping[
            Annotated[
                str, Meta(pattern=NAME_PATTERN, description="a step kind, or a name made of letters, digits and . _ -")
            ],
            Annotated[int, Meta(ge=1, description="Maximum number of stages, 1 or more.")] | PoolDocument,
        ]
        | UnsetType
    ) = Key("{llm: 2, database: 1, gpu: {executor: dask, resources: {gpu: 1}}}", in_key=False, read=None).doc("""
        Maximum number of stages that run at the same time, by step kind (`llm`, `shell`) or by a name under `pools` of
        stages; as a mapping also where their steps run.""")
    exit_codes: (
        Mapping[
            Annotated[
                str,
                Meta(
                    pattern=f"^(E[0-9]{{1,3}}|({'|'.join(CUSTOM_EXIT_CODE_NAMES)})(/E[0-9]{{1,3}})?){END_OF_TEXT}",
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
        | UnsetType
    ) = Key("{E201: 4, PROVIDER: 3}").doc("""
        Exit codes for diagnostic codes or their beginnings, for all errors with the exit code of a name, or for those
        with both; the longest match wins: `{E201: 4, FAILED/E8: 2, PROVIDER: 3}`. The exit codes 0, 2, 77, 129, 130 and
        143 cannot be changed.""")
    never_send: Patterns = Key("[secrets/**, 'clients/*.csv']", default=(), in_key=False).doc("""
        Patterns of files that no request to a model has: patterns of `inputs` leave them out, and a stage that names
        one is an error. Those of `orch23.toml` hold too.""")
    run_log: File | UnsetType = Key("templates/log.jsonl.j2").doc("""
        A Jinja2 file that each run renders with its `events` into `logs/RUN/`.""")
    plugins: Annotated[
        tuple[Annotated[_DISTRIBUTION, Meta(description="The name of an installed distribution.")], ...], LITERAL
    ] = Key("[acme-tools]", default=(), read=None).doc("""
        Installed distributions whose checks, providers, step kinds, executors and output formats this pipeline can use.
        Their names and versions are part of the keys of the stages that use them.""")
    executor: _DISTRIBUTION = Key("local", default="local").doc("""
        The executor of the stages' processes: `local` for this machine, `dask`, `reapi`, or the name of an executor of
        a plugin.""")
    cache: SharedCacheDocument | UnsetType = Key(
        "{url: 'https://cache.example.org/orch23'}", in_key=False, read=read_cache
    ).doc("A cache of results that several people or machines share.")


class DefaultsDocument(CommonDocument):
    """Defaults of all stages. Mappings are merged with those of a stage; the stage wins."""

    later = ("matrix", "pinned", "samples")


_StageName: TypeAlias = Annotated[
    str,
    Meta(pattern=NAME_PATTERN, description="a name is made of letters, digits and . _ - (at most 64, not dots alone)"),
]


class PipelineDocument(SettingsDocument):
    """A pipeline of orch23, version 1."""  # `pipeline_form` adds the keys of step kinds

    later = ("include",)

    version: Annotated[Literal[1], LITERAL] = Key("1", default=NODEFAULT).doc("The version of the pipeline language.")
    name: Name | UnsetType = Key("shop").doc("The name of the pipeline. Default: the name of the file.")
    vars: (
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
        | UnsetType
    ) = Key("{app: shop, layers: [model, view]}", elsewhere="params variables").doc("""
        Values for `${{ vars.NAME }}`. A var may use other vars.""")
    defaults: DefaultsDocument | UnsetType = Key("{timeout: 5m, retry: 2}").doc("""
        Defaults of all stages. Mappings are merged with those of a stage; the stage wins.""")
    stages: Annotated[Mapping[_StageName, StageDocument], Meta(min_length=1)] = Key(
        "{list: {outputs: [list.txt], shell: ls > list.txt}}", default=NODEFAULT, elsewhere="jobs rules steps tasks"
    ).doc("The stages, by name.")


_Form = TypeVar("_Form", bound=Document)
_annotated: Any = Annotated
_mapping: Any = Mapping
_NO_KEYS: Mapping[str, Key] = {}


class KindsInUse(Struct, frozen=True, kw_only=True):
    """The step kinds that a document may have: of stages, of their defaults, of steps of `verify`."""

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
    verify = body.get("verify")
    steps = verify.get("steps") if isinstance(verify, Mapping) else verify
    if isinstance(steps, Sequence) and not isinstance(steps, str):
        yield from (frozenset(step) for step in steps if isinstance(step, Mapping))


@cache
def _kinds_of_verify(plugins: tuple[str, ...], steps: frozenset[frozenset[str]]) -> tuple[str, ...]:
    """Return the kinds in steps with these keys; if a step has none, all that can verify: the error names all."""
    occurring = tuple(name for name in _names(plugins) if any(name in keys for keys in steps))
    able = _verifying(plugins, occurring)
    known = {*VerifyStepDocument.exactly_one, *able}
    return able if all(keys & known for keys in steps) else all_kinds(plugins).verify


def _verifying(plugins: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in names if issubclass(kinds_of(plugins)[name], VerifyStep))


@cache
def _names(plugins: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of all step kinds. Raises ConfigurationError: one of a plugin is a key of the language."""
    kinds = kinds_of(plugins)
    owners: dict[type[Document], str] = {StageDocument: "a stage", VerifyStepDocument: "a step of `verify`"}
    for name in kinds.added:
        where = next((where for owner, where in owners.items() if name in (*keys_of(owner), *owner.later)), None)
        if where is not None:
            raise kinds.unusable(name, f"`{name}` is already a key of {where}; a step kind needs another name")
        if not (name.isascii() and name.isidentifier()) or iskeyword(name) or hasattr(StageDocument, name):
            raise kinds.unusable(name, "a step kind needs a name of letters, digits and `_` that is not reserved")
    return tuple(name for name in kinds if missing_kind(name) is None)


def full_form(plugins: tuple[str, ...] = ()) -> type[PipelineDocument]:
    """Return the class of all pipelines that have these plugins."""
    return pipeline_form(all_kinds(plugins))


@cache
def pipeline_form(kinds: KindsInUse) -> type[PipelineDocument]:
    """Return the class of pipelines whose stages, defaults and verifications are of these kinds."""
    stages = _annotated[_mapping[_StageName, stage_form(kinds)], Meta(min_length=1)]
    return _derived(PipelineDocument, {"defaults": _defaults_form(kinds) | UnsetType, "stages": stages})


@cache
def stage_form(kinds: KindsInUse) -> type[StageDocument]:
    """Return the class of stages whose steps, and steps of `verify`, are of these kinds."""
    languages = _languages(kinds.plugins, kinds.stages)
    types = {name: one.form | UnsetType for name, one in languages.items()}
    keys = {
        name: Key(one.example, read=None, elsewhere=one.elsewhere).doc(one.description)
        for name, one in languages.items()
    }
    doc = f"A stage: exactly one of {quoted_names(kinds.stages)}, with its inputs and outputs."
    types["verify"] = _verify_form(kinds.plugins, kinds.verify)
    return _derived(StageDocument, types, keys, exactly_one=kinds.stages, __doc__=doc)


@cache
def _defaults_form(kinds: KindsInUse) -> type[DefaultsDocument]:
    languages = _languages(kinds.plugins, kinds.defaults)
    types: dict[str, Any] = {name: one.defaults | UnsetType for name, one in languages.items() if one.defaults}
    keys = {name: Key(languages[name].example_of_defaults).doc(f"Defaults of {name} stages.") for name in types}
    types["verify"] = _verify_form(kinds.plugins, kinds.verify)
    return _derived(DefaultsDocument, types, keys)


@cache
def _verify_form(plugins: tuple[str, ...], names: tuple[str, ...]) -> Any:
    languages = _languages(plugins, names)
    types = {name: one.form | UnsetType for name, one in languages.items()}
    keys = {name: Key(one.example_of_verify).doc(one.verifies or one.description) for name, one in languages.items()}
    first, *others = VerifyStepDocument.exactly_one
    choices = (first, *names, *others)
    doc = f"One step of verification: exactly one of {quoted_names(choices)}."
    steps = steps_of(_derived(VerifyStepDocument, types, keys, exactly_one=choices, __doc__=doc))
    return steps | _derived(VerifyDocument, {"steps": steps})


def _languages(plugins: tuple[str, ...], names: tuple[str, ...]) -> dict[str, Language]:
    return {name: language_of(kinds_of(plugins)[name]) for name in names}


def _derived(
    base: type[_Form], types: Mapping[str, Any], keys: Mapping[str, Key] = _NO_KEYS, **namespace: Any
) -> type[_Form]:
    own = {name: keys.get(name) or base.declared[name] for name in types}
    space = {"__module__": __name__, "__doc__": base.__doc__, "__annotations__": {**types}, **own, **namespace}
    form: type[_Form] = DocumentType(base.__name__, (base,), space)
    return form
