"""Files that are edited while a stage runs: the result stands for what it was made of, and the edit is never lost."""

import pytest

from orch23.execute.program_runner import LocalProgramRunner
from orch23.providers.adapter import ProgramCall, ProgramResult
from tests.e2e.pipelines import ends, green, pipeline, prompt, proposing, shell
from tests.project import Project

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran

ASK = "  ask: {inputs: [spec.md], outputs: [out.txt], llm: {prompt: p.md.j2, returns: text}}\n"


def during_the_call(monkeypatch: pytest.MonkeyPatch, project: Project, path: str, text: str, mode: str = "w") -> None:
    """Let the user edit a file after a model was asked, and before it answers."""
    real = LocalProgramRunner.run

    def run(self: LocalProgramRunner, call: ProgramCall) -> ProgramResult:
        with (project.root / path).open(mode) as file:
            file.write(text)
        return real(self, call)

    monkeypatch.setattr(LocalProgramRunner, "run", run)


@pytest.mark.slow
def test_an_input_edited_during_a_call(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(pipeline(ASK, {"spec.md": "one\n", "p.md.j2": prompt("ask", "{{ inputs[0].text }}")}))
    during_the_call(monkeypatch, project, "spec.md", "two\n")
    green(project.build())
    assert project.read("out.txt").strip() == "one"
    assert project.plan() == {"ask": "run"}
    green(project.build())
    assert project.read("out.txt").strip() == "two"
    assert project.plan() == {"ask": "fresh"}


def test_a_prompt_edited_during_a_call(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(pipeline(ASK, {"spec.md": "one\n", "p.md.j2": prompt("ask", "{{ inputs[0].text }}")}))
    during_the_call(monkeypatch, project, "p.md.j2", " more", "a")
    green(project.build())
    assert project.read("out.txt").strip() == "one"
    assert project.plan() == {"ask": "run"}


def test_a_verify_input_edited_during_its_step(project: Project) -> None:
    deed = f"cat test.txt; echo new > {project.root}/test.txt"
    stage = f"{{outputs: [o], shell: echo o > o, verify: {{inputs: [test.txt], steps: [{{shell: '{deed}'}}]}}}}"
    project.write(shell(f"  make: {stage}\n", {"test.txt": "old\n"}))
    green(project.build())
    assert project.plan() == {"make": "verify"}
    green(project.build())
    assert ends(project) == {"make": "verified"}
    assert project.plan() == {"make": "fresh"}


def test_a_file_that_a_model_edits_edited_during_the_call(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(
        pipeline(
            "  edit: {outputs: [app.py], llm: {prompt: p.md.j2, returns: files}}\n",
            {"app.py": "# mine\n", "p.md.j2": proposing("edit", {"app.py": "inputs['app.py'].text ~ '# more\\n'"})},
        )
    )
    during_the_call(monkeypatch, project, "app.py", "# meanwhile\n")
    stopped = project.build()
    assert stopped.code == 6
    assert "app.py" in stopped.err
    assert project.read("app.py") == "# meanwhile\n"
