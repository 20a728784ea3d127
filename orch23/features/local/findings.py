"""What `doctor` says of the provider `local`."""

from collections.abc import Mapping

from orch23.cli.doctor_finding import DoctorFinding
from orch23.features.local.local_model import KNOWN_MODELS, installed_weights, user_data_dir
from orch23.features.local.provider import missing_server
from orch23.providers.installation import orch23_command


def local_findings(environ: Mapping[str, str]) -> list[DoctorFinding]:
    """Return the checks of the server, and then of the weights of each model."""
    found = [DoctorFinding("provider local", "its server is installed")]
    if command := missing_server():
        found = [DoctorFinding("provider local", "its server is not installed", ok=False, hint=command)]
    for model in KNOWN_MODELS:
        path = installed_weights(model.name, user_data_dir(environ))
        install = f"{orch23_command(environ)} model install {model.name}"
        hint = "" if path else f"{install}; recorded responses work without it"
        found.append(DoctorFinding(f"model {model.name}", str(path or "not installed"), ok=not hint, hint=hint))
    return found
