"""Which dask schedulers may be used, and with which certificates."""

import importlib.util
from typing import TYPE_CHECKING, Literal

from orch23.features.cache.client_certificate import ClientCertificate, read_tls_file
from orch23.features.remote.engine import refuse_scheduler
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError
from orch23.model.plugins import exception_text
from orch23.model.server_url import is_loopback

if TYPE_CHECKING:
    from distributed import Security


def check_scheduler(address: str) -> None:
    """Check the address of a scheduler, and that the library is installed.

    Raises:
        ConfigurationError: the address cannot, or must not, be used, or the library is missing.
    """
    if importlib.util.find_spec("distributed") is None:
        from orch23.providers.installation import install_command  # noqa: PLC0415 - as above

        message = "the executor `dask` needs the library `distributed`, which is not installed"
        raise ConfigurationError(Diagnostic("E413", message, hint=install_command("distributed")))
    if not address:
        hint = "add `--scheduler tls://HOST:8786`, or `tcp://127.0.0.1:8786` on this machine"
        refuse_scheduler("no dask scheduler is named", hint)
    scheme, separator, _ = address.partition("://")
    if not separator or scheme not in {"tcp", "tls"}:
        message = f"`{address}` is not the address of a dask scheduler"
        refuse_scheduler(message, "write `tls://HOST:PORT` or `tcp://127.0.0.1:PORT`")
    # It and its workers run code of all who can connect.
    if scheme == "tcp" and not is_loopback(address):
        message = f"`{address}` has no TLS: everyone who reaches it can run code on its workers and on this machine"
        refuse_scheduler(message, "use `tls://`, with certificates (`orch23 help remote`)")


def security_of(address: str, role: Literal["client", "worker"]) -> "Security":
    """Return the certificates of dask's own settings, for an address and what connects to it.

    Raises:
        ConfigurationError: the address needs some, and they are not set or cannot be read.
    """
    from distributed import Security  # noqa: PLC0415 - only builds with a cluster need it

    if not address.startswith("tls://"):
        return Security(require_encryption=False)
    security = Security(require_encryption=True)
    hint = (
        "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, and ..._TLS__CLIENT__CERT and ..._TLS__CLIENT__KEY, for workers "
        "..._TLS__WORKER__CERT and ..._TLS__WORKER__KEY; or use dask's configuration file"
    )
    _check_files(security, role, hint)
    try:
        is_configured = security.get_connection_args(role)["ssl_context"] is not None
    except (OSError, ValueError) as error:
        message = f"the certificates of dask cannot be read: {exception_text(error)}"
        refuse_scheduler(message, hint)
    if not is_configured:
        message = f"`{address}` needs certificates, and dask has none configured for a {role}"
        refuse_scheduler(message, hint)
    return security


def _check_files(security: "Security", role: Literal["client", "worker"], hint: str) -> None:
    """Check the files that the settings name. A setting may be the text of a certificate itself: dask checks that."""
    settings = {name: value for name, value in security.get_tls_config_for_role(role).items() if value}
    if any("\n" in value for value in settings.values()):
        return
    if "ca_file" in settings:
        read_tls_file("certificate of the authority", settings["ca_file"])
    if "cert" in settings:
        # Without a setting of its own, the key is in the file of the certificate.
        files = ClientCertificate(settings["cert"], settings.get("key", settings["cert"])).read()
        if files.fault:
            refuse_scheduler(files.fault, hint)
