"""What a server says of tokens is money: a number that is none counts as nobody having counted."""

import pytest

from orch23.features.vendors.server_replies import token_count_at


@pytest.mark.parametrize("odd", [-1, 0, 10**13, 1.5, "7", True, None, [7], {"n": 7}])
def test_what_is_no_number_of_tokens_counts_as_none(odd: object) -> None:
    assert token_count_at({"usage": {"n": odd}}, "usage", "n") == 0  # type: ignore[dict-item]


def test_a_number_of_tokens_is_taken_as_it_is() -> None:
    assert token_count_at({"usage": {"n": 7}}, "usage", "n") == 7
