"""What a clone may run and where it may send a key: nothing that the user has not allowed, as it is now."""

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.pipelines import green, shell
from tests.e2e.test_asked import on_a_terminal
from tests.openai_server import OpenAIServer, chat
from tests.project import Outcome, Project, confined
from tests.template_repository import TemplateRepository

pytestmark = pytest.mark.slow

HERE = Path(__file__).parents[2]
ASK = "import sys; sys.stdin.read(); print('answer')\n"
STAGES = """\
  first: {outputs: [f.txt], shell: echo f > f.txt}
  ask: {outputs: [a.txt], llm: {provider: command, command: [python3, ask.py], model: m, prompt: p.j2, returns: text}}
"""
KEY = {"OPENAI_API_KEY": "sk-of-the-user-0123456789"}


@pytest.fixture
def clone(tmp_path: Path) -> Project:
    """Give a clone whose second stage asks a program."""
    return confined(tmp_path / "clone").write(shell(STAGES, {"ask.py": ASK, "p.j2": "say"}))


def refused(outcome: Outcome, *what: str) -> str:
    """Hold a build to have ended for missing consent; return the command that it says."""
    assert outcome.code == 77, outcome.err
    assert "E426" in outcome.err
    for one in what:
        assert one in outcome.err, outcome.err
    command = re.search(r"run `(orch23 [^`]*)`", outcome.err)
    assert command is not None
    return command[1]


def allow(project: Project, *argv: str) -> str:
    outcome = project.run("trust", *argv)
    assert outcome.code == 0, outcome.err
    return outcome.out


def kept(project: Project) -> list[Path]:
    return sorted((project.home / ".local" / "state" / "orch23").rglob("*.json"))


# ---- the shared cache -------------------------------------------------------------------------------


def test_trust_lists_the_shared_cache_that_a_pipeline_names(tmp_path: Path) -> None:
    text = shell("  a: {outputs: [a.txt], shell: echo a > a.txt}\n")["pipeline.yaml"]
    project = confined(tmp_path / "clone").write({"pipeline.yaml": text})
    assert "needs no consent" in allow(project)
    project.write({"pipeline.yaml": f"{text}cache: {{url: 'file:///srv/cache/'}}\n"})
    assert "use results of the shared cache /srv/cache\n" in allow(project)
    project.write({"pipeline.yaml": f"{text}cache: {{url: 'https://cache.example.org/x'}}\n"})
    helped = project.run("trust", env={"ORCH23_CACHE_CREDENTIAL_HELPER": "helper", "ORCH23_CACHE_URL": "/mine"})
    project.write({"pipeline.yaml": f"{text}cache: {{url: 'https://cache.example.org/x', mode: read-write}}\n"})
    assert "https://cache.example.org/x, and store results there\n" in allow(project)
    project.write({"pipeline.yaml": f"{text}cache: {{url: 'https://cache.example.org/x'}}\n"})
    wanted = "use results of the shared cache https://cache.example.org/x with ORCH23_CACHE_CREDENTIAL_HELPER\n"
    assert wanted in helped.out
    project.write({"pipeline.yaml": f"{text}cache: {{mode: off, url: /srv/cache}}\n"})
    assert "needs no consent" in allow(project)


# ---- programs ---------------------------------------------------------------------------------------


def test_the_first_build_of_a_clone_runs_nothing_and_prints_what_allows_it(clone: Project) -> None:
    command = refused(clone.build(), "pipeline.yaml:5:", "run `python3 ask.py`")
    assert not clone.exists("f.txt"), "no stage was started"
    assert not clone.exists("logs")
    program, *argv = shlex.split(command)
    assert program == "orch23"
    allowed = clone.run(*argv)
    assert allowed.code == 0
    assert "run `python3 ask.py`\n    from ask.py\n" in allowed.out
    green(clone.build())
    assert clone.read("a.txt") == "answer\n"


CHANGES = {
    "the program's file": ("ask.py", "answer", "another"),
    "an argument": ("pipeline.yaml", "ask.py]", "ask.py, x]"),
    "a variable": ("pipeline.yaml", "ask.py]", "ask.py], pass_env: [OPENAI_API_KEY]"),
    "the network": ("pipeline.yaml", "ask.py]", "ask.py], network: true"),
    "a path": ("pipeline.yaml", "ask.py]", "ask.py], read: [~/.ssh]"),
}


