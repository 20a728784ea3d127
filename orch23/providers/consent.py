"""Say what the user has to consent to before a provider is asked, and that it is missing."""

from typing import TYPE_CHECKING

from orch23.model.address import origin
from orch23.model.consent import Grant
from orch23.model.diagnostic import Diagnostic
from orch23.providers import codes
from orch23.providers.adapter import Setting
from orch23.providers.registry import consent

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


def server_grant(url: str, vendor_url: str, key: str) -> Grant | None:
    """Return the grant to send prompts and the key of a variable to an address; None for the vendor's own server."""
    return None if origin(url) == origin(vendor_url) else Grant(kind="server", name=origin(url), keys=(key,))


def needed(step: "LLMStep", setting: Setting) -> Grant | None:
    """Return what asking a sound step needs; None where that is nothing."""
    return consent(step, setting.environ, setting.root, setting.files)


def not_granted(grant: Grant, trust_command: str) -> Diagnostic:
    """Return the complaint that a grant is missing, with the command that gives it."""
    hint = f"read what it is, then run `{trust_command}`: it lists and allows what this pipeline needs"
    return Diagnostic(codes.NOT_GRANTED, f"you have not allowed this project to {grant}", hint=hint)
