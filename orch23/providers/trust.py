"""Know which certificates connections are held to: read once a run, since that takes as long as a short call."""

import threading
from typing import TYPE_CHECKING

from msgspec import Struct, field

from orch23.model.address import is_loopback

if TYPE_CHECKING:
    import ssl


class Trust(Struct):
    """The TLS contexts of a run. One is used by many connections at once; it is never changed once it is made."""

    _machine: "ssl.SSLContext | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, url: str) -> "ssl.SSLContext":
        """Return what a connection to an address is held to: what the machine trusts.

        Plain HTTP on this machine knows no certificates, and none are read for it.
        """
        import ssl  # noqa: PLC0415 - only a run that asks somebody needs it

        if is_loopback(url) and url.startswith("http://"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        import httpx2  # noqa: PLC0415 - heavy

        with self._lock:
            if self._machine is None:
                self._machine = httpx2.create_ssl_context()
            return self._machine

    def close(self) -> None:
        """Forget them."""
        with self._lock:
            self._machine = None
