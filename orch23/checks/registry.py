"""The checks there are, by the name that a pipeline calls them; each is loaded when it is asked for."""

from functools import cache
from importlib import import_module
from typing import Final

from orch23.checks.check import Check, Codes
from orch23.model.on_demand import OnDemand
from orch23.model.plugins import Registry

GROUP: Final = "orch23.checks"
"""The entry points of plugins that are checks."""


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


@cache
def checks_of(plugins: tuple[str, ...]) -> Registry[Check]:
    """Return the checks that a pipeline with these plugins can name."""
    return Registry(CHECKS, GROUP, plugins, lambda found, _name: isinstance(found, Check))


def revision_of(checks: Registry[Check], name: str) -> int | str:
    """Return what the key of a stage has of a check: its revision, and of a plugin its name and version too."""
    origin, revision = checks.origin(name), checks[name].revision
    return f"{origin}, revision {revision}" if origin else revision
