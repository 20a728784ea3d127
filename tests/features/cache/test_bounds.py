"""What is verified of the bytes of a blob, and when."""

import itertools

import pytest

from orch23.features.cache.bounds import WrongBytesError, is_valid, verified
from orch23.model.digest import Digest, digest_bytes

DATA = b"some bytes"
DIGEST = digest_bytes(DATA)


@pytest.mark.parametrize("data", [b"", b"x", DATA])
def test_right_bytes_are_passed_on_in_their_chunks(data: bytes) -> None:
    chunks = [data[:1], b"", data[1:5], data[5:]]
    assert list(verified(chunks, digest_bytes(data))) == chunks


@pytest.mark.parametrize("chunks", [[], [b""], [DATA[:-1]], [DATA, b"!"], [DATA + b"!"], [b"SOME", b" bytes"]])
def test_the_last_of_wrong_bytes_is_not_passed_on(chunks: list[bytes]) -> None:
    passed: list[bytes] = []
    with pytest.raises(WrongBytesError):
        passed.extend(verified(chunks, DIGEST))
    assert len(b"".join(passed)) < len(DATA) or chunks == [DATA, b"!"]


@pytest.mark.parametrize("size_bytes", [0, 9, 11])
def test_the_size_of_the_digest_counts_too(size_bytes: int) -> None:
    with pytest.raises(WrongBytesError):
        list(verified([DATA], Digest(DIGEST.sha256, size_bytes)))


def test_no_more_chunks_are_read_than_the_digest_has_bytes() -> None:
    chunks = itertools.count()
    with pytest.raises(WrongBytesError):
        list(verified((b"four" for _ in chunks), DIGEST))
    assert next(chunks) == 3


@pytest.mark.parametrize(
    ("sha256", "size_bytes", "expected"),
    [
        ("a" * 64, 0, True),
        ("a" * 64, -1, False),
        ("A" * 64, 1, False),
        ("a" * 63, 1, False),
        ("a" * 64 + "\n", 1, False),
        ("../" * 21 + "a", 1, False),
    ],
)
def test_a_digest_is_a_sha256_in_hex_with_a_size(sha256: str, size_bytes: int, *, expected: bool) -> None:
    assert is_valid(Digest(sha256, size_bytes)) is expected
