"""What a name, a URL or a path means."""

from pathlib import Path

import pytest

from orch23.features.templates.rendering import find_source
from orch23.model.errors import NotFoundError


def test_a_name_or_its_address_is_a_built_in_template(tmp_path: Path) -> None:
    named = find_source("quickstart", tmp_path)
    assert named.bundle is not None
    assert named.bundle.is_file()
    assert find_source(named.address, tmp_path) == named
    assert named.answers_file == ".orch23-quickstart.answers.yml"


@pytest.mark.parametrize(
    ("given", "name", "address", "url"),
    [
        ("gh:acme/tool", "tool", "https://github.com/acme/tool.git", "https://github.com/acme/tool.git"),
        (
            "gl:acme/sub/tool.git",
            "tool",
            "https://gitlab.com/acme/sub/tool.git",
            "https://gitlab.com/acme/sub/tool.git",
        ),
        ("https://git.acme.example/a/t", "t", "git+https://git.acme.example/a/t", "https://git.acme.example/a/t"),
        ("git+https://acme.example/t", "t", "git+https://acme.example/t", "https://acme.example/t"),
        ("git@acme.example:a/t.git", "t", "git@acme.example:a/t.git", "git@acme.example:a/t.git"),
        (
            "ssh://git@acme.example/a/my%20t",
            "my-20t",
            "git+ssh://git@acme.example/a/my%20t",
            "ssh://git@acme.example/a/my%20t",
        ),
        ("file:///srv/t.git", "t", "file:///srv/t.git", "file:///srv/t.git"),
    ],
)
def test_a_url_is_valid_for_git_and_copier(tmp_path: Path, given, name, address, url) -> None:
    source = find_source(given, tmp_path)
    assert (source.name, source.address, source.url, source.bundle) == (name, address, url, None)


def test_a_path_becomes_a_url(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    assert find_source("./t", tmp_path).url == (tmp_path / "t").as_uri()


@pytest.mark.parametrize(
    "given", ["nothing", "./nothing", "https://orch23.invalid/templates/gone.git", "", "-x", "ext::sh -c x", "t"]
)
def test_an_unknown_name_is_refused(tmp_path: Path, given: str) -> None:
    (tmp_path / "t").mkdir()
    with pytest.raises(NotFoundError, match="E671"):
        find_source(given, tmp_path)


def test_a_url_with_a_password_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="E672") as refused:
        find_source("https://me:hunter2@acme.example/t.git", tmp_path)
    assert "hunter2" not in str(refused.value)
