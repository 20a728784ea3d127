"""What of the disk an interpreter needs."""

import os
from pathlib import Path

import pytest

from orch23.execute.sandbox import visible_paths
from orch23.execute.sandbox.bubblewrap import _check_program
from orch23.execute.sandbox.visible_paths import (
    SETTINGS_FILES,
    SYSTEM_FOLDERS,
    closed_in_system,
    interpreter_paths,
    readable_paths,
)


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return path


def environment(folder: Path, base: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    (folder / "bin/python").symlink_to(base)
    return folder / "bin/python"


def test_a_virtual_environment_and_its_base_are_seen(tmp_path: Path) -> None:
    base = program(tmp_path / "versions/3.11/bin/python3.11")
    python = environment(tmp_path / "project/.venv", base)
    assert interpreter_paths(python, (tmp_path / "project",)) == (
        tmp_path / "project/.venv",
        tmp_path / "versions/3.11",
    )


def test_links_between_folders_are_followed_and_kept(tmp_path: Path) -> None:
    base = program(tmp_path / "store/cpython-3.12.8/bin/python3.12")
    (tmp_path / "store/cpython-3.12").symlink_to("cpython-3.12.8")
    python = environment(tmp_path / "venv", tmp_path / "store/cpython-3.12/bin/python3.12")
    assert set(interpreter_paths(python, ())) == {
        tmp_path / "venv",
        tmp_path / "store/cpython-3.12",
        base.parent.parent,
    }


def test_of_a_prefix_that_holds_a_closed_place_only_the_interpreter_is_seen(tmp_path: Path) -> None:
    home = tmp_path / "me"
    python = program(home / "bin/python3")
    (home / "lib/python3.11").mkdir(parents=True)
    (home / ".ssh").mkdir()
    assert set(interpreter_paths(python, (home,))) == {python, home / "lib/python3.11"}


@pytest.mark.parametrize("other", ["share/keyrings/login", "state/notes", "app/config", "etc/token", "lib/app/data"])
def test_of_a_folder_of_the_users_that_holds_more_than_an_interpreter_only_that_is_seen(
    tmp_path: Path, other: str
) -> None:
    """Such as ~/.local, where programs of all kinds keep what they know."""
    python = program(tmp_path / "home/.local/bin/python3")
    (tmp_path / "home/.local/lib/python3.11").mkdir(parents=True)
    program(tmp_path / "home/.local" / other)
    seen = interpreter_paths(python, (tmp_path / "home",))
    assert set(seen) == {python, tmp_path / "home/.local/lib/python3.11"}


def test_where_other_things_come_later_no_more_is_seen_than_the_interpreter(tmp_path: Path) -> None:
    python = program(tmp_path / "home/.local/bin/python3")
    (tmp_path / "home/.local/lib/python3.11").mkdir(parents=True)
    assert interpreter_paths(python, (tmp_path / "home",)) == (tmp_path / "home/.local",)
    program(tmp_path / "home/.local/share/keyrings/login")
    assert set(interpreter_paths(python, (tmp_path / "home",))) == {python, tmp_path / "home/.local/lib/python3.11"}


@pytest.mark.parametrize("own", [(), ("conda-meta/history", "etc/conda/x", "ssl/cert.pem", "anything/else")])
def test_an_installation_of_its_own_in_the_home_is_seen_as_a_whole(tmp_path: Path, own: tuple[str, ...]) -> None:
    python = program(tmp_path / "home/.pyenv/versions/3.11.7/bin/python3.11")
    for name in (
        "lib/python3.11/os.py",
        "lib/libpython3.11.so.1.0",
        "lib/pkgconfig/python.pc",
        "include/python3.11/x.h",
    ):
        program(tmp_path / "home/.pyenv/versions/3.11.7" / name)
    program(tmp_path / "home/.pyenv/versions/3.11.7/share/man/man1/python.1")
    for name in own:
        program(tmp_path / "home/.pyenv/versions/3.11.7" / name)
    assert interpreter_paths(python, (tmp_path / "home",)) == (tmp_path / "home/.pyenv/versions/3.11.7",)


def test_a_link_to_an_interpreter_opens_its_installation_and_not_where_the_link_is(tmp_path: Path) -> None:
    python = program(tmp_path / "home/.local/share/uv/python/cpython-3.12/bin/python3.12")
    (tmp_path / "home/.local/bin").mkdir()
    link = tmp_path / "home/.local/bin/python3"
    link.symlink_to(python)
    assert set(interpreter_paths(link, (tmp_path / "home",))) == {link, python.parent.parent}


def test_a_closed_place_within_the_system_is_left_out_and_what_is_beside_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    system = tmp_path / "usr"
    project = system / "src/app"
    for name in ("bin/tool", "src/linux/version", "src/app/.env", "src/readme"):
        program(system / name)
    python = environment(project / ".venv", program(tmp_path / "opt/bin/python3"))
    (tmp_path / "link").symlink_to(project)
    monkeypatch.setattr(visible_paths, "SYSTEM_FOLDERS", (str(system),))
    readable_paths.cache_clear()
    request.addfinalizer(readable_paths.cache_clear)
    assert str(system) in readable_paths()
    for closed in (project, tmp_path / "link"):
        found = {path for path in readable_paths((closed,)) if path.startswith(str(system))}
        assert found == {f"{system}/bin", f"{system}/src/linux", f"{system}/src/readme"}
        assert closed_in_system((closed,)) == (str(project),)
        assert project / ".venv" in interpreter_paths(python, (closed,))
    assert closed_in_system((tmp_path, system)) == ()


def test_an_environment_that_was_created_again_is_read_again(tmp_path: Path) -> None:
    first, second = (program(tmp_path / f"versions/{name}/bin/python3") for name in ("3.11", "3.12"))
    python = environment(tmp_path / "venv", first)
    assert interpreter_paths(python, ()) == (tmp_path / "venv", tmp_path / "versions/3.11")
    python.unlink()
    python.symlink_to(second)
    (tmp_path / "venv/pyvenv.cfg").write_text(f"home = {second.parent}\n")
    assert interpreter_paths(python, ()) == (tmp_path / "venv", tmp_path / "versions/3.12")


def test_libraries_that_come_later_beside_an_interpreter_are_seen(tmp_path: Path) -> None:
    python = program(tmp_path / "me/bin/python3")
    (tmp_path / "me/lib").mkdir()
    assert interpreter_paths(python, (tmp_path / "me",)) == (python,)
    (tmp_path / "me/lib/python3.11").mkdir()
    assert set(interpreter_paths(python, (tmp_path / "me",))) == {python, tmp_path / "me/lib/python3.11"}


def test_what_is_readable_of_the_system_is_there_and_covers_all_its_folders() -> None:
    found = readable_paths()
    assert all(os.path.exists(path) for path in found)
    for path in SYSTEM_FOLDERS:
        if os.path.isdir(path):
            assert any(Path(path).resolve().is_relative_to(Path(one).resolve()) for one in found)
    assert {path for path in SETTINGS_FILES if os.path.exists(path)} <= set(found)


def test_what_the_system_has_is_not_named_again() -> None:
    assert interpreter_paths(Path("/usr/bin/python3"), ()) == ()


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/a").symlink_to("b")
    (tmp_path / "bin/b").symlink_to("a")
    assert interpreter_paths(tmp_path / "bin/a", ()) == (tmp_path,)


def test_programs_are_looked_for_as_a_shell_does(tmp_path: Path) -> None:
    program(tmp_path / "one/tool")
    (tmp_path / "plain").write_text("")
    _check_program("tool", f"/nowhere:{tmp_path}/one", tmp_path)
    _check_program("one/tool", "", tmp_path)
    for name, path in (("tool", "/nowhere"), ("./tool", ""), ("", "")):
        with pytest.raises(FileNotFoundError) if name else pytest.raises(OSError):
            _check_program(name, path, tmp_path)
    for name in ("./plain", "./one"):
        with pytest.raises(PermissionError):
            _check_program(name, "", tmp_path)
