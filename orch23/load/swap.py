"""Let a command line name who is asked, in place of what the llm stages of a pipeline say."""

from collections.abc import Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.digest import Json
from orch23.resolve.expressions import Rendered

_ITS_OWN = frozenset({"base_url", "endpoint_alias", "api", "effort", "thinking", "seed", "temperature"})
"""Where a provider is found, and what it is told in its own words: not meant for another, though it may take them."""


class Swap(Struct, frozen=True):
    """What `--provider` and `--model` say. `unfit` are the fields of `llm` that the named provider does not take."""

    provider: str | None = None
    model: str | None = None
    unfit: Collection[str] = ()


NO_SWAP = Swap()


class Swapping(Struct):
    """A swap at work on the stages of one pipeline, and what it dropped: field -> stages."""

    swap: Swap = NO_SWAP
    fields: dict[str, dict[str, None]] = field(default_factory=dict)
    escalates: dict[str, None] = field(default_factory=dict)

    def apply(self, stage: str, rendered: Rendered) -> Rendered:
        """Return the body of a stage with the provider and model that are asked for; one without a model as it is."""
        tree = rendered.tree
        llm = tree.get("llm") if isinstance(tree, Mapping) else None
        if self.swap == NO_SWAP or not isinstance(tree, Mapping) or not isinstance(llm, Mapping):
            return rendered
        return replace(rendered, tree={**tree, **self._without_escalate(stage, tree), "llm": self._llm(stage, llm)})

    def notes(self) -> tuple[Diagnostic, ...]:
        """Return what is to be told: one note for each of the two flags that dropped something."""
        found = []
        if self.fields:
            named = ", ".join(f"`{name}`" for name in sorted(self.fields))
            stages = sorted({stage for users in self.fields.values() for stage in users})
            message = f"`--provider {self.swap.provider}` drops {named} of {', '.join(stages)}"
            hint = "they are of the provider that the pipeline names; write them for this one into the pipeline"
            found.append(Diagnostic("W802", message, hint=hint, severity=Severity.NOTE))
        if self.escalates:
            message = f"`--model {self.swap.model}` drops `retry.escalate` of {', '.join(sorted(self.escalates))}"
            hint = "every attempt asks the one model that is named"
            found.append(Diagnostic("W802", message, hint=hint, severity=Severity.NOTE))
        return tuple(found)

    def _llm(self, stage: str, llm: Mapping[str, Json]) -> Mapping[str, Json]:
        out = dict(llm)
        if self.swap.provider is not None:
            former = llm.get("provider")
            dropped = set(self.swap.unfit) | (_ITS_OWN if former not in (None, self.swap.provider) else set())
            for name in list(out):
                if out[name] is not None and name in dropped:
                    del out[name]
                    self.fields.setdefault(name, {})[stage] = None
            out["provider"] = self.swap.provider
        if self.swap.model is not None:
            out["model"] = self.swap.model
        return out

    def _without_escalate(self, stage: str, tree: Mapping[str, Json]) -> Mapping[str, Json]:
        retry = tree.get("retry")
        if self.swap.model is None or not isinstance(retry, Mapping) or retry.get("escalate") is None:
            return {}
        self.escalates[stage] = None
        return {"retry": {key: value for key, value in retry.items() if key != "escalate"}}
