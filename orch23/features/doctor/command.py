"""Declare the command `doctor`."""

from orch23.cli.declaration import declare_command, json_option, option, override_options, pipeline_argument


@declare_command("doctor", "doctor.checks:check_setup")
@pipeline_argument
@override_options
@option("--online", is_flag=True, help="Look up each model, and ask the shared cache and the scheduler, at no cost.")
@json_option
def doctor_command() -> None:
    """Check the machine, the project and its models.

    Checks the interpreter, pytest, the providers, the store, and the models, the shared cache and the executor of
    PIPELINE (default: pipeline.yaml, if there is one) or of the environment. Tests the sandbox in a temporary
    directory. Starts nothing else but, with --online, the credential helper of the shared cache, and writes nothing to
    the project.
    """
