"""The project at one moment, on disk or at a revision: which manifests its stages have, from its sources alone."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from orch23.engine.expansion import expand_each
from orch23.engine.made import Files, Made
from orch23.model.digest import FileEntry, Json
from orch23.model.errors import ConfigurationError, InvalidInputError, SafetyError
from orch23.model.facts import Facts
from orch23.model.manifest import Manifest
from orch23.model.paths import match, match_any, normal
from orch23.model.pipeline import ForeachStage, Pipeline, Stage
from orch23.model.plan import Plan
from orch23.plan.graph import build_plan
from orch23.plan.reads import reads_of
from orch23.plan.writers import writes_of
from orch23.resolve.prompts import Sources
from orch23.resolve.resolution import resolve_stage
from orch23.resolve.slices import YamlReader


class Moment(Struct, frozen=True):
    """Files as they were, and what the pipeline had made of them."""

    files: Files
    made: Made

    def entry(self, path: str) -> FileEntry | None:
        """Return what an input of this path is, or None."""
        if path in self.made.paths:
            return self.made.entry(path)
        found = self.files.found(path)
        if found is None or found.link not in self.made.paths:
            return found
        made = self.made.entry(found.link)
        return None if made is None else replace(made, link=found.link)

    def read(self, path: str) -> bytes | None:
        """Return the bytes at a path, or None if that is no regular file, or nobody has them."""
        return (self.made if path in self.made.paths else self.files).read(path)

    def listing(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the paths that a pattern may mean, sorted: with made files that are not there."""
        wanted = normal(pattern)
        made = {path for path in self.made.paths if match(wanted, path)}
        return tuple(sorted({*self.sources(pattern, exclude), *made}))

    def sources(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the paths that a pattern means, without what the pipeline makes."""
        return tuple(path for path in self.files.listing(pattern, exclude=exclude) if path not in self.made.paths)


class _Seen(Struct, frozen=True):
    """A moment as one stage sees it: fills the `Tree` port of resolving. Versions of chains are made: none is told.

    What its own chain writes, or one that it comes before, is taken as today's: which version it sees is not told.
    """

    moment: Moment
    stage: Stage
    versioned: tuple[str, ...]

    def entry(self, path: str) -> FileEntry | None:
        return None if self._is_own(path) else self._at(path).entry(path)

    def matching(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        return tuple(path for path in self.moment.listing(pattern, exclude) if self.entry(path) is not None)

    def listed(self, pattern: str, exclude: tuple[str, ...] = ()) -> tuple[str, ...]:
        return self.moment.sources(pattern, exclude)

    def versions(self) -> dict[str, FileEntry]:
        return {}

    def read(self, path: str, entry: FileEntry) -> bytes:
        place = entry.link or path
        return self._at(place).read(place) or b""

    def _at(self, path: str) -> Moment | Made:
        made = self.moment.made
        if made.today is not None and path in made.paths and match_any(self.versioned, path):
            return made.today
        return self.moment

    def _is_own(self, path: str) -> bool:
        return self.stage.chain is None and match_any(self.stage.outputs, path)


MomentOf: TypeAlias = Callable[[Plan], Moment]
"""Return a moment by its plan, which says whose version of a file is the last."""


class Keyed(Struct, frozen=True):
    """A plan, expanded as far as the lists allow, with the manifest of each of its nodes and what these had made."""

    plan: Plan
    made: Made
    manifests: Mapping[str, Manifest]


class Keying(Struct, frozen=True, kw_only=True):
    """What manifests take besides the files."""

    facts_of: Callable[[Stage], Facts]
    sources_of: Callable[[Moment], Sources]
    read_yaml: YamlReader

    def keyed(self, pipeline: Pipeline, moment_of: MomentOf) -> Keyed:
        """Return every manifest of a pipeline at a moment.

        Raises:
            InvalidInputError: the graph has complaints, or the items of a list that nobody makes have.
            ConfigurationError: an interpreter or a declared tool is missing.

        """
        plan = self._expanded(pipeline, moment_of)
        moment = moment_of(plan)
        sources = self.sources_of(moment)
        return Keyed(plan, moment.made, {name: self._manifest(plan, name, moment, sources) for name in plan.order})

    def keyed_then(self, pipeline: Pipeline, moment_of: MomentOf) -> Keyed | None:
        """Return the same of a moment that is past; None where it had complaints, or wants what is gone."""
        try:
            return self.keyed(pipeline, moment_of)
        except (InvalidInputError, ConfigurationError, SafetyError):
            return None

    def _expanded(self, pipeline: Pipeline, moment_of: MomentOf) -> Plan:
        """Return the plan with the items of each list that is there. One that a stage made may be of no use."""

        def text_of(plan: Plan, node: ForeachStage) -> str | None:
            source = node.foreach.source
            data = b"" if source is None else moment_of(plan).read(source)
            return None if data is None else data.decode("utf-8", errors="replace")

        plan, problems = build_plan(pipeline)
        if plan is None:
            raise InvalidInputError(*problems)
        for one in expand_each(plan, text_of, self.read_yaml):
            if one.problems and one.node.foreach.source not in moment_of(one.plan).made.paths:
                raise InvalidInputError(*one.problems)
            plan = one.plan
        return plan

    def _manifest(self, plan: Plan, name: str, moment: Moment, sources: Sources) -> Manifest:
        node, variables = plan.nodes[name], plan.pipeline.vars
        if isinstance(node, ForeachStage):
            return _unexpanded(node, moment, variables)
        facts = self.facts_of(node)
        tree = _Seen(moment, node, versions_of(plan, node))
        return resolve_stage(node, tree, facts, sources, variables=variables, read_yaml=self.read_yaml).manifest


def versions_of(plan: Plan, node: Stage) -> tuple[str, ...]:
    """Return the patterns of files of which a stage does not see the last version: of its chain, of those after it."""
    own = () if node.chain is None else (node.chain.chain,)
    chains = (*own, *sorted(plan.above.get(node.name, ())))
    names = (name for chain in chains for name in (*plan.chains.get(chain, ()), chain) if name in plan.nodes)
    return tuple(dict.fromkeys(pattern for name in names for pattern in writes_of(plan.nodes[name])))


def _unexpanded(node: ForeachStage, moment: Moment, variables: Mapping[str, Json]) -> Manifest:
    """Return what is known of a foreach whose list is not there: its text, the vars, and the files it may read."""
    found: dict[str, Json] = {
        "command": {"body": node.body, "over": repr(replace(node.foreach, together=False)), "vars": dict(variables)}
    }
    own = writes_of(node)
    for pattern in reads_of(node):
        for path in moment.listing(pattern):
            if path not in moment.made.paths and not match_any(own, path):
                found[f"input:{path}"] = str(moment.entry(path))
    return found
