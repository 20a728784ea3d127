"""Which servers of the Remote Execution API may be used, and what their workers are."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from orch23.features.remote.engine import amount_text, refuse_scheduler
from orch23.model.server_url import is_loopback, without_login

_PROGRAM = "orch23"
NO_PROGRAM = "none"


class ReapiAddress(Struct, frozen=True, kw_only=True):
    """A server: its URL without options, the program orch23 of its workers, and their platform properties.

    `program` is empty if the workers do not have orch23.
    """

    url: str
    program: str
    properties: Mapping[str, str]

    @property
    def identity(self) -> str:
        """The server and what its workers are, without a password."""
        options = urlencode(sorted({**self.properties, _PROGRAM: self.program or NO_PROGRAM}.items()))
        return f"{without_login(self.url)}?{options}"

    def with_resources(self, resources: Mapping[str, float]) -> "ReapiAddress":
        """Return the address for actions that need resources: each replaces the platform property of its name."""
        if not resources:
            return self
        amounts = {name: amount_text(amount) for name, amount in resources.items()}
        return replace(self, properties={**self.properties, **amounts})


def reapi_address(scheduler: str) -> ReapiAddress:
    """Return the address that `--scheduler` names: `grpcs://HOST:PORT/INSTANCE?PROPERTY=VALUE`.

    Raises:
        ConfigurationError: the address cannot, or must not, be used.
    """
    try:
        parts = urlsplit(scheduler)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else []
    except ValueError:
        refuse_scheduler("the options of `--scheduler` cannot be read", "write `?NAME=VALUE&NAME=VALUE`")
    if not scheduler:
        refuse_scheduler(
            "no server is named", "add `--scheduler grpcs://HOST:PORT/INSTANCE`, or `grpc://127.0.0.1:PORT`"
        )
    if parts.scheme not in {"grpc", "grpcs"}:
        # Not the address itself: it may have a password.
        refuse_scheduler(
            "`--scheduler` does not begin with grpc:// or grpcs://",
            "write `grpcs://HOST:PORT/INSTANCE` or `grpc://127.0.0.1:PORT`",
        )
    if parts.scheme == "grpc" and not is_loopback(scheduler):
        refuse_scheduler(
            f"`{parts.hostname}` has no TLS: everyone on the way can change what the workers run, and the results",
            "use `grpcs://` (`orch23 help remote`)",
        )
    properties = dict(options)
    if len(properties) != len(options):
        refuse_scheduler("an option of `--scheduler` is there twice", "remove one of them")
    program = properties.pop(_PROGRAM, _PROGRAM)
    url = urlunsplit(parts._replace(query=""))
    return ReapiAddress(url=url, program="" if program == NO_PROGRAM else program, properties=properties)
