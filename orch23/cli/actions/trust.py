"""The action of `trust`."""

from orch23.cli.command import Wanted
from orch23.cli.consent import Consent, listed
from orch23.cli.console import Console
from orch23.cli.opening import open_wanted, project_root
from orch23.cli.wiring import needed_grants
from orch23.model.errors import ExitCode
from orch23.report.diagnostics import visible
from orch23.store.opening import FOLDER
from orch23.store.standing import Standing, adopt, standing


def run(console: Console, *, wanted: Wanted, revoke: bool) -> int:
    """Allow what a pipeline runs and sends."""
    root = project_root(console, wanted.arguments)
    consent = Consent.of(root, console.environ)
    if revoke:
        consent.grants.revoke()
        console.answer(f"nothing is allowed any more for {visible(str(consent.root))}\n")
        return ExitCode.OK
    if standing(root / FOLDER) is Standing.STRANGE:
        adopt(root / FOLDER)
        console.answer(f"{visible(str(root / FOLDER))} is taken for yours from now on\n")
    project, _ = open_wanted(console, wanted, most_stages=0)
    grants = needed_grants(project)
    if not grants:
        console.answer("this pipeline needs no consent\n")
        return ExitCode.OK
    consent.give(grants)
    console.answer(f"allowed for {visible(str(consent.root))}:\n{listed(grants)}")
    return ExitCode.OK