@pytest.mark.stride(4)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_was_allowed_asks_again(clone: Project, change: str) -> None:
    allow(clone)
    green(clone.build())
    path, old, new = CHANGES[change]
    clone.replace(path, old, new)
    refused(clone.build("--resample", "ask"))
    allow(clone)
    green(clone.build("--resample", "ask"))


def test_what_is_allowed_is_of_one_folder_and_of_one_user(clone: Project, tmp_path: Path) -> None:
    allow(clone)
    other = confined(tmp_path / "other")
    shutil.copytree(clone.root, other.root, dirs_exist_ok=True)
    refused(other.build())
    elsewhere = {"HOME": str(tmp_path / "another-home")}
    refused(clone.build(env=elsewhere))
    green(clone.build())


def test_revoked_is_revoked(clone: Project) -> None:
    allow(clone)
    allow(clone, "--revoke")
    refused(clone.build())


def test_what_runs_and_sends_nothing_asks_for_nothing(clone: Project) -> None:
    for argv in (["plan"], ["status"], ["explain", "ask"], ["validate"], ["graph"], ["doctor"], ["build", "first"]):
        assert clone.run(*argv).code == 0
    allow(clone)
    green(clone.build())
    allow(clone, "--revoke")
    green(clone.build())
    clone.delete("a.txt")
    green(clone.build())
    clone.delete("a.txt")
    green(clone.build("--force", "ask"))
    green(clone.build("--replay", "--force", "ask"))
    refused(clone.build("--resample", "ask"))


def test_the_variable_allows_for_one_process_and_keeps_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path / "p").write(shell(STAGES, {"ask.py": ASK, "p.j2": "say"}))
    before = kept(project)  # other tests of the process use the same state directory
    green(project.build())
    assert kept(project) == before
    refused(project.build("--resample", "ask", env={"ORCH23_TRUST": "0"}))


def test_no_pipeline_gives_missing_consent_another_number(clone: Project) -> None:
    clone.replace("pipeline.yaml", "name: story\n", "name: story\nexit_codes: {E4: 1, E426: 3}\n")
    assert clone.build().code == 77


def test_grants_that_come_with_the_project_count_for_nothing(clone: Project) -> None:
    inside = {"XDG_STATE_HOME": str(clone.root / "state")}
    assert clone.run("trust", env=inside).code == 78
    allow(clone)
    (grants,) = kept(clone)
    (clone.root / "state" / "orch23" / "grants").mkdir(parents=True)
    shutil.copy(grants, clone.root / "state" / "orch23" / "grants")
    assert clone.build(env=inside).code == 77


@pytest.mark.stride(3)
@pytest.mark.parametrize("what", ["damaged", "writable by others", "a link", "another's"])
def test_a_file_of_grants_that_others_may_have_written_counts_for_nothing(clone: Project, what: str) -> None:
    allow(clone)
    (grants,) = kept(clone)
    assert grants.stat().st_mode & 0o077 == 0
    if what == "damaged":
        grants.write_text(grants.read_text()[:-4])
    elif what == "writable by others":
        grants.chmod(0o662)
    elif what == "a link":
        grants.rename(grants.with_suffix(".moved"))
        grants.symlink_to(grants.with_suffix(".moved"))
    elif os.geteuid() == 0:
        os.chown(grants, 65534, 65534)
    else:
        pytest.skip("only root can give a file away")
    refused(clone.build())
    green_after = clone.run("trust")
    assert green_after.code == 0, green_after.err
    green(clone.build())


