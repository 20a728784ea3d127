"""Loading: text to Pipeline, defaults, vars, foreach, and the locations of everything."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from orch23.language.stages import render_foreach
from orch23.load.pipeline import load_pipeline, parse_pipeline
from orch23.model.diagnostic import Diagnostic, Severity
from orch23.model.errors import ExitCode, InvalidInputError, NotFoundError
from orch23.model.pipeline import ForeachStage, Price, Stage, StopConditions
from orch23.model.plan import InvalidPipelineError
from orch23.steps.llm.spec import LLMStep
from orch23.steps.pytest.spec import PytestStep
from orch23.steps.shell.spec import ShellStep

EXAMPLE = """# the example of the language page, without what later versions bring
version: 1
name: todo
vars:
  package: todo
  model: big-model
defaults:
  timeout: 300s
  llm: {provider: anthropic, model: "${{ vars.model }}", max_tokens: 32000, effort: high}
  pytest: {args: [-q]}
stop_conditions: {max_llm_calls: 40, max_wall: 45m, max_failed_stages: 1}
jobs: 2
stages:
  plan:
    desc: Compile the spec into tasks.
    inputs:
      - specs/todo.md
      - list: workspace/**
    outputs: [build/plan.json]
    llm: {prompt: prompts/planner.md.j2, returns: json, schema: specs/schemas/plan.v1.json}
    verify:
      - check: planner_tasks
    retry: 2
  code:
    foreach: {from: "build/plan.json#/tasks", key: id, as: task, order: sequential}
    inputs:
      - specs/todo.md#${{ task.section }}
    outputs: ["${{ task.artifacts | under('workspace') }}"]
    cwd: workspace
    allowed_paths:
      write: ["workspace/${{ vars.package }}/"]
      protect: [workspace/tests/]
    llm: {prompt: prompts/coder.md.j2, returns: files}
    verify:
      inputs: ["${{ task.tests | under('workspace') }}", workspace/todo/]
      steps:
        - pytest: {paths: ["${{ task.tests }}"]}
    retry: {max: 5, prompt: prompts/patch.md.j2}
  tests:
    needs: [code]
    inputs: [workspace/**/*.py]
    cwd: workspace
    pytest: {report: build/tests.json}
"""


def place(diagnostic: Diagnostic) -> tuple[int, int]:
    assert diagnostic.location is not None, diagnostic
    return diagnostic.location.line, diagnostic.location.column


def good(text, **more):
    parsed = parse_pipeline(text, "pipelines/p.yaml", **more)
    assert parsed.pipeline is not None, [str(d) for d in parsed.diagnostics]
    return parsed.pipeline


def test_the_example_of_the_language_page_loads():
    pipeline = good(EXAMPLE)
    plan, code, tests = pipeline.stages
    assert (pipeline.name, pipeline.jobs) == ("todo", 2)
    assert pipeline.stop == StopConditions(max_llm_calls=40, max_wall_s=2700.0, max_failed_stages=1)
    assert isinstance(plan.step, LLMStep)
    assert (plan.step.model, plan.step.effort, plan.timeout_s) == ("big-model", "high", 300.0)
    assert isinstance(tests.step, PytestStep)
    assert (tests.step.args, tests.outputs) == (("-q",), ("build/tests.json",))
    assert isinstance(code, ForeachStage)
    assert (code.kind, code.foreach.source, code.foreach.pointer) == ("llm", "build/plan.json", "/tasks")
    assert (code.foreach.key, code.foreach.name, code.foreach.sequential) == ("id", "task", True)
    assert code.writes == ("workspace/todo/",)
    assert code.reads == (
        "specs/todo.md",
        "workspace/**",
        "workspace/todo/",
        "prompts/coder.md.j2",
        "prompts/patch.md.j2",
    )
    body: Any = code.body
    assert body["outputs"] == ["${{ task.artifacts | under('workspace') }}"]
    assert body["llm"]["model"] == "big-model"
    assert body["allowed_paths"]["write"] == ["workspace/todo/"]


def test_every_node_can_be_located():
    pipeline = good(EXAMPLE)
    assert str(pipeline.locate("stages", "plan", "outputs", 0)) == "pipelines/p.yaml:19:15"
    assert str(pipeline.locate("stages", "code@T1")) == "pipelines/p.yaml:24:3"
    assert str(pipeline.locate("stages", "tests", "pytest", "report")) == "pipelines/p.yaml:43:22"


def test_a_foreach_without_a_write_scope_writes_its_outputs_wherever_they_may_be():
    text = "version: 1\nstages:\n  f:\n    foreach: {from: l.json}\n    shell: [a]\n"
    text += "    outputs: ['w/${{ item }}', 'fixed']\n"
    (stage,) = good(text).stages
    assert stage.writes == ("w/**", "fixed")
    assert stage.foreach.name == "item"


def test_a_static_foreach_keeps_its_values_and_is_tried_at_once():
    text = "version: 1\nstages:\n  f:\n    foreach: {in: [a, b, /c]}\n    shell: [x]\n    outputs: ['${{ item }}']\n"
    parsed = parse_pipeline(text, "p.yaml")
    (found,) = parsed.diagnostics
    assert (found.code, found.subject, place(found)) == ("E850", "f@/c", (6, 15))
    (stage,) = good(text.replace("/c", "c")).stages
    assert stage.foreach.values == ("a", "b", "c")


def test_defaults_are_merged_deeply_and_the_stage_wins():
    text = """version: 1
