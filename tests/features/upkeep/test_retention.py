import pytest

from orch23.features.upkeep.garbage_collection import GcLimits
from orch23.features.upkeep.retention import parse_keep, size_limit
from orch23.model.errors import UsageError
from orch23.store.project_store import DEFAULT_CAP_BYTES

NOW = 1_000_000_000_000_000_000
DAY = 86_400_000_000_000


@pytest.mark.parametrize(
    ("text", "size"),
    [("0B", 0), ("10GB", 10**10), ("1.5 MB", 1_500_000), ("2GiB", 2 << 30), ("3kb", 3000), ("1TB", 10**12)],
)
def test_a_size_is_in_decimal_or_binary_units(text: str, size: int) -> None:
    assert parse_keep([text], NOW) == GcLimits(max_bytes=size)


@pytest.mark.parametrize(("text", "age"), [("30d", 30 * DAY), ("12h", DAY // 2), ("2w", 14 * DAY), ("90m", DAY // 16)])
def test_an_age_is_counted_back_from_now_and_sets_no_size(text: str, age: int) -> None:
    assert parse_keep([text], NOW) == GcLimits(used_since_ns=NOW - age)


def test_one_size_and_one_age_may_be_given_and_the_default_is_a_size() -> None:
    assert parse_keep(["5GB", "30d"], NOW) == GcLimits(max_bytes=5 * 10**9, used_since_ns=NOW - 30 * DAY)
    assert parse_keep([], NOW, answers=True) == GcLimits(max_bytes=DEFAULT_CAP_BYTES, responses=True)


@pytest.mark.parametrize("texts", [["1GB", "2GB"], ["1d", "2d"], ["1d", "x"], ["9" * 400 + "d"]])
def test_two_of_a_kind_and_other_texts_are_usage_errors(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_keep(texts, NOW)


def test_the_size_limit_of_a_build_comes_from_the_environment() -> None:
    assert size_limit({}) == DEFAULT_CAP_BYTES
    assert size_limit({"ORCH23_GC_KEEP": "1kB 3d"}) == 1000
    assert size_limit({"ORCH23_GC_KEEP": "3d"}) is None
    assert size_limit({"ORCH23_GC_KEEP": "much"}) == DEFAULT_CAP_BYTES
