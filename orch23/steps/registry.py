"""Registry of the step kinds. A kind is loaded when a pipeline uses it."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

from msgspec import Struct, convert

from orch23.model.diagnostic import Diagnostic
from orch23.model.pipeline import CheckStep, CommandsStep, EnsuresStep
from orch23.model.plugins import LazyMapping, Registry, load_object
from orch23.model.step import Step

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


# The kinds that features supply (see `orch23.model.features`): here, since each build loads this registry.
OF_FEATURES: Final[Mapping[str, str]] = {"fetch": "fetch.step.spec:FetchStep"}
STEP_KINDS: Final[Mapping[str, str]] = {
    "llm": "orch23.steps.llm.spec:LLMStep",
    "shell": "orch23.steps.shell.spec:ShellStep",
    "pytest": "orch23.steps.pytest.spec:PytestStep",
    "render": "orch23.steps.render.spec:RenderStep",
    **{kind: f"orch23.features.{place}" for kind, place in OF_FEATURES.items()},
}
STEP_GROUP: Final = "orch23.steps"
StepKinds: TypeAlias = Registry[type[Step]]


def missing_kind(kind: str) -> Diagnostic | None:
    """Return the error that the feature of a step kind is not a part of this installation; None if it is one."""
    if kind not in OF_FEATURES:
        return None
    from orch23.model.features import has_feature, missing_feature  # noqa: PLC0415 - few pipelines use such a kind

    return None if has_feature(OF_FEATURES, kind) else missing_feature(OF_FEATURES[kind])


def _load(kind: str) -> Any:
    if missing_kind(kind) is not None:
        raise KeyError(kind)
    return load_object(STEP_KINDS[kind])


_OWN: Final = LazyMapping[type[Step]](STEP_KINDS, _load)
_OF_VERIFY: Final = {one.__name__: one for one in (CheckStep, CommandsStep, EnsuresStep)}


@cache
def kinds_of(plugins: tuple[str, ...]) -> StepKinds:
    """Return the step kinds that a pipeline with these plugins can use."""
    return Registry(_OWN, STEP_GROUP, plugins, _fault)


def is_llm(step: Step | None) -> TypeGuard["LLMStep"]:
    """Return whether a step calls a model. Reads a flag of the base class, so no step kind is loaded."""
    return step is not None and step.asks_model


def decode_step(form: Any, value: Any) -> Any:
    """Return a stored step: the `dec_hook` of msgspec, which gets the base class as `form`.

    Raises:
        ValueError: the kind belongs to a plugin, or to another version of orch23.
    """
    # msgspec supports only closed unions, and plugins add kinds: the tag finds the class, in 1 µs (ADR 32).
    tag = str(value.get("type")) if isinstance(value, dict) else ""
    kind = _OWN.get(tag) or _OF_VERIFY.get(tag)
    if kind is None:
        message = f"orch23 has no {form.__name__} with the tag `{tag}`"
        raise ValueError(message)
    return convert(value, kind)


def _fault(found: object, name: str) -> str:
    if not (isinstance(found, type) and issubclass(found, Step) and issubclass(found, Struct)):
        return "it must be a subclass of `Step` and of `msgspec.Struct`"
    config = found.__struct_config__
    lacking = [part for part in ("language", "run", "show") if ":" not in getattr(found, part)]
    # Plans, estimates and secrets read the fields of LLMStep wherever `asks_model` is true.
    is_model_step = not found.asks_model or issubclass(found, load_object(STEP_KINDS["llm"]))
    names = f"its `kind` ({found.kind}), its tag ({config.tag}) and the name of its entry point must be equal"
    checks = (
        (config.frozen, "the class must be frozen"),
        (found.kind == name == config.tag, names),
        (not lacking, f"its `{''.join(lacking[:1])}` must name a `module:attribute`"),
        (is_model_step, "only a subclass of `LLMStep` may have `asks_model`"),
    )
    return next((fault for is_met, fault in checks if not is_met), "")
