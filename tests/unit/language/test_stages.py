"""Stages: conversion, the rules that hold across fields, and what the items of a foreach may decide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.language.stages import make_stage, render_foreach
from orch23.model.action import StepLimits
from orch23.model.diagnostic import Severity
from orch23.model.digest import Json
from orch23.model.fields import normalize_path, parse_seconds, path_fault
from orch23.model.pipeline import (
    BriefLimits,
    ChainLink,
    CheckStep,
    Condition,
    EnsuresStep,
    Foreach,
    ForeachStage,
    GlobInput,
    ListInput,
    PathInput,
    Retry,
    SliceInput,
    Verify,
    WriteScope,
)
from orch23.model.step import Tool
from orch23.steps.llm.spec import LLMStep
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.render.spec import RenderStep
from orch23.steps.shell.spec import ShellStep

LLM = {"provider": "local", "model": "m", "prompt": "p.j2"}


def built(body, **more):
    result = make_stage("s", body, **more)
    assert result.stage is not None, result.problems
    return result.stage


def faults(body):
    return [(p.path, p.code) for p in make_stage("s", body).problems if p.severity is Severity.ERROR]


def test_every_field_arrives():
    stage = built(
        {
            "desc": "d",
            "llm": {
                **LLM,
                "returns": "json",
                "schema": "s.json",
                "max_tokens": "8k",
                "timeout": "2m",
                "context": {"own_outputs": True, "max_files": 3, "max_bytes": "1k"},
                "brief": {"limit": 100, "head": 50, "tail": 20},
                "command": ["llm", "-m", 4],
                "transcripts": "t/",
                "seed": 1,
                "temperature": 0.5,
                "mode": "replay",
                "read": ["lib/", "/opt/x/", "~/.x"],
                "pass_env": ["A_KEY", "B", "A_KEY"],
                "network": True,
                "base_url": "http://localhost:1",
            },
            "needs": ["x"],
            "inputs": [
                "a",
                "b/**",
                "c/",
                "d.md#H",
                {"list": "e/"},
                {"path": "f", "optional": True, "schema": "g"},
                "a",
            ],
            "outputs": ["./out//x.json"],
            "allowed_paths": {"write": ["out/"], "protect": ["out/p/"], "delete": ["out/x.json"], "read": ["in/"]},
            "cwd": "out/",
            "verify": {
                "inputs": ["t.py"],
                "steps": [
                    {"check": "c", "with": {"k": 1}},
                    {"shell": "x"},
                    {"pytest": ["-q"]},
                    {"ensures": {"file_absent": ["z"]}},
                ],
                "all": True,
            },
            "requires": [{"kind": "file_exists", "path": "q"}],
            "ensures": {"file_exists": "out/x.json", "file_absent": ["r"]},
            "retry": {
                "max": 2,
                "when": ["timeout"],
                "prompt": "r.j2",
                "from": "baseline",
                "no_progress": 2,
                "escalate": ["m", "n"],
                "style": "conversation",
            },
            "on_failure": "keep",
            "timeout": "1h1m1s",
            "limits": {"memory": "1.5GiB", "processes": "2k", "files": 10, "disk": "4G", "address_space": 1000},
            "env": {"A": 1, "B": True, "C": "x"},
            "python": "python3.12",
            "tools": ["node"],
            "scratch": ["*.tmp"],
            "cache": False,
            "network": True,
            "salt": 3,
        }
    )
    assert stage.step == LLMStep(
        provider="local",
        model="m",
        prompt="p.j2",
        returns="json",
        schema="s.json",
        max_tokens=8000,
        states_max_tokens=True,
        timeout_s=120.0,
        own_outputs=True,
        max_files=3,
        max_bytes=1000,
        brief=BriefLimits(100, 50, 20),
        command=("llm", "-m", "4"),
        read=("lib", "/opt/x", "~/.x"),
        pass_env=("A_KEY", "B"),
        network=True,
        transcripts="t",
        seed=1,
        temperature=0.5,
        mode="replay",
        base_url="http://localhost:1",
    )
    assert stage.inputs == (
        PathInput("a"),
        GlobInput("b/**"),
        GlobInput("c/**", folder=True),
        SliceInput("d.md", "H"),
        ListInput("e/**"),
        PathInput("f", optional=True, schema="g"),
    )
    assert stage.outputs == ("out/x.json",)
    assert stage.fence == WriteScope(("out/",), ("out/p/",), ("out/x.json",), ("in/",))
    assert stage.verify == Verify(
        (
            CheckStep("c", {"k": 1}),
            ShellStep("x"),
            PytestStep(args=("-q",)),
            EnsuresStep((Condition("file_absent", "z"),)),
        ),
        (PathInput("t.py"),),
        run_all=True,
    )
    assert stage.requires == (Condition("file_exists", "q"),)
    assert stage.ensures == (Condition("file_exists", "out/x.json"), Condition("file_absent", "r"))
    assert stage.retry == Retry(
        max=2,
        when=("timeout",),
        prompt="r.j2",
        start_from="baseline",
        no_progress=2,
        escalate=("m", "n"),
        style="conversation",
    )
    assert (stage.on_failure, stage.cwd, stage.timeout_s, stage.python) == ("keep", "out", 3661.0, "python3.12")
    assert stage.limits == StepLimits(memory=3 << 29, processes=2000, files=10, disk=4_000_000_000, address_space=1000)
    assert stage.env == {"A": "1", "B": "true", "C": "x"}
    assert (stage.tools, stage.scratch, stage.cache, stage.network, stage.salt) == (
        (Tool("node"),),
        ("*.tmp",),
        False,
        True,
        "3",
    )
    assert (stage.desc, stage.needs) == ("d", ("x",))
    assert stage.chain == ChainLink(chain="s", index=0)


def test_what_is_not_said_has_the_default():
    stage = built({"shell": ["a"], "outputs": ["o/"]})
    assert stage.fence == WriteScope(("o/",))
    assert (stage.cwd, stage.timeout_s, stage.retry, stage.cache) == (".", 300.0, Retry(), True)
    assert stage.chain is None


def test_a_network_stage_is_cached_only_if_it_says_so():
    assert built({"shell": ["a"], "network": True}).cache is False
    assert built({"shell": ["a"], "network": True, "cache": True}).cache is True


def test_a_report_is_an_output():
    stage = built({"pytest": {"report": "b/t.json", "paths": [".", "t/test_a.py::test_x"]}})
    assert stage.outputs == ("b/t.json",)
    assert stage.fence.write == ("b/t.json",)
    assert stage.step.paths == (".", "t/test_a.py::test_x")


def test_a_report_in_verify_is_refused():
    assert faults({"shell": ["a"], "verify": [{"pytest": {"report": "x"}}]}) == [
        ("stages/s/verify/0/pytest/report", "E856")
    ]


def test_render_may_be_a_mapping_or_a_path():
    assert built({"render": {"template": "t"}, "outputs": ["o"]}).step == RenderStep("t")
    assert built({"render": "t", "outputs": ["o"]}).step == RenderStep("t")


@pytest.mark.parametrize(("value", "used"), [(51, 50), (10**9, 50)])
def test_a_retry_out_of_bounds_is_clamped_with_a_warning(value, used):
    for body in ({"retry": value}, {"retry": {"max": value}}):
        result = make_stage("s", {"shell": ["a"], **body})
        assert result.stage is not None
        assert result.stage.retry.max == used
        assert [(p.code, p.severity) for p in result.problems] == [("W801", Severity.WARNING)]


@pytest.mark.parametrize("body", [{"retry": -1}, {"retry": {"max": -1}}])
def test_a_negative_number_of_attempts_is_an_error_since_calls_are_paid_for(body):
    result = make_stage("s", {"shell": ["a"], **body})
    assert [(p.code, p.severity) for p in result.problems] == [("E812", Severity.ERROR)]
    assert "the minimum is 0" in result.problems[0].message


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"shell": ["a"], "timeout": True}, [("timeout", "E811")]),
        ({"shell": ["a"], "limits": {"memory": "much"}}, [("limits/memory", "E815")]),
        ({"shell": ["a"], "limits": {"memory": "-1"}}, [("limits/memory", "E815")]),
        ({"shell": ["a"], "limits": {"disk": True}}, [("limits/disk", "E811")]),
        ({"shell": ["a"], "limits": {"disk": 0}}, [("limits/disk", "E812")]),
        ({"shell": ["a"], "limits": {"address_space": "0.1B"}}, [("limits/address_space", "E812")]),
        ({"shell": ["a"], "limits": {"processes": 0}}, [("limits/processes", "E812")]),
        ({"shell": ["a"], "limits": "4GiB"}, [("limits", "E811")]),
        ({"shell": ["a"], "retry": True}, [("retry", "E811")]),
        ({"shell": ["a"], "retry": "2"}, [("retry", "E811")]),
        ({"shell": ["a"], "cache": "true"}, [("cache", "E811")]),
        ({"shell": ["a"], "env": {"A": None}}, [("env/A", "E811")]),
        ({"shell": ["a"], "env": {"a-b": "x"}}, [("env/a-b", "E859")]),
        ({"shell": ["a"], "env": {"PATH": "x"}}, [("env/PATH", "E859")]),
        ({"shell": ["a"], "salt": True}, [("salt", "E811")]),
        ({"shell": ["a"], "unknown": 1}, [("unknown", "E802")]),
        ({"shell": 3}, [("shell", "E811")]),
        ({"shell": ["a\0b"]}, [("shell/0", "E812")]),
        ({"shell": ["", "x"]}, [("shell", "E812")]),
        ({"pytest": {"arg": []}}, [("pytest/arg", "E802")]),
        ({"pytest": {"paths": ["../x"]}}, [("pytest/paths/0", "E850")]),
        ({"render": {}, "outputs": ["o"]}, [("render/template", "E810")]),
        ({"llm": {**LLM, "mode": "x"}, "outputs": ["o"]}, [("llm/mode", "E812")]),
        ({"llm": {**LLM, "max_tokens": 0}, "outputs": ["o"]}, [("llm/max_tokens", "E812")]),
        ({"llm": {**LLM, "temperature": -1}, "outputs": ["o"]}, [("llm/temperature", "E812")]),
        ({"llm": {**LLM, "base_url": "ftp://x"}, "outputs": ["o"]}, [("llm/base_url", "E812")]),
        ({"llm": {**LLM, "returns": "code", "only_json": True}, "outputs": ["o"]}, [("llm/only_json", "E856")]),
        *(
            ({"llm": {**LLM, "read": ["a", path]}, "outputs": ["o"]}, [("llm/read/1", code)])
            for path, code in (
                *(("../x", "E850"), ("/", "E812"), ("//", "E812"), ("/proc", "E812"), ("/dev/x", "E812")),
                *(("/a/../proc", "E812"), ("~/", "E812"), ("~/../x", "E812"), ("a/*.py", "E850")),
            )
        ),
        *(
            ({"llm": {**LLM, "pass_env": ["A_KEY", name]}, "outputs": ["o"]}, [("llm/pass_env/1", "E812")])
            for name in ("HOME", "PATH", "TMPDIR", "ORCH23_TRUST", "A B", "A=B", "1A")
        ),
        ({"llm": {"provider": "p"}, "outputs": ["o"]}, [("llm", "E810"), ("llm", "E810")]),
        ({"shell": ["a"], "inputs": [{"path": "a.md#H", "schema": "s"}]}, [("inputs/0/schema", "E856")]),
        ({"shell": ["a"], "inputs": [[]]}, [("inputs/0", "E811")]),
        ({"shell": ["a"], "verify": ["x"]}, [("verify/0", "E811")]),
        ({"shell": ["a"], "verify": [{"check": "c", "shell": "x"}]}, [("verify/0", "E814")]),
        ({"shell": ["a"], "verify": [{"shell": "x", "with": {"a": 1}}]}, [("verify/0/with", "E856")]),
        ({"shell": ["a"], "requires": [{"kind": "x", "path": "p"}]}, [("requires/0/kind", "E812")]),
        ({"shell": ["a"], "requires": [{"path": "p"}]}, [("requires/0/kind", "E810")]),
        ({"shell": ["a"], "ensures": {"file_exists": ["*"]}}, [("ensures/file_exists/0", "E850")]),
        ({"shell": ["a"], "retry": {"prompt": "p"}}, [("retry/prompt", "E856")]),
        ({"shell": ["a"], "retry": {"when": ["x"]}}, [("retry/when/0", "E812")]),
        ({"shell": ["a"], "python": " "}, [("python", "E812")]),
        ({"shell": ["a"], "python": 3}, [("python", "E811")]),
        ({"shell": ["a"], "tools": ["", "x"]}, [("tools/0", "E812")]),
        ({"shell": ["a"], "tools": "x"}, [("tools", "E811")]),
        ({"llm": {**LLM, "temperature": "hot"}, "outputs": ["o"]}, [("llm/temperature", "E811")]),
        ({"llm": {**LLM, "max_tokens": "lots"}, "outputs": ["o"]}, [("llm/max_tokens", "E815")]),
        ({"llm": 3, "outputs": ["o"]}, [("llm", "E811")]),
        ({"shell": ["a"], "timeout": -1}, [("timeout", "E812")]),
        ({"shell": ["a"], "requires": ["x"]}, [("requires/0", "E811")]),
        ({"shell": ["a"], "requires": {"file_exists": [3]}}, [("requires/file_exists/0", "E811")]),
        ({"shell": ["a"], "requires": [{"kind": "file_exists", "path": "/x"}]}, [("requires/0/path", "E850")]),
        ({"shell": ["a"], "inputs": [{"list": "../x"}]}, [("inputs/0/list", "E850")]),
        ({"shell": ["a"], "inputs": [{"optional": True}]}, [("inputs/0", "E814")]),
        ({"shell": ["a"], "outputs": ["d/"], "inputs": ["d/x"]}, [("inputs/0", "E854")]),
        ({"shell": ["a"], "retry": {"no_progress": 0}}, [("retry/no_progress", "E812")]),
        ({"pytest": [], "edits": ["a"]}, [("edits", "E856")]),
        ({"shell": ["a"], "edits": ["d/"], "outputs": ["d/a"]}, [("outputs/0", "E856")]),
        ({"shell": ["a"], "edits": ["d/"], "on_failure": "keep"}, [("on_failure", "E856")]),
        ({"shell": ["a"], "edits": ["d/"], "allowed_paths": {"delete": ["d/"]}}, [("allowed_paths/delete", "E856")]),
        ({"llm": LLM, "edits": ["a", "d/**"]}, [("edits/1", "E856")]),
        ({"llm": LLM, "edits": ["d/**"], "inputs": [{"list": "d/**"}]}, [("edits/0", "E856")]),
    ],
)
def test_an_error_is_reported_at_its_path(body, expected):
    assert faults(body) == [(f"stages/s/{path}", code) for path, code in expected]


EXPLORING = "or write `explore: ['d/**']`: then the model finds the files"


@pytest.mark.parametrize(
    ("inputs", "hint"),
    [
        ({}, "write `inputs: ['d/**']`; " + EXPLORING),
        ({"inputs": ["t.md"]}, "add `'d/**'` to `inputs`; " + EXPLORING),
        ({"inputs": ["d/**"]}, None),
        ({"inputs": ["t.md", "d/**"]}, None),
        ({"inputs": ["d/a.py#def f"]}, None),
        ({"edits": ["d/a", "d/**"]}, None),
    ],
)
def test_a_pattern_that_a_model_edits_needs_inputs_with_its_files(inputs, hint):
    problems = make_stage("s", {"llm": LLM, "edits": ["d/**"], **inputs}).problems
    assert [problem.hint for problem in problems] == ([hint] if hint else [])


def test_all_mistakes_of_a_stage_are_found_at_once():
    body: dict[str, Json] = {"shell": [], "outputs": ["/a", "b", "b"], "timeout": "x", "retry": 99}
    assert [p.code for p in make_stage("s", body).problems] == ["E812", "E815", "E850", "E853", "W801"]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(3, 3.0), (0.5, 0.5), ("10", 10.0), ("300s", 300.0), ("45m", 2700.0), ("2h", 7200.0), ("1h30m", 5400.0),
     ("1.5s", 1.5), ("", None), ("s", None), ("m", None), ("1d", None), ("-1s", None), (True, None), (None, None),
     ("1m1h", None), ("1 h", None), ("9" * 100, None)],
)  # fmt: skip
def test_durations(value, seconds):
    assert parse_seconds(value) == seconds


@pytest.mark.parametrize(
    ("path", "normal"),
    [("a", "a"), ("./a", "a"), ("a//b", "a/b"), ("a/./b/", "a/b/"), (".hidden/x", ".hidden/x"), ("a/.", "a/")],
)
def test_paths_are_made_normal(path, normal):
    assert path_fault(path) is None
    assert normalize_path(path) == normal


@pytest.mark.parametrize("path", ["", " ", "/a", "..", "a/../b", "../a", "a\\b", "a\nb", "a\0", ".", "./", "//", "~/x"])
def test_paths_that_leave_the_root_are_refused(path):
    assert path_fault(path) is not None


@given(st.text(alphabet=st.sampled_from(list("ab./\\~*")), max_size=8))
def test_a_path_without_fault_stays_below_the_root_and_is_normal_once(path):
    if path_fault(path) is None:
        normal = normalize_path(path)
        assert normal
        assert not normal.startswith("/")
        assert ".." not in normal.split("/")
        assert normalize_path(normal) == normal


# ---- foreach ----------------------------------------------------------------------------------


def foreach(body, *, source="plan.json", sequential=False, name="t"):
    return ForeachStage(
        name="f", foreach=Foreach(source=source, name=name, sequential=sequential), body=body, kind="shell"
    )


def items(body, values, names=None, **more):
    built = render_foreach(foreach(body, **more), values, names or {})
    assert all(one.stage is not None for one in built), built
    return [one.stage for one in built]


def item_faults(body, item, **more):
    (result,) = render_foreach(foreach(body, **more), [("k", item)], {"v": "x"})
    return [(p.path, p.code) for p in result.problems]


@pytest.mark.parametrize("place", [".", "./", "./w//v/", "w/", "./."])
def test_what_a_var_gives_before_a_path_of_an_item_is_read_like_a_literal(place):
    body = {"shell": ["x"], "outputs": ["${{ vars.v }}/${{ t }}", "${{ t | under(vars.v) }}.c"]}
    (one,) = items(body, [("k", "a.py")], {"v": place})
    folder = "/".join(name for name in place.split("/") if name not in ("", "."))
    assert one.outputs == tuple(f"{folder}/{name}".lstrip("/") for name in ("a.py", "a.py.c"))
    assert [code for _, code in item_faults(body, "./a.py")] == ["E857"] * 2


def test_items_become_stages_in_a_chain():
    body = {"llm": LLM, "outputs": ["w/${{ t.p }}"], "inputs": ["spec.md#${{ t.s }}"], "desc": "${{ vars.v }}"}
    values = [("A", {"p": "a.py", "s": "One"}), ("B", {"p": "b.py", "s": "Two"})]
    one, two = items(body, values, {"v": "x"}, sequential=True)
    assert (one.name, one.family, one.outputs, one.desc) == ("f@A", "f", ("w/a.py",), "x")
    assert one.item is not None
    assert one.item.value == {"p": "a.py", "s": "One"}
    assert (one.chain, two.chain) == (ChainLink(chain="f", index=0), ChainLink(chain="f", index=1))
    assert two.inputs == (SliceInput("spec.md", "Two"),)


def test_parallel_items_of_a_model_are_each_a_chain_of_one():
    (one,) = items({"llm": LLM, "outputs": ["w/${{ t }}"]}, [("A", "a")])
    assert one.chain == ChainLink(chain="f@A", index=0)
    (one,) = items({"shell": ["x"], "outputs": ["w/${{ t }}"]}, [("A", "a")])
    assert one.chain is None


def test_a_list_of_an_item_is_spliced():
    (one,) = items({"shell": ["x"], "outputs": ["a", "${{ t | under('w') }}"]}, [("k", ["b", "c"])])
    assert one.outputs == ("a", "w/b", "w/c")


def test_a_missing_member_is_a_problem_of_the_stage():
    (one,) = render_foreach(foreach({"shell": ["x", "${{ t.gone }}"]}), [("k", {"a": 1})], {})
    assert one.stage is None
    assert [(p.path, p.code) for p in one.problems] == [("stages/f/shell/1", "E840")]


def test_a_warning_does_not_fail_an_item():
    (one,) = render_foreach(foreach({"shell": ["x"], "retry": 77}), [("k", 1)], {})
    assert one.stage is not None
    assert one.stage.retry.max == 50
    assert one.problems == ()


@pytest.mark.parametrize(
    ("body", "item"),
    [
        ({"shell": "echo ${{ t }}"}, "a"),
        ({"shell": ["${{ t }}", "x"]}, "a"),
        ({"shell": "${{ t }}"}, ["rm", "-rf"]),
        ({"shell": ["a", "${{ t }}"]}, "-rf"),
        ({"shell": ["bash", "-c", "${{ t }}"]}, "echo"),
        ({"shell": ["python", "-c", "print(${{ t }})"]}, "1"),
        ({"shell": ["x"], "env": {"A": "${{ t }}"}}, "a"),
        ({"shell": ["x"], "python": "${{ t }}"}, "a"),
        ({"shell": ["x"], "tools": ["${{ t }}"]}, "a"),
        ({"shell": ["x"], "timeout": "${{ t }}"}, 5),
        ({"shell": ["x"], "network": "${{ t }}"}, True),
        ({"shell": ["x"], "cache": "${{ t }}"}, True),
        ({"shell": ["x"], "retry": "${{ t }}"}, 5),
        ({"shell": ["x"], "scratch": ["${{ t }}"]}, "*"),
        ({"shell": ["x"], "on_failure": "${{ t }}"}, "keep"),
        ({"llm": {**LLM, "provider": "${{ t }}"}, "outputs": ["o"]}, "a"),
        ({"llm": {**LLM, "model": "${{ t }}"}, "outputs": ["o"]}, "a"),
        ({"llm": {**LLM, "prompt": "${{ t }}"}, "outputs": ["o"]}, "a"),
        ({"llm": {**LLM, "base_url": "http://${{ t }}"}, "outputs": ["o"]}, "a"),
        ({"llm": {**LLM, "command": ["${{ t }}"]}, "outputs": ["o"]}, "a"),
        ({"llm": {**LLM, "max_tokens": "${{ t }}"}, "outputs": ["o"]}, 9),
        ({"llm": "${{ t }}", "outputs": ["o"]}, LLM),
        ({"render": {"template": "${{ t }}"}, "outputs": ["o"]}, "a"),
        ({"pytest": {"plugins": ["${{ t }}"]}}, "a"),
        ({"pytest": {"pythonpath": ["${{ t }}"]}}, "a"),
        ({"pytest": {"trust": ["${{ t }}"]}}, "a"),
        ({"pytest": {"config": "${{ t }}"}}, "a"),
        ({"pytest": {"args": ["${{ t }}"]}}, "-pevil"),
        ({"pytest": {"paths": ["${{ t }}"]}}, "--rootdir=/"),
        ({"shell": ["x"], "verify": [{"check": "${{ t }}"}]}, "a"),
        ({"shell": ["x"], "verify": [{"shell": "${{ t }}"}]}, "a"),
        ({"shell": ["x"], "verify": [{"shell": ["${{ t }}"]}]}, "a"),
        ({"shell": ["x"], "verify": {"steps": [{"pytest": {"trust": ["${{ t }}"]}}]}}, "a"),
        ({"shell": ["x"], "verify": "${{ t }}"}, [{"shell": "x"}]),
        ({"shell": ["x"], "verify": {"all": "${{ t }}"}}, True),
        ({"shell": ["x"], "allowed_paths": {"read": ["${{ t }}"]}}, "specs"),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, "../a"),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, "/a"),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, "a/*"),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, "a//b"),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, ""),
        ({"shell": ["x"], "outputs": ["w/${{ t }}"]}, "a\u202eb"),
        ({"shell": ["x"], "outputs": ["w/${{ t }}"]}, "con"),
        ({"shell": ["x"], "outputs": "${{ t }}"}, ["ok", "../no"]),
        ({"shell": ["x"], "inputs": ["${{ t }}"]}, "**/*"),
        ({"shell": ["x"], "inputs": ["${{ t }}"]}, "a/../../b#H"),
        ({"shell": ["x"], "inputs": "${{ t }}"}, [{"path": "/etc/passwd"}]),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, "x::y"),
        ({"shell": ["x"], "cwd": "${{ t }}"}, "../x"),
        ({"shell": ["x"], "allowed_paths": {"write": ["${{ t }}"]}}, "**"),
        ({"shell": ["x"], "requires": "${{ t }}"}, [{"kind": "file_exists", "path": "/etc"}]),
    ],
)
def test_an_item_of_a_file_decides_no_more_than_plain_paths_and_arguments(body, item):
    found = item_faults(body, item)
    assert found
    assert {code for _, code in found} == {"E857"}


@pytest.mark.parametrize(
    ("body", "item"),
    [
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, "conftest.py"),
        ({"shell": ["x"], "outputs": ["w/${{ t }}"]}, "ConfTest.py"),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, ".github/workflows/x.yml"),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, "specs/x.md"),
        ({"shell": ["x"], "outputs": ["w/${{ t }}"]}, "a#b/conftest.py"),
        ({"shell": ["x"], "outputs": ["w#/${{ t }}"]}, "conftest.py"),
        ({"shell": ["x"], "outputs": ["a/${{ t }}"]}, ".env.local"),
        ({"shell": ["x"], "outputs": ["a/${{ t }}"]}, "x.pth"),
        ({"shell": ["x"], "outputs": ["${{ t }}"]}, "node_modules/x.js"),
        ({"shell": ["x"], "inputs": ["${{ t }}"]}, ".env"),
        ({"shell": ["x"], "inputs": ["${{ t }}"]}, ".git/config"),
        ({"shell": ["x"], "cwd": "${{ t }}"}, ".git"),
        ({"shell": ["x"], "outputs": ["o"], "allowed_paths": {"write": ["o", "${{ t }}"]}}, "Makefile"),
        ({"shell": ["x"], "outputs": ["o"], "allowed_paths": {"write": ["o", "${{ t }}", "${{ t }}"]}}, "Makefile"),
    ],
)
def test_an_item_of_a_file_leads_to_no_protected_name(body, item):
    assert {code for _, code in item_faults(body, item)} == {"E858"}


@pytest.mark.parametrize(
    ("body", "item"),
    [
        ({"shell": ["x", "${{ t }}", "-k", "a ${{ t }}"]}, "arg"),
        ({"shell": ["x"], "outputs": "${{ t }}"}, ["a/b.py"]),
        ({"shell": ["x"], "outputs": ["${{ t }}/"]}, "a"),
        ({"shell": ["x"], "outputs": ["./${{ t }}"]}, "a"),
        ({"shell": ["x"], "desc": "${{ t }}", "salt": "${{ t }}"}, "anything -rf /"),
        ({"shell": ["x"], "inputs": ["specs/s.md#${{ t }}"]}, "../odd | heading"),
        ({"shell": ["x"], "inputs": ["${{ t }}"]}, "a.md#Heading"),
        ({"shell": ["x"], "inputs": ["${{ t }}"], "allowed_paths": {"read": ["specs/"]}}, "specs/x.md"),
        ({"shell": ["x"], "outputs": ["${{ t }}"], "allowed_paths": {"write": ["pyproject.toml"]}}, "pyproject.toml"),
        ({"shell": ["x"], "verify": [{"shell": ["test", "${{ t }}"]}, {"check": "c", "with": {"a": "${{ t }}"}}]}, "a"),
        ({"pytest": {"paths": ["${{ t }}"], "expect": ["${{ t }}::test_x"]}}, "tests/test_a.py"),
        ({"pytest": {"paths": "${{ t }}"}}, ["tests/test_a.py::test_b"]),
    ],
)
def test_an_item_may_name_plain_paths_and_arguments(body, item):
    assert item_faults(body, item) == []


PYTHON = {"from": "${{ t }}", "allow": ["python", "pytest"]}


@pytest.mark.parametrize(
    ("commands", "item", "code"),
    [
        (PYTHON, ["python -V", "pytest -q tests", "python -c 'a; b'"], None),
        ({**PYTHON, "from": ["pytest ${{ t }}"]}, "tests/test_a.py", None),
        (PYTHON, "build/plan.json#/commands", None),
        (PYTHON, [], None),
        (PYTHON, ["rm -rf x"], "E835"),
        (PYTHON, ["python -V && python -V"], "E835"),
        (PYTHON, [{"run": "python"}], "E857"),
        (PYTHON, "python -V", "E812"),
        (PYTHON, "/etc/passwd#/x", "E857"),
        (PYTHON, ".env.json#/x", "E858"),
        ({"from": ["python -V"], "allow": "${{ t }}"}, ["python"], "E857"),
        ({"from": ["python -V"], "allow": ["${{ t }}"]}, "python", "E857"),
        ("${{ t }}", {"from": ["sh x"], "allow": ["sh"]}, "E857"),
    ],
)
def test_commands_are_where_an_item_may_say_what_is_run(commands, item, code):
    found = {c for _, c in item_faults({"shell": ["x"], "verify": {"steps": [{"commands": commands}]}}, item)}
    assert found == (set() if code is None else {code})


def test_commands_of_an_item_have_no_other_place():
    assert {c for _, c in item_faults({"shell": ["x"], "commands": {"from": "${{ t }}"}}, ["python -V"])} == {"E802"}
    assert {c for _, c in item_faults({"shell": "${{ t }}"}, ["python", "-V"])} == {"E857"}


def test_allowed_paths_read_limits_the_files_that_an_item_names():
    body = {"shell": ["x"], "inputs": ["${{ t }}"], "allowed_paths": {"read": ["docs/"]}}
    assert item_faults(body, "src/a.py") == [("stages/f/inputs/0", "E857")]


def test_items_that_the_author_typed_are_trusted():
    assert item_faults({"shell": "echo ${{ t }}"}, "a; b", source=None) == []
    assert item_faults({"shell": ["x"], "outputs": ["${{ t }}"]}, "pyproject.toml", source=None) == []


# ---- what contradicts itself in one stage ---------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"shell": "x", "inputs": ["a"], "outputs": ["a"]}, [("stages/s/inputs/0", "E854")]),
        ({"shell": "x", "inputs": ["b", {"path": "./d/a"}], "outputs": ["d/"]}, [("stages/s/inputs/1", "E854")]),
        ({"shell": "x", "inputs": ["a.md#H"], "outputs": ["a.md"]}, [("stages/s/inputs/0", "E854")]),
        ({"shell": "x", "inputs": ["a*"], "outputs": ["a"]}, []),
        ({"llm": LLM, "inputs": ["a"], "outputs": ["a"]}, []),
        ({"llm": LLM, "outputs": []}, [("stages/s", "E855")]),
        ({"llm": LLM, "allowed_paths": {"write": ["d/"]}}, []),
        ({"llm": {**LLM, "returns": "text"}, "outputs": ["a", "b"]}, [("stages/s/outputs", "E855")]),
        ({"render": "t.j2", "outputs": ["d/"]}, [("stages/s/outputs", "E855")]),
        ({"shell": "x", "outputs": ["d/"], "allowed_paths": {"write": ["d/*"]}}, [("stages/s/outputs/0", "E851")]),
        ({"shell": "x", "outputs": ["d/"], "allowed_paths": {"write": ["d/**"]}}, []),
        ({"shell": "x", "outputs": ["d/a"], "allowed_paths": {"write": ["d/*"]}}, []),
        ({"shell": "x", "outputs": ["a", "a"]}, [("stages/s/outputs/1", "E853")]),
        ({"shell": "x", "cwd": "../a"}, [("stages/s/cwd", "E850")]),
        ({"shell": "x", "cwd": "a*"}, [("stages/s/cwd", "E850")]),
        ({"shell": "x", "salt": True}, [("stages/s/salt", "E811")]),
        ({"shell": "x", "salt": ["a"]}, [("stages/s/salt", "E811")]),
        ({"shell": "x", "env": {"A": ["x"]}}, [("stages/s/env/A", "E811")]),
        ({"shell": "x", "env": {"A": "x\0"}}, [("stages/s/env/A", "E812")]),
        ({"shell": "x", "scratch": ["!a"]}, [("stages/s/scratch/0", "E850")]),
        ({"shell": "x", "sandbox": "maybe"}, [("stages/s/sandbox", "E812")]),
        ({"shell": "x", "on_failure": "maybe"}, [("stages/s/on_failure", "E812")]),
        ({"shell": "x", "retry": {"prompt": "p"}}, [("stages/s/retry/prompt", "E856")]),
        ({"shell": "x", "retry": {"max": 1, "when": ["bad_luck"]}}, [("stages/s/retry/when/0", "E812")]),
        ({"shell": "x", "promote": "g", "on_failure": "keep"}, [("stages/s/on_failure", "E856")]),
        ({"shell": "x", "if": "maybe"}, [("stages/s/if", "E811")]),
    ],
)
def test_fields_that_contradict_each_other_are_reported_at_their_path(body, found) -> None:
    assert faults(body) == found


def test_commands_may_not_come_from_what_the_stage_itself_makes() -> None:
    commands = [{"commands": {"from": "plan.json#/commands", "allow": ["python"]}}]
    body = {"llm": {**LLM, "returns": "json"}, "outputs": ["plan.json"], "verify": commands}
    assert faults(body) == [("stages/s/verify", "E854")]
    assert faults({**body, "outputs": ["other.json"]}) == []


@pytest.mark.parametrize(
    ("key", "value", "field", "read"),
    [
        ("sandbox", "off", "sandbox", False),
        ("sandbox", "on", "sandbox", True),
        ("on_failure", "keep", "on_failure", "keep"),
        ("on_failure", "rollback", "on_failure", "rollback"),
        ("cwd", ".", "cwd", "."),
        ("cwd", "a/b/", "cwd", "a/b"),
        ("salt", 3, "salt", "3"),
        ("salt", "x", "salt", "x"),
        ("network", True, "cache", False),
        ("cache", False, "cache", False),
        ("timeout", "2m", "timeout_s", 120.0),
        ("promote", "g", "promote", "g"),
        ("env", {"A": 1, "B": True, "C": False, "D": "x"}, "env", {"A": "1", "B": "true", "C": "false", "D": "x"}),
    ],
)
def test_a_field_is_read_as_it_is_written(key, value, field, read) -> None:
    assert getattr(built({"shell": "x", key: value}), field) == read


def test_what_the_rest_has_when_it_is_not_said() -> None:
    stage = built({"shell": "x"})
    assert (stage.sandbox, stage.on_failure, stage.cwd, stage.salt, stage.cache) == (True, "rollback", ".", None, True)


@pytest.mark.parametrize(("holds", "is_made"), [(True, True), ("true", True), (False, False), ("false", False)])
def test_a_stage_that_is_switched_off_is_skipped_with_what_it_would_write(holds, is_made: bool) -> None:
    body = {"shell": "x", "outputs": ["a"], "allowed_paths": {"write": ["a", "d/*"]}, "if": holds, "retry": 99}
    result = make_stage("s", body)
    assert [one.code for one in result.problems] == ["W801"], "a warning switches nothing off"
    assert (result.stage is not None, result.skipped is None) == (is_made, is_made)
    if result.skipped is not None:
        assert (result.skipped.name, result.skipped.writes) == ("s", ("a", "a", "d/*"))
    broken = make_stage("s", {**body, "cwd": "../a"})
    assert (broken.stage, broken.skipped) == (None, None)
