"""git and copier as templates start them: merges, mirrors, and what is said when they fail."""

import os
import site
from pathlib import Path

import pytest

from orch23.execute.copier_runner import CopierCall, clone_bundle, clone_mirror, find_git, merge_texts, render_templates
from orch23.model.errors import ConfigurationError
from tests.template_repository import house

pytestmark = pytest.mark.slow  # each template is rendered in a process of its own

LABELS = ("yours", "template v1", "template v2")
TEN = b"".join(b"%d\n" % number for number in range(10))


def merged(folder: Path, mine: bytes, theirs: bytes, base: bytes = TEN):
    return merge_texts(LABELS, folder, find_git(os.environ), mine, base, theirs)


def test_edits_at_different_places_come_together(tmp_path: Path) -> None:
    text, lines = merged(tmp_path, TEN.replace(b"1\n", b"one\n"), TEN.replace(b"8\n", b"eight\n"))
    assert text == TEN.replace(b"1\n", b"one\n").replace(b"8\n", b"eight\n")
    assert lines == ()


def test_edits_at_one_place_are_both_there_between_marks(tmp_path: Path) -> None:
    mine = TEN.replace(b"1\n", b"one\n").replace(b"8\n", b"eight\n")
    text, numbers = merged(tmp_path, mine, TEN.replace(b"1\n", b"uno\n").replace(b"8\n", b"otto\n"))
    assert text is not None
    lines = text.splitlines()
    assert [lines[number - 1] for number in numbers] == [b"<<<<<<< yours"] * 2
    assert {b"one", b"uno", b"eight", b"otto", b">>>>>>> template v2"} <= set(lines)


def test_what_is_no_text_is_not_merged(tmp_path: Path) -> None:
    assert merged(tmp_path, b"\0mine", b"\0theirs", b"\0base") == (None, ())


def test_a_missing_repository_is_reported_with_the_message_of_git(tmp_path: Path) -> None:
    said = clone_mirror((tmp_path / "nothing").as_uri(), tmp_path / "mirror", os.environ)
    assert said is not None
    assert "nothing" in said


def test_a_program_is_no_protocol(tmp_path: Path) -> None:
    said = clone_mirror(f"ext::touch {tmp_path}/witness", tmp_path / "mirror", os.environ)
    assert said == "transport 'ext' not allowed"
    assert not (tmp_path / "witness").exists()


def test_rendering_sees_no_settings_of_the_user_and_writes_in_its_folder_only(tmp_path: Path) -> None:
    (tmp_path / "git").write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\n")
    (tmp_path / "git").chmod(0o755)
    users = {"ANTHROPIC_API_KEY": "x", "GIT_DIR": "x", "GIT_CONFIG_PARAMETERS": "x", "HOME": "/root", "TMPDIR": "/tmp"}
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert clone_bundle(tmp_path / "x.bundle", tmp_path / "mirror", {**users, "PATH": path, "TERM": "xterm"}) is None
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert seen.items() >= {"PATH": path, "TERM": "xterm", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}.items()
    assert seen["GIT_CONFIG_GLOBAL"] == "/dev/null"
    assert seen["GIT_ALLOW_PROTOCOL"] == "file"
    assert seen["COPIER_CACHE_DIR"].startswith(str(tmp_path))
    assert not {"ANTHROPIC_API_KEY", "GIT_DIR", "GIT_CONFIG_PARAMETERS"} & seen.keys()


def test_a_mirror_is_fetched_with_the_users_access_but_of_the_repository_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "git").write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\n")
    (tmp_path / "git").chmod(0o755)
    users = {"HOME": "/home/me", "SSH_AUTH_SOCK": "/run/agent", "GIT_DIR": "x", "GIT_INDEX_FILE": "x"}
    environ = {**users, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert clone_mirror("https://git.acme.example/t", tmp_path / "mirror", environ) is None
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert seen.items() >= {"HOME": "/home/me", "SSH_AUTH_SOCK": "/run/agent", "GIT_TERMINAL_PROMPT": "0"}.items()
    assert not {"GIT_DIR", "GIT_INDEX_FILE"} & seen.keys()


def test_git_is_looked_for_on_the_users_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="E482"):
        find_git({"PATH": str(tmp_path)})


def test_after_a_call_that_fails_no_other_is_made(tmp_path: Path) -> None:
    repository = house(tmp_path / "house")
    assert clone_mirror(repository.url, tmp_path / "mirror", os.environ) is None
    calls = [
        CopierCall(source=f"git+{repository.url}", destination=str(tmp_path / str(n)), answers_file=".a.yml", ref=ref)
        for n, ref in enumerate(("1.0", "9.9", "1.0"))
    ]
    done = render_templates(
        calls, mirrored=tmp_path / "mirror", url=repository.url, folder=tmp_path, environ=os.environ
    )
    assert [one.get("error") for one in done] == [None, "git"]
    assert done[0]["answers"] == {"name": "house", "word": "hello"}
    assert done[0]["unanswered"] == ["name", "word"]
    assert (tmp_path / "0/notes.md").read_text() == "one\n"
    assert not (tmp_path / "2").exists()


def test_a_child_that_dies_is_an_error_of_the_template(tmp_path: Path) -> None:
    (tmp_path / "results.json").mkdir()
    call = CopierCall(source="x", destination=str(tmp_path / "0"), answers_file=".a.yml")
    (done,) = render_templates([call], mirrored=tmp_path, url="x", folder=tmp_path, environ=os.environ)
    assert done["error"] == "broken"
    assert "IsADirectoryError" in done["message"]


def test_copier_is_found_where_the_users_own_packages_are_though_the_home_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").write_text(f"#!/bin/sh\nenv > {tmp_path}/seen\necho '[]' > {tmp_path}/results.json\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert render_templates([], mirrored=tmp_path, url="x", folder=tmp_path, environ=os.environ) == []
    seen = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines())
    assert (seen["HOME"], seen["PYTHONUSERBASE"]) == (str(tmp_path), site.getuserbase())


def test_a_template_without_an_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orch23.execute.copier_runner._TIMEOUT_S", 0.001)
    call = CopierCall(source="x", destination=str(tmp_path / "0"), answers_file=".a.yml")
    (done,) = render_templates([call], mirrored=tmp_path, url="x", folder=tmp_path, environ=os.environ)
    assert done == {"error": "broken", "message": "copier did not end within 0.001 s"}
    (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert clone_mirror("x", tmp_path / "mirror", environ) == "git did not end within 0.001 s"


@pytest.mark.parametrize(
    "answer", ['[{"error": "git", "error": "broken"}]', "[{}", '["x"]', '[{"answers": {"x": NaN}}]']
)
def test_a_result_that_is_not_strict_json_is_an_error_of_the_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    (tmp_path / "python").write_text(f"#!/bin/sh\necho '{answer}' > {tmp_path}/results.json\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    (done,) = render_templates([], mirrored=tmp_path, url="x", folder=tmp_path, environ=os.environ)
    assert done["error"] == "broken"
    assert done["message"].startswith("the result of copier is not valid JSON: ")
