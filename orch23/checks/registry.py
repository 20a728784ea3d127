"""Registry of checks by name, and the diagnostic codes that they share."""

from functools import cache
from typing import Final

from orch23.checks.check import Check, Codes
from orch23.model.plugins import LazyMapping, Registry, load_object, type_validator

SHARED_CODES: Codes = {
    "E310": (
        "a check has no file to check",
        "The stage's outputs have no file that this check validates. The severity is warning if the check names no "
        "files. Add such an output, correct the options of the check, or remove the check.",
    ),
    "E313": (
        "an output is not strict JSON",
        "The file is not one JSON document in UTF-8: it has a duplicate key, a NaN, text around the document, a code "
        "fence or a syntax error. Write only JSON.",
    ),
    "E314": (
        "an output does not fit its schema",
        "The file is JSON, but not valid for the schema. Every invalid value is listed with its JSON pointer, as in "
        "`plan.json#/tasks/0/id`. Change the value, or the schema.",
    ),
    "E315": (
        "an option of a check is wrong",
        "`with:` has an unknown option or one of the wrong type, or a required option is missing. Correct the option "
        "in the message; the hint lists the options of the check.",
    ),
}


# The entry points of plugins that are checks.
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


def _load(name: str) -> Check:
    """Return the check: a constant in the module of its name, whose name is the same in upper case."""
    check: Check = load_object(f"{_PLACES[name]}:{name.upper()}")
    return check


CHECKS = LazyMapping(_PLACES, _load)


def check_codes() -> Codes:
    """Return the codes of all checks. It imports all of them."""
    own: list[Codes] = [load_object(f"{module}:CODES") for module in _PLACES.values()]
    return {code: text for table in (SHARED_CODES, *own) for code, text in table.items()}


def own_codes(name: str) -> Codes:
    """Return the codes that only this check reports."""
    codes: Codes = load_object(f"{_PLACES[name]}:CODES")
    return codes


@cache
def available_checks(plugins: tuple[str, ...]) -> Registry[Check]:
    """Return the checks that a pipeline with these plugins can name."""
    return Registry(CHECKS, CHECK_GROUP, plugins, type_validator(Check))


def check_revision(checks: Registry[Check], name: str) -> int | str:
    """Return what a check adds to the key of a stage: its revision; for a plugin also the plugin's name and version."""
    origin, revision = checks.plugin_version(name), checks[name].revision
    return f"{origin}, revision {revision}" if origin else revision
