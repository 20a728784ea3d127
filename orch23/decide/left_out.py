"""Report the stages that need content which git did not check out: it is not deleted (ADR 63)."""

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

from orch23.model.diagnostic import Diagnostic, Location, quoted_names
from orch23.model.paths import match, match_any, static_prefix
from orch23.model.pipeline import ForeachStage, Pipeline, family_of, written_path
from orch23.plan.nodes import Node, may_overlap_unexcluded, placed_inputs, reads_of
from orch23.store.lock_file import lock_path
from orch23.store.workspace import left_out_error

_SHOWN = 3
_AFTER_ALL = chr(sys.maxunicode)  # sorted after any character of a path


def left_out_errors(pipeline: Pipeline, nodes: Iterable[Node], left_out: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Return an error for each pattern of the nodes, and of the records, that includes a path that git left out."""
    found: dict[tuple[str, str], Diagnostic] = {}
    paths, folders = list(left_out), [path for path in left_out if path.endswith("/")]
    records = (
        str(lock_path(Path(), pipeline.file)),
        *(f"{folder}/**" for folder in pipeline.transcript_folders),
    )
    needs = chain((("the records", one, (), None) for one in records), *(_needs(pipeline, node) for node in nodes))
    for user, pattern, exclude, place in needs:
        above = static_prefix(pattern)
        near = paths[bisect_left(paths, above) : bisect_left(paths, f"{above}{_AFTER_ALL}")]
        lost = (path for path in near if match(pattern, path) and not match_any(exclude, path))
        under = (path for path in folders if may_overlap_unexcluded(pattern, exclude, f"{path}**"))
        if shown := tuple(islice(dict.fromkeys(chain(under, lost)), _SHOWN)):
            message = f"git has not checked out the content of {quoted_names(shown)}: `{pattern}` of {user} includes it"
            found.setdefault((user, pattern), left_out_error(message, map(left_out.__getitem__, shown), place))
    return tuple(found.values())


def _needs(pipeline: Pipeline, node: Node) -> Iterator[tuple[str, str, tuple[str, ...], Location | None]]:
    """Yield the patterns of the files that a node needs, each with its user, its exclusions and its place."""
    others = reads_of(node)
    if not isinstance(node, ForeachStage):
        for where, one in placed_inputs(node):
            place = pipeline.locate_written(written_path(node, *where))
            yield f"stage `{node.family}`", one.pattern, getattr(one, "exclude", ()), place
        others = (*node.outputs, *(one.path for one in node.requires), *node.author_files.values())
    family = family_of(node.name)
    for pattern in others:
        yield f"stage `{family}`", pattern, (), pipeline.locate("stages", family)
