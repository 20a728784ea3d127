"""A program as the provider, with real processes: what it is given, what goes wrong, that nothing of it is left."""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from orch23.execute.launch import Launcher, PlainLauncher
from orch23.execute.program_runner import LocalProgramRunner
from orch23.execute.sandbox import landlock
from orch23.execute.sandbox.landlock import LandlockLauncher
from orch23.execute.sandbox.tier_selection import best_tier_once
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConsentError, ProviderError, SafetyError
from orch23.model.llm import Message, Request
from orch23.model.step import Grant
from orch23.providers.adapter import ProviderContext
from orch23.providers.command import MAX_STDOUT_BYTES, CommandProvider, resolve_program
from orch23.providers.faults import redacted_messages
from orch23.steps.llm.spec import LLMStep
from orch23.store.content_store import DiskContentStore
from orch23.store.input_files import InputFiles
from orch23.store.workspace import Workspace
from orch23.text.secrets import Secrets

REQUEST = Request(
    provider="command",
    model="tiny",
    endpoint="command x",
    system="be brief",
    messages=(Message("user", "grüße"),),
    identity=(Message("user", "grüße"),),
    params={"max_tokens": 5},
    schema={"type": "object"},
)


def provider(
    root: Path,
    *argv: str,
    launcher: Launcher | None = None,
    is_granted: Callable[[Grant], bool] = lambda _grant: True,
    written: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
    **llm: Any,
) -> CommandProvider:
    """Return the provider of a program, in no sandbox if no other launcher is given."""
    root.mkdir(parents=True, exist_ok=True)
    files = Workspace(root, None)
    store = root / ".orch23"
    programs = LocalProgramRunner(
        root=root,
        sandbox_dirs=SandboxDirs(store / "rooms", InputFiles(DiskContentStore(store / "cas"), files)),
        launcher=launcher or PlainLauncher(),
        no_sandbox=lambda: None,
        written=lambda: written,
    )
    setting = ProviderContext(
        environ=dict(os.environ) if environ is None else environ,
        root=root,
        read_answers=lambda _file: {},
        notice=lambda _event: None,
        is_granted=is_granted,
        files=files,
        runner=programs,
    )
    return CommandProvider(
        step=LLMStep(provider="command", model="m", prompt="p", command=argv, **llm), setting=setting
    )


def run(
    tmp_path: Path,
    code: str,
    *,
    deadline_s: float = 20.0,
    request: Request = REQUEST,
    launcher: Launcher | None = None,
    **env: str,
):
    command = provider(
        tmp_path,
        *(sys.executable, "-c", code),
        launcher=launcher,
        environ={**os.environ, **env},
        pass_env=tuple(env),
    )
    return command.complete(request, deadline_s, lambda _n: None)


def failure(tmp_path: Path, code: str, **more):
    with pytest.raises(ProviderError) as caught:
        run(tmp_path, code, **more)
    return caught.value.diagnostics[0]


