"""A certificate of this client in PEM files, which a server with TLS may demand, and what is wrong with one."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError

CERTIFICATE_VARIABLE: Final = "ORCH23_TLS_CLIENT_CERTIFICATE"
KEY_VARIABLE: Final = "ORCH23_TLS_CLIENT_KEY"
"""The environment variables that name the files, as Bazel's `--tls_client_certificate` and `--tls_client_key` do."""

_FIRST = re.compile(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]++-----END CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----\s++(Proc-Type: 4,ENCRYPTED)?")


class CertificateFiles(Struct, frozen=True):
    """What the files of a certificate contain: PEM texts, until when it is valid, and why not now."""

    certificate: bytes
    key: bytes
    ends: datetime
    fault: str = ""

    def __repr__(self) -> str:
        """Return no key: an object may be shown in an error."""
        return f"CertificateFiles(until {self.ends})"


class ClientCertificate(Struct, frozen=True):
    """The paths of a certificate, perhaps with those that signed it, and of its key."""

    certificate: str
    key: str

    def read(self) -> CertificateFiles:
        """Read the files, and compare the key with the certificate.

        Raises:
            ConfigurationError: they cannot be used. The message never contains a key.
        """
        # `ssl` has no public function for the dates of a certificate in a file. This one decodes as `getpeercert` does.
        import ssl  # noqa: PLC0415 - few servers demand a certificate
        from _ssl import _test_decode_cert  # type: ignore[attr-defined] # noqa: PLC0415 - likewise

        pem, key = read_tls_file("certificate", self.certificate), read_tls_file("key", self.key)
        first, found = _FIRST.search(pem), _KEY.search(key)
        if first is None:
            _fail(f"{self.certificate} has no certificate in the format PEM")
        if found is None:
            _fail(f"{self.key} has no private key in the format PEM")
        if found[1] == b"ENCRYPTED " or found[2]:
            _fail(f"the key {self.key} has a password, which cannot be entered", "remove it: `openssl pkey`")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(self.certificate, self.key)
            found = _test_decode_cert(self.certificate)
            times_s = (ssl.cert_time_to_seconds(str(found[name])) for name in ("notBefore", "notAfter"))
            begins, ends = (datetime.fromtimestamp(time_s, UTC) for time_s in times_s)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                message = f"the key {self.key} is not that of the certificate {self.certificate}"
                _fail(message, "name the two files that were made together")
            _fail(f"the certificate {self.certificate} and the key {self.key} cannot be used: {error.reason}")
        except (OSError, ValueError, KeyError):
            _fail(f"the certificate {self.certificate} cannot be decoded")
        name, now, fault = f"the certificate {self.certificate}", datetime.now(UTC), ""
        if now > ends:
            fault = f"{name} expired on {ends:%Y-%m-%d}"
        elif now < begins:
            fault = f"{name} is valid only from {begins:%Y-%m-%d %H:%M} UTC: check the clock"
        return CertificateFiles(pem, key, ends, fault)


def client_certificate(environ: Mapping[str, str]) -> ClientCertificate | None:
    """Return the certificate that the user names in the environment; None if there is none. No file is read.

    Raises:
        ConfigurationError: only one of the two variables is set.
    """
    certificate, key = environ.get(CERTIFICATE_VARIABLE, ""), environ.get(KEY_VARIABLE, "")
    if not certificate and not key:
        return None
    if not certificate or not key:
        there, absent = (CERTIFICATE_VARIABLE, KEY_VARIABLE) if certificate else (KEY_VARIABLE, CERTIFICATE_VARIABLE)
        _fail(f"{there} is set, and {absent} is not", "set both of them")
    return ClientCertificate(certificate, key)


def tls_fault(detail: str) -> str | None:
    """Return what is wrong with a connection, from the text of the library of gRPC; None if it is not known."""
    reasons = (
        (
            "CERTIFICATE_VERIFY_FAILED",
            "its certificate has expired, or none of the authorities of this machine, or of SSL_CERT_FILE, signed it",
        ),
        ("Hostname Verification Check failed", "its certificate is for another host name"),
        ("WRONG_VERSION_NUMBER", "it has no TLS"),
        (
            "Socket closed",
            f"it closed the connection: it may demand a client certificate ({CERTIFICATE_VARIABLE}), or has TLS",
        ),
    )
    if "failed to connect" not in detail:
        return None
    return next((text for mark, text in reasons if mark in detail), None)


def read_tls_file(what: str, path: str) -> bytes:
    """Return the bytes of a file, such as a `key`.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        _fail(f"the {what} {path} cannot be read: {error.strerror}")


def _fail(message: str, hint: str = "") -> NoReturn:
    usual = "name files in the format PEM that this user can read"
    raise ConfigurationError(Diagnostic("E722", message, hint=hint or usual))
