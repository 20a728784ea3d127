"""The command `trust`."""

import click

from orch23.cli.console import Console
from orch23.cli.flags import option
from orch23.cli.options import Wanted, hands_wanted, model_options, pipeline_argument, variable_options
from orch23.model.errors import ExitCode


@click.command()
@pipeline_argument
@variable_options
@model_options
@option("--revoke", is_flag=True, help="Take back all that this project was allowed.")
@click.pass_obj
@hands_wanted
def trust(console: Console, *, wanted: Wanted, revoke: bool) -> int:
    """Allow what a pipeline runs and sends.

    Lists the programs that PIPELINE would ask and the servers, other than the vendors' own, that would get prompts
    and a key, and allows them for this project, as they are now. Read the pipeline first. Runs and sends nothing.

    Also takes the store of the project for yours: one that came with a clone or an archive, or that an earlier version
    of orch23 made, could hold forged results, so nothing of it is used before. Look where it comes from first.
    """
    from orch23.cli.consent import Consent, listed  # noqa: PLC0415 - heavy
    from orch23.cli.opening import open_wanted, project_root  # noqa: PLC0415 - heavy
    from orch23.cli.project import names_pipeline  # noqa: PLC0415 - heavy
    from orch23.cli.wiring import needed_grants  # noqa: PLC0415 - heavy
    from orch23.report.diagnostics import visible  # noqa: PLC0415 - heavy
    from orch23.store.opening import FOLDER  # noqa: PLC0415 - heavy
    from orch23.store.standing import Standing, adopt, standing  # noqa: PLC0415 - heavy

    root = project_root(console.here, named=names_pipeline(wanted.arguments))
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
