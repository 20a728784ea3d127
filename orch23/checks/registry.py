"""The checks there are, by the name that a pipeline calls them; each is loaded when it is asked for."""

from importlib import import_module

from orch23.checks.check import Check
from orch23.model.on_demand import OnDemand


def _load(name: str) -> Check:
    """Return the check that stands, in capitals, in the module of its name."""
    check: Check = getattr(import_module(f"orch23.checks.{name}"), name.upper())
    return check


CHECKS = OnDemand(
    (
        "architecture_stability",
        "json_schema",
        "json_values",
        "one_per_input",
        "planner_tasks",
        "python_syntax",
        "work_orders",
    ),
    _load,
)
