"""Read SARIF 2.1.0, the findings of linters and other analyzers."""

import posixpath
from typing import Any
from urllib.parse import unquote

from orch23.model.parsing import parse_json
from orch23.text.excerpt import shorten_tree_paths
from orch23.verdict.run_results import RunResults

_NOTIFICATIONS = ("toolExecutionNotifications", "toolConfigurationNotifications")


def read(text: str, results: RunResults) -> None:
    """Add the findings of level `error` as failures, others only to the counts. Suppressed ones are not findings."""
    results.are_findings = True
    try:
        runs = _maps(parse_json(text, max_bytes=None), "runs")
    except ValueError as error:
        results.broken = f"it is not JSON: {error}" if text.strip() else "it is empty"
        return
    if not runs:
        results.broken = "it has no `runs`, so it is not SARIF"
    for run in runs:
        rules = _maps(run, "tool", "driver", "rules")
        levels = {str(one.get("id")): _value(one, "defaultConfiguration", "level") for one in rules}
        for result in _maps(run, "results"):
            suppressed = any(one.get("status", "accepted") == "accepted" for one in _maps(result, "suppressions"))
            if result.get("kind", "fail") == "fail" and not suppressed:
                rule = str(result.get("ruleId") or "")
                _add(result, rule, str(result.get("level") or levels.get(rule) or "warning"), results)
        for invocation in _maps(run, "invocations"):
            # What a tool could not do, such as parse a file: eslint writes it only here.
            notes = (one for key in _NOTIFICATIONS for one in _maps(invocation, key))
            errors = [one for one in notes if one.get("level") == "error"]
            for note in errors:
                _add(note, "", "error", results)
            if invocation.get("executionSuccessful") is False and not errors:
                results.broken = "the tool did not succeed"


def _value(value: Any, *keys: str) -> Any:
    """Return the value at some keys, None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _maps(value: Any, *keys: str) -> list[dict[str, Any]]:
    """Return the mappings in the list at some keys."""
    found = _value(value, *keys)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _add(found: Any, rule: str, level: str, results: RunResults) -> None:
    """Add a finding at `file:line` of its first location; the path is relative to `cwd`, if it is in the tree."""
    where = _value(next(iter(_maps(found, "locations")), None), "physicalLocation")
    path = unquote(str(_value(where, "artifactLocation", "uri") or "")).removeprefix("file://")
    line = _value(where, "region", "startLine")
    path = posixpath.normpath(shorten_tree_paths(path, results.cwd)) if path else ""
    place = f"{path}:{line if isinstance(line, int) else 1}" if path else ""
    message = f"{rule} {_value(found, 'message', 'text') or ''}"
    results.add(place or rule or "the tool", "finding" if level == "error" else level, message=message, place=place)
