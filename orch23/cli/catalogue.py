"""The catalogue of all diagnostic codes."""

from collections.abc import Mapping

from orch23.cache.codes import CACHE_CODES as CACHE
from orch23.checks.registry import check_codes
from orch23.cli.codes import CLI_CODES as CLI
from orch23.decide.proposal_codes import PROPOSAL_CODES as PROPOSALS
from orch23.engine.codes import ENGINE_CODES as ENGINE
from orch23.execute.codes import EXECUTE_CODES as EXECUTE
from orch23.load.codes import LOAD_CODES as LOAD
from orch23.plan.codes import PLAN_CODES as PLAN
from orch23.providers.codes import PROVIDER_CODES as PROVIDERS
from orch23.resolve.codes import RESOLVE_CODES as RESOLVE
from orch23.signing.codes import SIGNING_CODES as SIGNING
from orch23.steps.registry import step_codes as codes_of_steps
from orch23.store.codes import STORE_CODES as STORE
from orch23.templates.codes import TEMPLATE_CODES as TEMPLATES

# Sections of the page -> tables of codes: code -> (title, explanation).
CODE_SECTIONS: Mapping[str, tuple[Mapping[str, tuple[str, str]], ...]] = {
    "proposals of a model": (PROPOSALS,),
    "running and verifying": (ENGINE, EXECUTE, check_codes(), codes_of_steps()),
    "providers": (PROVIDERS,),
    "the command line": (CLI,),
    "templates": (TEMPLATES,),
    "the store and shared caches": (STORE, CACHE, SIGNING),
    "the pipeline": (LOAD, RESOLVE, PLAN),
}

_HEAD = """# Diagnostics

Every diagnostic of orch23 has a code. `orch23 help CODE` shows the same text. This page is generated from the tables of
codes (`make docs`); do not edit it by hand.
"""


def diagnostic_codes() -> dict[str, tuple[str, str]]:
    """Return title and explanation of every code, sorted by code."""
    tables = [table for tables in CODE_SECTIONS.values() for table in tables]
    return dict(sorted((code, texts) for table in tables for code, texts in table.items()))


def diagnostics_page() -> str:
    """Return the catalogue as Markdown."""
    parts = [_HEAD]
    for title, tables in CODE_SECTIONS.items():
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n")
        codes = sorted((code, texts) for table in tables for code, texts in table.items())
        parts += [f"\n### {code}: {name}\n\n{text}\n" for code, (name, text) in codes]
    return "".join(parts)
