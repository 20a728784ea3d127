"""The catalogue of all diagnostic codes."""

from collections.abc import Mapping

from orch23.checks.registry import check_codes
from orch23.cli.codes import CLI_CODES as CLI
from orch23.decide.proposal_codes import PROPOSAL_CODES as PROPOSALS
from orch23.engine.codes import ENGINE_CODES as ENGINE
from orch23.execute.codes import EXECUTE_CODES as EXECUTE
from orch23.load.codes import LOAD_CODES as LOAD
from orch23.plan.codes import PLAN_CODES as PLAN
from orch23.providers.codes import PROVIDER_CODES as PROVIDERS
from orch23.resolve.codes import RESOLVE_CODES as RESOLVE
from orch23.steps.registry import step_codes as codes_of_steps
from orch23.store.codes import STORE_CODES as STORE
from orch23.templates.codes import TEMPLATE_CODES as TEMPLATES

CHECK_CODES = check_codes()
STEP_CODES = codes_of_steps()
CODE_SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "proposals of a model": PROPOSALS,
    "running and verifying": {**ENGINE, **EXECUTE, **CHECK_CODES, **STEP_CODES},
    "providers": PROVIDERS,
    "the command line": CLI,
    "templates": TEMPLATES,
    "the store": STORE,
    "the pipeline": {**LOAD, **RESOLVE, **PLAN},
}
CODE_TABLES: tuple[Mapping[str, tuple[str, str]], ...] = (
    *(CHECK_CODES, STEP_CODES, CLI, PROPOSALS, ENGINE, EXECUTE),
    *(LOAD, PLAN, PROVIDERS, RESOLVE, STORE, TEMPLATES),
)

_HEAD = """# Diagnostics

Every complaint of orch23 has a code. `orch23 help CODE` shows the same text. This page is generated from the tables of
codes (`make docs`); do not edit it by hand.
"""


def diagnostic_codes() -> dict[str, tuple[str, str]]:
    """Return title and explanation of every code, sorted."""
    joined = {code: told for room in CODE_TABLES for code, told in room.items()}
    return dict(sorted(joined.items()))


def diagnostics_page() -> str:
    """Return the catalogue as Markdown."""
    parts = [_HEAD]
    for title, table in CODE_SECTIONS.items():
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n")
        parts += [f"\n### {code}: {name}\n\n{text}\n" for code, (name, text) in sorted(table.items())]
    return "".join(parts)
