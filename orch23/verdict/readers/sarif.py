"""Read SARIF 2.1.0, the findings of linters and other analyzers."""

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from orch23.model.parsing import parse_json
from orch23.text.excerpt import shorten_tree_paths
from orch23.verdict.run_results import RunResults

_NOTIFICATIONS = ("toolExecutionNotifications", "toolConfigurationNotifications")
_NOTHING: Mapping[str, Any] = {}


def read(text: str, results: RunResults) -> None:
    """Add the findings of level `error` as failures, others only to the counts. Suppressed ones are not findings."""
    results.are_findings = True
    try:
        document = parse_json(text, max_bytes=None)
    except ValueError as error:
        results.broken = f"it is not JSON: {error}" if text.strip() else "it is empty"
        return
    runs = [*_maps(_map({"": document}, ""), "runs")]
    if not runs:
        results.broken = "it has no `runs`, so it is not SARIF"
    for run in runs:
        rules = _maps(_map(run, "tool", "driver"), "rules")
        levels = {str(one.get("id")): _map(one, "defaultConfiguration").get("level") for one in rules}
        for result in _maps(run, "results"):
            if result.get("kind", "fail") == "fail" and not _is_suppressed(result):
                _add(result, levels, results)
        for invocation in _maps(run, "invocations"):
            _add_invocation(invocation, results)


def _map(value: Any, *keys: str) -> Mapping[str, Any]:
    """Return the mapping at some keys, an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else _NOTHING


def _maps(value: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    found = value.get(key)
    yield from (one for one in found if isinstance(one, Mapping)) if isinstance(found, list) else ()


def _is_suppressed(result: Mapping[str, Any]) -> bool:
    return any(one.get("status", "accepted") == "accepted" for one in _maps(result, "suppressions"))


def _text(value: Mapping[str, Any]) -> str:
    return str(_map(value, "message").get("text", ""))


def _add(result: Mapping[str, Any], levels: Mapping[str, Any], results: RunResults) -> None:
    rule, place = str(result.get("ruleId") or ""), _place(result, results.cwd)
    level = str(result.get("level") or levels.get(rule) or "warning")
    outcome = "finding" if level == "error" else level
    results.add(place or rule, outcome, message=f"{rule} {_text(result)}", place=place)


def _place(value: Mapping[str, Any], cwd: str) -> str:
    """Return `file:line` of the first location; the path is relative to `cwd`, if it is in the tree."""
    where = _map(next(_maps(value, "locations"), _NOTHING), "physicalLocation")
    path = unquote(str(_map(where, "artifactLocation").get("uri", ""))).removeprefix("file://")
    line = _map(where, "region").get("startLine")
    return f"{posixpath.normpath(shorten_tree_paths(path, cwd))}:{line if isinstance(line, int) else 1}" if path else ""


def _add_invocation(invocation: Mapping[str, Any], results: RunResults) -> None:
    """Add what a tool could not do, such as parse a file: eslint writes it only here."""
    notes = (one for key in _NOTIFICATIONS for one in _maps(invocation, key))
    errors = [one for one in notes if one.get("level") == "error"]
    for note in errors:
        place = _place(note, results.cwd)
        results.add(place or "the tool", "finding", message=_text(note), place=place)
    if invocation.get("executionSuccessful") is False and not errors:
        results.broken = "the tool did not succeed"
