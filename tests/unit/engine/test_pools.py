"""Who is let in when: jobs, pools, and the stages that only wait."""

import pytest

from orch23.engine.worker_threads import StagePools, executor_of, resources_of
from orch23.model.pipeline import Foreach, ForeachStage, Pipeline, Stage
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


# ---- places ----------------------------------------------------------------------------------------


def of_place(stage: Stage) -> str:
    return stage.name.rstrip("0123456789")


def test_each_place_has_its_own_limit_and_a_full_one_blocks_no_other() -> None:
    pools = StagePools({}, None, {"here": lambda: 1, "away": lambda: 2}, of_place)
    stages = [*(stage(f"here{n}") for n in range(2)), *(stage(f"away{n}") for n in range(3))]
    assert lined_up(pools, *stages) == ["here0", "away0", "away1"]
    assert pools.is_full
    pools.release("away0")
    assert not pools.is_full
    assert pools.admit() == "away2"
    assert pools.is_full
    pools.release("here0")
    assert pools.admit() == "here1"


def test_the_limit_of_a_place_may_grow_while_stages_run() -> None:
    slots = 1
    pools = StagePools({}, None, {"away": lambda: slots}, of_place)
    assert lined_up(pools, *(stage(f"away{n}") for n in range(4))) == ["away0"]
    assert pools.is_full
    slots = 3
    assert not pools.is_full
    assert [pools.admit() for _ in range(3)] == ["away1", "away2", None]


def test_a_place_is_not_asked_for_its_limit_before_a_stage_is_in_it() -> None:
    asked = []

    def slots() -> int:
        asked.append("away")
        return 2

    pools = StagePools({}, None, {"away": slots, "here": lambda: 1}, of_place)
    assert lined_up(pools, stage("here0")) == ["here0"]
    assert not pools.is_full
    assert asked == []
    assert lined_up(pools, stage("away0"), stage("away1")) == ["away0", "away1"]
    assert asked


def test_jobs_limit_all_places_together() -> None:
    pools = StagePools({}, 3, {"here": lambda: 1}, of_place)
    stages = [*(stage(f"here{n}") for n in range(2)), *(stage(f"away{n}") for n in range(3))]
    assert lined_up(pools, *stages) == ["here0", "away0", "away1"]
    assert pools.is_full
    pools.release("away0")
    assert not pools.is_full
    assert pools.admit() == "away2"


def test_only_places_make_the_loop_look_again() -> None:
    assert StagePools({}, 2).recheck_s == float("inf")
    assert StagePools({}, None, {"away": lambda: 1}, of_place).recheck_s < 1


# ---- where a stage runs ----------------------------------------------------------------------------

POOLED = Pipeline(
    name="p",
    file="p.yaml",
    stages=(),
    pools={"gpu": 2, "large": 1},
    pool_executors={"gpu": "dask", "here": "local", "shell": "reapi"},
    pool_resources={"gpu": {"gpu": 1.0, "memory": 8.0}, "large": {"memory": 4.0}, "shell": {"memory": 1.0}},
)


def items(*pools: str, kind: str = "llm") -> ForeachStage:
    return ForeachStage(name="each", foreach=Foreach(), kind=kind, body={"pools": [*pools]})


@pytest.mark.parametrize(
    ("node", "executor"),
    [
        (stage("a", LLM), "usual"),
        (stage("a"), "reapi"),
        (stage("a", SHELL, "gpu"), "dask"),
        (stage("a", SHELL, "large", "here"), "local"),
        (stage("a", SHELL, "large"), "reapi"),
        (stage("a", LLM, "large"), "usual"),
        (items("gpu"), "dask"),
        (items(), "usual"),
        (items(kind="shell"), "reapi"),
    ],
)
def test_a_named_pool_decides_then_that_of_the_kind_then_the_usual_executor(node, executor: str) -> None:
    assert executor_of(node, POOLED, "usual") == executor


def test_the_resources_of_all_pools_of_a_stage_add_up() -> None:
    of_gpu = POOLED.pool_resources["gpu"]
    assert resources_of(stage("a", SHELL, "gpu", "large", "gpu"), POOLED) == {"gpu": 1.0, "memory": 13.0}
    assert resources_of(stage("a", LLM, "gpu"), POOLED) == resources_of(items("gpu"), POOLED) == of_gpu
    assert resources_of(stage("a", LLM), POOLED) == {}
