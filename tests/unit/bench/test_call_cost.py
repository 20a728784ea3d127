"""The bench of calls: both of its programs make their calls, and a failure of one is an error."""

import pytest

from bench.call_cost import GOAL_MS, Cost, build_s, client_s, creation_ms, main, serving, wait_for_file_system


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        pytest.param("anthropic", marks=pytest.mark.thorough),
        pytest.param("anthropic, streamed", marks=pytest.mark.thorough),
        pytest.param("openai", marks=[pytest.mark.thorough, pytest.mark.needs("vendors")]),
        pytest.param("openai, streamed", marks=pytest.mark.needs("vendors")),
    ],
)
def test_a_build_and_a_client_make_their_calls(case):
    with serving() as url:
        assert build_s(case, url, 2) > 0
        assert client_s(case, url, 2) > 0


@pytest.mark.slow
def test_calls_that_fail_are_an_error():
    with pytest.raises(RuntimeError, match="exited with"):
        client_s("anthropic", "http://127.0.0.1:1", 1)


@pytest.mark.parametrize(("build_ms", "code"), [(GOAL_MS, 0), (GOAL_MS + 0.1, 1)])
def test_only_a_build_over_the_goal_exits_with_an_error(monkeypatch, build_ms, code):
    monkeypatch.setattr("bench.call_cost.creation_ms", lambda: 0.0)
    monkeypatch.setattr("bench.call_cost.measure", lambda case, _calls: Cost(case, build_ms, 2.0))
    said: list[str] = []
    assert main(2, said.append) == code
    assert [line.endswith("missed") for line in said[1:]] == [bool(code)] * 4


def test_it_waits_until_files_are_created_as_fast_as_usual(monkeypatch):
    took = [0.9, 0.3, 0.02, 0.9]
    waited: list[float] = []
    said: list[str] = []
    monkeypatch.setattr("bench.call_cost.creation_ms", lambda: took.pop(0))
    monkeypatch.setattr("time.sleep", waited.append)
    wait_for_file_system(said.append)
    assert took == [0.9]
    assert len(waited) == len(said) == 2
    monkeypatch.setattr("bench.call_cost.creation_ms", lambda: 0.9)
    wait_for_file_system(said.append)  # not for ever


def test_creating_a_file_takes_processor_time():
    assert creation_ms() > 0
