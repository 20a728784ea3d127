"""Who is let in when: jobs, pools, and the stages that only wait."""

from orch23.engine.worker_threads import StagePools
from orch23.model.pipeline import Stage
from orch23.steps.llm.spec import LLMStep
from orch23.steps.shell.spec import ShellStep

LLM = LLMStep(provider="command", model="m", prompt="p")
SHELL = ShellStep(command=("true",))


def stage(name: str, step=SHELL, *pools: str) -> Stage:
    return Stage(name=name, step=step, pools=pools)


def lined_up(pools: StagePools, *stages: Stage) -> list[str]:
    """Line these up and return the names of those that are let in, in order."""
    for one in stages:
        pools.enqueue(one)
    found = []
    while (name := pools.admit()) is not None:
        found.append(name)
    return found


def test_without_pools_the_jobs_bound_everything() -> None:
    pools = StagePools({}, 2)
    assert lined_up(pools, stage("a", LLM), stage("b"), stage("c")) == ["a", "b"]
    assert pools.is_full
    pools.release("a")
    assert not pools.is_full
    assert pools.admit() == "c"


def test_where_there_is_a_pool_for_them_stages_that_wait_take_no_job() -> None:
    pools = StagePools({"llm": 2}, 1)
    asking = [stage(f"ask{n}", LLM) for n in range(3)]
    assert lined_up(pools, *asking, stage("a"), stage("b")) == ["ask0", "ask1", "a"]
    assert pools.is_full
    pools.release("ask1")
    assert pools.admit() == "ask2"
    assert pools.admit() is None
    pools.release("a")
    assert pools.admit() == "b"


def test_it_is_not_full_while_either_kind_finds_a_place() -> None:
    pools = StagePools({"llm": 1}, 1)
    assert lined_up(pools, stage("a")) == ["a"]
    assert not pools.is_full
    assert lined_up(pools, stage("ask", LLM)) == ["ask"]
    assert pools.is_full
    pools.release("a")
    assert not pools.is_full


def test_a_program_that_asks_a_model_itself_takes_a_job_and_a_place_among_the_calls() -> None:
    pools = StagePools({"llm": 2}, 1)
    assert lined_up(pools, stage("a", SHELL, "llm"), stage("ask0", LLM), stage("ask1", LLM)) == ["a", "ask0"]


def test_stages_that_wait_join_other_pools_too() -> None:
    pools = StagePools({"llm": 4, "gpu": 1}, 1)
    assert lined_up(pools, stage("ask0", LLM, "gpu"), stage("ask1", LLM, "gpu"), stage("ask2", LLM)) == ["ask0", "ask2"]
