"""One value has one JSON form and one digest, and two values have two."""

import hashlib
import json
import math
from collections import UserDict, UserList
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import Digest, FileEntry, Json, canonical_json, digest_bytes, digest_json
from tests.manifests import manifests

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
KEYS = "a85b79a9ca0c5ad669aceff9e64eda7071786c135042ef33686412510307134b"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON: st.SearchStrategy[Json] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)


def _shuffled(value: Json) -> Json:
    """Return an equal value with every mapping's keys in the other order, and other types of container."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: _shuffled(value[key]) for key in reversed(list(value))})
    if isinstance(value, list):
        return tuple(_shuffled(item) for item in value)
    return value


@given(JSON)
def test_canonical_json_is_json_of_the_same_value(value: Json) -> None:
    assert json.loads(canonical_json(value)) == value


@given(JSON)
def test_order_of_keys_and_kind_of_container_do_not_show(value: Json) -> None:
    assert canonical_json(_shuffled(value)) == canonical_json(value)
    assert digest_json(_shuffled(value)) == digest_json(value)


@given(JSON, JSON)
def test_different_values_have_different_digests(one: Json, other: Json) -> None:
    if json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
        assert digest_json(one) != digest_json(other)


@given(JSON)
def test_canonical_json_is_stable_when_it_is_read_and_written_again(value: Json) -> None:
    assert canonical_json(json.loads(canonical_json(value))) == canonical_json(value)


def test_the_form_is_pinned_since_every_key_and_record_depends_on_it() -> None:
    value: Json = {"b": [1, 2.5, True, None], "a": "é\n\u2028", "": {"z": (), "y": {}}}
    assert canonical_json(value) == '{"":{"y":{},"z":[]},"a":"é\\n\u2028","b":[1,2.5,true,null]}'.encode()
    assert digest_json({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


def test_keys_stay_as_they_are() -> None:
    """The digest is of commit 1ea159c: a change of any of these bytes would make every key of every project another."""
    forms = [canonical_json(manifest) for manifest in manifests(1000)]
    assert sum(b"1e-07" in form for form in forms) == 78  # msgspec would write 1e-7
    assert sum(map(len, forms)) == 206_995
    assert digest_bytes(b"".join(form + b"\n" for form in forms)).sha256 == KEYS


def test_one_and_true_and_text_are_three_values() -> None:
    assert len({digest_json(value) for value in (1, 1.0, True, "1", [1])}) == 5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "\ud800", {"a": [math.nan]}, {"\udfff": 1}])
def test_what_json_cannot_say_is_refused(value: Json) -> None:
    with pytest.raises(ValueError):
        canonical_json(value)


@pytest.mark.parametrize("value", [b"bytes", bytearray(b"x"), {1, 2}, object(), 1j, [b""], Digest("", 0)])
def test_a_value_that_is_not_json_is_a_bug_of_the_caller(value: object) -> None:
    with pytest.raises(TypeError, match="BUG"):
        canonical_json(value)  # type: ignore[arg-type]  # that is what is tested


def test_mappings_and_sequences_of_any_kind_are_read() -> None:
    assert canonical_json({"a": UserDict({"b": UserList([1])})}) == b'{"a":{"b":[1]}}'


@given(st.binary(max_size=100))
def test_a_digest_is_sha256_and_size(data: bytes) -> None:
    digest = digest_bytes(data)
    assert digest == Digest(hashlib.sha256(data).hexdigest(), len(data))
    assert str(digest) == digest.sha256


def test_the_executable_bit_is_part_of_a_files_identity() -> None:
    digest = digest_bytes(b"")
    assert digest.sha256 == EMPTY
    assert str(FileEntry(digest)) == EMPTY
    assert str(FileEntry(digest, executable=True)) == f"{EMPTY}+x"


def test_canonical_json_of_many_members_is_what_json_writes() -> None:
    texts = [chr(code) for code in range(0x2100) if not 0xD800 <= code < 0xE000]
    odd: dict[str, Json] = {
        "size": 1e-07,
        "list": [1, 2.5, None, True],
        "map": {"b": {"c": 1.0}, "a": "\ud7ff\ue000\U0001f600"},
    }
    many: dict[str, Json] = {**{f"input:{one}": f"{one}{number}" for number, one in enumerate(texts)}, **odd}
    for value in (many, {"manifest": many, "sum": 1e-07, "\U0001f600": "", "\ue000": ""}):
        expected = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert canonical_json(value) == expected.encode()  # type: ignore[arg-type] # the wrong type on purpose
    with pytest.raises(ValueError, match="Out of range"):
        canonical_json({**many, "number": float("nan")})
    with pytest.raises(ValueError, match="surrogates"):
        canonical_json({**many, "text": "\ud800"})
    with pytest.raises(TypeError):
        canonical_json({**many, "bytes": b""})