defaults:
  timeout: 7
  env: {A: a, B: b}
  llm: {provider: p, model: m, context: {max_files: 3, max_bytes: 4k}}
  pytest: {args: [-x], plugins: [q]}
stages:
  s: {shell: [x], env: {B: c}, timeout: 9}
  l: {llm: {prompt: j, model: n, context: {max_files: 5}}, outputs: [o]}
  t: {pytest: [-q]}
"""
    shell, llm, test = good(text).stages
    assert (shell.env, shell.timeout_s) == ({"A": "a", "B": "c"}, 9.0)
    assert shell.step == ShellStep(("x",))
    assert (llm.step.provider, llm.step.model, llm.step.max_files, llm.step.max_bytes) == ("p", "n", 5, 4000)
    assert (test.step.args, test.step.plugins, test.timeout_s) == (("-q",), ("q",), 7.0)


def test_a_mistake_among_the_defaults_is_shown_there_and_once():
    text = "version: 1\ndefaults: {llm: {provider: p, model: '${{ vars.m }}'}}\nstages:\n"
    text += "".join(f"  s{n}: {{llm: {{prompt: j}}, outputs: [o{n}]}}\n" for n in range(3))
    (found,) = parse_pipeline(text, "p.yaml").diagnostics
    assert (found.code, place(found)) == ("E840", (2, 48))


def test_expressions_may_stand_for_lists_numbers_and_booleans():
    text = """version: 1
vars: {files: [a, b], n: 2, yes: true, wait: 3s}
stop_conditions: {max_llm_calls: "${{ vars.n }}"}
jobs: "${{ vars.n }}"
stages:
  s:
    shell: [x]
    inputs: "${{ vars.files }}"
    cache: "${{ vars.yes }}"
    retry: {max: "${{ vars.n }}"}
    timeout: "${{ vars.wait }}"
"""
    pipeline = good(text)
    (stage,) = pipeline.stages
    assert (len(stage.inputs), stage.cache, stage.retry.max, stage.timeout_s) == (2, True, 2, 3.0)
    assert (pipeline.stop.max_llm_calls, pipeline.jobs) == (2, 2)


def test_limits_and_prices_are_decimals_exactly_as_they_are_written():
    text = """version: 1
vars: {b: '0.30', n: 0.1}
stop_conditions: {max_cost_usd: 0.1, max_tokens: 600k, max_llm_calls: 2k, max_wall: 45m, max_failed_stages: 3}
prices:
  m: {input: 1.1, output: '2.20', cache_read: 0}
  p/m-2: {input: "${{ vars.b }}", output: "${{ vars.n }}", cache_write: '0.000000000001'}
  mine: 0
defaults: {stop_conditions: {max_tokens: 2M, max_wall: 60}}
stages:
  s: {shell: [x], stop_conditions: {max_cost_usd: "${{ vars.b }}", max_wall: 1h}}
  f: {foreach: {in: [7], as: n}, shell: [x], stop_conditions: {max_llm_calls: "${{ n }}"}}
  t: {shell: [x]}