def gone(pid: int) -> bool:
    """Wait until a process is no more than a zombie, if that."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
    return False


def test_the_request_is_on_stdin_and_the_response_on_stdout(tmp_path: Path) -> None:
    response = run(tmp_path, "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d)")
    assert json.loads(response.text) == {
        "model": "tiny",
        "system": "be brief",
        "messages": [{"role": "user", "content": "grüße"}],
        "params": {"max_tokens": 5},
        "schema": {"type": "object"},
    }
    assert response.stop == "end"


def test_it_runs_in_an_empty_directory_with_the_variables_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_KEY", "k2")
    (tmp_path / "file").write_text("x")
    code = "import os; print(os.listdir(), os.environ['MY_KEY'], os.environ.get('OTHER_KEY'), os.environ['HOME'])"
    said = run(tmp_path, code, MY_KEY="k1").text.split()
    assert said[:3] == ["[]", "k1", "None"]
    assert said[3].startswith(str(tmp_path / ".orch23" / "rooms"))


def test_a_program_that_does_not_read_may_still_respond(tmp_path: Path) -> None:
    long = Request(
        provider="command", model="m", endpoint="e", system="x" * 2_000_000, messages=(), identity=(), params={}
    )
    code = "import os; os.close(0); print('hi')"
    assert run(tmp_path, code, request=long).text == "hi\n"


def test_large_requests_and_responses_do_not_block_each_other(tmp_path: Path) -> None:
    long = Request(
        provider="command", model="m", endpoint="e", system="x" * 1_000_000, messages=(), identity=(), params={}
    )
    code = "import sys; sys.stdout.write('y' * 1000000); sys.stdout.flush(); print(len(sys.stdin.read()))"
    text = run(tmp_path, code, request=long).text
    assert text.startswith("yyy")
    assert int(text.lstrip("y")) > 1_000_000


def test_a_failure_carries_the_last_lines_of_stderr(tmp_path: Path) -> None:
    code = "import sys; [print('line', n, file=sys.stderr) for n in range(100)]; sys.exit(7)"
    diagnostic = failure(tmp_path, code)
    assert diagnostic.code == "E401"
    assert "exited with 7" in diagnostic.message
    assert "line 99" in diagnostic.message
    assert "line 50" not in diagnostic.message


def test_of_a_secret_that_is_cut_by_what_is_kept_of_stderr_nothing_is_shown(tmp_path: Path) -> None:
    key = "".join(f"{number:02x}-" for number in range(60))
    code = "import os, sys; sys.stderr.write(os.environ['K'] + 'z' * 63_900 + ' end'); sys.exit(1)"
    with redacted_messages(Secrets({"K": key}).redact):
        message = failure(tmp_path, code, K=key).message
    assert message.endswith("z end")
    assert key[-12:] not in message


def test_lines_of_a_secret_beyond_those_that_are_shown_do_not_hide_the_others(tmp_path: Path) -> None:
    key = "\n".join(f"short {number}" for number in range(30))
    code = "import os, sys; sys.stderr.write(os.environ['K']); sys.exit(1)"
    with redacted_messages(Secrets({"K": key}).redact):
        assert failure(tmp_path, code, K=key).message.endswith(":\n[redacted K]")


def test_a_signal_is_named(tmp_path: Path) -> None:
    assert "signal 9" in failure(tmp_path, "import os; os.kill(os.getpid(), 9)").message


@pytest.mark.slow
def test_the_whole_group_is_killed_when_the_time_is_up(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid))\n"
        "time.sleep(60)\n"
    )
    diagnostic = failure(tmp_path / "project", code, deadline_s=1.0)
    assert diagnostic.code == "E402"
    assert gone(int((tmp_path / "pid").read_text()))


def test_a_child_left_behind_is_killed_too(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], stdout=-3, stderr=-3)\n"
        "print(p.pid)\n"
    )
    assert gone(int(run(tmp_path, code).text))


def test_an_endless_response_is_cut_off(tmp_path: Path) -> None:
    code = f"import sys\nwhile True: sys.stdout.write('y' * {MAX_STDOUT_BYTES // 4})"
    assert failure(tmp_path, code).code == "E408"


def test_a_response_that_is_not_text_is_a_failure(tmp_path: Path) -> None:
    assert "UTF-8" in failure(tmp_path, "import sys; sys.stdout.buffer.write(b'\\xff')").message


def test_a_program_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ProviderError) as caught:
        provider(tmp_path, "no-such-program-here", environ={"PATH": "/nowhere"}).complete(REQUEST, 5.0, print)
    assert caught.value.diagnostics[0].code == "E407"


# ---- what it is given, in each tier ---------------------------------------------------------------


def launchers() -> list[Any]:
    """Return the tiers that work here; what no tier holds back is not asked of none."""
    found: list[Any] = []
    chosen = best_tier_once().launcher
    if chosen is not None:
        found.append(pytest.param(chosen, id=chosen.tier))
    if landlock.abi() >= landlock.MIN_ABI and not isinstance(chosen, LandlockLauncher):
        found.append(pytest.param(LandlockLauncher(), id=LandlockLauncher.tier))
    return found


LAUNCHERS = launchers()
_UNIQUE = f"97{os.getpid()}"


def said(root: Path, program: str, launcher: Launcher, **llm: Any) -> str:
    """Return what a program of the project says, which is in `tools/ask.py`."""
    (root / "tools").mkdir(parents=True, exist_ok=True)
    (root / "tools" / "ask.py").write_text(program)
    command = provider(root, sys.executable, "tools/ask.py", launcher=launcher, **llm)
    return command.complete(REQUEST, 20.0, lambda _n: None).text


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_in_a_sandbox_it_sees_its_own_files_and_nothing_of_the_project(tmp_path: Path, launcher: Launcher) -> None:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "calc.py").write_text("x = 1\n")
    (root / "data").mkdir()
    (root / "data" / "more.txt").write_text("more")
    agent = f"""
import json, os, sys
question = json.load(sys.stdin)["messages"][0]["content"]
tree = sorted(os.path.join(folder, name) for folder, _, names in os.walk(".") for name in names)
def attempt(name, mode):
    try:
        open(name, mode).close()
    except OSError as error:
        return type(error).__name__
    return "done"
