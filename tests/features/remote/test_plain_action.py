"""Steps without a sandbox on workers that do not have orch23."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from orch23.features.cache.reapi.messages import (
    ActionProto,
    ActionResultProto,
    Directory,
    DirectoryNode,
    Duration,
    FileNode,
    OutputDirectory,
    RpcStatus,
    Tree,
    digest_proto,
)
from orch23.features.cache.reapi.wire import decode, encode
from orch23.features.remote.engine import EngineFault
from orch23.features.remote.plain_action import plain_fault, plain_outcome
from orch23.features.remote.reapi_address import ReapiAddress
from orch23.features.remote.reapi_result import Finished
from orch23.features.remote.single_action import single_action
from orch23.model.action import (
    PYTHON,
    Action,
    ActionResult,
    Completed,
    EngineUnavailable,
    Interpreter,
    StepLimits,
    TimedOut,
    outcome_to_bytes,
)
from orch23.model.digest import FileEntry, digest_bytes
from tests.casd import running_casd_with_workers
from tests.doubles import MemoryContents
from tests.features.remote.engines import Rig, local_rig, reapi_rig
from tests.reapi_workers import serving_executions

WORKERS = "?orch23=none&orch23-python=3.11&network=on"
PLAIN = ReapiAddress(url="grpc://127.0.0.1:1", program="", properties={"orch23-python": "3.11"})


@pytest.fixture(scope="module", params=["server", "casd"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "server":
        with serving_executions(folder / "server") as server, reapi_rig(folder, f"{server.url}{WORKERS}") as made:
            yield made
        return
    with running_casd_with_workers(folder / "casd") as address, reapi_rig(folder, f"grpc://{address}{WORKERS}") as made:
        yield made


def shell(rig: Rig, text: str, **given: Any) -> Action:
    texts = {"in/a.txt": "a\n", "in/c.txt": "", "run.sh": "#!/bin/sh\necho ran\n"}
    inputs = {path: FileEntry(rig.contents.put(text.encode()), path == "run.sh") for path, text in texts.items()}
    return Action(argv=("bash", "-c", text), inputs=inputs, sandbox=False, **given)


@pytest.mark.parametrize(("timeout_s", "nanos"), [(2.5, 500_000_000), (2.1 + 0.2, 300_000_000)])
def test_a_timeout_is_rounded_to_nanoseconds(timeout_s: float, nanos: int) -> None:
    made = single_action(digest_bytes(b"action"), Action(argv=("true",), inputs={}, timeout_s=timeout_s), PLAIN)
    # With the time for staging and storing.
    assert decode(ActionProto, made.blobs[made.action]).timeout == Duration(seconds=302, nanos=nanos)


@pytest.mark.parametrize("timeout_s", [-1000.0, float("inf"), float("nan"), float("-inf")])
def test_a_timeout_that_is_no_time_is_refused(timeout_s: float) -> None:
    action = Action(argv=("true",), inputs={}, timeout_s=timeout_s)
    with pytest.raises(ValueError, match=r"timeout|NaN"):
        single_action(digest_bytes(b"action"), action, PLAIN)


def result_of(outcome: Any) -> ActionResult:
    assert isinstance(outcome, Completed), outcome
    assert isinstance(outcome.result, ActionResult)
    return outcome.result


@pytest.mark.slow
def test_the_result_has_all_changes_of_the_tree(rig: Rig) -> None:
    text = (
        "cat in/a.txt > out/b.sh; chmod +x out/b.sh run.sh; rm in/c.txt; echo more >> in/a.txt; echo 1 > d.tmp; exit 7"
    )
    result = result_of(rig.executor.run(shell(rig, text, output_folders=("out",), scratch=("*.tmp",))))
    assert (result.exit_code, result.removed, result.violations, result.tier) == (7, ("in/c.txt",), (), "none")
    assert {path: (rig.contents.get(e.digest), e.executable) for path, e in result.written.items()} == {
        "in/a.txt": (b"a\nmore\n", False),
        "out/b.sh": (b"a\n", True),
    }


@pytest.mark.slow
def test_it_runs_in_its_folder_with_its_environment_and_a_long_output_is_a_log(rig: Rig) -> None:
    text = "echo $GREETING $TZ; ls; ../run.sh; seq 60000"
    result = result_of(rig.executor.run(shell(rig, text, working_directory="in", env={"GREETING": "hello"})))
    log = b"hello UTC\na.txt\nc.txt\nran\n" + b"".join(b"%d\n" % number for number in range(1, 60001))
    assert result.output.log is not None
    assert (rig.contents.get(result.output.log), result.output.size_bytes) == (log, len(log))
    assert "bytes are left out here" in result.output.text


@pytest.mark.slow
def test_a_link_is_no_part_of_a_result_and_a_timeout_is_one(rig: Rig) -> None:
    result = result_of(rig.executor.run(shell(rig, "ln -s /etc/passwd stolen")))
    assert ([one.code for one in result.violations], [*result.written]) == (["E610"], [])
    outcome = rig.executor.run(shell(rig, "echo begun; exec sleep 600", timeout_s=1))
    assert isinstance(outcome, TimedOut), outcome


@pytest.mark.slow
def test_a_result_is_that_of_this_machine(rig: Rig, tmp_path: Path) -> None:
    text = "mkdir -p x/y; sha256sum in/* | tee x/y/z; ./run.sh; no-such-program"
    elsewhere = replace(result_of(rig.executor.run(shell(rig, text))), duration_s=0.0)
    with local_rig(tmp_path, allowed=True) as here:
        local = replace(result_of(here.executor.run(shell(here, text))), duration_s=0.0)
    assert outcome_to_bytes(Completed(elsewhere)) == outcome_to_bytes(Completed(local))


@pytest.mark.slow
def test_what_needs_orch23_stops_the_build(rig: Rig) -> None:
    outcome = rig.executor.run(Action(argv=("true",), inputs={}))
    assert isinstance(outcome, EngineUnavailable), outcome
    assert outcome.diagnostic is not None
    assert (outcome.diagnostic.code, outcome.kind) == ("E488", "sandbox")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sandbox": True}, "needs a sandbox"),
        ({"reports": True}, "report"),
        ({"tools": {"plugin.py": FileEntry(digest_bytes(b""))}}, "report"),
        ({"writable": ()}, "may write only"),
        ({"argv": (PYTHON, "-V")}, "interpreter"),
        ({"programs": {"gcc": "0" * 64}}, "`tools`"),
        ({"python": Interpreter(None, "3.12")}, "orch23-python=3.12"),
        ({"python": Interpreter(None, "3.11")}, ""),
        ({}, ""),
    ],
)
def test_only_actions_that_need_nothing_of_orch23_are_allowed(given: dict[str, Any], text: str) -> None:
    action = Action(**{"argv": ("true",), "inputs": {}, "sandbox": False, **given})
    found = plain_fault(action, PLAIN)
    assert (found is not None) == bool(text)
    assert found is None or text in found.message


def outcome_of(tree: Tree, **given: Any) -> Any:
    data = encode(tree)
    directory = OutputDirectory(path="tree", tree_digest=digest_proto(digest_bytes(data)))
    finished = Finished(RpcStatus(), ActionResultProto(output_directories=(directory,)))
    action = Action(argv=("true",), inputs={}, sandbox=False, **given)
    return plain_outcome(action, finished, {digest_bytes(data): data}.get, MemoryContents())


EMPTY = digest_proto(digest_bytes(b""))


@pytest.mark.parametrize(
    "directory",
    [
        Directory(files=(FileNode(name="..", digest=EMPTY),)),
        Directory(files=(FileNode(name="a/b", digest=EMPTY),)),
        Directory(files=(FileNode(name="", digest=EMPTY),)),
        Directory(files=(FileNode(name="a", digest=EMPTY),) * 2),
        Directory(files=(FileNode(name="a"),)),
        Directory(directories=(DirectoryNode(name="a", digest=digest_proto(digest_bytes(b"gone"))),)),
    ],
)
def test_a_tree_that_makes_no_sense_is_a_fault_of_the_server(directory: Directory) -> None:
    with pytest.raises(EngineFault, match="cannot be read"):
        outcome_of(Tree(root=directory))


@pytest.mark.slow
def test_a_result_has_limits_and_a_lost_one_is_none() -> None:
    node = Directory(files=(FileNode(name="a", digest=digest_proto(digest_bytes(b"12345"))),))
    large = outcome_of(Tree(root=node), limits=StepLimits(disk=4))
    assert [one.code for one in result_of(large).violations] == ["E617"]
    with pytest.raises(EngineFault, match="more than 0 files"):
        outcome_of(Tree(root=node), limits=StepLimits(files=0))
    odd = Directory(files=(FileNode(name="a\nb", digest=EMPTY),))
    assert [one.code for one in result_of(outcome_of(Tree(root=odd))).violations] == ["E614"]
    finished = Finished(RpcStatus(), ActionResultProto(stdout_digest=digest_proto(digest_bytes(b"gone"))))
    action = Action(argv=("true",), inputs={}, sandbox=False)
    assert plain_outcome(action, finished, lambda _: None, MemoryContents()) is None
