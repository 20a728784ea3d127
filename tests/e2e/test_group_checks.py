"""A red check of a promotion group is a failed attempt of each stage with a model whose files its output names."""

import shutil

import pytest

from tests.e2e.pipelines import calls, ends, green, pipeline, prompt, proposing
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prepared_pytest")]

# What a model writes: a function that fails until the feedback names a test of it.
BAD, GOOD = "def value():\\n    raise ValueError\\n", "def value():\\n    return 1\\n"
WAY_ON = (
    "it names no file of a model with an attempt left; `--resample a`{} requests another response, with this failure"
)
NAMED, ANY = WAY_ON.format(""), WAY_ON.format(" or `--resample b`")
NEXT = "  or `orch23 build --resample a` has its model called again, with this failure\n"
BOTH = NEXT.replace("a` has", "a` or `orch23 build --resample b` has")
KNOWS = "{% if brief and 'tests/test_app.py::test_NAME ' in brief.failing | join(' ') %}"
STAGES = """\
  a: {promote: app, outputs: [src/a.py], llm: {prompt: a.md.j2, returns: text}, retry: 2}
  b: {promote: app, outputs: [src/b.py], llm: {prompt: b.md.j2, returns: text}, retry: 2}
  list: {promote: app, inputs: [src/*.py], outputs: [list.txt], shell: 'cat src/*.py > list.txt'}
  acceptance:
    promote: app
    inputs: [src/*.py, tests/*.py]
    pytest: {paths: [tests], pythonpath: [src], provides: [a, b]}
"""
TESTS = """\
import a
import b


def test_a():
    assert a.value() == 1


def test_b():
    assert b.value() == 1
"""


def answers(name: str, first: str = BAD, later: str = GOOD) -> str:
    text = KNOWS.replace("NAME", name) + f"{{% set text = '{later}' %}}{{% else %}}{{% set text = '{first}' %}}"
    return prompt(name + " {{ attempt }}", text + "{% endif %}{{ text }}")


def story(project: Project, stages: str = STAGES, **files: str) -> Project:
    project.write(
        pipeline(
            stages,
            {"a.md.j2": answers("a"), "b.md.j2": answers("b", GOOD), "tests/test_app.py": TESTS, **files},
            head="jobs: 1\n",
        )
    )
    return project


def test_a_red_check_is_a_failed_attempt_of_the_stage_that_it_names_and_of_no_other(project: Project) -> None:
    green(story(project).build())
    assert calls(project) == ["a 1", "b 1", "a 2"]
    assert project.read("src/a.py").startswith("def value():\n    return 1")
    assert "return 1" in project.read("list.txt"), "what reads the file was made again"
    assert set(ends(project).values()) == {"built"}
    assert set(project.plan().values()) == {"fresh"}


def test_it_is_replayed_like_any_attempt(project: Project) -> None:
    green(story(project).build())
    made = project.files("src")
    shutil.rmtree(project.root / ".orch23" / "records")
    for path in [*made, "list.txt", "pipeline.lock"]:
        project.delete(path)
    green(project.build("--replay"))
    assert project.files("src") == made
    assert len(calls(project)) == 3
    assert ends(project)["a"] == "built"


@pytest.mark.parametrize("retry", [0, 1, 2])
def test_the_attempts_are_those_of_the_stage_and_an_unchanged_failure_is_not_paid_for_again(
    project: Project, retry: int
) -> None:
    stages = STAGES.replace(
        "{prompt: a.md.j2, returns: text}, retry: 2", f"{{prompt: a.md.j2, returns: text}}, retry: {retry}"
    )
    story(project, stages, **{"a.md.j2": answers("a", BAD, BAD + "# {{ attempt }}\\n")})
    first = project.build()
    assert first.code == 1
    expected = ["a 1", "b 1", *(f"a {n}" for n in range(2, retry + 2))]
    assert calls(project) == expected
    assert NAMED in first.err
    assert (NEXT in first.err, "fix acceptance, then" in first.err) == (True, True)
    assert not project.exists("src")
    assert ends(project) == {"a": "held", "b": "held", "list": "held", "acceptance": "failed"}
    for _ in range(2):
        assert project.build().code == 1
        assert calls(project) == expected
    project.edit("tests/test_app.py", TESTS.replace("a.value()", "1"))
    green(project.build())
    assert calls(project) == expected


