"""Hold the families of codes that a pipeline names to the codes there are."""

from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.pipeline import Pipeline


def strange_families(pipeline: Pipeline) -> tuple[Diagnostic, ...]:
    """Return a warning for each name in `exit_codes` with which no code begins."""
    if not pipeline.exit_codes:
        return ()
    from orch23.cli.catalogue import catalogue  # noqa: PLC0415 - the tables of all rooms

    known = catalogue()
    return tuple(
        Diagnostic(
            "W803",
            f"no diagnostic begins with `{family}`",
            pipeline.locate("exit_codes", family),
            hint="docs/diagnostics.md lists them",
            severity=Severity.WARNING,
        )
        for family in pipeline.exit_codes
        if not any(code.startswith(family) for code in known)
    )
