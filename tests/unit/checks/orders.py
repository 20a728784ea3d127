"""Plans of work orders that are right, and the ways to make them wrong."""

import json
from collections.abc import Mapping
from typing import Any

from orch23.checks.check import CheckInput
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23_checks.work_orders import WORK_ORDERS

LISTED = ("README.md", "src/base.py")


def exists(*paths: str) -> list[Json]:
    """Return the conditions that these files exist."""
    return [{"kind": "file_exists", "path": path} for path in paths]


def absent(*paths: str) -> list[Json]:
    """Return the conditions that these files do not exist."""
    return [{"kind": "file_absent", "path": path} for path in paths]


def order(number: int = 1, **changed: Any) -> dict[str, Any]:
    """Return an order that makes `f<number>.py`."""
    return {
        "id": f"WO-{number:02d}",
        "title": "Make a file",
        "intent": "The file is there.",
        "preconditions": [],
        "postconditions": exists(f"f{number}.py"),
        "allowed_files": [f"f{number}.py"],
        "forbidden": [],
        "acceptance_commands": [f"python f{number}.py"],
        "context_files": [],
        **changed,
    }


def manifest(*orders: Any, **top: Any) -> dict[str, Any]:
    """Return a manifest of these orders."""
    return {"work_orders": list(orders), **top}


def judge(plan: Any, listed: tuple[str, ...] = LISTED, **options: Any) -> tuple[Diagnostic, ...]:
    """Hold a manifest (JSON, or the bytes of a file) to the check, in a project with some files."""
    data = plan if isinstance(plan, bytes) else json.dumps(plan).encode()
    return WORK_ORDERS.run(CheckInput(outputs={"plan.json": data}, listings={"**": listed}, options=options))


def found(plan: Any, listed: tuple[str, ...] = LISTED, **options: Any) -> list[tuple[str, str | None]]:
    """Return code and subject of each error."""
    return [(one.code, one.subject) for one in judge(plan, listed, **options)]


def with_commands(*commands: str) -> Mapping[str, Any]:
    """Return a manifest of one order that is accepted by these commands."""
    return manifest(order(acceptance_commands=list(commands)))
