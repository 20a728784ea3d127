"""A result that equals the file on disk is a result; a response that writes nothing is none."""

import json

import pytest

from tests.e2e.pipelines import calls, ends, green, pipeline, prompt, proposing, shell
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

FILES = "  code: {outputs: [OUTPUTS], llm: {prompt: code.md.j2, returns: files}, retry: 2MORE}\n"


def asked(project: Project, answer: str, *, outputs: str = "src/", more: str = "", **files: str) -> None:
    stages = FILES.replace("OUTPUTS", outputs).replace("MORE", more)
    project.write(pipeline(stages, {"src/a.py": "x = 1\n", "code.md.j2": answer, **files}))


SAME = proposing("code", {"src/a.py": "'x = 1\\n'"})


def test_a_response_that_equals_the_file_on_disk_is_accepted(project: Project) -> None:
    asked(project, SAME)
    green(project.build())
    assert calls(project) == ["code"], "the first response is right"
    assert ends(project) == {"code": "built"}
    assert project.read("src/a.py") == "x = 1\n"
    assert project.plan() == {"code": "fresh"}
    green(project.build())


def test_it_is_verified_like_any_other(project: Project) -> None:
    asked(project, SAME, more=", verify: [{shell: 'grep y src/a.py'}]")
    outcome = project.build()
    assert outcome.code == 1
    assert "E303" not in outcome.err
    assert "verify: exited with 1" in outcome.err


def test_a_response_that_writes_no_declared_output_is_refused_as_before(project: Project) -> None:
    asked(project, proposing("code", {"lib/b.py": "'y = 1\\n'"}), more=", allowed_paths: {write: [src/, lib/]}")
    outcome = project.build()
    assert outcome.code == 1
    assert "[E303]" in outcome.err
    assert "nothing was written below `src/`" in outcome.err


@pytest.mark.parametrize("how", ["current", "baseline"])
def test_what_an_earlier_attempt_wrote_counts_where_the_next_one_goes_on_from_it(project: Project, how: str) -> None:
    """The second response adds the file that is missing; from the baseline it would have to write both."""
    first, second = (proposing("code", {path: text}) for path, text in (("src/a.py", "'x = 1\\n'"), ("lib/b.py", "''")))
    answer = f"{{% if attempt == 1 %}}{first}{{% else %}}{second}{{% endif %}}"
    asked(project, answer, outputs="src/, lib/")
    project.replace("pipeline.yaml", "retry: 2", f"retry: {{max: 1, from: {how}}}")
    outcome = project.build()
    assert outcome.code == (0 if how == "current" else 1)


@pytest.mark.parametrize("returns", ["text", "json", "code"])
def test_one_file_with_the_same_bytes_is_accepted(project: Project, returns: str) -> None:
    text = {"text": "x = 1\n", "json": json.dumps(["x"], indent=2) + "\n", "code": "x = 1\n"}[returns]
    body = {"text": text, "json": text, "code": f"```python\n{text}```\n"}[returns]
    stages = f"  code: {{outputs: [out.{returns}], llm: {{prompt: code.md.j2, returns: {returns}}}}}\n"
    project.write(pipeline(stages, {"code.md.j2": prompt("code", body), f"out.{returns}": text}))
    green(project.build())
    assert calls(project) == ["code"]


def test_an_edit_of_such_a_file_is_an_edit_of_its_output(project: Project) -> None:
    asked(project, SAME)
    green(project.build())
    project.edit("src/a.py", "x = 2\n")
    assert project.plan() == {"code": "edited"}


def test_an_item_of_a_chain_may_write_what_the_item_before_it_wrote(project: Project) -> None:
    stages = """\
  code:
    foreach: {in: [one, two], order: sequential}
    outputs: [src/]
    llm: {prompt: code.md.j2, returns: files}
"""
    project.write(pipeline(stages, {"code.md.j2": proposing("code {{ item }}", {"src/a.py": "'x = 1\\n'"})}))
    green(project.build())
    assert calls(project) == ["code one", "code two"]
    assert set(project.plan().values()) == {"fresh"}


def test_a_program_of_a_chain_may_do_so_too(project: Project) -> None:
    stages = """\
  page:
    foreach: {in: [one, two], order: sequential}
    outputs: [site/]
    shell: echo hello > site/index.html
"""
    green(project.write(shell(stages)).build())
    assert set(project.plan().values()) == {"fresh"}


def test_a_program_that_makes_nothing_at_all_is_refused_as_before(project: Project) -> None:
    outcome = project.write(shell("  page: {outputs: [site/], shell: 'true'}\n")).build()
    assert (outcome.code, "nothing was written below `site/`" in outcome.err) == (1, True)