@pytest.mark.parametrize("others_name_one", [False, True])
def test_a_failure_that_names_no_file_of_a_stage_with_a_model_ends_the_group(
    project: Project, *, others_name_one: bool
) -> None:
    other = "  other: {promote: app, inputs: [src/*.py], shell: 'exit 3'}\n"
    tests = TESTS + "\n\ndef test_c():\n    assert 1 == 2\n"
    if others_name_one:
        story(project, STAGES + other)
    else:
        story(project, **{"a.md.j2": answers("a", GOOD), "tests/test_app.py": tests})
    failed = project.build()
    assert failed.code == 1
    assert calls(project) == ["a 1", "b 1"]
    assert ANY in failed.err
    assert failed.err.count(BOTH) == 1, "no file says which of them it is"


def test_each_group_names_the_models_of_its_own_check(project: Project) -> None:
    again = STAGES.replace("app", "two").replace("src/", "lib/").replace("list", "other").replace("[src]", "[lib]")
    for name in ("a", "b", "acceptance"):
        again = again.replace(f"  {name}:", f"  {name}2:")
    tests = TESTS.replace("a.value() == 1", "a.value() == 3")
    failed = story(project, STAGES + again, **{"a.md.j2": answers("a", GOOD), "tests/test_app.py": tests}).build("-k")
    assert failed.code == 1
    for names in ("ab", ("a2", "b2")):
        ways = " or ".join(f"`orch23 build --resample {name}`" for name in names)
        assert f"  or {ways} has its model called again, with this failure\n" in failed.err


@pytest.mark.parametrize("fault", ["def broken(:\n", "import no_such_module\n", "from a import (\n"])
def test_tests_that_no_model_can_pass_do_not_propose_another_response(project: Project, fault: str) -> None:
    story(project, **{"a.md.j2": answers("a", GOOD), "tests/test_app.py": fault + TESTS})
    failed = project.build()
    assert failed.code == 1
    assert "--resample" not in failed.err
    assert "E325" in failed.err
    assert calls(project) == ["a 1", "b 1"]


@pytest.mark.stride(2)
@pytest.mark.parametrize("fault", ["from b import other\\n", "import no_such_module\\n"])
def test_a_model_whose_file_cannot_be_imported_has_another_attempt(project: Project, fault: str) -> None:
    body = KNOWS.replace("'tests/test_app.py::test_NAME ' in brief.failing | join(' ')", "brief.failing")
    text = f"{body}{{% set text = '{GOOD}' %}}{{% else %}}{{% set text = '{fault}' %}}{{% endif %}}{{{{ text }}}}"
    story(project, **{"a.md.j2": prompt("a {{ attempt }}", text)})
    green(project.build())
    assert calls(project)[:3] == ["a 1", "b 1", "a 2"]


@pytest.mark.stride(2)
@pytest.mark.parametrize("retry", [0, 1, 2])
def test_once_all_attempts_are_used_up_a_requested_response_gets_the_failure(project: Project, retry: int) -> None:
    """No record of its result is left then: it is the journal that has the failure."""
    stages = STAGES.replace("retry: 2", f"retry: {retry}")
    story(
        project,
        stages,
        **{
            "a.md.j2": prompt(
                "a{% if brief %} with {{ brief.failing | join }}{% endif %}", "{{ '" + BAD + "' }}# {{ attempt }}"
            )
        },
    )
    assert project.build().code == 1
    first = project.run("show", "pipeline.yaml", "a", "--prompt", "--attempt", "1").out
    assert "with tests" not in first
    before = len(calls(project))
    failed = project.build("--resample", "a")
    assert failed.code == 1
    assert calls(project)[before].startswith("a with tests/test_app.py::test_a")
    again = project.run("show", "pipeline.yaml", "a", "--prompt", "--attempt", "1").out
    assert "with tests/test_app.py::test_a" in again
    assert again != first


WRONG = GOOD.replace("1", "2")  # its test fails, and the failure names the test alone