"""
    pipeline = good(text)
    assert pipeline.stop == StopConditions(
        max_cost_usd=Decimal("0.1"), max_tokens=600_000, max_llm_calls=2000, max_wall_s=2700.0, max_failed_stages=3
    )
    assert pipeline.prices == {
        "m": Price(input=Decimal("1.1"), output=Decimal("2.20"), cache_read=Decimal(0)),
        "p/m-2": Price(input=Decimal("0.30"), output=Decimal("0.1"), cache_write=Decimal("1e-12")),
        "mine": Price(input=Decimal(0), output=Decimal(0)),
    }
    plain, each, other = pipeline.stages
    assert plain.stop == StopConditions(max_cost_usd=Decimal("0.30"), max_tokens=2_000_000, max_wall_s=3600.0)
    assert other.stop == StopConditions(max_tokens=2_000_000, max_wall_s=60.0)
    ((_, (item,)),) = [(s, render_foreach(s, [("7", 7)], {})) for s in (each,)]
    assert item.stage is not None, item.problems
    assert item.stage.stop == StopConditions(max_llm_calls=7, max_tokens=2_000_000, max_wall_s=60.0)


def test_a_wrong_type_after_rendering_is_found_in_the_limits_too():
    text = "version: 1\nvars: {n: x}\njobs: '${{ vars.n }}'\nstages: {s: {shell: a}}\n"
    (found,) = parse_pipeline(text, "p.yaml").diagnostics
    assert (found.code, place(found)) == ("E811", (3, 7))


@pytest.mark.parametrize(
    ("cache", "code", "message"),
    [
        ("{ttl: 10m}", "E812", "`ttl` is the string `10m`; allowed are `5m`, `1h`"),
        ("{tll: 5m}", "E802", "unknown key `tll` in `llm.cache` of stage `s`"),
        ("on", "E811", "`cache` is the string `on`; it must be `off` or a mapping"),
    ],
)
def test_a_mapping_that_may_also_be_a_word_is_reported_by_its_keys(cache, code, message):
    text = (
        f"version: 1\nstages: {{s: {{outputs: [o], llm: {{provider: openai, model: m, prompt: p, cache: {cache}}}}}}}\n"
    )
    found = [(one.code, one.message) for one in parse_pipeline(text, "p.yaml").diagnostics]
    assert found == [(code, message)]


def test_a_warning_does_not_block():
    parsed = parse_pipeline("version: 1\nstages:\n  s: {shell: [x], retry: 99}\n", "p.yaml")
    assert parsed.pipeline is not None
    (stage,) = parsed.pipeline.stages
    assert isinstance(stage, Stage)
    assert stage.retry.max == 50
    assert [(d.code, d.severity, str(d.location)) for d in parsed.diagnostics] == [
        ("W801", Severity.WARNING, "p.yaml:3:26")
    ]


def test_an_escaped_expression_reaches_the_stage_and_the_item_as_text():
    text = """version: 1
vars: {t: "$${{ raw }}"}
stages:
  s: {shell: [echo, "$${{ x }}", "${{ vars.t }}"]}
  f: {foreach: {in: [a]}, shell: [echo, "$${{ x }}", "${{ vars.t }}", "${{ item }}$${{"]}
"""
    plain, each = good(text).stages
    assert plain.step == ShellStep(("echo", "${{ x }}", "${{ raw }}"))
    assert each.body["shell"] == ["echo", "$${{ x }}", "$${{ raw }}", "${{ item }}$${{"]


def test_the_name_defaults_to_that_of_the_file():
    assert good("version: 1\nstages: {s: {shell: a}}\n").name == "p"


# ---- vars -------------------------------------------------------------------------------------

VARS = "version: 1\nvars:\n  a: 1\n  b: '${{ vars.a }}-x'\n  c: ['${{ vars.b }}']\nstages: {s: {shell: a}}\n"


def test_a_var_may_use_a_var_in_any_order():
    assert good(VARS).vars == {"a": 1, "b": "1-x", "c": ["1-x"]}
    text = "version: 1\nvars: {c: '${{ vars.b }}', b: '${{ vars.a }}', a: 1}\nstages: {s: {shell: a}}\n"
    assert good(text).vars == {"c": 1, "b": 1, "a": 1}


def test_the_command_line_wins_over_the_file_and_the_file_over_the_pipeline():
    parsed = parse_pipeline(
        VARS, "p.yaml", sets={"a": "5"}, vars_text="a: 4\nb: '${{ vars.a }}!'\n", vars_name="v.yaml"
    )
    assert parsed.pipeline is not None
    assert parsed.pipeline.vars == {"a": 5, "b": "5!", "c": ["5!"]}
    assert parsed.origins == {"a": "--set", "b": "v.yaml:2", "c": "p.yaml:5"}


def test_a_value_of_the_command_line_is_not_an_expression():
    assert good(VARS, sets={"a": "${{ vars.c }}"}).vars["a"] == "${{ vars.c }}"
    for text, value in (("true", True), ("null", None), ("1:30", "1:30"), ("[x]", "[x]"), ("*", "*")):
        assert good("version: 1\nvars: {a: 1}\nstages: {s: {shell: a}}\n", sets={"a": text}).vars == {"a": value}


def test_setting_what_is_not_declared_is_an_error_with_the_nearest_name():
    text = VARS.replace("  a: 1", "  model: 1").replace("vars.a", "vars.model")
    parsed = parse_pipeline(text, "p.yaml", sets={"modle": "x"}, vars_text="b: 1\nzz: 2\n", vars_name="v.yaml")
    assert [(d.code, str(d.location), d.hint) for d in parsed.diagnostics] == [
        ("E843", "None", "did you mean `model`?"),
        ("E843", "v.yaml:2:1", "declared are `model`, `b`, `c`"),
    ]


def test_errors_of_a_vars_file_are_reported_like_those_of_a_pipeline():
    parsed = parse_pipeline(VARS, "p.yaml", vars_text="a: [x\n", vars_name="v.yaml")
    assert [(d.code, str(d.location)) for d in parsed.diagnostics] == [("E801", "v.yaml:1:4")]
    parsed = parse_pipeline(VARS, "p.yaml", vars_text="- a\n", vars_name="v.yaml")
    assert [(d.code, str(d.location)) for d in parsed.diagnostics] == [("E811", "v.yaml:1:1")]


def test_a_cycle_of_vars_is_reported_once_and_not_for_the_vars_that_use_it():
    text = """version: 1
