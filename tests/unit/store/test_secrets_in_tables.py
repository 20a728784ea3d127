"""A table of the index is searched in parts: a secret is found wherever in a row it is."""

from collections.abc import Iterable

import pytest

from orch23.store.project_store import may_hold_secret

MIB = 1 << 20
SECRET = b"s3cret-" * 15_000  # 105 kB: about the longest that a variable of the environment can hold


def holds_secret(texts: Iterable[str]) -> bool:
    return SECRET.decode() in "\0".join(texts)


@pytest.mark.parametrize("before", [0, MIB // 2, MIB - 7, 7 * MIB // 8, MIB, 3 * MIB - 50_000])
def test_a_secret_is_found_wherever_a_long_row_is_cut(before: int) -> None:
    row = b"." * before + SECRET + b"." * (3 * MIB)
    assert may_hold_secret({b"name": row}, holds_secret)


@pytest.mark.parametrize("rows", [{SECRET: b"value"}, {b"name": SECRET}, {b"%d" % n: b"a" * 9_000 for n in range(300)}])
def test_names_values_and_many_rows_are_searched(rows: dict[bytes, bytes]) -> None:
    assert may_hold_secret(rows, holds_secret) is (SECRET in (*rows, *rows.values()))


def test_no_more_than_a_part_is_searched_at_once() -> None:
    sizes: list[int] = []

    def note(texts: Iterable[str]) -> bool:
        sizes.append(sum(map(len, texts)))
        return False

    assert not may_hold_secret({b"big": b"a" * (5 * MIB), b"small": b"b", b"absent": None}, note)
    assert max(sizes) <= MIB
    assert sum(sizes) >= 5 * MIB + len("bigsmallbabsent")
