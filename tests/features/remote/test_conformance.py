"""What every executor does with an action: the local one, one on an engine in this process, on dask and on servers."""

import os
import random
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.features.remote.dask_engine import DaskEngine
from orch23.model.action import (
    PYTHON,
    Action,
    ActionOutcome,
    ActionResult,
    Cancelled,
    Completed,
    InputsChanged,
    Interpreter,
    StepLimits,
    TimedOut,
    outcome_to_bytes,
)
from orch23.model.digest import FileEntry, digest_bytes
from orch23.store.content_store import DiskContentStore
from tests.casd import running_casd_with_workers
from tests.features.remote.clusters import dask_cluster, plain_cluster
from tests.features.remote.engines import Rig, fake_rig, local_rig, reapi_rig, remote_rig
from tests.reapi_workers import ORCH23, scheduler_of, serving_executions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with dask_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.address


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with plain_cluster(tmp_path_factory.mktemp("plain")) as address:
        yield address


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_executions(tmp_path_factory.mktemp("server")) as server:
        yield scheduler_of(server)


@pytest.fixture(scope="module")
def casd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_casd_with_workers(tmp_path_factory.mktemp("casd")) as address:
        # Its runner has a network only for actions with this property.
        yield f"grpc://{address}?orch23={ORCH23}&network=on"


