"""The checks there are, by the name that a pipeline calls them; each is loaded when it is asked for."""

from importlib import import_module

from orch23.checks.check import Check, Codes
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


def all_codes() -> Codes:
    """Return the codes of all checks. Loads them all."""
    from orch23.checks.codes import CODES as shared  # noqa: PLC0415, N811 - texts that a build does not need

    own = (getattr(import_module(f"orch23.checks.{name}"), "CODES", {}) for name in CHECKS)
    return {code: told for table in (shared, *own) for code, told in table.items()}
