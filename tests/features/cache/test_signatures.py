"""Signatures of cached results: only the key that made one, for the entry that it made it for, is believed."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.features.cache.signatures import (
    DOMAIN,
    MAX_SIGNATURE_BYTES,
    KeyPair,
    PublicKey,
    SignedEntry,
    sign_entry,
    signature_fault,
)
from orch23.model.digest import Digest, digest_bytes
from orch23.model.errors import ConfigurationError
from orch23.text.secrets import Secrets

# The first test vector of RFC 8032 is of an empty message; its second one of the byte 0x72.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
PUBLIC = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d29"
    "1612bb0c00"
)
CI = KeyPair._of(Ed25519PrivateKey.from_private_bytes(SEED), "ci")
OTHER = KeyPair._of(Ed25519PrivateKey.from_private_bytes(bytes(32)), "other")
ENTRY = SignedEntry("action", "ab" * 32, digest_bytes(b"result"))


def fault(data: bytes | None, entry: SignedEntry = ENTRY, *keys: PublicKey) -> str:
    found = signature_fault(data, entry, keys or (CI.public,))
    if found is None:
        return ""
    assert found.code == "W731"
    assert found.hint is not None
    return found.message


def changed(**parts: Any) -> bytes:
    return json.dumps({**json.loads(sign_entry(CI, ENTRY)), **parts}).encode()


# ---- keys -------------------------------------------------------------------------------------------


def test_signatures_are_those_of_the_standard() -> None:
    assert CI.public.raw == PUBLIC
    assert CI.sign(b"\x72") == SIGNATURE
    assert CI.public.verify(b"\x72", SIGNATURE)


def test_a_new_key_is_another_one_and_its_text_forms_can_be_read() -> None:
    one, two = KeyPair.generate("one"), KeyPair.generate("two")
    assert one.public != two.public
    assert KeyPair.from_pem(one.to_pem(), "one").to_pem() == one.to_pem()
    assert PublicKey.parse(str(one.public)) == one.public
    assert str(PublicKey.parse(str(one.public))) == str(one.public)
    assert str(one.public).startswith("ed25519:")
    assert str(one.public).endswith(" one")


def test_the_name_of_a_key_is_not_compared() -> None:
    assert PublicKey(PUBLIC, "a") == PublicKey(PUBLIC, "b")
    assert len({PublicKey(PUBLIC, "a"), PublicKey(PUBLIC, "b")}) == 1
    assert PublicKey(PUBLIC) != PublicKey(bytes(32))


def test_nothing_shows_a_private_key() -> None:
    for text in (repr(CI), str(CI), f"{CI}"):
        assert str(SEED) not in text
        assert SEED.hex() not in text
        assert base64.b64encode(SEED).decode() not in text


def test_a_private_key_in_a_text_is_redacted() -> None:
    assert Secrets({}).redact(f"a\n{CI.to_pem().decode()}b") == "a\n[redacted private key]\nb"
    assert Secrets({}).redact(str(CI.public)) == str(CI.public)


KEY = base64.b64encode(PUBLIC).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        KEY,
        f"ed25519:{KEY[:-4]}",
        f"ed25519:{KEY}{KEY}",
        f"ed25519:{base64.b64encode(bytes(31)).decode()}",
        f"ed25519:{base64.b64encode(bytes(33)).decode()}",
        f"ed25519:{KEY[:-2]}{chr(ord(KEY[-2]) + 1)}=",
        f"ed25519:{KEY[:-1]}",
        f"ed25519:{KEY}\n",
        f"ed25519:{KEY} a\n",
        f"ed25519:{KEY} a b",
        f" ed25519:{KEY}",
        f"ed448:{KEY}",
        f"ED25519:{KEY}",
        f"ed25519:{KEY[:5]}*{KEY[6:]}",
        f"ed25519:{KEY.replace('=', '')}é",
    ],
)
def test_a_public_key_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        PublicKey.parse(text)
    (found,) = error.value.diagnostics
    assert found.code == "E732"
    assert "orch23 cache key new" in (found.hint or "")


@pytest.mark.parametrize("data", [b"", b"x", SEED, b"-----BEGIN PRIVATE KEY-----\n", b"\xff" * 40, None])
def test_a_private_key_of_another_form_is_refused_and_not_shown(data: bytes | None) -> None:
    if data is None:
        data = CI.to_pem().replace(b"\n", b"\nAAAA", 1)
    with pytest.raises(ConfigurationError) as error:
        KeyPair.from_pem(data, "ci")
    assert [one.code for one in error.value.diagnostics] == ["E732"]
    assert base64.b64encode(SEED).decode()[:20] not in str(error.value)
    assert error.value.__cause__ is None


def test_a_private_key_of_another_kind_is_refused() -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - of an extra
    from cryptography.hazmat.primitives.asymmetric import x25519  # noqa: PLC0415 - as above

    pem = x25519.X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with pytest.raises(ConfigurationError):
        KeyPair.from_pem(pem, "ci")


# ---- entries ----------------------------------------------------------------------------------------


def test_a_signature_of_a_listed_key_is_accepted() -> None:
    data = sign_entry(CI, ENTRY)
    assert fault(data) == ""
    assert fault(data, ENTRY, OTHER.public, CI.public) == ""
    assert len(data) < MAX_SIGNATURE_BYTES
    assert b"ci" not in data.replace(KEY.encode(), b"")


def test_what_is_signed_stays_the_same() -> None:
    assert ENTRY.message() == DOMAIN + (
        b'{"entry":"%s","kind":"action","result":{"sha256":"%s","size_bytes":6}}'
        % (b"ab" * 32, digest_bytes(b"result").sha256.encode())
    )
    assert DOMAIN == b"orch23 shared cache entry, version 1\0"


OTHERS = (
    replace(ENTRY, kind="stage"),
    replace(ENTRY, entry="cd" * 32),
    replace(ENTRY, result=digest_bytes(b"other")),
    replace(ENTRY, result=Digest(ENTRY.result.sha256, 7)),
)


@pytest.mark.parametrize("other", OTHERS)
def test_a_signature_is_of_one_entry_only(other: SignedEntry) -> None:
    assert "did not make" in fault(sign_entry(CI, ENTRY), other)
    assert "did not make" in fault(sign_entry(CI, other), ENTRY)


def test_a_key_that_is_not_listed_is_named() -> None:
    message = fault(sign_entry(OTHER, ENTRY))
    assert str(PublicKey(OTHER.public.raw)) in message
    assert "does not list" in message


def test_a_signature_of_one_key_is_not_one_of_another() -> None:
    of_other = json.loads(sign_entry(OTHER, ENTRY))
    assert "did not make" in fault(changed(signature=of_other["signature"]))
    assert "does not list" in fault(changed(key=of_other["key"]))


def test_a_signature_for_another_purpose_is_not_one_of_an_entry() -> None:
    for message in (
        ENTRY.message()[len(DOMAIN) :],
        b"other" + ENTRY.message(),
        ENTRY.message().replace(b"1\0", b"2\0"),
    ):
        signature = base64.b64encode(CI.sign(message)).decode()
        assert "did not make" in fault(changed(signature=signature))


SIGNED = json.loads(sign_entry(CI, ENTRY))["signature"]


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{" * 5000,
        sign_entry(CI, ENTRY) + b" " * MAX_SIGNATURE_BYTES,
        sign_entry(CI, ENTRY)[:-3],
        sign_entry(CI, ENTRY).replace(b'"key"', b'"key":1,"key"'),
        changed(orch23_signature=2),
        changed(orch23_signature=True),
        changed(more=1),
        changed(key=None),
        changed(key=KEY),
        changed(key=f"ed25519:{KEY}\n"),
        changed(key="ed25519:\x1b[31m"),
        changed(signature=1),
        changed(signature="*" * 88),
        changed(signature=base64.b64encode(SIGNATURE).decode().rstrip("=")),
        changed(signature=SIGNED + "\n"),
        changed(signature=f" {SIGNED}"),
        # The same bytes: the last character has bits that are not used.
        changed(signature=f"{SIGNED[:-3]}{chr(ord(SIGNED[-3]) + 1)}=="),
    ],
)
def test_hostile_signatures_are_faults_and_not_errors(data: bytes | None) -> None:
    message = fault(data)
    assert ("has no signature" if data is None else "cannot be read") in message
    assert "\x1b" not in message
    assert "\n" not in message


@pytest.mark.parametrize("raw", [b"", SIGNATURE[:63], SIGNATURE + b"\0", bytes(64), b"\xff" * 64, bytes(600)])
def test_bytes_of_another_length_or_value_are_no_signature(raw: bytes) -> None:
    assert "did not make" in fault(changed(signature=base64.b64encode(raw).decode()))


@given(st.binary(max_size=200))
def test_no_bytes_are_a_signature(data: bytes) -> None:
    assert fault(data)


@given(st.integers(0, 63), st.integers(0, 7))
def test_one_changed_bit_of_a_signature_is_none(at: int, bit: int) -> None:
    raw = bytearray(CI.sign(ENTRY.message()))
    raw[at] ^= 1 << bit
    assert "did not make" in fault(changed(signature=base64.b64encode(raw).decode()))


TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
ENTRIES = st.builds(SignedEntry, TEXTS, TEXTS, st.builds(Digest, TEXTS, st.integers(0, 9)))


@given(ENTRIES, ENTRIES)
def test_different_entries_have_different_messages(one: SignedEntry, other: SignedEntry) -> None:
    assert (one.message() == other.message()) == (one == other)
