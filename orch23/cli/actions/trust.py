"""Run `trust`: allow what a pipeline runs and sends."""

from orch23.cli.consent import Consent, grants_text, needed_grants
from orch23.cli.console import Console
from orch23.cli.declaration import PipelineArguments
from orch23.cli.opening import open_for_command, project_root
from orch23.report.diagnostics import visible
from orch23.store.access import StoreOrigin, store_origin, trust_store
from orch23.store.project_store import STORE_NAME


def run(console: Console, *, args: PipelineArguments, revoke: bool) -> None:
    """Allow what a pipeline runs and sends."""
    root = project_root(console, args.arguments)
    consent = Consent.of(root, console.environ)
    if revoke:
        consent.grants.revoke()
        console.write_out(f"revoked all grants of {visible(str(consent.root))}\n")
        return
    if store_origin(root / STORE_NAME) is StoreOrigin.FOREIGN:
        trust_store(root / STORE_NAME)
        console.write_out(f"{visible(str(root / STORE_NAME))} is trusted from now on\n")
    project, _ = open_for_command(console, args, most_stages=0)
    grants = needed_grants(project)
    if not grants:
        console.write_out("this pipeline needs no consent\n")
    else:
        consent.store_grants(grants)
        console.write_out(f"allowed for {visible(str(consent.root))}:\n{grants_text(grants)}")