@pytest.mark.parametrize("retry", [0, 2])
def test_a_response_that_is_requested_again_is_reported_what_failed(project: Project, retry: int) -> None:
    story(project, STAGES.replace("retry: 2", f"retry: {retry}"), **{"a.md.j2": answers("a", WRONG)})
    failed = project.build()
    assert (failed.code, calls(project), BOTH in failed.err) == (1, ["a 1", "b 1"], True)
    green(project.build("--resample", "a"))
    assert calls(project) == ["a 1", "b 1", "a 1"]
    sent = project.run("show", "pipeline.yaml", "a", "--prompt").out
    assert "return 1" in sent, "what the prompt answers if it knows the failing test"
    assert ends(project) == {"a": "built", "b": "restored", "list": "built", "acceptance": "built"}
    assert set(project.plan().values()) == {"fresh"}


def test_the_failure_of_a_check_is_not_reported_for_another_prompt_or_by_a_check_that_passed(project: Project) -> None:
    story(project, **{"a.md.j2": answers("a", WRONG)})
    assert project.build().code == 1
    project.edit("a.md.j2", answers("a", WRONG).replace("a {{", "changed {{"))
    assert project.build("--resample", "a").code == 1
    assert calls(project) == ["a 1", "b 1", "changed 1"]
    assert "return 2" in project.run("show", "pipeline.yaml", "a", "--prompt").out
    project.edit("tests/test_app.py", TESTS.replace("a.value() == 1", "a.value() == 2"))
    green(project.build())
    green(project.build("--resample", "a"))
    assert "return 2" in project.read("src/a.py")
    assert calls(project) == ["a 1", "b 1", "changed 1", "changed 1"]


def test_a_later_round_does_not_call_models_again_that_were_called_on_request(project: Project) -> None:
    """The failure of `a` names its file: it has another attempt, and `c`, which needs it, has not."""
    c = "  c: {promote: app, needs: [a], outputs: [src/c.py], llm: {prompt: c.md.j2, returns: text}}\n"
    story(project, STAGES + c, **{"a.md.j2": answers("a", WRONG, BAD), "c.md.j2": answers("c", GOOD)})
    assert project.build().code == 1
    assert project.build("--resample", "a", "--resample", "c").code == 1
    assert sorted(calls(project)) == ["a 1", "a 1", "a 2", "a 3", "b 1", "c 1", "c 1"]


def test_two_stages_are_named_and_each_has_an_attempt(project: Project) -> None:
    green(story(project, **{"b.md.j2": answers("b")}).build())
    assert sorted(calls(project)) == ["a 1", "a 2", "b 1", "b 2"]


def test_equal_bytes_again_end_the_group(project: Project) -> None:
    stages = STAGES.replace("retry: 2", "retry: {max: 5, no_progress: 99}")
    assert story(project, stages, **{"a.md.j2": answers("a", BAD, BAD)}).build().code == 1
    assert calls(project) == ["a 1", "b 1", "a 2"]


def test_tests_that_changed_after_a_green_build_are_an_attempt_too(project: Project) -> None:
    story(project, **{"a.md.j2": answers("a", GOOD, GOOD.replace("1", "2") + "# {{ attempt }}\\n")})
    green(project.build())
    wants = "import a\n\n\ndef test_a():\n    assert a.value() == 2, a.__file__\n"
    project.edit("tests/test_app.py", wants)
    promised = project.run("plan", "pipeline.yaml", "--json").json()["llm_calls"]
    assert promised == {"min": 0, "max": 6}, "of two stages with three attempts each"
    green(project.build())
    assert calls(project) == ["a 1", "b 1", "a 1"]
    assert project.run("plan", "pipeline.yaml", "--json").json()["llm_calls"] == {"min": 0, "max": 0}
    assert "return 2" in project.read("src/a.py")
    assert set(project.plan().values()) == {"fresh"}


def test_a_stage_that_is_not_selected_is_left_alone(project: Project) -> None:
    green(story(project).build("acceptance"))
    assert calls(project) == ["a 1", "b 1", "a 2"]
    assert not project.exists("list.txt")


def test_a_check_that_is_a_command_names_files_as_it_sees_them(project: Project) -> None:
    old = "pytest: {paths: [tests], pythonpath: [src], provides: [a, b]}"
    stages = STAGES.replace(old, "cwd: src\n    shell: python ../tests/t.py").replace("tests/*.py", "tests/t.py")
    answer = prompt("NAME {{ attempt }}", f"{{{{ '{BAD}' if not brief else '{GOOD}' }}}}")
    files = {f"{name}.md.j2": answer.replace("NAME", name) for name in "ab"}
    test = "import sys\nsys.path.insert(0, '.')\nimport a, b\na.value()\nb.value()\n"
    green(story(project, stages, **files, **{"tests/t.py": test}).build())
    assert calls(project) == ["a 1", "b 1", "a 2", "b 2"]