outside = {str(root)!r}
tried = [attempt(outside + name, mode) for name, mode in (("/src/calc.py", "a"), ("/src/calc.py", "r"), ("/new", "w"))]
print(json.dumps([question, tree, tried]))
"""
    question, tree, tried = json.loads(said(root, agent, launcher, read=("data",)))
    assert question == "grüße"
    assert tree == ["./data/more.txt", "./tools/ask.py"]
    assert "done" not in tried
    assert (root / "src" / "calc.py").read_text() == "x = 1\n"
    assert not (root / "new").exists()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_in_a_sandbox_what_it_writes_is_gone_and_its_files_stay(tmp_path: Path, launcher: Launcher) -> None:
    program = "open('tools/ask.py', 'w').write('changed'); open('left', 'w').write('x'); print('done')"
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "ask.py").write_text(program)
    command = provider(tmp_path, sys.executable, "tools/ask.py", launcher=launcher)
    sandbox_dirs, runner = tmp_path / ".orch23" / "rooms", command.setting.runner
    assert runner is not None
    assert [command.complete(REQUEST, 20.0, lambda _n: None).text for _ in range(2)] == ["done\n", "done\n"]
    assert (tmp_path / "tools" / "ask.py").read_text() == program
    assert len([*sandbox_dirs.iterdir()]) == 1, "of the last program, whose answer is to be recorded first"
    runner.close()
    assert not [*sandbox_dirs.iterdir()]


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("network", [False, True])
def test_it_has_the_network_only_where_that_is_declared(tmp_path: Path, launcher: Launcher, network: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"""
import socket
try:
    socket.create_connection(("127.0.0.1", {server.getsockname()[1]}), 5).close()
except OSError as error:
    print("refused")
else:
    print("connected")
"""
        assert said(tmp_path, program, launcher, network=network) == ("connected\n" if network else "refused\n")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_paths_outside_are_read_where_they_are_named(tmp_path: Path, launcher: Launcher) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text("t1")
    program = f"""
def attempt(mode):
    try:
        with open({str(tmp_path / "home" / "token")!r}, mode) as file:
            return file.read()
    except OSError:
        return "refused"
print(attempt("r"), attempt("a+"))
"""
    root = tmp_path / "project"
    assert said(root, program, launcher).split() == ["refused", "refused"]
    environ = {**os.environ, "HOME": str(tmp_path / "home")}
    assert said(root, program, launcher, read=("~/token",), environ=environ).split() == ["t1", "refused"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_program_of_the_project_and_one_beside_it_are_started(tmp_path: Path, launcher: Launcher) -> None:
    root = tmp_path / "project"
    for folder in (root, tmp_path / "bin"):
        folder.mkdir()
        (folder / "agent").write_text("#!/bin/sh\necho $0; cat\n")
        (folder / "agent").chmod(0o755)
    (tmp_path / "bin" / "linked").symlink_to("agent")
    own = provider(root, "./agent", launcher=launcher).complete(REQUEST, 20.0, print).text
    assert own.startswith('./agent\n{"model": "tiny"')
    named = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    beside = provider(root, "linked", launcher=launcher, environ=named).complete(REQUEST, 20.0, print).text
    assert beside.startswith(f'{tmp_path}/bin/linked\n{{"model": "tiny"')


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_it_leaves_running_is_killed(tmp_path: Path, launcher: Launcher) -> None:
    """A daemon in a session of its own, which holds no pipe, is found by its command line from outside."""
    program = f"""
