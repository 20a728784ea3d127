"""The checks there are, by the name that a pipeline calls them; each is loaded when it is asked for."""

from functools import cache
from typing import Final

from orch23.checks.check import Check, Codes
from orch23.model.on_demand import OnDemand
from orch23.model.plugins import Registry, is_a, load

GROUP: Final = "orch23.checks"
"""The entry points of plugins that are checks."""


_PLACES: Final = {
    "architecture_stability": "orch23_checks.architecture_stability",
    "json_schema": "orch23.checks.json_schema",
    "json_values": "orch23.checks.json_values",
    "one_per_input": "orch23.checks.one_per_input",
    "planner_tasks": "orch23_checks.planner_tasks",
    "python_syntax": "orch23.checks.python_syntax",
    "work_orders": "orch23_checks.work_orders",
}


def _load(name: str) -> Check:
    """Return the check that stands, in capitals, in the module of its name."""
    check: Check = load(f"{_PLACES[name]}:{name.upper()}")
    return check


CHECKS = OnDemand(_PLACES, _load)


def all_codes() -> Codes:
    """Return the codes of all checks. Loads them all."""
    shared = [load(f"{package}.codes:CODES") for package in ("orch23.checks", "orch23_checks")]
    own = [load(f"{place}:CODES") for place in _PLACES.values()]
    return {code: told for table in (*shared, *own) for code, told in table.items()}


@cache
def checks_of(plugins: tuple[str, ...]) -> Registry[Check]:
    """Return the checks that a pipeline with these plugins can name."""
    return Registry(CHECKS, GROUP, plugins, is_a(Check))


def revision_of(checks: Registry[Check], name: str) -> int | str:
    """Return what the key of a stage has of a check: its revision, and of a plugin its name and version too."""
    origin, revision = checks.origin(name), checks[name].revision
    return f"{origin}, revision {revision}" if origin else revision