EDITS = """\
  plan: {promote: app, outputs: [plan.json], llm: {prompt: plan.md.j2, returns: json}}
  code:
    promote: app
    foreach: {from: 'plan.json#/tasks', as: task, order: sequential}
    outputs: [src/app.py]
    llm: {prompt: code.md.j2, returns: files}
    retry: 2
  acceptance: {promote: app, inputs: [src/app.py, t.py], shell: 'python t.py'}
"""


def test_items_that_edit_one_file_are_tried_again_in_order(project: Project) -> None:
    edit = {"src/app.py": "'# ' ~ item ~ '\\nX = ' ~ (1 if brief else 'nope') ~ '\\n'"}
    files = {
        "plan.md.j2": prompt("plan", '{"tasks": ["one", "two"]}'),
        "code.md.j2": proposing("{{ item }} {{ attempt }}", edit),
        "t.py": "import sys\nsys.path.insert(0, 'src')\nimport app\n",
    }
    project.write(pipeline(EDITS, files, head="jobs: 1\n"))
    green(project.build())
    assert project.read("src/app.py") == "# two\nX = 1\n"
    made = calls(project)
    assert all(made.count(f"{item} {number}") <= 1 for item in ("one", "two") for number in (1, 2, 3))
    assert set(project.plan().values()) == {"fresh"}
    green(project.build())
    assert calls(project) == made


CHAIN = """\
  plan: {promote: app, outputs: [plan.json], llm: {prompt: plan.md.j2, returns: json}}
  layers:
    promote: app
    foreach: {from: plan.json#/layers, key: name, as: layer, needs: needs}
    outputs: ["src/${{ layer.name }}.py"]
    llm: {prompt: layer.md.j2, returns: text}
    verify: {inputs: ["${{ layer.uses }}"], steps: [{shell: [python, -c, pass]}]}
    retry: {max: 2, from: baseline}
  acceptance:
    promote: app
    inputs: [src/*.py, tests/*.py]
    pytest: {paths: [tests], pythonpath: [src], provides: [a, b]}
"""


def test_items_that_stand_on_one_another_are_tried_again_in_order(project: Project) -> None:
    plan = '{"layers": [{"name": "a", "needs": [], "uses": []}, {"name": "b", "needs": ["a"], "uses": ["src/a.py"]}]}'
    b = "import a\n\n\ndef value():\n    return a.value()\n# {{ attempt }}"
    layer = f"{{% if item.name == 'a' %}}{{{{ '{BAD}' if not brief else '{GOOD}' }}}}{{% else %}}{b}{{% endif %}}"
    story(
        project,
        CHAIN,
        **{
            "plan.md.j2": prompt("plan", plan),
            "tests/test_app.py": "import b\n\n\ndef test_b():\n    assert b.value() == 1\n",
            "layer.md.j2": prompt("{{ item.name }} {{ attempt }}", layer),
        },
    )
    green(project.build())
    assert calls(project) == ["plan", "a 1", "b 1", "a 2", "b 2"]
    assert set(ends(project).values()) == {"built"}
    assert set(project.plan().values()) == {"fresh"}


@pytest.mark.stride(3)
@pytest.mark.parametrize("more", ["llm: {prompt: c.md.j2, returns: text}", "shell: 'echo 1 > src/c.py'"])
@pytest.mark.parametrize("reads", ["needs: [a]", "verify: {inputs: [src/a.py], steps: [{shell: 'true'}]}"])
def test_a_result_that_stays_as_it_is_in_the_next_round_was_built_in_this_run(
    project: Project, more: str, reads: str
) -> None:
    stages = STAGES + f"  c: {{promote: app, outputs: [src/c.py], {reads}, {more}}}\n"
    green(story(project, stages, **{"c.md.j2": answers("c", GOOD)}).build())
    assert set(ends(project).values()) == {"built"}
    finished = [one["data"] for one in project.events_of("stage_finished") if one["role"] == "c"]
    assert [(one["calls"], one["attempts"]) for one in finished] == [("llm" in more, 1)]
    assert not project.events_of("stage_restored")
    assert set(project.plan().values()) == {"fresh"}
