"""Authorities of tests, and the certificates that they sign, in files."""

from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

BEGINS, ENDS = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)


class Authority:
    """An authority of its own. `certificate` is the path of what its users trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _name(name)
        made = self._builder(self._name, self._key, BEGINS, ENDS)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = folder / f"{name}.pem"
        self.certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        host: str = "localhost",
        begins: datetime = BEGINS,
        ends: datetime = ENDS,
        password: str = "",
    ) -> tuple[str, str]:
        """Write a certificate and its key; return their paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        hosts = [x509.DNSName(host), x509.IPAddress(IPv4Address("127.0.0.1"))]
        made = self._builder(_name(name), key, begins, ends)
        made = made.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        certificate, place = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        place.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        return str(certificate), str(place)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
    ) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        return made.not_valid_before(begins).not_valid_after(ends)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
