"""Apply the command line to a pipeline: --set, --vars, --provider and --model."""

from collections.abc import Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.load.yaml_text import ParsedText, parse_yaml, parse_yaml_scalar
from orch23.model.diagnostic import Diagnostic, Location, Related, Severity, did_you_mean
from orch23.model.digest import Json
from orch23.resolve.expressions import RenderedTree, members_used, render_tree

_ITS_OWN = frozenset({"base_url", "endpoint_alias", "api", "effort", "thinking", "seed", "temperature"})
"""Where a provider is found, and what it is told in its own words: not meant for another, though it may take them."""


class ModelOverride(Struct, frozen=True):
    """What `--provider` and `--model` say. `unfit` are the fields of `llm` that the named provider does not take."""

    provider: str | None = None
    model: str | None = None
    unfit: Collection[str] = ()


NO_MODEL_OVERRIDE = ModelOverride()


class ModelOverrides(Struct):
    """A swap at work on the stages of one pipeline, and what it dropped: field -> stages."""

    override: ModelOverride = NO_MODEL_OVERRIDE
    fields: dict[str, dict[str, None]] = field(default_factory=dict)
    escalates: dict[str, None] = field(default_factory=dict)

    def apply(self, stage: str, rendered: RenderedTree) -> RenderedTree:
        """Return the body of a stage with the provider and model that are asked for; one without a model as it is."""
        tree = rendered.tree
        llm = tree.get("llm") if isinstance(tree, Mapping) else None
        if self.override == NO_MODEL_OVERRIDE or not isinstance(tree, Mapping) or not isinstance(llm, Mapping):
            return rendered
        return replace(rendered, tree={**tree, **self._without_escalate(stage, tree), "llm": self._llm(stage, llm)})

    def notes(self) -> tuple[Diagnostic, ...]:
        """Return what is to be told: one note for each of the two flags that dropped something."""
        found = []
        if self.fields:
            named = ", ".join(f"`{name}`" for name in sorted(self.fields))
            stages = sorted({stage for users in self.fields.values() for stage in users})
            message = f"`--provider {self.override.provider}` drops {named} of {', '.join(stages)}"
            hint = "they are of the provider that the pipeline names; write them for this one into the pipeline"
            found.append(Diagnostic("W802", message, hint=hint, severity=Severity.NOTE))
        if self.escalates:
            message = f"`--model {self.override.model}` drops `retry.escalate` of {', '.join(sorted(self.escalates))}"
            hint = "every attempt asks the one model that is named"
            found.append(Diagnostic("W802", message, hint=hint, severity=Severity.NOTE))
        return tuple(found)

    def _llm(self, stage: str, llm: Mapping[str, Json]) -> Mapping[str, Json]:
        out = dict(llm)
        if self.override.provider is not None:
            former = llm.get("provider")
            dropped = set(self.override.unfit) | (_ITS_OWN if former not in (None, self.override.provider) else set())
            for name in list(out):
                if out[name] is not None and name in dropped:
                    del out[name]
                    self.fields.setdefault(name, {})[stage] = None
            out["provider"] = self.override.provider
        if self.override.model is not None:
            out["model"] = self.override.model
        return out

    def _without_escalate(self, stage: str, tree: Mapping[str, Json]) -> Mapping[str, Json]:
        retry = tree.get("retry")
        if self.override.model is None or not isinstance(retry, Mapping) or retry.get("escalate") is None:
            return {}
        self.escalates[stage] = None
        return {"retry": {key: value for key, value in retry.items() if key != "escalate"}}


SET_OPTION = "--set"
MAX_VARS = 1_000


_MOST_LISTED = 20


class Variables(Struct, frozen=True):
    """The values, where each came from, what was wrong, and the names that got no value for it.

    `outside` are those that are set outside of the pipeline, with their place in the file of vars, or None for a flag.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    broken: frozenset[str] = frozenset()
    outside: Mapping[str, Location | None] = field(default_factory=dict)


class _Given(Struct, frozen=True):
    """One source's value of a var, before its expressions are evaluated."""

    value: Json
    origin: str
    place: Location | None
    is_text: bool = False


