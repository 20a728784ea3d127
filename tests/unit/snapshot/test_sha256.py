"""SHA-256 by Python's own code for small data, by OpenSSL for much: each gives the same digests."""

import hashlib

import pytest

from orch23.snapshot import signatures


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    left = [100]
    monkeypatch.setattr(signatures, "_slow_bytes_left", left)
    return left


@pytest.mark.parametrize("data", [b"", b"a", b"x" * 99, b"y" * 101, b"z" * 5000])
def test_the_digest_is_the_same(data: bytes) -> None:
    assert signatures.sha256_hex(data) == hashlib.sha256(data).hexdigest()
    streamed = signatures.sha256(size=len(data))
    streamed.update(data)
    assert streamed.digest() == hashlib.sha256(data).digest()


def test_openssl_hashes_what_is_large_alone_or_together() -> None:
    openssl = type(hashlib.sha256())
    assert type(signatures.sha256(b"x" * 60)) is not openssl
    assert type(signatures.sha256(size=30)) is not openssl
    assert type(signatures.sha256(b"x" * 11)) is openssl
    assert type(signatures.sha256(b"")) is openssl