import os
mine, its = os.pipe()  # both are closed by exec
if os.fork() == 0:
    os.setsid()
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    os.execvp("sleep", ["sleep", "{_UNIQUE}"])
os.close(its)
os.read(mine, 1)
print("answer")
"""
    assert said(tmp_path / "project", program, launcher) == "answer\n"
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if _UNIQUE.encode() in cmdline(one)]


def cmdline(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


# ---- consent --------------------------------------------------------------------------------------


def grant_of(root: Path, *argv: str, environ: Mapping[str, str] | None = None, **llm: Any) -> Grant:
    one = provider(root, *argv, environ=environ, **llm)
    return resolve_program(one.step, one.setting.environ, root, Workspace(root, None)).grant


def test_a_program_is_not_run_without_consent_to_it_as_it_is_now(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text("print(1)")
    granted = {grant_of(tmp_path, sys.executable, "ask.py")}
    command = provider(tmp_path, sys.executable, "ask.py", is_granted=granted.__contains__)
    assert command.complete(REQUEST, 20.0, print).text == "1\n"
    (tmp_path / "ask.py").write_text("print(2)")
    with pytest.raises(ConsentError, match="E426"):
        command.complete(REQUEST, 20.0, print)


def test_whatever_decides_what_is_run_makes_another_grant(tmp_path: Path) -> None:
    """A grant is of the program's bytes, arguments, files, variables, network and paths."""
    for name, text in (("a.py", "1"), ("b.py", "1"), ("bin/tool", "#!/bin/sh\n"), ("lib/x/y.txt", "y")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path / 'bin'}:/usr/bin"}

    def of(*argv: str, **llm: Any) -> Grant:
        return grant_of(tmp_path, *argv, environ=environ, **llm)

    def all_of_them() -> list[Grant]:
        return [
            *(of("tool"), of("tool", "a.py"), of("tool", "b.py"), of("tool", "-c", "a"), of("tool", "-c", "b")),
            *(of("tool", pass_env=("K",)), of("tool", pass_env=("K", "L")), of("tool", network=True)),
            *(of("tool", read=("lib",)), of("tool", read=("/opt/x",)), of("./bin/tool"), of("./a.py")),
        ]

    first = all_of_them()
    assert len(set(first)) == len(first)
    assert all_of_them() == first
    (tmp_path / "lib" / "x" / "y.txt").write_text("z")
    assert [n for n, (a, b) in enumerate(zip(first, all_of_them(), strict=True)) if a != b] == [8]
    (tmp_path / "bin" / "tool").write_text("#!/bin/sh\nexit\n")
    assert set(first).isdisjoint({*all_of_them()} - {of("./a.py")})


# ---- the project, where no sandbox holds the program ---------------------------------------------


def changing(root: Path, code: str, **more: Any) -> Diagnostic:
    with pytest.raises(SafetyError) as caught:
        provider(root, "python3", "-c", code, **more).complete(REQUEST, 20.0, print)
    return caught.value.diagnostics[0]


@pytest.mark.slow
@pytest.mark.parametrize("end", ["print('answer')", "raise SystemExit(1)"])
def test_a_file_that_changes_meanwhile_is_a_violation_with_the_programs_name(tmp_path: Path, end: str) -> None:
    (tmp_path / "src").mkdir()
    for name in ("src/calc.py", "gone.py", "same.py", "mode.sh"):
        (tmp_path / name).write_text("x = 1\n")
    code = (
        f"import os; os.chdir({str(tmp_path)!r}); open('src/calc.py', 'a').write('#'); os.unlink('gone.py'); "
        f"os.makedirs('.git/hooks'); open('.git/hooks/pre-push', 'w').close(); os.chmod('mode.sh', 0o755); {end}"
    )
    reported = changing(tmp_path, code)
    assert reported.code == "E486"
    assert reported.message.startswith(".git/hooks/pre-push, gone.py, mode.sh, src/calc.py changed while `python3")
    assert reported.message.endswith(" ran (sandbox: none)")


@pytest.mark.skipif(landlock.abi() < landlock.MIN_ABI, reason="the kernel has no Landlock")
def test_landlock_does_not_hold_modes_so_they_are_compared(tmp_path: Path) -> None:
    (tmp_path / "mode.sh").write_text("x")
    reported = changing(
        tmp_path, f"import os; os.chmod({str(tmp_path / 'mode.sh')!r}, 0o777)", launcher=LandlockLauncher()
    )
    assert reported.message.startswith("mode.sh changed while `python3")
    assert reported.message.endswith(" ran (sandbox: landlock)")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_in_a_sandbox_the_user_may_edit_files_meanwhile(tmp_path: Path, launcher: Launcher) -> None:
    def edit(_text: str) -> None:
        (tmp_path / "mine.txt").write_text("longer")
        (tmp_path / "new.txt").write_text("x")

    (tmp_path / "mine.txt").write_text("x")
    command = provider(tmp_path, "python3", "-c", "print('answer')", launcher=launcher)
    assert command.complete(REQUEST, 20.0, edit).text == "answer\n"
    assert (tmp_path / "mine.txt").read_text() == "longer"


@pytest.mark.slow
def test_what_the_build_itself_writes_meanwhile_is_none(tmp_path: Path) -> None:
    code = f"import os; os.chdir({str(tmp_path)!r}); open('out.txt', 'w').close(); open('.orch23/x', 'w').close()"
    command = provider(tmp_path, "python3", "-c", code, written={"out.txt"})
    assert not command.complete(REQUEST, 20.0, print).text
    assert changing(tmp_path, code.replace("out.txt", "other.txt"), written={"out.txt"}).message.startswith("other.txt")
