"""Which tools the bench leads through which sizes."""

from dataclasses import replace

from bench.__main__ import LONG


def test_growth_is_measured_with_few_tools() -> None:
    assert LONG.takes_part("orch23", 30_000)
    assert not LONG.takes_part("doit", 3_000)
    assert LONG.takes_part("DVC", 10_000)


def test_slow_tools_can_be_left_out_of_large_sizes() -> None:
    form = replace(LONG, slow_up_to=1_000)
    assert form.takes_part("DVC", 1_000)
    assert not form.takes_part("DVC", 10_000)
    assert form.takes_part("doit", 10_000)
