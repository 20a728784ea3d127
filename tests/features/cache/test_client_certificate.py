"""Certificates of clients: what is wrong with their files is said before a server is called."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.features.cache.client_certificate import (
    CERTIFICATE_VARIABLE,
    KEY_VARIABLE,
    ClientCertificate,
    client_certificate,
    tls_fault,
)
from orch23.features.cache.grpc_cache import open_grpc
from orch23.model.errors import CacheFault, ConfigurationError
from tests.authorities import Authority

SECOND = st.integers(-(10**8), 7 * 10**9).map(lambda seconds: datetime(1960, 1, 1, tzinfo=UTC) + timedelta(0, seconds))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


def refusal(certificate: str, key: str) -> str:
    with pytest.raises(ConfigurationError) as error:
        ClientCertificate(certificate, key).read()
    (found,) = error.value.diagnostics
    assert (found.code, bool(found.hint)) == ("E722", True)
    return found.message


def opening_fault(files: tuple[str, str]) -> str:
    with pytest.raises(CacheFault) as error:
        open_grpc("grpcs://localhost:1", lambda _url: {}, ClientCertificate(*files))
    return error.value.message


def test_a_certificate_is_read_with_its_key(authority: Authority) -> None:
    certificate, key = authority.issue("one")
    files = ClientCertificate(certificate, key).read()
    assert (files.certificate, files.key) == (Path(certificate).read_bytes(), Path(key).read_bytes())
    assert "KEY" not in repr(files)


def test_both_may_be_in_one_file_with_texts_around_them(authority: Authority, tmp_path: Path) -> None:
    certificate, key = (Path(one).read_text() for one in authority.issue("two"))
    both = tmp_path / "both.pem"
    both.write_text(f"Bag Attributes\n{key}\nsubject=\n{certificate}\n{authority.certificate.read_text()}")
    assert ClientCertificate(str(both), str(both)).read().key == both.read_bytes()


@given(some=st.tuples(SECOND, SECOND).map(sorted).filter(lambda both: both[0] < both[1]))
def test_its_times_are_those_that_were_signed(authority: Authority, some: list[datetime]) -> None:
    files = ClientCertificate(*authority.issue("times", begins=some[0], ends=some[1])).read()
    assert files.ends == some[1]


def test_an_expired_certificate_is_a_fault_and_one_of_the_future_too(authority: Authority) -> None:
    end = datetime(2021, 5, 6, 7, 8, 9, tzinfo=UTC)
    old = authority.issue("old", ends=end)
    assert opening_fault(old).endswith("old.pem expired on 2021-05-06")
    new = authority.issue("new", begins=datetime(2110, 1, 1, tzinfo=UTC))
    assert "new.pem is valid only from 2110-01-01 00:00 UTC" in opening_fault(new)


def test_files_that_cannot_be_used_are_refused(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("used")
    _, other = authority.issue("other")
    empty = tmp_path / "empty"
    empty.write_text("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")
    damaged = tmp_path / "damaged"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nTm90IGEgY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n")
    absent = str(tmp_path / "absent")
    assert refusal(absent, key) == f"the certificate {absent} cannot be read: No such file or directory"
    assert refusal(certificate, absent) == f"the key {absent} cannot be read: No such file or directory"
    assert refusal(certificate, str(tmp_path)) == f"the key {tmp_path} cannot be read: Is a directory"
    assert refusal(certificate, other) == f"the key {other} is not that of the certificate {certificate}"
    assert refusal(certificate, certificate) == f"{certificate} has no private key in the format PEM"
    assert refusal(key, key) == f"{key} has no certificate in the format PEM"
    assert refusal(str(empty), key) == f"{empty} has no certificate in the format PEM"
    assert str(damaged) in refusal(str(damaged), key)


@pytest.mark.parametrize("form", ["pkcs8", "traditional"])
def test_a_key_with_a_password_is_refused_and_nobody_is_asked(authority: Authority, tmp_path: Path, form: str) -> None:
    certificate, key = authority.issue("locked", password="s3cret")
    if form == "traditional":
        old, key = key, str(tmp_path / "old.key")
        words = [
            "openssl",
            "ec",
            "-in",
            old,
            "-passin",
            "pass:s3cret",
            "-aes128",
            "-passout",
            "pass:x12345",
            "-out",
            key,
        ]
        subprocess.run(words, check=True, capture_output=True)
    assert refusal(certificate, key) == f"the key {key} has a password, which cannot be entered"


def test_the_environment_names_both_files_or_none() -> None:
    assert client_certificate({}) is None
    assert client_certificate({CERTIFICATE_VARIABLE: "", KEY_VARIABLE: ""}) is None
    both = {CERTIFICATE_VARIABLE: "/c.pem", KEY_VARIABLE: "/c.key"}
    assert client_certificate(both) == ClientCertificate("/c.pem", "/c.key")
    for name, value in both.items():
        with pytest.raises(ConfigurationError) as error:
            client_certificate({name: value})
        assert error.value.diagnostics[0].code == "E722"


def test_only_faults_of_a_handshake_are_explained() -> None:
    assert tls_fault("failed to connect to all addresses; Connection refused") is None
    assert tls_fault("Socket closed") is None
