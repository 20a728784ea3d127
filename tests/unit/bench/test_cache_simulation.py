"""The simulation of a shared cache: what must hold whatever the costs are."""

import math
from dataclasses import replace

import pytest

from bench.cache_simulation import CASES, USUAL, Costs, Team, bottleneck, hit_rate, kinds, main, simulate

SMALL = replace(USUAL, developers=50, builds=20.0, looked_up=20.0, ci_builds=400.0, ci_looked_up=200.0, ci_made=20.0)
SLOW_SERVER = replace(SMALL, costs=replace(Costs(), server_s=0.02))


@pytest.mark.parametrize("team", [SMALL, SLOW_SERVER, replace(SMALL, bandwidth=2e6)])
def test_littles_law(team: Team):
    found = simulate(team, 60)
    assert found.requests > 1000
    assert found.waiting == pytest.approx(found.rate * found.stay_s, rel=1e-6)


def test_all_builds_end_and_send_all_their_requests():
    found = simulate(SMALL, 60)
    assert found.requests == sum(len(found.build_s[kind.name]) * kind.requests for kind in kinds(SMALL))
    assert found.sent_bytes == pytest.approx(
        sum(len(found.build_s[kind.name]) * kind.requests * kind.request_bytes for kind in kinds(SMALL)), rel=0.1
    )


def test_the_same_seed_gives_the_same_outcome():
    assert simulate(SMALL, 20) == simulate(SMALL, 20)
    assert simulate(SMALL, 20) != simulate(SMALL, 20, seed=2)


@pytest.mark.parametrize("team", [SLOW_SERVER, replace(SMALL, bandwidth=1e5)])
def test_no_resource_works_more_than_all_the_time(team: Team):
    found = simulate(team, 60)
    assert 0 < found.cpu_busy_s <= found.span_s * team.cores
    assert 0 < found.net_busy_s <= found.span_s


@pytest.mark.parametrize("team", [SMALL, replace(SMALL, costs=replace(Costs(), client_s=0.05))])
def test_a_build_takes_at_least_its_round_trips_and_its_client(team: Team):
    found = simulate(team, 60)
    for kind in kinds(team):
        per_connection = math.ceil(kind.requests / team.parallel)
        assert min(found.build_s[kind.name]) >= per_connection * team.rtt_s
        assert min(found.build_s[kind.name]) >= kind.requests * team.costs.client_s


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (replace(SMALL, connections=1), SMALL),
        (replace(SMALL, lookahead=2), SMALL),
        (replace(SMALL, rtt_s=0.1), SMALL),
        (SLOW_SERVER, SMALL),
        (replace(SLOW_SERVER, cores=1), SLOW_SERVER),
        (SMALL, replace(SMALL, batch_read=64)),
        (SMALL, replace(SMALL, costs=replace(Costs(), per_stored=3.0))),
        (replace(SMALL, bandwidth=2e6), replace(SMALL, bandwidth=2e6, compression=3.0)),
    ],
)
def test_builds_of_ci_get_slower_with_less(worse: Team, better: Team):
    assert simulate(worse, 30).of_builds("CI", 0.5) > simulate(better, 30).of_builds("CI", 0.5)


def test_more_writers_upload_more():
    everyone = replace(USUAL, developers_write=True)
    assert everyone.uploads_per_s > USUAL.uploads_per_s
    assert kinds(everyone)[0].requests > kinds(USUAL)[0].requests


@pytest.mark.parametrize(
    ("team", "what"),
    [
        (replace(SMALL, rtt_s=0.5), "round trips"),
        (replace(SMALL, rtt_s=0.0, costs=replace(Costs(), client_s=0.01)), "client CPU"),
        (replace(SMALL, costs=replace(Costs(), server_s=0.5)), "server CPU"),
        (replace(SMALL, bandwidth=1e4), "network"),
    ],
)
def test_the_bottleneck_is_named(team: Team, what: str):
    assert bottleneck(team, simulate(team, 20)) == what


def test_hits_with_a_larger_cache_are_not_fewer():
    rates = [hit_rate(capacity, 400, lookups=5_000) for capacity in (1, 50, 100, 200, 399, 400)]
    assert rates == sorted(rates)
    assert rates[0] < rates[2] < rates[3] < rates[5] == 1


def test_unused_results_evict_others():
    assert hit_rate(200, 400, unused=0.5, lookups=5_000) < hit_rate(200, 400, lookups=5_000)


@pytest.mark.slow
def test_main_prints_both_tables():
    said: list[str] = []
    assert main(30, said.append, cases=["lookahead 1"], lookups=2_000) == 0
    assert "| lookahead 1 |" in said[1]
    assert "| 10 TB |" in said[3]


def test_each_case_changes_something():
    teams = [repr(team) for team in CASES.values()]
    assert len(set(teams)) == len(teams)


def test_hits_are_those_of_least_recently_used():
    """Che's approximation is for this policy; first in, first out has three points less here."""
    weights = [(rank + 1) ** -0.8 for rank in range(1000)]
    shares = [weight / sum(weights) for weight in weights]
    low, high = 0.0, 1e6
    for _ in range(60):
        middle = (low + high) / 2
        expected = sum(1 - math.exp(-share * middle) for share in shares)
        low, high = (middle, high) if expected < 300 else (low, middle)
    hits = sum(share * (1 - math.exp(-share * low)) for share in shares)
    assert hit_rate(300, 1000, lookups=60_000) == pytest.approx(hits, abs=0.01)