vars: {a: "${{ vars.b }}", b: "${{ vars.c }}", c: "${{ vars.a }}", d: "${{ vars.a }}", ok: 1}
stages:
  s: {shell: ["${{ vars.d }}"]}
  t: {shell: [x, "${{ vars.gone }}"]}
"""
    circle, gone = parse_pipeline(text, "p.yaml").diagnostics
    assert circle.message == "vars use each other: `a` -> `b` -> `c` -> `a`"
    assert [r.location and r.location.column for r in circle.related] == [28, 48]
    assert (gone.code, place(gone)[0]) == ("E840", 5)


def test_limits_that_use_a_broken_var_are_not_blamed():
    text = "version: 1\nvars: {a: '${{ vars.a }}'}\njobs: '${{ vars.a }}'\nstages: {s: {shell: a}}\n"
    assert [d.code for d in parse_pipeline(text, "p.yaml").diagnostics] == ["E842"]
    text = "version: 1\njobs: '${{ vars.a }}'\nstages: {s: {shell: a}}\n"
    assert [(d.code, str(d.location)) for d in parse_pipeline(text, "p.yaml").diagnostics] == [("E840", "p.yaml:2:17")]


def test_a_whole_list_may_come_from_the_item():
    text = "version: 1\nstages:\n  f:\n    foreach: {from: l.json, as: t}\n    shell: [a]\n"
    text += "    inputs: '${{ t.reads }}'\n    outputs: '${{ t.makes }}'\n"
    (stage,) = good(text).stages
    assert (stage.reads, stage.writes) == (("**",), ("**",))


# ---- files ------------------------------------------------------------------------------------


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def test_a_file_is_named_by_its_path_below_the_root(tmp_path):
    path = write(tmp_path, "pipelines/p.yaml", EXAMPLE)
    loaded = load_pipeline(path, tmp_path, sets={"package": "x"}, vars_file=write(tmp_path, "v.yaml", "model: z\n"))
    assert loaded.pipeline.file == "pipelines/p.yaml"
    assert loaded.sources == {"pipelines/p.yaml": EXAMPLE, "v.yaml": "model: z\n"}
    assert loaded.origins == {"package": "--set", "model": "v.yaml:1"}
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("pipline.yaml", "pipeline.yaml"),
        ("pipeline.yml", "pipeline.yaml"),
        ("flow/tests.yaml", "flows/tests.yaml"),
        ("flow/test.yaml", "flows/tests.yaml"),
        ("sub/pipeline.yaml", "pipeline.yaml"),
        ("xyzzy.yaml", None),
    ],
)
def test_a_missing_file_names_the_similar_one_with_its_path_from_the_root(tmp_path, path, near):
    for name in ("pipeline.yaml", "flows/tests.yaml", "sub/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        write(tmp_path, name, EXAMPLE)
    with pytest.raises(NotFoundError) as caught:
        load_pipeline(tmp_path / path, tmp_path)
    (problem,) = caught.value.diagnostics
    assert problem.message == f"the file `{path}` does not exist"
    if near is None:
        assert problem.hint == "the directory has `pipeline.yaml`, or create a pipeline with `orch23 init`"
    else:
        assert problem.hint == f"did you mean `{near}`?"
        assert problem.fix == (str(tmp_path / path), str(tmp_path / near))


def test_a_link_to_nothing_is_not_suggested_for_itself(tmp_path):
    (tmp_path / "pipeline.yaml").symlink_to("gone.yaml")
    with pytest.raises(NotFoundError) as caught:
        load_pipeline(tmp_path / "pipeline.yaml", tmp_path)
    assert caught.value.diagnostics[0].fix is None


def test_a_missing_file_and_one_outside_of_the_root_are_not_found(tmp_path):
    inside = tmp_path / "root"
    inside.mkdir()
    for path in (inside / "no.yaml", inside, write(tmp_path, "out.yaml", EXAMPLE)):
        with pytest.raises(NotFoundError) as caught:
            load_pipeline(path, inside)
        assert caught.value.exit_code is ExitCode.NOT_FOUND
        assert [d.code for d in caught.value.diagnostics] == ["E862"]
    pipeline = write(inside, "p.yaml", EXAMPLE)
    with pytest.raises(NotFoundError):
        load_pipeline(pipeline, inside, vars_file=inside / "no.yaml")


def test_an_invalid_file_raises_all_errors_with_their_texts(tmp_path):
    path = write(tmp_path, "p.yaml", "version: 2\nstages: {s: {shel: a}}\n")
    with pytest.raises(InvalidPipelineError) as caught:
        load_pipeline(path, tmp_path)
    assert isinstance(caught.value, InvalidInputError)
    assert caught.value.exit_code is ExitCode.INVALID
    assert [d.code for d in caught.value.diagnostics] == ["E812", "E802"]
    assert caught.value.sources == {"p.yaml": "version: 2\nstages: {s: {shel: a}}\n"}


def test_a_file_that_is_not_text_is_invalid(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_bytes(b"version: 1\nname: \xff\n")
    with pytest.raises(InvalidInputError) as caught:
        load_pipeline(path, tmp_path)
    assert [(d.code, str(d.location)) for d in caught.value.diagnostics] == [("E805", "p.yaml:2:7")]


def test_a_foreach_reads_the_lists_of_commands_that_lie_in_files():
    text = "version: 1\nstages:\n  s:\n    foreach: {from: l.json, as: t}\n    shell: [x]\n    verify:VERIFY\n"
    step = "[{commands: {from: 'build/${{ t }}/plan.json#/a', allow: [python]}}, {shell: 'a#b'}]"
    for verify in (f" {step}", f" {{inputs: [in.txt], steps: {step}}}"):
        (stage,) = good(text.replace("VERIFY", verify)).stages
        assert isinstance(stage, ForeachStage)
        assert stage.reads == (("in.txt",) if "in.txt" in verify else ()) + ("build/**/plan.json",)


def test_errors_of_form_and_other_errors_of_a_stage_are_reported_together() -> None:
    text = """version: 1
