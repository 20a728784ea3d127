"""Apply the command line to a pipeline: --set, --vars, --provider and --model."""

from collections.abc import Collection, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.language.expressions import RenderedTree, members_used, render_watched
from orch23.load.yaml_text import ParsedText, parse_yaml, parse_yaml_scalar
from orch23.model.diagnostic import Diagnostic, Location, Related, Severity, did_you_mean, quoted_names
from orch23.model.digest import Json
from orch23.model.parsing import as_mapping, json_at

# Fields of `llm` that are meant for one provider: its address, and parameters whose scale is its own.
_PROVIDER_FIELDS = frozenset({"base_url", "endpoint_alias", "api", "effort", "thinking", "seed", "temperature"})


class ModelOverride(Struct, frozen=True):
    """The values of `--provider` and `--model`. `unfit` are fields of `llm` that the named provider does not take."""

    provider: str | None = None
    model: str | None = None
    unfit: Collection[str] = ()


NO_MODEL_OVERRIDE = ModelOverride()


class ModelOverrides(Struct):
    """One override, applied to the stages of a pipeline, and the fields and lists of models that it dropped."""

    override: ModelOverride = NO_MODEL_OVERRIDE
    fields: dict[str, dict[str, None]] = field(default_factory=dict)
    lists: dict[str, dict[str, None]] = field(default_factory=dict)

    def apply(self, stage: str, rendered: RenderedTree) -> RenderedTree:
        """Return the body of a stage with the provider and the model of the override; a body without `llm` as it is."""
        tree = as_mapping(rendered.tree)
        llm = tree.get("llm")
        if self.override == NO_MODEL_OVERRIDE or not isinstance(llm, Mapping):
            return rendered
        return replace(rendered, tree={**tree, **self._without_escalate(stage, tree), "llm": self._llm(stage, llm)})

    def notes(self) -> tuple[Diagnostic, ...]:
        """Return one note for each of the two options that dropped something."""
        found = []
        if self.fields:
            named = quoted_names(sorted(self.fields))
            stages = sorted({stage for users in self.fields.values() for stage in users})
            message = f"`--provider {self.override.provider}` drops {named} of {', '.join(stages)}"
            hint = "they belong to the provider that the pipeline names; write those of this provider into the pipeline"
            found.append(Diagnostic("W802", message, hint=hint, severity=Severity.NOTE))
        named = "model" if self.override.model is not None else "provider"
        for key, users in sorted(self.lists.items()):
            message = f"`--{named} {getattr(self.override, named)}` drops `{key}` of {', '.join(sorted(users))}"
            hint = f"every call uses the {named} of `--{named}`"
            found.append(Diagnostic("W802", message, hint=hint, severity=Severity.NOTE))
        return tuple(found)

    def _llm(self, stage: str, llm: Mapping[str, Json]) -> Mapping[str, Json]:
        out = dict(llm)
        if out.pop("fallback", None):
            self.lists.setdefault("llm.fallback", {})[stage] = None
        if self.override.provider is not None:
            # The other provider would refuse these fields, or their scale means something else there.
            is_other = llm.get("provider") not in (None, self.override.provider)
            dropped = {*self.override.unfit, *(_PROVIDER_FIELDS if is_other else ())}
            for name in [one for one in out if out[one] is not None and one in dropped]:
                del out[name]
                self.fields.setdefault(name, {})[stage] = None
            out["provider"] = self.override.provider
        if self.override.model is not None:
            out["model"] = self.override.model
        return out

    def _without_escalate(self, stage: str, tree: Mapping[str, Json]) -> Mapping[str, Json]:
        retry = tree.get("retry")
        listed = retry.get("escalate") if isinstance(retry, Mapping) else None
        # Names alone are models of whatever provider the stage has; a mapping may have a provider of its own.
        has_settings = isinstance(listed, list | tuple) and not all(isinstance(one, str) for one in listed)
        if listed is None or not isinstance(retry, Mapping) or (self.override.model is None and not has_settings):
            return {}
        self.lists.setdefault("retry.escalate", {})[stage] = None
        return {"retry": {key: value for key, value in retry.items() if key != "escalate"}}


SET_OPTION = "--set"
MAX_VARS = 1_000
_MOST_LISTED = 20


