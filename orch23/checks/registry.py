"""Registry of checks by name."""

from functools import cache
from typing import Final

from orch23.checks.check import Check
from orch23.model.plugins import LazyMapping, Registry, load_object, type_validator

CHECK_GROUP: Final = "orch23.checks"


# Names only: the module of a check is imported when a stage uses it (ADR 18).
_PLACES: Final = {
    "architecture_stability": "orch23_checks.architecture_stability",
    "json_schema": "orch23.checks.json_schema",
    "json_values": "orch23.checks.json_values",
    "one_per_input": "orch23.checks.one_per_input",
    "planner_tasks": "orch23_checks.planner_tasks",
    "python_syntax": "orch23.checks.python_syntax",
    "work_orders": "orch23_checks.work_orders",
}


CHECKS = LazyMapping[Check](_PLACES, lambda name: load_object(f"{_PLACES[name]}:{name.upper()}"))


@cache
def available_checks(plugins: tuple[str, ...]) -> Registry[Check]:
    """Return the checks that a pipeline with these plugins can name."""
    return Registry(CHECKS, CHECK_GROUP, plugins, type_validator(Check))


def check_revision(checks: Registry[Check], name: str) -> int | str:
    """Return what a check adds to the key of a stage: its revision; for a plugin also the plugin's name and version."""
    origin, revision = checks.plugin_version(name), checks[name].revision
    return f"{origin}, revision {revision}" if origin else revision
