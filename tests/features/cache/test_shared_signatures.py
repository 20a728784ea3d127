"""Signatures of entries: what they cover."""

from collections.abc import Mapping

import pytest

from orch23.features.cache.reapi.entries import EntryFile, decode_result, encode_result, entry_digest
from orch23.features.cache.signatures import SIGNATURE, KeyPair, Signatures
from orch23.model.digest import FileEntry, digest_bytes

PAIR, OTHER = KeyPair.generate("ci"), KeyPair.generate("ci")
OURS = Signatures((PAIR.public,), PAIR)
ACTION = entry_digest("stage", 1, "key")
TEXT = b"{}"
OUT = FileEntry(digest_bytes(b"out"))
FILES: Mapping[str, FileEntry | bytes] = {"record.json": TEXT, "outputs/a": OUT}


def entry(signatures: Signatures = OURS, changed: Mapping[str, FileEntry | bytes] = FILES) -> Mapping[str, EntryFile]:
    """Return a signed entry as it is read, with files that were changed after it was signed."""
    return decode_result(encode_result({**signatures.signed("stage", ACTION, FILES), **changed}))


def is_good(
    files: Mapping[str, EntryFile], signatures: Signatures = OURS, kind: str = "stage", key: str = "key"
) -> bool:
    return signatures.fault(kind, entry_digest("stage", 1, key), files, TEXT, "record.json") is None


def test_a_signed_entry_counts_also_if_the_server_left_the_bytes_of_its_record_out() -> None:
    assert is_good(entry())
    files = dict(entry())
    files["record.json"] = EntryFile(files["record.json"].entry)
    assert is_good(files)


@pytest.mark.parametrize(
    "changed",
    [
        {"outputs/a": FileEntry(digest_bytes(b"evil"))},
        {"outputs/a": FileEntry(OUT.digest, executable=True)},
        {"outputs/b": OUT},
        {SIGNATURE: b"{}"},
        {SIGNATURE: b""},
    ],
    ids=["other bytes", "executable", "another file", "no signature", "empty"],
)
def test_each_file_of_an_entry_is_signed(changed: dict[str, FileEntry | bytes]) -> None:
    assert not is_good(entry(changed=changed))


def test_a_signature_is_of_one_entry_of_one_kind_and_one_record() -> None:
    assert not is_good(entry(), kind="response")
    assert not is_good(entry(), key="other")
    assert OURS.fault("stage", ACTION, entry(), b'{"evil":1}', "record.json") is not None


def test_a_signature_of_another_key_does_not_count_and_without_keys_none_is_asked_for() -> None:
    assert not is_good(entry(Signatures((OTHER.public,), OTHER)))
    assert not is_good(entry(Signatures()))
    assert is_good(entry(Signatures()), Signatures())
    assert [one.can_sign for one in (OURS, Signatures(), Signatures((PAIR.public,)))] == [True, True, False]
