"""Tools of version managers in a home directory: found, shown read-only without anything else, part of the key."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_sandbox import chosen, tier
from tests.project import Project, scripted
from tests.repository import green, up_to_date

# Prints where it is, and a file beside it: the installation is there, not the program alone.
PROGRAM = '#!/bin/sh\necho {name} {version}\ncat "$(dirname "$0")/../lib/data" 2>/dev/null || true\n'
RUSTUP = Path.home() / ".rustup"
WITHOUT_TRUST = {"ORCH23_TRUST": "0"}


def install(project: Project, place: str, name: str, version: str = "1") -> Path:
    """Install a program below the home directory, with a library."""
    program = project.home / place / "bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(PROGRAM.format(name=name, version=version))
    program.chmod(0o755)
    (program.parent.parent / "lib").mkdir(exist_ok=True)
    (program.parent.parent / "lib/data").write_text("data\n")
    return program


def story(
    project: Project, *tools: Any, command: str = "", files: Mapping[str, str] | None = None, **more: Any
) -> None:
    stage = {"outputs": ["out.txt"], "tools": list(tools), "shell": command or f"{tools[0]} > out.txt", **more}
    project.write({**scripted({"use": stage}, {}), **(files or {})})


def path_of(*folders: Path) -> dict[str, str]:
    return {"PATH": ":".join((*map(str, folders), "/usr/bin", "/bin"))}


@pytest.fixture(params=["namespaces", "landlock"])
def _tier(request: pytest.FixtureRequest) -> Iterator[None]:
    with tier(chosen(request.param)):
        yield


@pytest.mark.parametrize(
    ("place", "name", "manager"),
    [
        (".nvm/versions/node/v22.1.0", "nodex", "nvm"),
        (".local/share/fnm/node-versions/v22.1.0/installation", "nodex", "fnm"),
        (".pyenv/versions/3.12.1", "pythonx", "pyenv"),
        (".local/share/mise/installs/go/1.22.3", "gox", "mise"),
        (".asdf/installs/nodejs/22.1.0", "nodex", "asdf"),
        (".sdkman/candidates/java/21-tem", "javax", "sdkman"),
        ("sdk/go1.22.3", "gox", "Go"),
        ("miniconda3/envs/sci", "gfortranx", "conda"),
        ("linuxbrew", "brewedx", "Homebrew"),
        (".local/share/uv/tools/linter", "linterx", "uv"),
        (".rustup/toolchains/stable-x86_64-unknown-linux-gnu", "cargox", "rustup"),
    ],
)
@pytest.mark.parametrize("is_on_path", [True, False])
@pytest.mark.usefixtures("_tier")
def test_a_tool_of_a_version_manager_runs(
    project: Project, place: str, name: str, manager: str, *, is_on_path: bool
) -> None:
    program = install(project, place, name)
    story(project, name)
    env = {**(path_of(program.parent) if is_on_path else path_of()), "HOMEBREW_PREFIX": f"{project.home}/linuxbrew"}
    green(project.build(env=env))
    assert project.read("out.txt") == f"{name} 1\ndata\n"
    project.edit("pipeline.yaml", project.read("pipeline.yaml").replace("> out.txt", ">  out.txt"))
    assert f"tool {name}: {program} ({manager})" in project.run("plan", env=env).out


@pytest.mark.usefixtures("_tier")
def test_a_tool_in_opt_runs(project: Project, tmp_path: Path) -> None:
    place = Path("/opt", f"orch23-test-{os.getpid()}-{tmp_path.name}")
    try:
        program = install(project, str(place), "toolx")
    except OSError:
        pytest.skip("this user cannot write in /opt")
    try:
        story(project, "toolx")
        green(project.build(env=path_of()))
        assert project.read("out.txt") == "toolx 1\ndata\n"
        # All users can read it: no consent.
        story(project, str(program), command="toolx  > out.txt")
        green(project.build(env=WITHOUT_TRUST))
    finally:
        shutil.rmtree(place)


@pytest.mark.usefixtures("_tier")
def test_a_program_of_a_profile_runs_where_the_profile_leads(project: Project) -> None:
    """Nix links a profile to its store, which steps see."""
    folder = Path(subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip())
    (project.home / ".nix-profile").mkdir(parents=True)
    (project.home / ".nix-profile/bin").symlink_to(folder)
    story(project, "git-var", command="git-var GIT_EDITOR > out.txt || true; command -v git-var > out.txt")
    green(project.build(env=path_of()))
    assert project.read("out.txt") == f"{folder}/git-var\n"


@pytest.mark.parametrize("folder", [".local/bin", "bin", ".cargo/bin", "go/bin"])
@pytest.mark.usefixtures("_tier")
def test_a_program_of_one_file_runs_and_its_directory_stays_hidden(project: Project, folder: str) -> None:
    program = install(project, Path(folder).parent.as_posix(), "toolx")
    (program.parent / "other").write_text("secret\n")
    story(project, "toolx", command=f"toolx > out.txt; cat {program.parent}/other >> out.txt || true")
    green(project.build(env=path_of(program.parent)))
    assert project.read("out.txt") == "toolx 1\n"


def test_a_link_in_the_home_directory_is_followed(project: Project) -> None:
    program = install(project, ".local/share/pipx/venvs/linter", "linterx")
    base = install(project, ".local/share/uv/python/cpython-3.12", "python3x")
    (program.parent.parent / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    program.write_text(f"#!{program.parent}/python\necho no\n")
    (program.parent / "python").symlink_to(base)
    link = project.home / ".local/bin/linterx"
    link.parent.mkdir(parents=True)
    link.symlink_to(program)
    story(project, "linterx")
    green(project.build(env=path_of(link.parent)))
    assert project.read("out.txt") == "python3x 1\n" + "data\n" * (base.parent / "../lib/data").is_file()


def test_a_shim_starts_the_default_version(project: Project) -> None:
    shim = install(project, ".pyenv/shims", "pythonx")
    shims = shim.parent.parent
    shim.rename(shims / "pythonx")
    install(project, ".pyenv/versions/3.11.2", "pythonx", "3.11")
    install(project, ".pyenv/versions/3.12.1", "pythonx", "3.12")
    (project.home / ".pyenv/version").write_text("3.11.2\n")
    story(project, "pythonx")
    green(project.build(env=path_of(shims)))
    assert "pythonx 3.11" in project.read("out.txt")


@pytest.mark.usefixtures("_tier")
def test_a_shim_as_the_program_of_a_model_starts_the_default_version(project: Project) -> None:
    shims = project.home / ".pyenv/shims"
    shims.mkdir(parents=True)
    (shims / "pythonx").write_text(f"#!/bin/sh\nexec {project.home}/.pyenv/libexec/pyenv exec pythonx\n")
    (shims / "pythonx").chmod(0o755)
    install(project, ".pyenv/versions/3.11.2", "pythonx", "3.11")
    llm = {"provider": "command", "model": "m", "command": ["pythonx"], "prompt": "ask.md.j2", "returns": "text"}
    stage = {"inputs": ["task.md"], "outputs": ["out.txt"], "llm": llm}
    pipeline = json.dumps({"version": 1, "stages": {"ask": stage}})
    project.write({"pipeline.yaml": pipeline, "ask.md.j2": "{{ inputs | blocks }}", "task.md": "x\n"})
    green(project.build(env={**path_of(shims), "ORCH23_TRUST": "1"}))
    assert project.read("out.txt") == "pythonx 3.11\ndata\n"


@pytest.mark.parametrize(
    ("place", "name", "file", "text"),
    [
        (".nvm/versions/node/v{}", "nodex", ".nvmrc", "v{}\n"),
        (".asdf/installs/nodejs/{}", "nodex", ".tool-versions", "ruby 3\nnodejs {} # pinned\n"),
        (".pyenv/versions/{}", "pythonx", ".python-version", "{}\n"),
        (".rustup/toolchains/{}-x86_64", "cargox", "rust-toolchain.toml", '[toolchain]\nchannel = "{}"\n'),
        (".rustup/toolchains/{}-x86_64", "cargox", "rust-toolchain", "{}\n"),
        (".local/share/mise/installs/node/{}", "nodex", "mise.toml", '[tools]\nnode = "{}"\n'),
        (".sdkman/candidates/java/{}-tem", "javax", ".sdkmanrc", "# Java\njava={}\n"),
        ("sdk/go{}", "gox", ".go-version", "{}\n"),
    ],
)
def test_a_toolchain_file_selects_the_version(project: Project, place: str, name: str, file: str, text: str) -> None:
    old, new = (install(project, place.format(f"{one}.1.0"), name, one) for one in ("20", "22"))
    story(project, name, files={file: text.format("20.1")})
    env = path_of(new.parent, old.parent)
    green(project.build(env=env))
    assert project.read("out.txt").startswith(f"{name} 20\n")
    up_to_date(project.build(env=env))
    project.edit(file, text.format("22.1.0"))
    green(project.build(env=env))
    assert project.read("out.txt").startswith(f"{name} 22\n")
    project.edit(file, text.format("18"))
    failed = project.build(env=env)
    assert failed.code != 0
    assert f"`{file}` names" in failed.err
    assert "20.1.0" in failed.err


@pytest.mark.parametrize(("text", "got"), [("lts/*", "20"), ("lts/old", "20"), ("node", "22"), ("system", "22")])
def test_a_name_of_nvm_leads_to_a_version(project: Project, text: str, got: str) -> None:
    old, new = (install(project, f".nvm/versions/node/v{one}.1.0", "nodex", one) for one in ("20", "22"))
    for name, leads in (("lts/*", "lts/old"), ("lts/old", "v20.1.0")):
        alias = project.home / ".nvm/alias" / name
        alias.parent.mkdir(parents=True, exist_ok=True)
        alias.write_text(f"{leads}\n")
    story(project, "nodex", files={".nvmrc": f"{text}\n"})
    green(project.build(env=path_of(new.parent, old.parent)))
    assert project.read("out.txt").startswith(f"nodex {got}\n")


def test_another_program_makes_the_stage_stale(project: Project) -> None:
    program = install(project, "bin/..", "toolx")
    story(project, "toolx")
    env = path_of(program.parent)
    green(project.build(env=env))
    up_to_date(project.build(env=env))
    program.write_text(program.read_text().replace("toolx 1", "toolx 2"))
    green(project.build(env=env))
    assert project.read("out.txt").startswith("toolx 2\n")


@pytest.mark.usefixtures("_tier")
def test_a_step_sees_the_installation_alone_and_cannot_write_it(project: Project) -> None:
    program = install(project, ".nvm/versions/node/v22.1.0", "nodex")
    root = program.parent.parent
    secrets = [
        *(root / one for one in ("etc/npmrc", "lib/.npmrc", "lib/node_modules/npm/.env", ".npmrc", "lib/id_rsa")),
        *(project.home / one for one in (".npmrc", ".ssh/id_ed25519", ".cargo/credentials.toml", ".aws/credentials")),
        *(project.home / one for one in (".netrc", ".nvm/alias/default", ".pypirc", ".docker/config.json")),
        install(project, ".nvm/versions/node/v20.1.0", "nodex"),
    ]
    for one in secrets:
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text("canary\n")
    (root / "lib/node_modules/npm/index.js").write_text("code\n")
    # `set -e` ignores `!`, so the output has what must not be there.
    tried = [f"cat {one} >> out.txt || true" for one in secrets]
    tried += [
        f"touch {root}/lib/new || true",
        f"echo x >> {program} || true",
        f"ls -A {project.home} >> out.txt || true",
    ]
    code = f"cat {root}/lib/node_modules/npm/index.js >> out.txt"
    story(project, "nodex", command="\n".join(("nodex > out.txt", code, *tried)))
    green(project.build(env=path_of(program.parent)))
    # Landlock does not list the home directory.
    assert project.read("out.txt").removesuffix(".nvm\n") == "nodex 1\ndata\ncode\n"
    assert not (root / "lib/new").exists()


@pytest.mark.parametrize(
    ("place", "name", "variables"),
    [
        (".sdkman/candidates/java/21-tem", "javax", {"JAVA_HOME": ""}),
        ("sdk/go1.22.3", "gox", {"GOROOT": ""}),
        (".nvm/versions/node/v22.1.0", "nodex", {"NODE_PATH": "/lib/node_modules"}),
    ],
)
def test_the_variables_of_a_language_are_set(
    project: Project, place: str, name: str, variables: Mapping[str, str]
) -> None:
    program = install(project, place, name)
    story(project, name, command=f"echo {' '.join(f'${one}' for one in variables)} > out.txt")
    green(project.build(env=path_of(program.parent)))
    assert project.read("out.txt").split() == [f"{program.parent.parent}{end}" for end in variables.values()]


def test_a_program_elsewhere_is_refused_with_its_place(project: Project) -> None:
    program = install(project, "opt/x", "toolx")
    story(project, "toolx")
    failed = project.build(env=path_of(program.parent))
    assert failed.code != 0
    assert f"error[E482]: the declared tool `toolx` was not found: {program} is not in" in failed.err
    assert "name it by its path, `~/opt/x/bin/toolx`" in failed.err


def test_a_missing_program_that_a_tool_would_be_is_proposed(project: Project) -> None:
    program = install(project, ".nvm/versions/node/v22.1.0", "nodex")
    project.write(scripted({"use": {"outputs": ["out.txt"], "shell": "nodex > out.txt"}}, {}))
    failed = project.build(env=path_of(program.parent))
    assert "+ tools: [..., nodex]" in failed.err
    story(project, "nodex")
    green(project.build(env=path_of(program.parent)))


@pytest.mark.skipif(not (RUSTUP / "toolchains").is_dir(), reason="rustup is not installed")
def test_cargo_of_rustup_tests_a_crate(project: Project) -> None:
    stage = {"inputs": ["Cargo.toml", "src/**"], "tools": ["cargo"], "shell": "cargo test", "scratch": ["target/"]}
    crate = '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n'
    project.write({**scripted({"test": {**stage, "outputs": ["Cargo.lock"]}}, {}), "Cargo.toml": crate})
    project.write({"src/lib.rs": "#[test]\nfn adds() { assert_eq!(1 + 1, 3); }\n"})
    env = {**path_of(), "RUSTUP_HOME": str(RUSTUP)}
    failed = project.build(env=env)
    assert (failed.code, "adds" in failed.err) == (1, True), failed.err
    project.edit("src/lib.rs", "#[test]\nfn adds() { assert_eq!(1 + 1, 2); }\n")
    green(project.build(env=env))


@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_a_toolchain_file_that_is_not_a_file_is_not_read(project: Project, kind: str) -> None:
    program, place = install(project, ".nvm/versions/node/v22.1.0", "nodex"), project.root / ".nvmrc"
    story(project, "nodex")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        (project.home / "other").write_text("20\n")
        place.symlink_to(project.home / "other")
    green(project.build(env=path_of(program.parent)))


# ---- versions ---------------------------------------------------------------------------------------


def versioned(name: str, version: str) -> dict[str, str]:
    return {"name": name, "version": version}


def test_the_first_place_with_the_version_is_used(project: Project) -> None:
    old, *_ = (install(project, f".nvm/versions/node/v{one}.1.0", "nodex", one) for one in ("20", "22", "24"))
    env = path_of(old.parent)
    for wanted, got in (("<24", "20"), ("^22", "22"), (">=23", "24"), ("24.1.x", "24"), (">20.1, <23", "22")):
        story(project, versioned("nodex", wanted), command=f"nodex > out.txt # {wanted}")
        green(project.build(env=env))
        assert project.read("out.txt").startswith(f"nodex {got}\n"), wanted
    # The range is not in the key.
    story(project, versioned("nodex", "~22.1"), command=f"nodex > out.txt # {wanted}")
    up_to_date(project.build(env=env))


def test_a_version_comes_before_a_program_of_the_system(project: Project) -> None:
    install(project, ".nvm/versions/node/v99.0.0", "sed", "99")
    story(project, versioned("sed", ">=99"), command="sed > out.txt")
    green(project.build(env=path_of()))
    assert project.read("out.txt").startswith("sed 99\n")


def test_no_stage_runs_if_a_version_does_not_hold(project: Project) -> None:
    program = install(project, ".nvm/versions/node/v20.1.0", "nodex")
    install(project, ".", "toolx")
    tools = {"nodex": ">=22", "toolx": "1", "nonex": "1"}
    stages = {
        one: {"inputs": ["a.txt"], "outputs": [one], "tools": [versioned(one, tools[one])], "shell": f"{one} > {one}"}
        for one in tools
    }
    stages["ask"] = {"outputs": ["a.txt"], "llm": {"prompt": "p.j2", "returns": "text"}}
    project.write({**scripted(stages, {"ask": ["hi"]}), "p.j2": "say", ".nvmrc": "20\n"})
    for command in ("build", "plan"):
        failed = project.run(command, env=path_of())
        assert failed.code == 78, failed.err
        assert f"must have version >=22: {program} has 20.1.0 (`.nvmrc` selects it)" in failed.err
        assert f"must have version 1: {project.home}/bin/toolx has a version that no file states" in failed.err
        assert "`nonex` was not found" in failed.err
    assert not project.exists("a.txt")


def test_a_program_beside_the_interpreter_cannot_be_replaced(project: Project) -> None:
    install(project, ".pyenv/versions/99.0.0", "python3")
    story(project, versioned("python3", ">=99"), command="python3 > out.txt")
    failed = project.build(env=path_of())
    assert failed.code == 78
    assert "is beside the interpreter, and comes first on PATH, before" in failed.err


def test_a_toolchain_file_beside_a_stage_comes_first(project: Project) -> None:
    for version in ("20", "22"):
        install(project, f".nvm/versions/node/v{version}.1.0", "nodex", version)
    inner = {"cwd": "web", "outputs": ["web/out.txt"]}
    story(project, "nodex", command="nodex > out.txt", files={".nvmrc": "20", "web/.nvmrc": "22"}, **inner)
    green(project.build(env=path_of()))
    assert project.read("web/out.txt").startswith("nodex 22\n")
    (project.root / "web/.nvmrc").unlink()
    green(project.build(env=path_of()))
    assert project.read("web/out.txt").startswith("nodex 20\n")


@pytest.mark.parametrize("network", [False, True])
def test_cargo_is_offline_where_the_step_is(project: Project, *, network: bool) -> None:
    install(project, ".rustup/toolchains/stable-x86_64", "cargox")
    story(project, "cargox", command="echo ${CARGO_NET_OFFLINE-unset} > out.txt", network=network)
    green(project.build(env=path_of()))
    assert project.read("out.txt") == ("unset\n" if network else "true\n")


def test_a_script_of_another_version_of_its_library_makes_the_stage_stale(project: Project) -> None:
    program = install(project, ".local/share/pipx/venvs/linter", "linterx")
    packages = program.parent.parent / "lib/python3.12/site-packages"
    (packages / "linterx-1.0.dist-info").mkdir(parents=True)
    story(project, "linterx")
    green(project.build(env=path_of()))
    up_to_date(project.build(env=path_of()))
    (packages / "linterx-1.0.dist-info").rename(packages / "linterx-1.1.dist-info")
    assert project.plan(env=path_of()) != {"use": "skip"}


# ---- paths ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_tier")
def test_a_path_needs_consent_and_shows_one_file(project: Project) -> None:
    program = install(project, "opt/x", "toolx")
    (program.parent / "real").write_text(program.read_text())
    (program.parent / "real").chmod(0o755)
    program.unlink()
    program.symlink_to("real")
    (program.parent / "other").write_text("secret\n")
    command = f"toolx > out.txt; cat {program.parent}/other >> out.txt || true"
    first = {"outputs": ["first.txt"], "shell": "echo > first.txt"}
    use = {"inputs": ["first.txt"], "outputs": ["out.txt"], "tools": ["~/opt/x/bin/toolx"], "shell": command}
    project.write(scripted({"first": first, "use": use}, {}))
    assert f"tool toolx: {program} ({program.parent}/real)" in project.run("plan", env=WITHOUT_TRUST).out
    refused = project.build(env=WITHOUT_TRUST)
    assert (refused.code, project.exists("first.txt")) == (77, False), refused.err
    assert "you have not allowed this project to show its steps the program ~/opt/x/bin/toolx" in refused.err
    assert "show its steps the program ~/opt/x/bin/toolx" in project.run("trust", env=WITHOUT_TRUST).out
    green(project.build(env=WITHOUT_TRUST))
    assert project.read("out.txt") == "toolx 1\n"
    project.run("trust", "--revoke")
    up_to_date(project.build(env=WITHOUT_TRUST))
    (program.parent / "real").write_text(PROGRAM.format(name="toolx", version="2"))
    assert project.build(env=WITHOUT_TRUST).code == 77


def test_items_of_a_list_that_a_stage_makes_need_consent_too(project: Project) -> None:
    install(project, "opt/x", "toolx")
    each = {"outputs": ["${{ item }}.txt"], "tools": ["~/opt/x/bin/toolx"], "shell": "toolx > toolx.txt"}
    stages: dict[str, Any] = {
        "list": {"outputs": ["list.json"], "shell": "echo '[\"toolx\"]' > list.json"},
        "each": {"foreach": {"from": "list.json"}, **each},
    }
    project.write(scripted(stages, {}))
    refused = project.build(env=WITHOUT_TRUST)
    assert refused.code == 77, refused.err
    assert "the program ~/opt/x/bin/toolx" in refused.err
    assert not project.exists("toolx.txt")
    assert "the program ~/opt/x/bin/toolx" in project.run("trust", env=WITHOUT_TRUST).out
    green(project.build(env=WITHOUT_TRUST))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("~/opt/none", "is not a program"),
        ("~/.ssh/id_rsa", "is not shown to steps"),
        ("~/opt/key", "is not shown to steps"),
        ("{root}/own", "is in the project"),
        ("~/opt/own", "is in the project"),
        ("/usr/../root/x", "has `.`, `..`"),
        ("./own", "outside of the project"),
    ],
)
def test_a_path_that_steps_may_not_see_is_refused(project: Project, path: str, why: str) -> None:
    for place in (project.home / ".ssh/id_rsa", project.root / "own"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(PROGRAM)
        place.chmod(0o755)
    (project.home / "opt").mkdir()
    (project.home / "opt/key").symlink_to(project.home / ".ssh/id_rsa")
    (project.home / "opt/own").symlink_to(project.root / "own")
    story(project, path.format(root=project.root), command="true > out.txt")
    failed = project.build(env=path_of())
    assert failed.code in {65, 78}, failed.err
    assert why in failed.err


def test_a_stage_with_such_a_tool_is_not_in_a_shared_cache(project: Project, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    program = install(project, ".nvm/versions/node/v99.0.0", "sed")
    why: list[dict[str, list[str]]] = []
    for tool in ("sed", versioned("sed", ">=99")):
        story(project, tool, command="sed --version > out.txt")
        planned = project.run("plan", "--json", "--cache", str(tmp_path / "cache"), env=path_of()).json()
        why.append(planned["not_shared"])
    assert not why[0]
    assert str(program) in why[1]["use"][0]


def test_a_failed_job_with_a_tool_in_the_home_directory_builds_with_tools(project: Project) -> None:
    """~/bin, as version managers use it: four responses were paid for, and only `sandbox: off` helped."""
    program = install(project, "bin/..", "mytest")
    model = {"outputs": ["a.txt"], "llm": {"prompt": "p.j2", "returns": "text"}, "verify": [{"shell": "mytest"}]}
    project.write({**scripted({"code": {**model, "tools": ["mytest"]}}, {"code": ["one"]}), "p.j2": "say"})
    green(project.build(env=path_of(program.parent)))
    assert project.read("a.txt") == "one\n"


def test_an_environment_on_path_comes_before_its_base(project: Project) -> None:
    install(project, "miniconda3", "pythonx", "base")
    program = install(project, "miniconda3/envs/sci", "pythonx", "sci")
    story(project, "pythonx")
    green(project.build(env=path_of(program.parent)))
    assert project.read("out.txt").startswith("pythonx sci\n")


def test_the_default_of_a_manager_comes_before_a_newer_version(project: Project) -> None:
    for version in ("20", "22"):
        install(project, f".nvm/versions/node/v{version}.1.0", "nodex", version)
    (project.home / ".nvm/alias/lts").mkdir(parents=True)
    (project.home / ".nvm/alias/default").write_text("lts/old\n")
    (project.home / ".nvm/alias/lts/old").write_text("v20.1.0\n")
    story(project, "nodex")
    green(project.build(env=path_of()))
    assert project.read("out.txt").startswith("nodex 20\n")


@pytest.mark.parametrize("tool", ["toolx", {"name": "toolx", "version": "2"}])
def test_commands_that_only_look_need_no_tool(project: Project, tool: Any) -> None:
    program = install(project, ".local", "toolx")
    story(project, tool if isinstance(tool, str) else "toolx")
    green(project.build(env=path_of(program.parent)))
    program.unlink()
    story(project, tool, command="toolx > out.txt")
    for command in (("show", "use", "--key"), ("show", "use", "--diff"), ("explain", "use"), ("status",), ("log",)):
        looked = project.run(*command, env=path_of())
        assert looked.code == 0, (command, looked.err)
    assert re.search("toolx changed: .* -> missing", project.run("status", env=path_of()).out)
    assert "error[E482]" in project.run("plan", env=path_of()).err


def test_environments_with_the_same_python_are_different_tools(project: Project) -> None:
    """As pyenv-virtualenv and conda make them: the program of each is the same file."""
    real = install(project, ".pyenv/versions/3.12.1", "realx")
    shutil.copy("/bin/true", real)
    names = ("one", "two", "three")
    for name in names:
        program = project.home / f".pyenv/versions/{name}/bin/pythonx"
        program.parent.mkdir(parents=True)
        program.symlink_to(real)
    stages = {
        name: {
            "cwd": name,
            "outputs": [f"{name}/out.txt"],
            "tools": ["pythonx"],
            "shell": "command -v pythonx > out.txt",
        }
        for name in names[:2]
    }
    project.write({**scripted(stages, {}), "one/.python-version": "one\n", "two/.python-version": "two\n"})
    green(project.build(env=path_of()))
    for name in names[:2]:
        assert project.read(f"{name}/out.txt") == f"{project.home}/.pyenv/versions/{name}/bin/pythonx\n"
    project.edit("one/.python-version", "three\n")
    green(project.build(env=path_of()))
    assert "versions/three/" in project.read("one/out.txt")


def test_stages_get_the_places_that_they_name_of_programs_with_the_same_bytes(project: Project) -> None:
    places = {
        "old": ".nvm/versions/node/v20.1.0",
        "new": ".nvm/versions/node/v22.1.0",
        "one": "opt/one",
        "two": "opt/two",
    }
    stages: dict[str, Any] = {}
    for name, place in places.items():
        shutil.copy("/bin/true", install(project, place, "nodex"))
        own: dict[str, Any] = {"tools": [f"~/{place}/bin/nodex"]}
        if place.startswith(".nvm"):
            own = {"cwd": name, "tools": [versioned("nodex", ">=20")]}
        output = f"{own.get('cwd', '.')}/{name}.txt".removeprefix("./")
        stages[name] = {**own, "outputs": [output], "shell": f"command -v nodex > {name}.txt"}
    project.write({**scripted(stages, {}), "old/.nvmrc": "20\n", "new/.nvmrc": "22\n"})
    green(project.build(env={**path_of(), "ORCH23_TRUST": "1"}))
    for name, stage in stages.items():
        assert project.read(stage["outputs"][0]) == f"{project.home}/{places[name]}/bin/nodex\n"


@pytest.mark.parametrize(
    ("variable", "place"), [("UV_TOOL_DIR", "tools/linter"), ("UV_PYTHON_INSTALL_DIR", "pythons/cpython-3.12")]
)
def test_a_moved_folder_of_uv_is_searched(project: Project, variable: str, place: str) -> None:
    install(project, place, "linterx")
    story(project, "linterx")
    green(project.build(env={**path_of(), variable: str((project.home / place).parent)}))
    assert project.read("out.txt").startswith("linterx 1\n")


def test_a_link_to_itself_on_path_is_no_program(project: Project) -> None:
    install(project, ".nvm/versions/node/v22.1.0", "nodex")
    (project.home / "loop").mkdir()
    (project.home / "loop/nodex").symlink_to("nodex")
    story(project, "nodex")
    green(project.build(env=path_of(project.home / "loop")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter each folder")
def test_folders_that_are_closed_to_the_user_are_passed_over(project: Project) -> None:
    install(project, ".nvm/versions/node/v22.1.0", "nodex")
    closed = [install(project, one, "nodex").parent for one in (".nvm/versions/node/v24.1.0", "other")]
    story(project, "nodex")
    try:
        for folder in closed:
            folder.parent.chmod(0)
        green(project.build(env=path_of(closed[1])))
    finally:
        for folder in closed:
            folder.parent.chmod(0o755)


@pytest.mark.parametrize(("file", "text"), [("mise.toml", "a = " + "[" * 100_000), ("mise.toml", "a")])
def test_a_toolchain_file_that_cannot_be_parsed_selects_nothing(project: Project, file: str, text: str) -> None:
    install(project, ".nvm/versions/node/v22.1.0", "nodex")
    story(project, "nodex", files={file: text})
    green(project.build(env=path_of()))


@pytest.mark.parametrize("folder", [".local", "."])
@pytest.mark.usefixtures("_tier")
def test_the_directory_of_a_base_that_is_no_installation_stays_hidden(project: Project, folder: str) -> None:
    """`uv python install` links ~/.local/bin/python3.12, and a virtual environment of it has `home = ~/.local/bin`."""
    program = install(project, ".local/share/pipx/venvs/linter", "linterx")
    base = install(project, folder, "python3x")
    (program.parent.parent / "pyvenv.cfg").write_text(f"home = {base.parent}\n")
    (program.parent / "python").symlink_to(base)
    private = [base.parent.parent / one for one in ("share/private", "src/private", "lib/private", "bin/private")]
    for one in private:
        one.parent.mkdir(parents=True, exist_ok=True)
        one.write_text("canary\n")
    tried = "".join(f"cat {one} >> out.txt || true\n" for one in private)
    story(project, "linterx", command=f"linterx > out.txt\n{program.parent}/python >> out.txt\n{tried}")
    green(project.build(env=path_of(program.parent)))
    assert project.read("out.txt") == "linterx 1\ndata\npython3x 1\ndata\n"


def test_a_project_is_no_installation(project: Project) -> None:
    install(project, str(project.root), "toolx")
    story(project, "toolx")
    failed = project.build(env={**path_of(), "HOMEBREW_PREFIX": str(project.root)})
    assert "the declared tool `toolx` was not found" in failed.err


def test_the_version_of_python_says_nothing_about_other_programs_of_conda(project: Project) -> None:
    install(project, "miniconda3/envs/sci", "gfortranx")
    story(project, "gfortranx", files={".python-version": "3.12\n"})
    green(project.build(env=path_of()))
    assert project.read("out.txt").startswith("gfortranx 1\n")