@pytest.fixture(scope="module", params=["local", "fake", "dask", "plain", "server", "casd"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param in {"dask", "plain"}:
        address = request.getfixturevalue("scheduler" if request.param == "dask" else "plain")
        with remote_rig(folder, DaskEngine(address)) as made:
            yield made
        return
    if request.param in {"server", "casd"}:
        with reapi_rig(folder, request.getfixturevalue(request.param)) as made:
            made.is_nested = request.param == "casd"
            yield made
        return
    with local_rig(folder) if request.param == "local" else fake_rig(folder) as made:
        yield made


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with local_rig(tmp_path_factory.mktemp("here")) as made:
        yield made


def files(contents: DiskContentStore, texts: Mapping[str, str]) -> dict[str, FileEntry]:
    return {path: FileEntry(contents.put(text.encode()), path.endswith(".sh")) for path, text in texts.items()}


def shell(rig: Rig, text: str, inputs: Mapping[str, str] | None = None, **given: Any) -> Action:
    entries = files(rig.contents, inputs or {})
    return Action(argv=("bash", "-c", text), inputs=entries, **given)


def result_of(outcome: ActionOutcome) -> ActionResult:
    assert isinstance(outcome, Completed), outcome
    return outcome.result


def test_an_exit_code_and_the_output_arrive(rig: Rig) -> None:
    result = result_of(rig.executor.run(shell(rig, "echo out; echo err >&2; exit 7")))
    assert (result.exit_code, result.output.text, dict(result.written)) == (7, "out\nerr\n", {})


def test_outputs_arrive_with_their_bytes_and_modes(rig: Rig) -> None:
    command = "cat in/a.txt > out/b.txt; chmod +x out/b.txt; rm in/c.txt; echo more >> in/a.txt"
    result = result_of(
        rig.executor.run(shell(rig, command, {"in/a.txt": "a\n", "in/c.txt": ""}, output_folders=("out",)))
    )
    assert result.exit_code == 0, result
    assert {path: (rig.contents.get(e.digest), e.executable) for path, e in result.written.items()} == {
        "out/b.txt": (b"a\n", True),
        "in/a.txt": (b"a\nmore\n", False),
    }
    assert result.removed == ("in/c.txt",)


def test_an_empty_and_a_large_file_arrive(rig: Rig) -> None:
    result = result_of(rig.executor.run(shell(rig, "touch empty; head -c 5000000 /dev/zero > large", {"nothing": ""})))
    assert {path: entry.digest for path, entry in result.written.items()} == {
        "empty": digest_bytes(b""),
        "large": digest_bytes(bytes(5_000_000)),
    }
    assert rig.contents.get(result.written["large"].digest) == bytes(5_000_000)


def test_a_timeout_kills_and_keeps_what_was_written(rig: Rig) -> None:
    outcome = rig.executor.run(shell(rig, "echo begun | tee made; sleep 600", timeout_s=0.5))
    assert isinstance(outcome, TimedOut)
    assert (outcome.output.text, outcome.timeout_s, [*outcome.written]) == ("begun\n", 0.5, ["made"])


def test_limits_are_those_of_the_action(rig: Rig) -> None:
    command = "for _ in 1 2 3 4 5 6 7 8; do sleep 600 & done; wait"
    result = result_of(rig.executor.run(shell(rig, command, limits=StepLimits(processes=4))))
    assert [one.code for one in result.violations] == ["E620"]


def test_lines_are_heard(rig: Rig) -> None:
    heard: list[str] = []
    rig.executor.run(shell(rig, "echo one; echo; printf two"), heard_by(heard))
    assert heard == ["one", "", "two"]


def heard_by(lines: list[str]) -> Any:
    def hear(line: str, *, cut: bool = False) -> None:
        lines.append(line)

    return hear


def test_the_network_is_off_unless_the_action_has_it(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        action = Action(argv=(PYTHON, "-c", program), inputs={})
        assert result_of(rig.executor.run(action)).exit_code == 1
        assert result_of(rig.executor.run(replace(action, network=True))).exit_code == 0


def test_only_writable_paths_can_be_written(rig: Rig) -> None:
    command = "echo x > out/x; echo y > in/a.txt"
    result = result_of(rig.executor.run(shell(rig, command, {"in/a.txt": "a\n"}, writable=("out/",))))
    assert (result.exit_code, [*result.written]) == (1, ["out/x"])
    assert "Read-only file system" in result.output.text or "Permission denied" in result.output.text


def test_a_missing_input_is_named_and_nothing_runs(rig: Rig) -> None:
    gone = FileEntry(digest_bytes(random.randbytes(9)))
    outcome = rig.executor.run(Action(argv=("true",), inputs={**files(rig.contents, {"a": "a"}), "gone.txt": gone}))
    assert outcome == InputsChanged(("gone.txt",))


def test_a_process_gets_only_its_own_environment(rig: Rig) -> None:
    result = result_of(rig.executor.run(shell(rig, "env", env={"GREETING": "hello"})))
    assert "GREETING=hello" in result.output.text
    assert "TOKEN" not in result.output.text
    assert os.environ.get("HOME", "/") not in result.output.text.replace("HOME=/room/home", "").split("=")


ALIKE: dict[str, dict[str, Any]] = {
    "long output": {"text": "for i in $(seq 40000); do echo $i and some more; done", "inputs": {}},
    "outputs": {
        "text": "mkdir -p x/y; sha256sum in/* | tee x/y/z; ./run.sh",
        "inputs": {"in/1": "1", "run.sh": "#!/bin/sh\npwd\n"},
    },
    "scratch": {"text": "echo 1 > a.tmp; echo 2 > b; stat -c '%A %s %n' *", "inputs": {}, "scratch": ("*.tmp",)},
    "link": {"text": "ln -s /etc/passwd stolen", "inputs": {}},
    "not found": {"text": "no-such-program", "inputs": {}},
    "killed": {"text": "kill -9 $$", "inputs": {}},
}


@pytest.mark.stride(11)
@pytest.mark.parametrize("name", ALIKE)
def test_a_result_is_that_of_this_machine_byte_for_byte(rig: Rig, here: Rig, name: str) -> None:
    elsewhere, local = (one.executor.run(shell(one, **ALIKE[name])) for one in (rig, here))
    if rig.is_nested:
        # Inside of a sandbox, another tier may be the best one; then the text had a longer path before `/room`.
        seen = replace(result_of(local).output, size_bytes=result_of(elsewhere).output.size_bytes)
        local = Completed(replace(result_of(local), tier=result_of(elsewhere).tier, output=seen))
    assert steady(elsewhere) == steady(local)
    log = result_of(elsewhere).output.log
    assert log is None or rig.contents.get(log) == here.contents.get(log)


def steady(outcome: ActionOutcome) -> bytes:
    """Return the bytes of an outcome without its duration."""
    return outcome_to_bytes(Completed(replace(result_of(outcome), duration_s=0.0)))


def test_the_tier_is_in_the_result_and_a_better_one_can_be_required(rig: Rig, here: Rig) -> None:
    tier = here.executor.sandbox
    action = shell(rig, "true", min_tier="landlock")
    found = result_of(rig.executor.run(action)).tier
    assert found == tier or (rig.is_nested and found == "landlock")
    strict = rig.executor.run(replace(action, min_tier="namespaces"))
    assert isinstance(strict, Completed) == (found == "namespaces"), strict


def test_another_python_is_refused_and_not_replaced(rig: Rig) -> None:
    outcome = rig.executor.run(Action(argv=(PYTHON, "-V"), inputs={}, python=Interpreter.of(None, "2.7")))
    assert outcome.diagnostic.code == "E480"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    same = Action(argv=(PYTHON, "-V"), inputs={}, python=Interpreter.of(None, version))
    assert result_of(rig.executor.run(same)).output.text.startswith(f"Python {version}")


# The last one: its executor runs nothing more.
def test_cancel_kills_grandchildren_too(rig: Rig) -> None:
    seconds = f"600.{random.randrange(10**9):09}"
    outcomes: list[ActionOutcome] = []
    action = shell(rig, f"setsid sleep {seconds} & sleep {seconds} & wait")
    thread = threading.Thread(target=lambda: outcomes.append(rig.executor.run(action)))
    thread.start()
    wait_until(lambda: len(processes_with(seconds)) >= 2)
    rig.executor.cancel()
    thread.join(20)
    (outcome,) = outcomes
    assert isinstance(outcome, Cancelled)
    wait_until(lambda: not processes_with(seconds))
    assert rig.executor.run(shell(rig, "true")) == Cancelled()


def wait_until(condition: Any) -> None:
    pause = threading.Event()
    for _ in range(400):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail("it did not happen within 20 s")


def processes_with(word: str) -> list[str]:
    """Return the processes with a word in their command line that are not shells."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0] == b"sleep" and word.encode() in words:
            found.append(pid)
    return found
