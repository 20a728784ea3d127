"""Which objects installed distributions add, and which are refused."""

import sys

import pytest

from orch23.checks.registry import available_checks
from orch23.decide.machine_facts import executors_of
from orch23.language.schema import pipeline_schema
from orch23.load.pipeline import parse_pipeline
from orch23.model.errors import ConfigurationError
from orch23.model.plugins import plugin_folders, plugin_modules
from orch23.report.registry import format_of
from orch23.steps.registry import kinds_of
from tests.installed import Install

STEP = """\
from typing import ClassVar
from msgspec import Struct
from orch23.model.language import Document, Language
from orch23.model.step import Step

class Form(Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    '''A form.'''

LANGUAGE = Language(form=Form, description="Do nothing.", read=lambda document, at: MyStep())

class MyStep(Step, Struct, frozen=True, tag="KIND"):
    kind: ClassVar[str] = "KIND"
    language: ClassVar[str] = "{name}:LANGUAGE"
    run: ClassVar[str] = "{name}:RUN"
    show: ClassVar[str] = "{name}:show"
"""
PIPELINE = "version: 1\nplugins: [{name}]\nstages: {{a: {{shell: [touch, o], outputs: [o], inputs: []}}}}\n"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("inputs", "`inputs` is already a key of a stage; a step kind needs another name"),
        ("verify", "`verify` is already a key of a stage"),
        ("if", "`if` is already a key of a stage"),
        ("matrix", "`matrix` is already a key of a stage"),
        ("check", "`check` is already a key of a step of `verify`"),
        ("with", "`with` is already a key of a step of `verify`"),
        ("class", "a step kind needs a name of letters, digits and `_` that is not reserved"),
        ("exactly_one", "a step kind needs a name"),
        ("a-b", "a step kind needs a name"),
    ],
)
def test_a_kind_of_step_may_not_be_called_like_another_key(install: Install, kind: str, why: str) -> None:
    name = install(STEP.replace("KIND", kind), f"[orch23.steps]\n{kind} = {{name}}:MyStep\n")
    with pytest.raises(ConfigurationError) as raised:
        parse_pipeline(PIPELINE.format(name=name), "p.yaml")
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "E845"
    assert f"`{kind}` of the plugin {name} 1.0 (orch23.steps) cannot be used: {why}" in diagnostic.message
    assert diagnostic.hint == "report it to the author of the plugin, or remove it from `plugins`"
    with pytest.raises(ConfigurationError):
        pipeline_schema((name,))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("frozen=True, tag", "tag", "the class must be frozen"),
        (
            'tag="mine"',
            'tag="other"',
            r"its `kind` \(mine\), its tag \(other\) and the name of its entry point must be",
        ),
        ('run: ClassVar[str] = "{name}:RUN"', "", "its `run` must name a `module:attribute`"),
        ('"{name}:show"', '"show"', "its `show` must name a `module:attribute`"),
        ("class MyStep(Step, Struct", "class MyStep(Struct", "it must be a subclass of `Step` and of `msgspec.Struct`"),
        ("    kind:", "    asks_model = True\n    kind:", "only a subclass of `LLMStep` may have `asks_model`"),
        ("class MyStep(Step", "import nowhere\nclass MyStep(Step", "ModuleNotFoundError: No module named 'nowhere'"),
        ("class MyStep(Step", "raise SystemExit(3)\nclass MyStep(Step", "SystemExit: 3"),
    ],
)
def test_what_cannot_be_a_kind_of_step_is_refused_with_the_reason(
    install: Install, before: str, after: str, why: str
) -> None:
    code = STEP.replace("KIND", "mine")
    assert before in code
    name = install(code.replace(before, after), "[orch23.steps]\nmine = {name}:MyStep\n")
    kinds = kinds_of((name,))
    assert "mine" in kinds
    with pytest.raises(ConfigurationError, match=why):
        kinds["mine"]


def test_values_of_another_sort_are_refused(install: Install) -> None:
    groups = ("checks", "executors", "reports")
    name = install("FIVE = 5\n", "".join(f"[orch23.{group}]\nfive = {{name}}:FIVE\n" for group in groups))
    with pytest.raises(ConfigurationError, match="it must be a `Check`, and is 5"):
        available_checks((name,))["five"]
    with pytest.raises(ConfigurationError, match="it must be a function of `Surroundings`, but is 5"):
        executors_of((name,))["five"]
    with pytest.raises(ConfigurationError, match="it must be a `Format`, and is 5"):
        format_of("five", (name,))


def test_a_name_that_no_plugin_has_is_of_none(install: Install) -> None:
    name = install("", "[orch23.steps]\n")
    assert kinds_of((name,)).plugin_version("mine") == ""
    assert kinds_of((name,)).plugin_version("shell") == ""
    with pytest.raises(KeyError):
        kinds_of((name,))["mine"]


def test_the_folders_of_a_plugin_are_those_that_are_searched_for_it(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = install("", "[orch23.steps]\nmine = {name}.below:MyStep\n[console_scripts]\nx = other:main\n")
    assert plugin_folders((name,)) == (sys.path[0],)
    monkeypatch.setattr(sys, "path", ["/front", *sys.path])
    plugin_folders.cache_clear()
    assert plugin_folders((name,)) == ("/front", sys.path[1])
    assert plugin_modules((name, "not-installed")) == {name}