def test_a_program_that_the_build_itself_makes_is_asked_about_when_it_is_there(clone: Project) -> None:
    clone.delete("ask.py")
    make = "  first: {outputs: [ask.py], shell: 'echo \"print(4)\" > ask.py'}"
    clone.replace("pipeline.yaml", "  first: {outputs: [f.txt], shell: echo f > f.txt}", make)
    clone.replace("pipeline.yaml", "  ask: {outputs", "  ask: {inputs: [ask.py], outputs")
    allow(clone)
    last = "  last: {needs: [ask], outputs: [l.txt], shell: echo > l.txt}\n"
    clone.edit("pipeline.yaml", clone.read("pipeline.yaml") + last)
    stopped = clone.build()
    refused(stopped)
    assert clone.exists("ask.py"), "what came before is done"
    (ended,) = clone.events_of("run_finished")
    assert (ended["data"]["status"], ended["data"]["exit_code"]) == ("failed", 77)
    ends = {one["role"]: one["data"]["status"] for one in clone.events_of("stage_finished")}
    assert ends == {"first": "built", "ask": "failed", "last": "blocked"}
    assert clone.run("runs", "--json").json()["runs"][0]["status"] == "failed"
    allow(clone)
    green(clone.build())
    assert clone.read("a.txt") == "4\n"


def test_the_sandbox_of_a_program_holds_whatever_it_was_allowed(clone: Project) -> None:
    """An agent that edits the project, as it may do without orch23, and fails."""
    clone.write({"src/calc.py": "x = 1\n"})
    agent = f"import sys\nfor name in ('src/calc.py', 'new.txt'):\n    open({str(clone.root)!r} + '/' + name, 'a')\n"
    clone.edit("ask.py", agent)
    allow(clone)
    before = clone.files("src")
    outcome = clone.build()
    assert outcome.code == 5
    assert "Error" in outcome.err
    assert clone.files("src") == before
    assert not clone.exists("new.txt")


@pytest.mark.usefixtures("steps_reach_outside")
def test_without_a_sandbox_a_changed_file_is_a_violation_with_the_programs_name(clone: Project) -> None:
    clone.write({"src/calc.py": "x = 1\n"})
    clone.edit("ask.py", f"{ASK}open({str(clone.root)!r} + '/src/calc.py', 'a').write('#')\nsys.exit(1)\n")
    allow(clone)
    outcome = clone.build()
    assert outcome.code == 2, outcome.err
    assert "E486" in outcome.err
    assert re.search(r"src/calc.py changed while `python3\S*` ran", outcome.err)
    assert not clone.exists("a.txt")


@pytest.mark.usefixtures("steps_reach_outside")
def test_without_a_sandbox_that_no_one_allowed_no_program_is_run(clone: Project) -> None:
    clone.replace("pipeline.yaml", "  first: {outputs: [f.txt], shell: echo f > f.txt}\n", "")
    allow(clone)
    outcome = clone.build(env={"ORCH23_ALLOW_UNSANDBOXED": ""})
    assert outcome.code == 78
    assert "E483" in outcome.err
    assert not clone.exists("logs")


# ---- servers ----------------------------------------------------------------------------------------


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[tuple[Project, OpenAIServer]]:
    """Give a clone that asks a server on this machine, and the server."""
    with OpenAIServer(rule=lambda _asked: chat("answer")) as server:
        llm = f"{{provider: openai, base_url: '{server.url}', model: m, prompt: p.j2, returns: text}}"
        stages = f"  ask: {{outputs: [a.txt], llm: {llm}}}\n"
        yield confined(tmp_path / "clone").write(shell(stages, {"p.j2": "say"})), server


@pytest.mark.needs("doctor")
@pytest.mark.needs("vendors")
def test_a_key_goes_to_no_server_that_was_not_allowed(asking: tuple[Project, OpenAIServer]) -> None:
    project, server = asking
    refused(project.build(env=KEY), "with OPENAI_API_KEY")
    assert project.run("doctor", "--online", env=KEY).code == 0
    assert server.asked == []
    assert "OPENAI_API_KEY" in allow(project)
    green(project.build(env=KEY))
    assert [one.headers["authorization"] for one in server.asked] == [f"Bearer {KEY['OPENAI_API_KEY']}"]
    assert KEY["OPENAI_API_KEY"] not in "".join(path.read_text() for path in kept(project))


@pytest.mark.needs("vendors")
def test_another_server_asks_again_and_another_path_of_it_does_not(asking: tuple[Project, OpenAIServer]) -> None:
    project, server = asking
    allow(project)
    project.replace("pipeline.yaml", "/v1'", "/v2'")
    green(project.build(env=KEY))
    project.replace("pipeline.yaml", "127.0.0.1", "localhost")
    refused(project.build(env=KEY))
    assert len(server.asked) == 1


