"""The pages whose commands are run print what they say."""

import re
import shutil
from pathlib import Path

import pytest

from orch23.load.pipeline import load_pipeline
from orch23.model.features import PROVIDERS
from orch23.model.pipeline import Stage
from orch23.providers.registry import ADAPTERS, step_errors
from orch23.steps.llm.spec import LLMStep
from tests.walkthrough import blocks, play

DOCS = Path(__file__).parents[2] / "docs"
# Page -> how many commands it has at least.
PAGES = {
    "../README.md": 9,
    "tutorial.md": 15,
    "command-protocol.md": 3,
    "metrics.md": 6,
    "approval.md": 9,
    "cookbook/agents.md": 3,
    "cookbook/ci.md": 6,
    "cookbook/monorepo.md": 6,
    "cookbook/big-files.md": 5,
    "cookbook/find-the-file.md": 5,
    "cookbook/bugs.md": 4,
    "cookbook/edits.md": 10,
    "cookbook/formatters.md": 5,
    "cookbook/known-failures.md": 4,
    "cookbook/c.md": 9,
    "cookbook/offline-packages.md": 3,
    "cookbook/secrets.md": 4,
}
# Page -> the feature that its commands use.
NEEDS = {
    "metrics.md": "metrics",
    "approval.md": "approval",
    "cookbook/ci.md": "exports",
    "cookbook/monorepo.md": "metrics",
    "cookbook/find-the-file.md": "explore",
    "cookbook/c.md": "depfiles",
    "cookbook/offline-packages.md": "tool_caches",
}


def marks_of(text: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a pipeline: it needs the features of its providers and keys."""
    used = sorted({place.partition(".")[0] for name, place in PROVIDERS.items() if f"provider: {name}" in text})
    used += ["depfiles"] if "    depfile: " in text else []
    return [pytest.mark.needs(*used)] if used else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[*marks_of((DOCS / name).read_text()), pytest.mark.needs(*NEEDS.get(name, "").split())]
        )
        for name in PAGES
    ],
)
def test_the_commands_of_a_page_print_what_it_says(name: str, tmp_path: Path) -> None:
    assert sum(len(block.commands()) for block in blocks(DOCS / name)) >= PAGES[name]
    if name == "cookbook/c.md" and shutil.which("gcc") is None:
        pytest.skip("this machine has no gcc")
    assert play(DOCS / name, tmp_path / "work") == []


PIPELINES = [
    pytest.param(page.relative_to(DOCS).as_posix(), block.path, block.body, marks=marks_of(block.body))
    for page in sorted([DOCS / "tutorial.md", *(DOCS / "cookbook").glob("*.md"), *(DOCS / "coming-from").glob("*.md")])
    for block in blocks(page)
    if block.language == "yaml" and block.body.startswith("version: 1\n")
]


@pytest.mark.parametrize(("page", "name", "text"), PIPELINES, ids=lambda value: value if "\n" not in value else "")
def test_every_pipeline_of_the_cookbook_and_of_the_comparisons_is_valid(
    page: str, name: str, text: str, tmp_path: Path
) -> None:
    for block in blocks(DOCS / page):  # what the pipeline names may be checked
        if block.path:
            (tmp_path / block.path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.path).write_text(block.body)
    file = tmp_path / name
    file.write_text(text)
    loaded = load_pipeline(file, tmp_path)
    assert loaded.warnings == (), page
    # What a provider refuses on any machine: settings that it does not have, addresses, models.
    steps = [one.step for one in loaded.pipeline.stages if isinstance(one, Stage) and isinstance(one.step, LLMStep)]
    assert [error for step in steps for error in step_errors(step, tmp_path)] == []


def test_each_provider_is_in_the_cookbook() -> None:
    used = {found for one in PIPELINES for found in re.findall(r"provider: (\w+)", str(one.values[2]))}
    assert used == set(ADAPTERS)


def test_each_file_of_a_page_is_named_before_it() -> None:
    pages = [
        DOCS / "tutorial.md",
        DOCS / "command-protocol.md",
        *DOCS.glob("cookbook/*.md"),
        *DOCS.glob("coming-from/*.md"),
    ]
    files = [(page, block) for page in pages for block in blocks(page) if block.path]
    assert len(files) > 30
    for page, block in files:
        before = (
            page.read_text()[: block.start].rpartition("\n")[0].rpartition("\n")[0]
        )  # without the line of the fence
        assert f"`{block.path}`" in before.rstrip("\n").rpartition("\n\n")[2], (page.name, block.path)
