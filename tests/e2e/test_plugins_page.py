"""The plugin of docs/plugins.md does what the page says."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.installed import Install
from tests.project import Project

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def install_it(install: Install) -> str:
    groups = tomllib.loads(blocks("toml")[0])["project"]["entry-points"]
    assert len(groups) == 5
    entries = "".join(
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in found.items())
        for group, found in groups.items()
    )
    code = "".join(blocks("python"))
    return install(code.replace("acme_tools", "{name}"), entries.replace("acme_tools", "{name}"))


@pytest.mark.slow
def test_the_pipeline_of_the_page_is_built_with_the_plugin_of_the_page(project: Project, install: Install) -> None:
    name = install_it(install)
    pipeline = blocks("yaml")[0].replace("acme-tools", name)
    project.write({"pipeline.yaml": pipeline, "summary.j2": "{{ inputs[0].text }}"})
    outcome = project.build("--output", "names")
    printed = f"title\nsummary\n2 built in {project.journals()[-1].stem}\n"
    assert (outcome.code, outcome.out) == (0, printed), outcome.err
    assert (project.read("title.txt"), project.read("summary.txt")) == ("HELLO", "polly says HELLO\n")
    assert "up to date" in project.build().err
    project.replace("pipeline.yaml", "text: hello", "text: bad or forbidden")
    outcome = project.build()
    assert outcome.code == 1
    assert "[ACME1]: `title.txt` has the word `FORBIDDEN`" in outcome.err
    project.replace("pipeline.yaml", "words: [FORBIDDEN]", "words: OTHER")
    assert "option `words` must be a list" in project.build().err
    project.replace("pipeline.yaml", "words: OTHER", "word: OTHER")
    assert "option `word` is not an option of this check" in project.build().err
    project.replace("pipeline.yaml", "word: OTHER", "words: []")
    reported = project.build().err
    assert "grep --quiet -- BAD title.txt" in reported
    assert "title.txt has the word BAD" in reported
    project.replace("pipeline.yaml", "text: bad or forbidden", "text: ' '")
    assert "error[ACME2]: `text` is empty" in project.run("validate").err
    assert project.run("help", "ACME1").out.startswith("ACME1: an output has a word that is not wanted\n")


def test_the_executor_of_the_page_runs_programs(project: Project, install: Install) -> None:
    name = install_it(install)
    stage = (
        "  a: {inputs: [in/x], outputs: [out/y], shell: [cp, in/x, out/y], verify: [{shell: [grep, good, out/y]}]}\n"
    )
    text = f"version: 1\nplugins: [{name}]\nexecutor: here\nstages:\n{stage}"
    project.write({"pipeline.yaml": text, "in/x": "good\n"})
    outcome = project.build()
    assert (outcome.code, project.read("out/y")) == (0, "good\n"), outcome.err
    project.edit("in/x", "bad\n")
    outcome = project.build()
    assert (outcome.code, "grep good out/y" in outcome.err) == (1, True), outcome.err
    project.replace("pipeline.yaml", "cp, in/x", "no-such-program, in/x")
    assert "could not be started" in project.build().err