@pytest.mark.parametrize("provider", [pytest.param("openai", marks=pytest.mark.needs("vendors")), "anthropic"])
def test_plain_http_is_for_this_machine_alone(tmp_path: Path, provider: str) -> None:
    llm = f"{{provider: {provider}, base_url: 'http://models.example/v1', model: m, prompt: p.j2, returns: text}}"
    project = Project(tmp_path / "p").write(shell(f"  ask: {{outputs: [a.txt], llm: {llm}}}\n", {"p.j2": "say"}))
    reported = project.run("validate")
    assert reported.code == 65
    assert "plain http to another machine" in reported.err


@pytest.mark.parametrize("provider", [pytest.param("openai", marks=pytest.mark.needs("vendors")), "anthropic"])
def test_the_vendors_own_server_needs_no_consent(tmp_path: Path, provider: str) -> None:
    llm = f"{{provider: {provider}, model: m, prompt: p.j2, returns: text}}"
    project = confined(tmp_path / "p").write(shell(f"  ask: {{outputs: [a.txt], llm: {llm}}}\n", {"p.j2": "say"}))
    assert allow(project) == "this pipeline needs no consent\n"


# ---- a terminal, templates, what is shipped ----------------------------------------------------------


def test_on_a_terminal_the_user_is_asked_once(tmp_path: Path) -> None:
    Project(tmp_path / "p").write(shell(STAGES, {"ask.py": ASK, "p.j2": "say"}))
    code, screen = on_a_terminal(tmp_path, "-C", "p", "build", answers={b"Allow this": b"n\r"})
    assert code == 77, screen
    assert "run `python3 ask.py`" in screen
    code, screen = on_a_terminal(tmp_path, "-C", "p", "build", answers={b"Allow this": b"y\r"})
    assert code == 0, screen
    code, screen = on_a_terminal(tmp_path, "-C", "p", "build", "--resample", "ask", answers={})
    assert code == 0, screen
    assert "Allow" not in screen


def test_on_a_terminal_the_user_is_asked_before_the_first_stage_also_for_a_later_one(tmp_path: Path) -> None:
    later = STAGES.replace("ask: {outputs", "ask: {inputs: [f.txt], outputs")
    Project(tmp_path / "p").write(shell(later, {"ask.py": ASK, "p.j2": "say {{ inputs[0].text }}"}))
    code, screen = on_a_terminal(tmp_path, "-C", "p", "build", answers={b"Allow this": b"n\r"})
    assert code == 77, screen
    assert (tmp_path / "p" / "f.txt").exists(), "no is no reason not to build what needs no consent"
    code, screen = on_a_terminal(tmp_path, "-C", "p", "build", answers={b"Allow this": b"y\r"})
    assert code == 0, screen


def test_init_allows_what_it_wrote_and_no_later_change(tmp_path: Path) -> None:
    template = TemplateRepository(tmp_path / "template")
    files = shell(STAGES, {"ask.py": ASK, "p.j2": "say"})

    def mine(found: re.Match[str]) -> str:
        return {"ask.py": "mine.py"}.get(found[0], f"other-{found[0]}")

    template.version({**files, "other.yaml": re.sub("ask.py|f.txt|a.txt", mine, files["pipeline.yaml"])}, "1.0.0")
    project = confined(tmp_path / "project").write({"mine.py": ASK})
    placed = project.run("init", template.url, "--defaults")
    assert placed.code == 0, placed.err
    assert "run `python3 ask.py`" in placed.err
    green(project.build())
    refused(project.run("build", "other.yaml"), "mine.py")
    project.replace("ask.py", "answer", "another")
    refused(project.build("--resample", "ask"))


@pytest.mark.parametrize("name", ["quickstart", "layered_app", "planner_coder_tester", "tdd_loop", "work_orders"])
def test_what_is_shipped_needs_no_consent(tmp_path: Path, name: str) -> None:
    """So `make demo` asks for none."""
    project = confined(tmp_path / "shipped")
    for folder in ("pipelines", "prompts", "specs"):
        shutil.copytree(HERE / folder, project.root / folder)
    assert allow(project, f"pipelines/{name}.yaml") == "this pipeline needs no consent\n"
