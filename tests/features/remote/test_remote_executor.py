"""Faults of engines, workers and caches: an action is submitted again, a limited number of times, before it fails."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from orch23.execute.interpreters import SYSTEM_PATH, tool_digest
from orch23.features.remote.dask_engine import lacking_text
from orch23.features.remote.engine import (
    MAX_INLINE_BYTES,
    EngineFault,
    Reply,
    UnreachableEngineError,
    Work,
    WorkerLost,
    digest_text,
    parse_digest,
)
from orch23.features.remote.worker import RemoteWorker
from orch23.model.action import (
    Action,
    ActionOutcome,
    ActionResult,
    Cancelled,
    Completed,
    EngineUnavailable,
    Output,
    TimedOut,
    outcome_from_bytes,
    outcome_to_bytes,
)
from orch23.model.digest import Digest, FileEntry, digest_bytes
from orch23.model.server_url import without_login
from tests.features.remote.engines import ENVIRON, QUICK, Rig, fake_rig
from tests.features.remote.test_conformance import wait_until

COPY = "cat in.txt > out.txt; echo done"


def copying(rig: Rig, text: bytes = b"some bytes", **given: Any) -> Action:
    entry = FileEntry(rig.contents.put(text))
    return Action(argv=("bash", "-c", COPY), inputs={"in.txt": entry}, sandbox=False, **given)


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    with fake_rig(tmp_path, worker={"allowed": True}) as made:
        yield made


def blob(rig: Rig, digest: Digest) -> Path:
    assert rig.cache is not None
    return rig.cache / "cas" / digest.sha256[:2] / digest.sha256


def passed(outcome: Any) -> ActionResult:
    assert isinstance(outcome, Completed), outcome
    assert outcome.result.exit_code == 0
    return outcome.result


def refusal(outcome: Any) -> str:
    """Return why an action could not be run: it stops the build, and does not count as a failure of a stage."""
    assert isinstance(outcome, EngineUnavailable), outcome
    assert outcome.diagnostic is not None
    assert outcome.diagnostic.code == "E487"
    return outcome.reason


def test_a_worker_gets_two_strings_and_bytes_travel_through_the_cache(rig: Rig) -> None:
    action = copying(rig)
    result = passed(rig.executor.run(action))
    assert rig.engine.submitted == [Work(str(rig.cache), digest_bytes(action.to_bytes()))]
    assert blob(rig, digest_bytes(action.to_bytes())).read_bytes() == action.to_bytes()
    assert rig.contents.get(result.written["out.txt"].digest) == b"some bytes"


def test_what_the_cache_has_is_not_uploaded_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    put = rig.executor._transfers._cache.put_blob

    def note(digest: Digest, chunks: Any) -> None:
        sent.append(digest.size_bytes)
        put(digest, chunks)

    monkeypatch.setattr(rig.executor._transfers._cache, "put_blob", note)
    action = copying(rig)
    for _ in range(3):
        passed(rig.executor.run(action))
    assert sent == [len(b"some bytes"), len(action.to_bytes())]


@pytest.mark.parametrize("kind", ["lost", "faults"])
def test_after_a_fault_the_action_is_submitted_again_as_often_as_the_limit_says(rig: Rig, kind: str) -> None:
    fault: Callable[[], EngineFault] = {"lost": lambda: WorkerLost("w1 ended"), "faults": lambda: EngineFault("odd")}[
        kind
    ]
    most = getattr(QUICK, kind)
    rig.engine.faults = [fault() for _ in range(most)]
    reasons: list[str] = []
    rig.executor._on_fault = reasons.append
    passed(rig.executor.run(copying(rig)))
    assert len(rig.engine.submitted) == most + 1
    assert reasons == [fault().reason] * most
    rig.engine.faults = [fault() for _ in range(most + 1)]
    assert fault().reason in refusal(rig.executor.run(copying(rig)))


def test_an_engine_that_was_never_reached_is_not_tried_again(rig: Rig) -> None:
    rig.engine.faults = [UnreachableEngineError("no such host")]
    assert "no such host" in refusal(rig.executor.run(copying(rig)))
    assert len(rig.engine.submitted) == 1


def test_without_workers_an_action_waits_for_a_bounded_time(rig: Rig) -> None:
    rig.engine.count = 0
    outcome = rig.executor.run(Action(argv=("sleep", "600"), inputs={}, sandbox=False))
    assert "no worker" in refusal(outcome)


def test_an_input_that_the_cache_removed_is_uploaded_again(rig: Rig) -> None:
    passed(rig.executor.run(copying(rig)))
    assert rig.cache is not None
    for path in rig.cache.rglob("cas/*/*"):
        path.unlink()
    # The worker has the bytes of the first run: take another one.
    forget_blobs(rig.engine.worker)
    passed(rig.executor.run(copying(rig)))
    assert len(rig.engine.submitted) == 4  # the action was missing, then its input


def test_a_damaged_input_is_uploaded_again(rig: Rig) -> None:
    action = copying(rig)
    passed(rig.executor.run(action))
    path = blob(rig, action.inputs["in.txt"].digest)
    path.chmod(0o600)
    path.write_bytes(b"SOME BYTES")
    forget_blobs(rig.engine.worker)
    assert rig.contents.get(passed(rig.executor.run(action)).written["out.txt"].digest) == b"some bytes"
    assert path.read_bytes() == b"some bytes"


def test_an_input_that_vanishes_each_time_ends_the_build(rig: Rig) -> None:
    missing = digest_bytes(b"some bytes")
    rig.engine.on_reply = lambda _: Reply(missing=(missing,), worker="w1").to_bytes()
    assert "w1 does not find" in refusal(rig.executor.run(copying(rig)))
    assert len(rig.engine.submitted) == QUICK.missing + 1


def test_after_the_cache_lost_an_output_the_action_is_run_again(rig: Rig) -> None:
    replies: list[bytes] = []

    def lose(reply: bytes) -> bytes:
        if not replies:
            result = passed(outcome_from_bytes(Reply.from_bytes(reply).outcome or b""))
            blob(rig, result.written["out.txt"].digest).unlink()
        replies.append(reply)
        return reply

    rig.engine.on_reply = lose
    action = Action(argv=("bash", "-c", "echo other bytes > out.txt"), inputs={}, sandbox=False)
    assert rig.contents.get(passed(rig.executor.run(action)).written["out.txt"].digest) == b"other bytes\n"
    assert len(replies) == 2


@pytest.mark.slow
def test_a_large_outcome_is_a_blob(rig: Rig) -> None:
    command = "for i in $(seq 800); do echo $i > a-file-with-a-long-name-$i; done"
    sizes: list[int] = []

    def measure(reply: bytes) -> bytes:
        sizes.append(len(reply))
        return reply

    rig.engine.on_reply = measure
    outcome = rig.executor.run(Action(argv=("bash", "-c", command), inputs={}, sandbox=False))
    assert len(passed(outcome).written) == 800
    assert len(outcome_to_bytes(outcome)) > MAX_INLINE_BYTES
    assert sizes[0] < 1000


FORGED = {
    "not JSON": b"\x80\x04pickle",
    "empty": Reply().to_bytes(),
    "huge": Reply(
        outcome=outcome_to_bytes(
            Completed(ActionResult(exit_code=0, written={"a": FileEntry(Digest("0" * 64, 1 << 50))}, output=Output("")))
        )
    ).to_bytes(),
    "huge outcome": Reply(blob=Digest("0" * 64, 1 << 40)).to_bytes(),
    "outside": Reply(
        outcome=msgspec.json.encode(
            Completed(ActionResult(exit_code=0, written={"../up": FileEntry(digest_bytes(b""))})), order="sorted"
        )
    ).to_bytes(),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_reply_is_refused(rig: Rig, name: str) -> None:
    rig.engine.on_reply = lambda _: FORGED[name]
    assert "cannot be read" in refusal(rig.executor.run(copying(rig)))


def test_outputs_with_wrong_bytes_never_arrive(rig: Rig) -> None:
    digest = digest_bytes(b"right")
    forged = Completed(ActionResult(exit_code=0, written={"out.txt": FileEntry(digest)}, output=Output("")))

    def forge(_: bytes) -> bytes:
        path = blob(rig, digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"wrong")
        return Reply(outcome=outcome_to_bytes(forged)).to_bytes()

    rig.engine.on_reply = forge
    assert "lost outputs" in refusal(rig.executor.run(copying(rig)))
    assert not rig.contents.has(digest)


def test_a_full_disk_of_a_worker_is_no_failure_of_the_stage(rig: Rig) -> None:
    full = EngineUnavailable("No space left on device", "room")
    rig.engine.on_reply = lambda _: Reply(outcome=outcome_to_bytes(full), worker="w1").to_bytes()
    assert "w1: No space left" in refusal(rig.executor.run(copying(rig)))


def replying_at(place: str, **changes: Any) -> Callable[[bytes], bytes]:
    """Return what gives a reply the place of a worker that an engine can avoid, and other fields."""

    def reply(data: bytes) -> bytes:
        changed: Reply = replace(Reply.from_bytes(data), place=place, **changes)
        return changed.to_bytes()

    return reply


BAD: dict[str, dict[str, Any]] = {
    "it has another cache": {"outcome": None, "missing": (Digest("0" * 64, 1),)},
    "it cannot use the cache": {"outcome": None, "fault": "the cache cannot be used"},
    "its disk is full": {"outcome": outcome_to_bytes(EngineUnavailable("No space left on device", "room"))},
}


@pytest.mark.parametrize("name", BAD)
def test_an_action_that_fails_on_a_worker_is_sent_to_another_one(rig: Rig, name: str) -> None:
    def reply(data: bytes) -> bytes:
        is_good = "tcp://bad" in rig.engine.submitted[-1].avoided
        return data if is_good else replying_at("tcp://bad", **BAD[name])(data)

    rig.engine.on_reply = reply
    for _ in range(5):
        assert isinstance(rig.executor.run(copying(rig)), Completed)
    # After three actions, it gets none any more while there are others.
    assert [bool(work.avoided) for work in rig.engine.submitted] == [False, True] * 3 + [True, True]


def test_nothing_is_sent_to_a_worker_with_another_version(rig: Rig) -> None:
    def reply(data: bytes) -> bytes:
        is_good = "tcp://old" in rig.engine.submitted[-1].avoided
        return data if is_good else replying_at("tcp://old", version="0.0.1")(data)

    rig.engine.on_reply = reply
    for _ in range(2):
        assert isinstance(rig.executor.run(copying(rig)), Completed)
    assert [work.avoided for work in rig.engine.submitted] == [frozenset(), *[frozenset({"tcp://old"})] * 2]


def test_a_worker_with_another_version_that_cannot_be_avoided_ends_the_build(rig: Rig) -> None:
    rig.engine.on_reply = replying_at("", version="0.0.1", worker="w1")
    outcome = rig.executor.run(copying(rig))
    assert "w1 has orch23 0.0.1, and this is" in refusal(outcome)
    assert len(rig.engine.submitted) == 1


def test_a_worker_that_shuts_down_is_a_lost_one(rig: Rig) -> None:
    replies = iter([Reply(outcome=outcome_to_bytes(Cancelled()), worker="w1").to_bytes()])
    rig.engine.on_reply = lambda reply: next(replies, reply)
    passed(rig.executor.run(copying(rig)))
    assert len(rig.engine.submitted) == 2


def test_an_action_of_another_version_is_refused_by_the_worker(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Action, "to_bytes", lambda _: b'{"argv":["true"],"inputs":{},"no_clock":true}')
    assert "of the worker cannot read the action" in refusal(rig.executor.run(copying(rig)))


def test_workers_do_not_get_the_password_of_the_cache(tmp_path: Path) -> None:
    assert without_login("https://me:secret@host:80/path") == "https://host:80/path"
    assert without_login("/a/folder@home") == "/a/folder@home"
    with fake_rig(tmp_path, worker={"cache_url": str(tmp_path / "cache")}, cache_url="https://me:s@host") as rig:
        rig.executor.run(Action(argv=("true",), inputs={}))
        assert rig.engine.submitted[0].cache_url == "https://host"


def test_a_worker_without_permission_runs_nothing_without_a_sandbox(tmp_path: Path) -> None:
    with fake_rig(tmp_path) as rig:
        outcome = rig.executor.run(copying(rig))
    assert isinstance(outcome, EngineUnavailable)
    assert outcome.diagnostic is not None
    assert outcome.diagnostic.code == "E484"


def test_a_weaker_sandbox_than_the_action_needs_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orch23.execute.launch import SandboxLauncher  # noqa: PLC0415

    monkeypatch.setattr(SandboxLauncher, "tier", "landlock")
    with fake_rig(tmp_path) as rig:
        outcome = rig.executor.run(Action(argv=("true",), inputs={}, min_tier="namespaces"))
    assert isinstance(outcome, EngineUnavailable)
    assert outcome.kind == "sandbox"
    assert "needs at least `namespaces`" in outcome.reason


def test_a_worker_with_another_declared_tool_runs_nothing(rig: Rig) -> None:
    digest = tool_digest("bash", SYSTEM_PATH)
    assert digest is not None
    assert passed(rig.executor.run(copying(rig, programs={"bash": digest}))).exit_code == 0
    for name, why in (("bash", "another program"), ("no-such-tool", "is not installed")):
        outcome = rig.executor.run(copying(rig, programs={name: "0" * 64}))
        assert isinstance(outcome, EngineUnavailable)
        assert outcome.diagnostic is not None
        assert (outcome.diagnostic.code, why in outcome.reason) == ("E482", True)


def test_secrets_of_this_machine_are_removed_from_reports(tmp_path: Path) -> None:
    with fake_rig(tmp_path, redact=lambda text: text.replace("s3cret", "***")) as rig:
        report = rig.contents.put(b'{"text":"s3cret"}')

        def outcome_of(sent: ActionOutcome) -> Any:
            rig.engine.on_reply = lambda _: Reply(outcome=outcome_to_bytes(sent)).to_bytes()
            return rig.executor.run(Action(argv=("true",), inputs={}))

        found = passed(
            outcome_of(Completed(ActionResult(exit_code=0, written={}, report=report, results={"j.xml": report})))
        )
        late = outcome_of(TimedOut(Output(""), 1.0, report=report))
        assert isinstance(late, TimedOut)
        for one in (found.report, found.results["j.xml"], late.report):
            assert one is not None
            assert rig.contents.get(one) == b'{"text":"***"}'


def test_cancel_while_nothing_is_submitted_yet_starts_nothing(rig: Rig) -> None:
    rig.executor.cancel()
    assert rig.executor.run(copying(rig)) == Cancelled()
    assert rig.engine.submitted == []


def test_a_worker_without_an_owner_kills_and_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    left = tmp_path / "orch23-worker-0123456789abcdef"
    (left / "blobs").mkdir(parents=True)
    worker = RemoteWorker(tmp_path, slots=1, environ=ENVIRON)
    assert not left.exists()
    folders = [one.name for one in tmp_path.iterdir()]
    worker.close()
    assert len(folders) == 1
    assert [*tmp_path.iterdir()] == []


def test_a_worker_keeps_blobs_up_to_a_limit(tmp_path: Path) -> None:
    with fake_rig(tmp_path, worker={"allowed": True, "scratch_bytes": 1000}) as rig:
        for number in range(5):
            passed(rig.executor.run(copying(rig, bytes([number]) * 900)))
        stores = [*(tmp_path / "worker").glob("*/blobs/*")]
        assert len(stores) == 1
        assert sum(path.stat().st_size for path in stores[0].rglob("*") if path.is_file()) < 4000


def test_several_actions_run_at_once(rig: Rig) -> None:
    assert rig.cache is not None
    meeting = rig.cache.parent
    command = f"touch {meeting}/$0; while [ ! -e {meeting}/$1 ]; do sleep 0.01; done"
    outcomes: list[Any] = []

    def run(*names: str) -> None:
        action = Action(argv=("bash", "-c", command, *names), inputs={}, sandbox=False, timeout_s=20)
        outcomes.append(rig.executor.run(action))

    threads = [threading.Thread(target=run, args=names) for names in (("one", "two"), ("two", "one"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [passed(one).exit_code for one in outcomes] == [0, 0]


def test_a_digest_is_one_string() -> None:
    digest = digest_bytes(b"x")
    assert parse_digest(digest_text(digest)) == digest
    with pytest.raises(ValueError, match="int"):
        parse_digest("abc")


def forget_blobs(worker: RemoteWorker) -> None:
    """Let a worker begin with no blob, as a new one does."""
    worker._generations[-1].contents.added_bytes = 1 << 60


# ---- resources and slots ---------------------------------------------------------------------------


def test_resources_are_sent_with_an_action_and_are_no_part_of_it(rig: Rig) -> None:
    rig.engine.resources = {"gpu": 2.0}
    passed(rig.executor.with_resources({"gpu": 1.0}).run(copying(rig)))
    passed(rig.executor.run(copying(rig)))
    assert [work.resources for work in rig.engine.submitted] == [{"gpu": 1.0}, {}]
    assert len({work.action for work in rig.engine.submitted}) == 1


def test_an_action_waits_only_for_a_while_for_a_resource_that_no_worker_has(rig: Rig) -> None:
    rig.engine.resources = {"gpu": 2.0}
    # It would run if a worker came: this engine does not look at resources.
    rig.engine.threads.shutdown()
    rig.engine.submit = lambda *_: Waiting()
    rig.engine.cancel = lambda _: None
    outcome = rig.executor.with_resources({"gpu": 2.0, "fpga": 1.0}).run(copying(rig))
    assert isinstance(outcome, EngineUnavailable)
    assert outcome.diagnostic is not None
    assert (outcome.diagnostic.code, "no worker with the resource fpga=1 for 2 s" in outcome.reason) == ("E487", True)


class Waiting:
    """An action that no worker takes."""

    def result(self, timeout: float) -> bytes:
        threading.Event().wait(timeout)
        raise TimeoutError


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([], "the resources gpu=2, memory=8589934592"),
        ([{"gpu": 2, "memory": 2**33}], ""),
        ([{"gpu": 2}, {"gpu": 2, "memory": 2**34}], ""),
        ([{"gpu": 1, "memory": 2**33}], "the resource gpu=2"),
        ([{"gpu": 2}, {"gpu": 4}], "the resource memory=8589934592"),
        ([{"gpu": 2}, {"memory": 2**33}], "the resources gpu=2, memory=8589934592 together"),
        ([{}], "the resources gpu=2, memory=8589934592"),
    ],
)
def test_the_resources_are_named_that_no_worker_has(workers: list[dict[str, float]], expected: str) -> None:
    assert lacking_text({"gpu": 2.0, "memory": float(2**33)}, workers) == expected


def test_slots_are_asked_in_a_thread_after_the_first_action_and_followed(rig: Rig) -> None:
    asked: list[str] = []

    def slots() -> int:
        asked.append(threading.current_thread().name)
        return int(rig.engine.count)

    rig.executor._slot_count._ask = slots
    assert (rig.executor.slots(), asked) == (1, [])
    passed(rig.executor.run(copying(rig)))
    wait_until(lambda: rig.executor.slots() == 2)
    rig.engine.count = 5
    wait_until(lambda: rig.executor.slots() == 5)
    assert {*asked} == {"orch23-slots"}


def test_without_workers_one_action_is_sent_and_reports_that(rig: Rig) -> None:
    counts = iter([3, 0, 4])
    rig.executor._slot_count._ask = lambda: next(counts)
    rig.executor._slot_count._wait = lambda _: rig.executor._slot_count._count == 0
    rig.executor.submissions = 1
    wait_until(lambda: rig.executor.slots() == 1 and not slot_threads())
    assert next(counts) == 4


def slot_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "orch23-slots"]


def test_a_fault_of_the_engine_keeps_the_last_count(rig: Rig) -> None:
    def fail() -> int:
        failed.set()
        message = "the scheduler is away"
        raise EngineFault(message)

    failed = threading.Event()
    passed(rig.executor.run(copying(rig)))
    wait_until(lambda: rig.executor.slots() == 2)
    rig.executor._slot_count._ask = fail
    assert failed.wait(30)
    assert rig.executor.slots() == 2