stages:
  s:
    shel: x
    shell: [a]
    timeout: soon
    inputs: [../up, b]
    outputs: [/c, d, d]
    env: {MY_TOKEN: x}
    llm_: "${{ vars.nobody }}"
"""
    parsed = parse_pipeline(text, "p.yaml")
    assert [(one.code, *place(one)) for one in parsed.diagnostics] == [
        ("E802", 4, 5),
        ("E815", 6, 14),
        ("E850", 7, 14),
        ("E850", 8, 15),
        ("E853", 8, 22),
        ("E859", 9, 21),
        ("E802", 10, 5),
        ("E840", 10, 21),
    ]
    parsed = parse_pipeline(text.replace("vars.nobody", "1"), "p.yaml")
    assert [(one.code, *place(one)) for one in parsed.diagnostics] == [
        ("E802", 4, 5),
        ("E815", 6, 14),
        ("E850", 7, 14),
        ("E850", 8, 15),
        ("E853", 8, 22),
        ("E859", 9, 21),
        ("E802", 10, 5),
    ]


def test_a_contradiction_is_not_reported_if_one_of_its_keys_is_broken() -> None:
    text = """version: 1
stages:
  s:
    llm: {provider: p, model: m, prompt: p.md, returns: jsn, schema: s.json}
    outputs: [b]
    allowed_paths: {write: [3]}
    inputs: [3, "!x/**"]
    verify: [{commands: {from: [pytest -q], allow: [3]}}]
"""
    assert [one.code for one in parse_pipeline(text, "p.yaml").diagnostics] == ["E812", "E811", "E811", "E811"]


@pytest.mark.parametrize("value", ["0.0", "-1.5", "1000000001.5"])
def test_a_value_of_the_wrong_type_is_reported_once(value: str) -> None:
    text = f"version: 1\njobs: {value}\nstages: {{s: {{shell: x, limits: {{files: {value}}}}}}}\n"
    assert [one.code for one in parse_pipeline(text, "p.yaml").diagnostics] == ["E811", "E811"]
