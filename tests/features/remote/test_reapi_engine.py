"""Executions on a server of the Remote Execution API: what is sent, and what happens when the server has a fault."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.features.cache.registry import open_shared_cache
from orch23.features.remote.engine import USUAL_LIMITS, Reply
from orch23.features.remote.reapi_address import reapi_address
from orch23.features.remote.reapi_engine import make_executor
from orch23.features.remote.running_actions import ActionFiles
from orch23.model.action import Action, ActionResult, Cancelled, Completed, EngineUnavailable, outcome_to_bytes
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.errors import ConfigurationError
from orch23.model.ports import Surroundings
from orch23.store.content_store import DiskContentStore
from tests.features.remote.engines import QUICK, Rig, reapi_rig
from tests.features.remote.test_conformance import wait_until
from tests.reapi_oracle import oracle_of
from tests.reapi_workers import ExecutionServer, ServerProcess, scheduler_of, serving_executions

pytestmark = pytest.mark.slow

CALLS = ("Execute", "WaitExecution", "CancelOperation")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ExecutionServer]:
    with serving_executions(tmp_path / "server") as made:
        yield made


@pytest.fixture
def rig(tmp_path: Path, server: ExecutionServer) -> Iterator[Rig]:
    with reapi_rig(tmp_path, scheduler_of(server)) as made:
        yield made


def copying(rig: Rig, text: bytes = b"some bytes", **given: Any) -> Action:
    entry = FileEntry(rig.contents.put(text))
    return Action(argv=("bash", "-c", "cat in.txt > out.txt"), inputs={"in.txt": entry}, **given)


def output(rig: Rig, outcome: Any) -> bytes:
    assert isinstance(outcome, Completed), outcome
    assert isinstance(outcome.result, ActionResult)
    assert outcome.result.exit_code == 0, outcome
    return rig.contents.get(outcome.result.written["out.txt"].digest)


def refusal(outcome: Any) -> str:
    """Return why an action could not be run: it stops the build, and does not count as a failure of a stage."""
    assert isinstance(outcome, EngineUnavailable), outcome
    assert outcome.diagnostic is not None
    assert outcome.diagnostic.code == "E487"
    return outcome.reason


def executions(server: ExecutionServer) -> list[str]:
    return [call for call in server.calls if call in CALLS]


def test_the_server_caches_nothing_and_gets_the_properties_and_the_timeout(
    tmp_path: Path, server: ExecutionServer
) -> None:
    with reapi_rig(tmp_path, scheduler_of(server, "&pool=large&OSFamily=linux")) as rig:
        assert output(rig, rig.executor.run(copying(rig, timeout_s=7.5))) == b"some bytes"
    (request,), (action,), (command,) = server.requests, server.actions, server.commands
    assert (request.skip_cache_lookup, action.do_not_cache, request.digest_function) == (True, True, 1)
    assert [(one.name, one.value) for one in action.platform.properties] == [("OSFamily", "linux"), ("pool", "large")]
    assert command.platform == action.platform
    assert (action.timeout.seconds, action.timeout.nanos) == (307, 500_000_000)
    assert [one.name for one in command.environment_variables] == ["LANG", "PATH"], "nothing of this machine"
    assert "BatchUpdateBlobs" in server.calls, "blobs are sent, though the server takes no results"


def test_resources_are_properties_in_place_of_those_of_the_address(tmp_path: Path, server: ExecutionServer) -> None:
    resources = {"gpu": 1.0, "memory": float(8 << 30), "cpu": 0.5}
    with reapi_rig(tmp_path, scheduler_of(server, "&gpu=0&OSFamily=linux")) as rig:
        output(rig, rig.executor.with_resources(resources).run(copying(rig)))
        output(rig, rig.executor.run(copying(rig)))
    first, second = ([(one.name, one.value) for one in action.platform.properties] for action in server.actions)
    assert first == [("OSFamily", "linux"), ("cpu", "0.5"), ("gpu", "1"), ("memory", "8589934592")]
    assert second == [("OSFamily", "linux"), ("gpu", "0")]


def test_after_a_cut_connection_the_same_execution_is_found_again(rig: Rig, server: ExecutionServer) -> None:
    server.cuts = [1, 0, 1, 0]
    rig.executor._limits = replace(QUICK, patience_s=20.0)
    assert output(rig, rig.executor.run(copying(rig))) == b"some bytes"
    assert executions(server) == ["Execute", *["WaitExecution"] * 4]
    assert rig.executor.submissions == 1


@pytest.mark.parametrize("name", ["operations/unknown", "operations/cancelled"])
def test_an_execution_of_an_earlier_build_that_has_no_result_is_replaced(
    tmp_path: Path, server: ExecutionServer, name: str
) -> None:
    scheduler, folder = scheduler_of(server), tmp_path / "running"
    if name == "operations/cancelled":
        server.runs[name] = server.ended_run(name, 1)
    with reapi_rig(tmp_path, scheduler, running=ActionFiles(folder)) as rig:
        action = copying(rig)
        ActionFiles(folder).note(reapi_address(scheduler).identity, digest_bytes(action.to_bytes()), name)
        assert output(rig, rig.executor.run(action)) == b"some bytes"
        assert executions(server) == ["WaitExecution", "Execute"]
        assert rig.executor.submissions == 1
        assert [*folder.iterdir()] == []
        assert output(rig, rig.executor.run(action)) == b"some bytes"
        assert executions(server) == ["WaitExecution", "Execute", "Execute"], "it is looked for once"


def test_an_execution_that_the_server_does_not_know_any_more_is_a_lost_one(rig: Rig, server: ExecutionServer) -> None:
    server.cuts = [1]
    server.fault = lambda method: "NOT_FOUND" if method == "WaitExecution" else ""
    assert output(rig, rig.executor.run(copying(rig))) == b"some bytes"
    assert executions(server) == ["Execute", "WaitExecution", "Execute"]
    server.calls.clear()
    server.cuts = [1] * 99
    server.on_status = lambda: (10, "never seen")
    assert "does not know the execution any more" in refusal(rig.executor.run(copying(rig)))
    assert executions(server).count("Execute") == QUICK.lost + 1


def test_a_long_execution_is_waited_for_with_several_calls(rig: Rig, server: ExecutionServer) -> None:
    rig.engine._stream_s = 0.5
    action = Action(argv=("bash", "-c", "sleep 1.2; echo 1 > out.txt"), inputs={})
    assert output(rig, rig.executor.run(action)) == b"1\n"
    assert executions(server)[:2] == ["Execute", "WaitExecution"]
    assert executions(server).count("Execute") == 1


def test_a_server_that_stays_away_ends_the_build_after_a_while(rig: Rig, server: ExecutionServer) -> None:
    server.fault = lambda method: "UNAVAILABLE" if method == "Execute" else ""
    assert "no worker" in refusal(rig.executor.run(copying(rig)))
    assert rig.executor.submissions == 1


@pytest.mark.parametrize(
    ("status", "times"),
    [(10, QUICK.lost + 1), (1, QUICK.lost + 1), (14, QUICK.faults + 1), (4, QUICK.faults + 1), (3, 1), (7, 1)],
)
def test_the_status_of_a_result_is_a_fault_with_a_budget(
    rig: Rig, server: ExecutionServer, status: int, times: int
) -> None:
    server.on_status = lambda: (status, "because\x1b[31m of it\nmore")
    assert "because?[31m of it" in refusal(rig.executor.run(Action(argv=("true",), inputs={})))
    assert executions(server) == ["Execute"] * times


def test_an_input_that_the_server_lost_is_uploaded_again(rig: Rig, server: ExecutionServer) -> None:
    action = copying(rig)
    assert output(rig, rig.executor.run(action)) == b"some bytes"
    del server.blobs[action.inputs["in.txt"].digest.sha256]
    before = server.calls.count("BatchUpdateBlobs")
    assert output(rig, rig.executor.run(action)) == b"some bytes"
    assert executions(server) == ["Execute"] * 3
    assert server.calls.count("BatchUpdateBlobs") == before + 1


def test_a_server_that_lost_everything_gets_everything_again(rig: Rig, server: ExecutionServer) -> None:
    action = copying(rig)
    assert output(rig, rig.executor.run(action)) == b"some bytes"
    server.blobs.clear()
    assert output(rig, rig.executor.run(action)) == b"some bytes"


def test_a_server_that_says_wrongly_that_it_has_blobs_gets_them_again(rig: Rig, server: ExecutionServer) -> None:
    action = copying(rig)
    assert output(rig, rig.executor.run(action)) == b"some bytes"
    server.replaced = lambda method, reply: b"" if method == "FindMissingBlobs" else reply
    server.blobs.clear()
    assert output(rig, rig.executor.run(action)) == b"some bytes"
    assert rig.executor.submissions <= 2 + QUICK.missing


def test_a_failed_precondition_without_details_uploads_everything(rig: Rig, server: ExecutionServer) -> None:
    faults = iter(["FAILED_PRECONDITION"])
    server.fault = lambda method: next(faults, "") if method == "Execute" else ""
    assert output(rig, rig.executor.run(copying(rig))) == b"some bytes"
    assert executions(server) == ["Execute"] * 2
    assert len(server.in_batches) == 2 * (2 + len(messages_of(server)))


def messages_of(server: ExecutionServer) -> set[str]:
    """Return the messages that were sent: action, command, and the directories of the input root."""
    (action,) = server.actions
    folders, waiting = set(), [action.input_root_digest.hash]
    while waiting:
        folders.add(waiting[-1])
        waiting += [
            one.digest.hash for one in oracle_of("Directory").FromString(server.blobs[waiting.pop()]).directories
        ]
    return {*folders, action.command_digest.hash, "the action"}


def test_an_action_whose_output_or_reply_is_lost_runs_again(rig: Rig, server: ExecutionServer) -> None:
    lost: list[str] = []

    def lose(result: Any) -> None:
        if len(lost) < 2:
            (reply,) = result.output_files
            lost.append(reply.digest.hash)
            del server.blobs[reply.digest.hash]

    server.before_result = lose
    assert output(rig, rig.executor.run(copying(rig))) == b"some bytes"
    assert executions(server) == ["Execute"] * 3


def test_a_forged_reply_is_not_read(rig: Rig, server: ExecutionServer) -> None:
    forged = Reply(outcome=outcome_to_bytes(Completed(ActionResult(exit_code=7, written={})))).to_bytes()
    replies: list[str] = []

    def forge(result: Any) -> None:
        (reply,) = result.output_files
        if not replies:
            server.blobs[reply.digest.hash] = forged.ljust(reply.digest.size_bytes)
        replies.append(reply.digest.hash)

    server.before_result = forge
    assert output(rig, rig.executor.run(copying(rig))) == b"some bytes"
    assert len(replies) == 2


def test_a_damaged_output_never_arrives(rig: Rig, server: ExecutionServer) -> None:
    action = Action(argv=("bash", "-c", "echo 123456789 > out.txt"), inputs={})

    def damage(_result: Any) -> None:
        for sha256 in server.blobs:
            if server.blobs[sha256] == b"123456789\n":
                server.blobs[sha256] = b"987654321\n"

    server.before_result = damage
    assert "lost outputs" in refusal(rig.executor.run(action))


def test_a_worker_without_orch23_is_named(tmp_path: Path, server: ExecutionServer) -> None:
    with reapi_rig(tmp_path, f"{server.url}?orch23=/no/such/program") as rig:
        reason = refusal(rig.executor.run(copying(rig)))
        assert rig.executor.submissions == 1
    assert "exited with status 127" in reason
    assert "/no/such/program" in reason


def test_a_server_that_runs_nothing_is_refused_at_once(rig: Rig, server: ExecutionServer) -> None:
    server.runs_actions = False
    assert "runs no actions" in refusal(rig.executor.run(copying(rig)))
    assert executions(server) == []


def test_a_server_that_says_nothing_is_a_fault(rig: Rig, server: ExecutionServer) -> None:
    server.streams["Execute"] = lambda _request: iter(())
    assert "says nothing" in refusal(rig.executor.run(copying(rig)))
    assert executions(server) == ["Execute"] * (QUICK.faults + 1)


def test_a_server_that_was_never_reached_is_not_waited_for(tmp_path: Path) -> None:
    with reapi_rig(tmp_path, "grpc://127.0.0.1:1") as rig:
        assert "cannot be reached" in refusal(rig.executor.run(copying(rig)))
        assert rig.executor.submissions == 0


def test_cancel_tells_the_server_also_if_its_first_message_comes_later(rig: Rig, server: ExecutionServer) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(method: str) -> str:
        if method == "Execute":
            reached.set()
            go_on.wait(10)
        return ""

    server.fault = hold
    outcomes: list[Any] = []
    action = Action(argv=("sleep", "600"), inputs={})
    thread = threading.Thread(target=lambda: outcomes.append(rig.executor.run(action)))
    thread.start()
    assert reached.wait(10)
    rig.executor.cancel()
    thread.join(10)
    assert outcomes == [Cancelled()]
    go_on.set()
    wait_until(lambda: server.runs and all(run.ended.is_set() for run in server.runs.values()))
    assert executions(server) == ["Execute", "CancelOperation"]


def test_a_server_that_is_killed_costs_no_action(tmp_path: Path) -> None:
    """Twenty actions, while the server is killed with signal 9 and started again."""
    server = ServerProcess(tmp_path / "server")
    ended, pause = threading.Event(), threading.Event()
    kills = 0
    try:
        with reapi_rig(tmp_path, server.plain, limits=USUAL_LIMITS, workers=4) as rig:

            def restart() -> None:
                nonlocal kills
                while kills < 2 and not ended.wait(0.7):
                    server.kill()
                    kills += 1
                    pause.wait(0.2)
                    server.start()

            killer = threading.Thread(target=restart)
            killer.start()
            try:
                with ThreadPoolExecutor(4) as threads:
                    actions = [copying(rig, f"{number}".encode(), sandbox=False) for number in range(20)]
                    slow = [replace(one, argv=("bash", "-c", "sleep 0.3; cat in.txt > out.txt")) for one in actions]
                    outcomes = list(threads.map(rig.executor.run, slow))
            finally:
                ended.set()
                killer.join()
            assert [output(rig, one) for one in outcomes] == [f"{number}".encode() for number in range(20)]
            assert kills
            assert rig.executor.submissions <= 20 + 4 * kills
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("scheduler", "text"),
    [
        ("", "no server is named"),
        ("http://localhost:1", "does not begin with"),
        ("localhost:8980", "does not begin with"),
        ("grpc://10.1.1.1:8980", "has no TLS"),
        ("grpc://build.example:8980", "has no TLS"),
        ("grpc://localhost:1?a", "cannot be read"),
        ("grpc://localhost:1?a=1&a=2", "twice"),
    ],
)
def test_an_address_that_must_not_be_used_is_refused(scheduler: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        reapi_address(scheduler)
    assert text in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].code == "E488"


def test_an_address_names_the_workers() -> None:
    found = reapi_address("grpcs://me:secret@build.example/main?pool=a%20b&orch23=/opt/orch23&empty=")
    assert (found.url, found.program) == ("grpcs://me:secret@build.example/main", "/opt/orch23")
    assert found.properties == {"pool": "a b", "empty": ""}
    assert reapi_address("grpc://[::1]:1").program == "orch23"
    assert reapi_address("grpc://[::1]:1?orch23=none").program == ""


def test_a_server_has_a_fixed_number_of_slots_and_is_not_asked(tmp_path: Path) -> None:
    executor = make_executor(
        Surroundings(
            contents=DiskContentStore(tmp_path),
            workers=1,
            environ={},
            redact=str,
            open_cache=open_shared_cache,
            scheduler="grpc://127.0.0.1:1",
        )
    )
    assert executor.slots() == 32
    executor.close()
