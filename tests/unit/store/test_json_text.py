"""What is written quickly is what json writes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import Json
from orch23.store.json_text import indented_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(VALUES, st.booleans())
def test_the_text_is_that_of_json(value: Json, sort_keys: bool) -> None:
    assert indented_json(value, sort_keys=sort_keys) == json.dumps(
        value, indent=1, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False
    )


def test_anything_but_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        indented_json([float("nan")])