class Variables(Struct, frozen=True):
    """The values of the vars, where each came from, the errors, and the names that have no value because of them.

    `outside` are the vars that are set outside of the pipeline, with their place in the vars file; None for `--set`.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    broken: frozenset[str] = frozenset()
    outside: Mapping[str, Location | None] = field(default_factory=dict)


class _Given(Struct, frozen=True):
    """The value that one source gives a var, before its expressions are evaluated."""

    value: Json
    origin: str
    place: Location | None
    is_text: bool = False


def read_variables(
    parsed: ParsedText, *, sets: Mapping[str, str], file_text: str | None = None, file_name: str = ""
) -> Variables:
    """Return the vars of a pipeline. `--set` (never an expression) wins over the file, the file over `vars`."""
    declared = as_mapping(json_at(parsed.tree, "vars"))
    if len(declared) > MAX_VARS:
        message = f"the pipeline declares {len(declared):,} vars, more than {MAX_VARS:,}"
        hint = "put lists and mappings into the values of a few vars"
        return Variables({}, {}, (Diagnostic("E805", message, parsed.location_of("vars"), hint),), frozenset(declared))
    given = {name: _at(parsed.key_positions.get(f"vars/{name}"), value) for name, value in declared.items()}
    changed: dict[str, _Given] = {}
    diagnostics: list[Diagnostic] = []
    if file_text is not None:
        changed, diagnostics = _read_vars_file(parse_yaml(file_text, file_name), tuple(given))
    for name, text in sets.items():
        if name in given:
            changed[name] = _Given(parse_yaml_scalar(text), SET_OPTION, None, is_text=True)
        else:
            diagnostics.append(_undeclared(name, tuple(given), None, SET_OPTION))
    given |= changed
    values, errors, broken = _evaluated(given)
    origins = {name: one.origin for name, one in given.items()}
    outside = {name: given[name].place for name in given if name in changed}
    return Variables(values, origins, (*diagnostics, *errors), broken, outside)


def set_note(name: str, place: Location | None) -> Related:
    """Return the note of an error that a var is set outside of the pipeline: at a place, or by `--set`."""
    return Related(f"`vars.{name}` is set {'here' if place else f'by `{SET_OPTION}`'}", place)


def _at(place: Location | None, value: Json) -> _Given:
    return _Given(value, f"{place.file}:{place.line}" if place is not None else "", place)


def _read_vars_file(parsed: ParsedText, known: tuple[str, ...]) -> tuple[dict[str, _Given], list[Diagnostic]]:
    found: dict[str, _Given] = {}
    diagnostics = list(parsed.diagnostics)
    tree = {} if parsed.tree is None else parsed.tree
    if not isinstance(tree, Mapping):
        message = "a file of vars is a mapping of names to values"
        return found, [*diagnostics, Diagnostic("E811", message, parsed.location_of(""), "write NAME: value")]
    for name, value in tree.items():
        place = parsed.key_positions.get(name)
        if name in known:
            found[name] = _at(place, value)
        elif len(diagnostics) <= MAX_VARS:  # the file may be any file: one with 100,000 keys is not listed in full
            diagnostics.append(_undeclared(name, known, place, "the file of vars"))
    return found, diagnostics


def _undeclared(name: str, known: tuple[str, ...], place: Location | None, source: str) -> Diagnostic:
    declared = f"declared are {quoted_names(known[:_MOST_LISTED])}" if known else "the pipeline declares no vars"
    hint = did_you_mean(name.removeprefix("vars."), known) or declared
    return Diagnostic("E843", f"{source} sets the var `{name}`, which the pipeline does not declare", place, hint)


def _evaluated(given: Mapping[str, _Given]) -> tuple[dict[str, Json], list[Diagnostic], frozenset[str]]:
    """Evaluate each var after those it uses. Return the values, the errors and the names without a value."""
    uses = {name: _uses(one, given) for name, one in given.items()}
    order, cycles = _in_order(uses)
    diagnostics: list[Diagnostic] = []
    for cycle in cycles:
        words = " -> ".join(f"`{name}`" for name in (*cycle, cycle[0]))
        related = tuple(Related(f"`{name}` is defined here", given[name].place) for name in cycle[1:])
        message, first = f"vars use each other: {words}", given[cycle[0]].place
        diagnostics.append(Diagnostic("E842", message, first, "write one of them out", related=related))
    values: dict[str, Json] = {}
    for name in order:
        # Without a value of its own, a var that uses one without a value is not reported again.
        if uses[name] <= values.keys():
            one = given[name]
            rendered = RenderedTree(one.value) if one.is_text else render_watched(one.value, {"vars": values}, "")
            diagnostics += [Diagnostic(error.code, error.message, one.place, error.hint) for error in rendered.errors]
            if not rendered.errors:
                values[name] = rendered.tree
    return (
        {name: values[name] for name in given if name in values},
        diagnostics,
        frozenset(given.keys() - values.keys()),
    )


def _uses(one: _Given, given: Mapping[str, _Given]) -> set[str]:
    """Return the vars that a value uses: all of them if it uses `vars` as a whole, or by a computed name."""
    if one.is_text:
        return set()
    used = members_used(one.value, "vars")
    return set(given) if "*" in used else {name for name in used if name in given}


def _in_order(uses: Mapping[str, set[str]]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the names, each after those that it uses, and cycles, each once and from its first declared name.

    Of cycles that share names at least one is returned. Names that lead to a cycle may be missing in the order.
    """
    order: list[str] = []
    cycles: list[tuple[str, ...]] = []
    done: set[str] = set()
    for start in uses:
        path: list[str] = [start]
        # A stack instead of recursion: 1,000 vars may use each other in a row.
        ways = [iter(sorted(uses[start]))]
        while ways and start not in done:
            following = next(ways[-1], None)
            if following is None:
                order.append(path.pop())
                done.add(order[-1])
                ways.pop()
            elif following in path:
                cycles.append(tuple(path[path.index(following) :]))
                done.update(path)
                ways.clear()
            elif following not in done:
                path.append(following)
                ways.append(iter(sorted(uses[following])))
    return order, cycles
