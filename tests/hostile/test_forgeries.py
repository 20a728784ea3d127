"""No known way to forge a green run passes, in any tier of the sandbox; and those that are not seen are named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orch23.steps.pytest.spec import PytestStep
from tests.hostile.forgeries import ALWAYS_TRIED, CONFINED, FORGERIES, GREEN, NOT_SEEN
from tests.hostile.judging import Judge
from tests.sandbox.probe import launcher
from tests.sandbox.users import need

TIERS = ("bubblewrap", "namespaces", "landlock", "none")
ALL = {**FORGERIES, **CONFINED}


class Judges:
    """One judge a tier, made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Judge] = {}

    def of(self, tier: str) -> Judge:
        if tier not in self._made:
            need(tier)
            self._made[tier] = Judge(self._folder / tier / "rooms", launcher(tier))
        return self._made[tier]

    def close(self) -> None:
        for judge in self._made.values():
            judge.executor.close()


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judges]:
    made = Judges(tmp_path_factory.mktemp("forgeries"))
    yield made
    made.close()


def _tried() -> Iterator[object]:
    """Give each way in each tier.

    Of each kind one is tried in all of them, and of the others each third in one; `make thorough` tries all.
    """
    for number, way in enumerate(ALL):
        tiers = TIERS[:-1] if way in CONFINED else TIERS
        first = tiers[number // 3 % len(tiers)] if number % 3 == 0 else None
        for tier in tiers:
            is_tried = tier == first or way in ALWAYS_TRIED
            yield pytest.param(tier, way, marks=() if is_tried else pytest.mark.thorough)


@pytest.mark.slow
@pytest.mark.parametrize(("tier", "way"), list(_tried()))
def test_no_known_forgery_passes(judges: Judges, tier: str, way: str) -> None:
    files, code = ALL[way]
    verdict = judges.of(tier).verdict(files)
    assert not verdict.passed
    assert any(d.code.startswith(code) for d in verdict.diagnostics), verdict
    assert verdict.excerpt


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("way", NOT_SEEN)
def test_what_is_said_not_to_be_seen_is_not_seen(judges: Judges, way: str) -> None:
    """If one of these is seen one day, docs/safety.md has to say so."""
    assert judges.of("none").verdict(NOT_SEEN[way]).passed


@pytest.mark.slow
@pytest.mark.parametrize("tier", [TIERS[0], *(pytest.param(tier, marks=pytest.mark.slow) for tier in TIERS[1:])])
def test_an_honest_run_is_green_in_every_tier(judges: Judges, tier: str) -> None:
    judge = judges.of(tier)
    assert judge.verdict({"test_a.py": GREEN}).passed


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_plugins_that_are_declared_work_in_every_tier(judges: Judges, tier: str) -> None:
    files = {
        "test_a.py": "def test_it(request, worker_id):\n"
        "    assert request.config.pluginmanager.hasplugin('xdist') and worker_id\n",
        "test_b.py": GREEN,
    }
    judge = judges.of(tier)
    assert not judge.verdict(files).passed
    assert judge.verdict(files, PytestStep(plugins=("xdist", "pytest_timeout"), args=("-q", "--timeout=20"))).passed
    assert judge.verdict(files, PytestStep(plugins=("xdist",), args=("-q", "-n", "2"))).passed


def test_the_table_is_as_large_as_it_says() -> None:
    assert len(ALL) >= 50
    assert ALL.keys() >= ALWAYS_TRIED
    assert len(NOT_SEEN) == 6