def read_variables(
    parsed: ParsedText, *, sets: Mapping[str, str], file_text: str | None = None, file_name: str = ""
) -> Variables:
    """Return the vars of a pipeline. `--set` wins over the file, the file over `vars`; expressions are evaluated last.

    Values of the command line are texts or YAML scalars, never expressions.
    """
    declared = parsed.tree.get("vars") if isinstance(parsed.tree, Mapping) else None
    given: dict[str, _Given] = {}
    if isinstance(declared, Mapping):
        if len(declared) > MAX_VARS:
            message = f"the pipeline declares {len(declared):,} vars, more than {MAX_VARS:,}"
            hint = "put lists and mappings into the values of a few vars"
            return Variables(
                {}, {}, (Diagnostic("E805", message, parsed.location_of("vars"), hint),), frozenset(declared)
            )
        for name, value in declared.items():
            place = parsed.key_positions.get(f"vars/{name}")
            given[name] = _Given(value, _origin(place), place)
    declared_here = dict(given)
    known = tuple(given)  # never more than MAX_VARS
    diagnostics: list[Diagnostic] = []
    if file_text is not None:
        diagnostics += _take_file(given, known, parse_yaml(file_text, file_name))
    for name, text in sets.items():
        if name in known:
            given[name] = _Given(parse_yaml_scalar(text), SET_OPTION, None, is_text=True)
        else:
            diagnostics.append(_undeclared(name, known, None, SET_OPTION))
    values, faults, broken = _evaluated(given)
    origins = {name: one.origin for name, one in given.items()}
    outside = {name: one.place for name, one in given.items() if one is not declared_here.get(name)}
    return Variables(values, origins, (*diagnostics, *faults), broken, outside)


def _origin(place: Location | None) -> str:
    return f"{place.file}:{place.line}" if place is not None else ""


def _take_file(given: dict[str, _Given], known: tuple[str, ...], parsed: ParsedText) -> list[Diagnostic]:
    diagnostics = list(parsed.diagnostics)
    tree = parsed.tree
    if tree is None:
        return diagnostics
    if not isinstance(tree, Mapping):
        place = parsed.location_of("")
        message = "a file of vars is a mapping of names to values"
        return [*diagnostics, Diagnostic("E811", message, place, "write NAME: value")]
    for name, value in tree.items():
        place = parsed.key_positions.get(name)
        if name in known:
            given[name] = _Given(value, _origin(place), place)
        else:
            diagnostics.append(_undeclared(name, known, place, "the file of vars"))
            if len(diagnostics) > MAX_VARS:
                break
    return diagnostics


def _undeclared(name: str, known: tuple[str, ...], place: Location | None, source: str) -> Diagnostic:
    listed = ", ".join(f"`{one}`" for one in known[:_MOST_LISTED])
    hint = did_you_mean(name, known) or (f"declared are {listed}" if known else "the pipeline declares no vars")
    return Diagnostic("E843", f"{source} sets the var `{name}`, which the pipeline does not declare", place, hint)


def _evaluated(given: Mapping[str, _Given]) -> tuple[dict[str, Json], list[Diagnostic], frozenset[str]]:
    """Evaluate each var after those it uses."""
    values: dict[str, Json] = {}
    diagnostics: list[Diagnostic] = []
    broken: set[str] = set()
    uses = {name: _uses(one, given) for name, one in given.items()}
    for cycle in _cycles(uses):
        broken.update(cycle)
        diagnostics.append(_circle(cycle, given))
    waiting = [name for name in given if name not in broken]
    while waiting:
        later = []
        for name in waiting:
            if uses[name] & broken:
                broken.add(name)
            elif all(used in values for used in uses[name]):
                one = given[name]
                value, errors = render_tree(one.value, {"vars": values}, "") if not one.is_text else (one.value, ())
                diagnostics += [Diagnostic(e.code, e.message, one.place, e.hint) for e in errors]
                if errors:
                    broken.add(name)
                else:
                    values[name] = value
            else:
                later.append(name)
        waiting = later
    return {name: values[name] for name in given if name in values}, diagnostics, frozenset(broken)


def _uses(one: _Given, given: Mapping[str, _Given]) -> set[str]:
    """Return the vars that a value is made of; one that is used whole, or by a computed name, is made of all."""
    if one.is_text:
        return set()
    used = members_used(one.value, "vars")
    return set(given) if "*" in used else {name for name in used if name in given}


def _cycles(uses: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return circles of names, each once and from its first declared name; at least one for every knot."""
    found: list[tuple[str, ...]] = []
    done: set[str] = set()
    for start in uses:
        path: list[str] = [start]
        ways = [iter(sorted(uses[start]))]
        while ways and start not in done:
            following = next(ways[-1], None)
            if following is None:
                done.add(path.pop())
                ways.pop()
            elif following in path:
                found.append(tuple(path[path.index(following) :]))
                done.update(path)
                ways.clear()
            elif following not in done:
                path.append(following)
                ways.append(iter(sorted(uses[following])))
    return found


def _circle(cycle: tuple[str, ...], given: Mapping[str, _Given]) -> Diagnostic:
    words = " -> ".join(f"`{name}`" for name in (*cycle, cycle[0]))
    related = tuple(Related(f"`{name}` is defined here", given[name].place) for name in cycle[1:])
    first = given[cycle[0]].place
    return Diagnostic("E842", f"vars need each other: {words}", first, "write one of them out", related=related)
