"""The catalogue of all diagnostic codes: the tables of every room, joined."""

from collections.abc import Mapping

from orch23.checks.registry import all_codes
from orch23.cli.codes import CODES as CLI
from orch23.decide.proposal_codes import CODES as PROPOSALS
from orch23.engine.codes import CODES as ENGINE
from orch23.execute.codes import CODES as EXECUTE
from orch23.load.codes import CODES as LOAD
from orch23.plan.codes import CODES as PLAN
from orch23.providers.codes import CODES as PROVIDERS
from orch23.resolve.codes import CODES as RESOLVE
from orch23.steps.registry import all_codes as codes_of_steps
from orch23.store.codes import CODES as STORE
from orch23.templates.codes import CODES as TEMPLATES

CHECKS = all_codes()
STEPS = codes_of_steps()
TABLES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "proposals of a model": PROPOSALS,
    "running and verifying": {**ENGINE, **EXECUTE, **CHECKS, **STEPS},
    "providers": PROVIDERS,
    "the command line": CLI,
    "templates": TEMPLATES,
    "the store": STORE,
    "the pipeline": {**LOAD, **RESOLVE, **PLAN},
}
ROOMS: tuple[Mapping[str, tuple[str, str]], ...] = (
    *(CHECKS, STEPS, CLI, PROPOSALS, ENGINE, EXECUTE),
    *(LOAD, PLAN, PROVIDERS, RESOLVE, STORE, TEMPLATES),
)

_HEAD = """# Diagnostics

Every complaint of orch23 has a code. `orch23 help CODE` shows the same text. This page is generated from the tables of
codes (`make docs`); do not edit it by hand.
"""


def catalogue() -> dict[str, tuple[str, str]]:
    """Return title and explanation of every code, sorted."""
    joined = {code: told for room in ROOMS for code, told in room.items()}
    return dict(sorted(joined.items()))


def diagnostics_page() -> str:
    """Return the catalogue as Markdown."""
    parts = [_HEAD]
    for title, table in TABLES.items():
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n")
        parts += [f"\n### {code}: {name}\n\n{text}\n" for code, (name, text) in sorted(table.items())]
    return "".join(parts)
