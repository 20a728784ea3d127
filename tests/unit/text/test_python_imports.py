"""Which distributions a project depends on."""

import pytest

from orch23.model.parsing import MAX_TOML_KEY_PARTS
from orch23.text.python_imports import dependencies

TOO_DEEP = {
    "a key that the parser would read in quadratic time": f'{"a." * MAX_TOML_KEY_PARTS}dependencies = ["lib"]\n',
    "a key that is deeper than the stack": f'{"a." * 5000}dependencies = ["lib"]\n',
    "lists": f"dependencies = {'[' * 5000}{']' * 5000}\n",
}


@pytest.mark.parametrize("how", TOO_DEEP)
def test_a_file_that_is_too_deep_names_no_dependency(how: str) -> None:
    assert dependencies({"pyproject.toml": TOO_DEEP[how]}) == {}


def test_a_dependency_may_be_in_any_table() -> None:
    assert [*dependencies({"pyproject.toml": 'a.dependencies = ["lib"]\n'})] == ["lib"]


OWN = {
    "a group that is included": '[dependency-groups]\ncore = ["a"]\ndev = [{include-group = "app"}]\n',
    "a key of an inline table": '[tool.poetry.dependencies]\na = {app = "8", extras = ["app"]}\n',
    "a path of poetry": '[tool.poetry.dependencies]\na = "*"\napp = {path = "packages/app"}\n',
    "a member of a workspace": '[project]\ndependencies = ["a", "app"]\n[tool.uv.sources]\napp = {workspace = true}\n',
    "a path of uv": '[project]\ndependencies = ["a", "app"]\n[tool.uv.sources]\napp = [{path = "app"}]\n',
    "a group of settings": 'project.dependencies = ["a"]\n[tool.uv.dependency-groups]\napp = {requires-python = "3"}\n',
    "an extra in files": 'build-system.requires = ["a"]\n[tool.a.dynamic.optional-dependencies]\napp = {file = "b"}\n',
    "a path of an address": '[project]\ndependencies = ["a", "app[x] @ file:."]\n',
    "the name": '[project]\nname = "app"\ndependencies = ["a", "app[x]"]\n',
    "the name of poetry": '[tool.poetry]\nname = "app"\n[tool.poetry.dependencies]\na = [{version = "1"}]\napp = "*"\n',
}


@pytest.mark.parametrize("how", OWN)
def test_a_part_of_the_project_is_no_dependency(how: str) -> None:
    assert dependencies({"pyproject.toml": OWN[how]}) == {"a": "pyproject.toml"}


def test_the_project_is_no_dependency_in_another_file() -> None:
    lines = "a\napp\napp[dev] @ file:.\n-e .\n./app\napp/src\ngit+https://x/app\n"
    texts = {"pyproject.toml": '[project]\nname = "app"\n', "requirements.txt": lines}
    assert dependencies(texts) == {"a": "requirements.txt"}


OTHERS = {
    "setup.py": "setup(name='app', install_requires=['a', 'app'] + other, extras_require={'app': 'app[x]'})\n",
    "setup.cfg": "[metadata]\nname = app\n[options]\ninstall_requires = a\n[options.extras_require]\nb = app[x]\n",
    "Pipfile": 'requires.app = "3"\n[packages]\na = "*"\napp = {path = ".", editable = true}\n',
    "environment.yml": "name: app\nchannels: [app]\ndependencies:\n  - a\n  - app:\n    - -e .\n",
}


@pytest.mark.parametrize("path", OTHERS)
def test_other_files_name_what_is_required_alone(path: str) -> None:
    assert dependencies({path: OTHERS[path]}) == {"a": path}


@pytest.mark.parametrize("text", ["[[[", "(" * 5000, "a = [", "\0", "no section"])
@pytest.mark.parametrize("path", OTHERS)
def test_a_file_that_is_broken_names_no_dependency(path: str, text: str) -> None:
    assert dependencies({path: text}) == {}
