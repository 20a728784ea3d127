"""Steps that fail, hang, escape or lie, and checks that have nothing to hold on to."""

import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from orch23.execute import process_tree
from orch23.execute.launch import TierChoice
from orch23.execute.sandbox.bubblewrap import BubblewrapLauncher
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import SandboxDir, TreeLimits, open_tree
from orch23.model.digest import FileEntry
from tests.catalogue.provoking import Trigger, Triggers, reported, shown
from tests.project import Project, scripted

TRIGGERS = Triggers()
PASSING = "def test_a():\n    pass\n"


def built(project: Project, stage: Mapping[str, Any], files: Mapping[str, str] | None = None, **top: Any) -> set[str]:
    """Build a pipeline of one stage, `a`; return the codes that are told."""
    project.write({**scripted({"a": stage}, {"a": ["x = 1\n"]}, **top), **(files or {})})
    return shown(project.build())


def tested(project: Project, test: str, **pytest: Any) -> set[str]:
    """Run one file of tests; return the codes that are told."""
    return built(project, {"inputs": ["test_a.py"], "pytest": {"paths": ["test_a.py"], **pytest}}, {"test_a.py": test})


def checked(project: Project, path: str, content: str, check: Mapping[str, Any], inputs: Mapping[str, str]) -> set[str]:
    """Hold a file that a command writes to one check; return the codes that are told."""
    command = ["cp", f"{path}.in", path]
    stage = {"inputs": [f"{path}.in", *inputs], "outputs": [path], "shell": command, "verify": [check]}
    return built(project, stage, {f"{path}.in": content, **inputs})


# ---- conditions, outputs, time --------------------------------------------------------------------

# code -> a stage that has it
STAGES: Mapping[str, Mapping[str, Any]] = {
    "E302": {"outputs": ["a"], "shell": "echo a > a", "ensures": [{"kind": "file_exists", "path": "b"}]},
    "E303": {"outputs": ["a"], "shell": "true"},
    "E304": {"outputs": ["a"], "shell": "sleep 60", "timeout": 0.2},
    "E306": {"outputs": ["a"], "shell": "echo a > a; echo b > b"},
    "E309": {"outputs": ["a"], "shell": ["no-such-program-here"]},
    "E318": {"outputs": ["a"], "shell": "echo a > a", "requires": [{"kind": "file_exists", "path": "b"}]},
    "W306": {"outputs": ["web/"], "shell": "echo '{}' > web/package.json"},
    "E480": {"outputs": ["a"], "shell": "echo a > a", "python": "no-such-python"},
    "E482": {"outputs": ["a"], "shell": "echo a > a", "tools": ["no-such-program-here"]},
    "E610": {"outputs": ["a"], "shell": "ln -s b a"},
    "E611": {"outputs": ["a"], "shell": "mkfifo a"},
    "E612": {"outputs": ["a", "b"], "shell": "echo a > a; ln a b"},
    "E613": {"outputs": ["a"], "shell": "echo a > a; chmod u+s a"},
    "E614": {"outputs": ["d/"], "shell": "touch d/$'x\\n'"},
    "E616": {"outputs": ["d/"], "shell": f"mkdir -p d/{'x/' * 70}"},
    "E617": {"outputs": ["a", "b"], "shell": "truncate -s 3G a b"},
    "E618": {"outputs": ["a"], "shell": "echo a > a; mv $PWD $PWD.gone"},
}


def _of_the_stages(code: str) -> Trigger:
    return lambda project: built(project, STAGES[code])


for _code in STAGES:
    TRIGGERS.of(_code)(_of_the_stages(_code))


@TRIGGERS.of("E337", needs="depfiles")
def depfile_that_is_not_written(project: Project) -> set[str]:
    """Write no depfile."""
    return built(project, {"outputs": ["a"], "shell": "echo a > a", "depfile": "$TMPDIR/a.d"})


@TRIGGERS.of("W338", needs="depfiles")
def depfile_of_a_step_that_reads_nothing(project: Project) -> set[str]:
    """Name an input in a depfile, and read none."""
    stage = {
        "inputs": ["*.h"],
        "outputs": ["a"],
        "shell": "echo a: a.h | tee a > $TMPDIR/a.d",
        "depfile": "$TMPDIR/a.d",
    }
    return built(project, stage, {"a.h": "\n"})


@TRIGGERS.of("E321")
def conftest_of_a_model(project: Project) -> set[str]:
    """Let a model write the conftest of the tests that judge it."""
    stage = {"outputs": ["conftest.py"], "llm": {"returns": "code"}, "verify": {"steps": [{"pytest": {}}]}}
    return built(project, stage) | reported(project)


@TRIGGERS.of("E481")
def interpreter_without_a_version(project: Project) -> set[str]:
    """Name a wrapper script as the interpreter."""
    project.write({"bin/run": "#!/bin/sh\n"})
    (project.root / "bin/run").chmod(0o755)
    return built(project, {"outputs": ["a"], "shell": "echo a > a", "python": "bin/run"})


# ---- caps and processes that no story reaches in a moment -----------------------------------------


class Nothing:
    """A source without bytes: the sandbox directories below have no inputs."""

    def copy_into(self, path: str, entry: FileEntry, target: str) -> bool:
        """Have nothing."""
        del path, entry, target
        return False


@TRIGGERS.of("E615")
def too_many_files(project: Project) -> set[str]:
    """Write more files than a sandbox directory may hold; the cap of a build is a hundred thousand."""
    rooms = SandboxDirs(project.root / "rooms", Nothing(), TreeLimits(entries=3))
    room = rooms.stage({})
    assert isinstance(room, SandboxDir)
    for number in range(4):
        (room.work / str(number)).touch()
    with open_tree(room) as tree:
        return {found.code for found in rooms.scan_open(tree, {}, ()).violations}


@TRIGGERS.of("E620")
def step_that_takes_too_much(project: Project) -> set[str]:
    """Write more than the stage allows."""
    stage = {"outputs": ["a"], "shell": "head -c 3000000 /dev/zero > a; sleep 60", "limits": {"disk": "1MiB"}}
    return built(project, stage)


@TRIGGERS.of("E483")
def machine_without_a_sandbox(project: Project) -> set[str]:
    """Build where neither bubblewrap nor Landlock is there."""
    with patch(
        "orch23.cli.build_run._best_tier", return_value=TierChoice(None, (("bubblewrap", "it is not installed"),))
    ):
        return built(project, {"outputs": ["a"], "shell": "echo a > a"})


@TRIGGERS.of("E484")
def stage_without_a_sandbox(project: Project) -> set[str]:
    """Switch the sandbox off, and do not allow it."""
    return built(project, {"outputs": ["a"], "shell": "echo a > a", "sandbox": "off"})


@TRIGGERS.of("E485")
def sandbox_that_does_not_come_about(project: Project) -> set[str]:
    """Take a bubblewrap that worked a moment ago, and does no more."""
    broken = project.root / "bwrap"
    project.write({"bwrap": "#!/bin/sh\necho 'bwrap: No space left on device' >&2\nexit 1\n"})
    broken.chmod(0o755)
    with patch("orch23.cli.build_run._best_tier", return_value=TierChoice(BubblewrapLauncher(broken))):
        return built(project, {"outputs": ["a"], "shell": "echo a > a"})


@TRIGGERS.of("E487", needs="remote")
def scheduler_that_is_not_there(project: Project) -> set[str]:
    """Name a port where no one listens."""
    project.write(scripted({"a": {"outputs": ["a"], "shell": "echo a > a"}}, {}))
    with socket.socket() as taken, patch("orch23.features.remote.dask_engine._CONNECT_S", 1):
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        return shown(project.build("--executor", "dask", "--scheduler", address, "--cache", "cache"))


@TRIGGERS.of("E488", needs="remote")
def scheduler_that_is_not_named(project: Project) -> set[str]:
    """Name a cluster, and not where it is."""
    project.write(scripted({"a": {"outputs": ["a"], "shell": "echo a > a"}}, {}))
    return shown(project.build("--executor", "dask"))


@TRIGGERS.of("E489", needs="remote")
def scheduler_of_another_machine(project: Project) -> set[str]:
    """Build offline on a cluster elsewhere."""
    project.write(scripted({"a": {"outputs": ["a"], "shell": "echo a > a"}}, {}))
    return shown(project.build("--executor", "dask", "--scheduler", "tls://10.0.0.1:1", "--cache", "c", "--offline"))


@TRIGGERS.of("E619")
def process_that_cannot_be_killed(project: Project) -> set[str]:
    """Have a process left; only one that is stuck in the kernel resists, and none can be made to."""
    end = process_tree.kill_tree

    def end_all_but_one(tree: process_tree.ProcessTree) -> tuple[int, ...]:
        return (*end(tree), 1)

    # Without a sandbox, no supervisor ends the step.
    project.write(scripted({"a": {"outputs": ["a"], "shell": "echo a > a", "sandbox": "off"}}, {}))
    with patch.object(process_tree, "kill_tree", end_all_but_one):
        return shown(project.build("--allow-unsandboxed"))


# ---- pytest ---------------------------------------------------------------------------------------

# code -> a file of tests that has it, and what else the step says
TESTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "E301": ("def test_a():\n    assert False\n", {}),
    "E305": ("import pytest\n\n\n@pytest.mark.skip\ndef test_a():\n    pass\n", {}),
    "E308": ("import os\n\n\ndef test_a():\n    os._exit(0)\n", {}),
    "E320": (PASSING, {"args": ["--no-such-option"]}),
    "E322": (PASSING, {"must_fail": True}),
}


def _of_the_tests(code: str) -> Trigger:
    test, step = TESTS[code]
    return lambda project: tested(project, test, **step) | reported(project)


for _code in TESTS:
    TRIGGERS.of(_code)(_of_the_tests(_code))


@TRIGGERS.of("E307")
def module_from_elsewhere(project: Project) -> set[str]:
    """Have a module in the sandbox directory that is called like an installed one, which is loaded in its place."""
    test = "import yaml\n\n\ndef test_a():\n    assert yaml.safe_load\n"
    early = "import sys, sysconfig\n\nsys.path.insert(0, sysconfig.get_path('purelib'))\n"
    stage = {"inputs": ["test_a.py", "yaml.py"], "pytest": {"paths": ["test_a.py"]}}
    return built(project, stage, {"test_a.py": early + test, "yaml.py": "X = 1\n"})


@TRIGGERS.of("E324")
def module_that_hides_one_of_a_library(project: Project) -> set[str]:
    """Have a module in the sandbox directory that is called like one of the standard library."""
    stage = {"inputs": ["test_a.py", "colorsys.py"], "pytest": {"paths": ["test_a.py"]}}
    return built(project, stage, {"test_a.py": PASSING, "colorsys.py": "X = 1\n"})


@TRIGGERS.of("E325")
def test_file_with_a_syntax_error(project: Project) -> set[str]:
    """Verify a model's file by a test that is not Python."""
    verify = {"inputs": ["test_a.py"], "steps": [{"pytest": {"paths": ["test_a.py"]}}]}
    stage = {"outputs": ["a.py"], "llm": {"returns": "code"}, "verify": verify}
    return built(project, stage, {"test_a.py": "def test_a(:\n"})


@TRIGGERS.of("E326")
def library_that_a_model_may_supply(project: Project) -> set[str]:
    """Verify a model's directory by a test that imports a module which is not installed and that nothing names."""
    verify = {"inputs": ["test_a.py"], "steps": [{"pytest": {"paths": ["test_a.py"]}}]}
    stage = {"outputs": ["src/"], "llm": {"returns": "files"}, "verify": verify}
    return built(project, stage, {"test_a.py": "import missinglib\ndef test_a(): pass\n"})


@TRIGGERS.of("E329")
def fix_without_a_test(project: Project) -> set[str]:
    """Require a test that fails without the change, and write one that does not."""
    verify = {"fails_on_base": ["tests/**"], "steps": [{"shell": "true"}]}
    return built(project, {"outputs": ["tests/a.py"], "shell": "echo > tests/a.py", "verify": verify})


@TRIGGERS.of("E328")
def formatter_that_removes(project: Project) -> set[str]:
    """Let a formatter remove the file that a model wrote."""
    return built(project, {"outputs": ["a.py"], "llm": {"returns": "code"}, "format": [{"shell": "rm a.py"}]}, {})


@TRIGGERS.of("E323")
def verification_that_writes(project: Project) -> set[str]:
    """Let a step of verification write beside the result."""
    return built(project, {"outputs": ["a"], "shell": "echo a > a", "verify": {"steps": [{"shell": "echo b > b"}]}})


# ---- checks ---------------------------------------------------------------------------------------

SCHEMA = {"s.json": json.dumps({"type": "object"})}
OF_SCHEMA = {"check": "json_schema", "with": {"schema": "s.json"}}

TASK = {"id": "T1", "title": "a", "rationale": "b", "acceptance": "c", "artifacts": ["a.py"]}
ORDER = {
    "id": "WO-01",
    "title": "Make a file",
    "intent": "It is there.",
    "preconditions": [],
    "postconditions": [{"kind": "file_exists", "path": "a"}],
    "allowed_files": ["a"],
    "forbidden": [],
    "acceptance_commands": ["true"],
    "context_files": [],
}
CONTRACT = {"verify_contract": {"requires": [{"kind": "file_exists", "path": "never"}]}}

# code -> what of a plan is wrong
PLANS: Mapping[str, Mapping[str, Any]] = {
    "E330": {"plan_id": "plan_2"},
    "E331": {"tasks": [{**TASK, "id": "T0"}]},
    "E332": {"tasks": [{**TASK, "artifacts": ["./a.py"]}]},
    "E333": {"tasks": [{**TASK, "artifacts": ["test_a.py"]}]},
}

# code -> what of a work order is wrong; the contract of them all is never met
ORDERS: Mapping[str, Mapping[str, Any]] = {
    "E001": {"id": "WO-02"},
    "E003": {"acceptance_commands": ["true && true"]},
    "E004": {"context_files": ["*.py"]},
    "E005": {"title": 1},
    "E006": {"acceptance_commands": ["python -c def"]},
    "E007": {"acceptance_commands": ["'"]},
    "E101": {"preconditions": [{"kind": "file_exists", "path": "b"}]},
    "E102": {"preconditions": [{"kind": kind, "path": "b"} for kind in ("file_exists", "file_absent")]},
    "E103": {"postconditions": [{"kind": "file_exists", "path": path} for path in ("a", "b")]},
    "E104": {"allowed_files": ["a", "b"]},
    "E105": {"acceptance_commands": ["bash scripts/verify.sh"]},
    "E106": {},
    "W101": {"acceptance_commands": ["python -c 'import gone'"]},
}

LAYER = {"name": "a", "kind": "models", "purpose": "It is there.", "files": ["a.py"]}
# code -> the layers of an architecture that is wrong by itself
ARCHITECTURES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "E340": [{**LAYER, "depends_on": ["b"]}],
    "E341": [LAYER, LAYER],
    "E342": [{**LAYER, "uses": ["b.py"]}],
}
# code -> what the next architecture says of that layer, and must not
CHANGED: Mapping[str, Mapping[str, Any]] = {
    "E343": {"name": "b"},
    "E344": {"kind": "ui"},
    "E345": {"files": ["b.py"]},
    "E346": {"purpose": "It stands there."},
}

# code -> the output, its content, the check, its inputs
CHECKED: Mapping[str, tuple[str, str, Mapping[str, Any], Mapping[str, str]]] = {
    "E310": ("a.txt", "text\n", OF_SCHEMA, SCHEMA),
    "W310": ("a.txt", "text\n", {"check": "python_syntax"}, {}),
    "E311": ("a.py", "def f(:\n", {"check": "python_syntax"}, {}),
    "E312": ("a.py", "x = 1\n", {"check": "python_syntax", "with": {"defines": {"a.py": ["f"]}}}, {}),
    "E313": ("a.json", "{,}\n", OF_SCHEMA, SCHEMA),
    "E314": ("a.json", "3\n", OF_SCHEMA, SCHEMA),
    "E315": ("a.py", "x = 1\n", {"check": "python_syntax", "with": {"strange": 1}}, {}),
    "E316": ("a.json", "3\n", {"check": "json_schema", "with": {"schema": "gone.json"}}, {}),
    **{
        code: ("a.json", json.dumps({"plan_id": "plan_0001", "tasks": [TASK], **wrong}), {"check": "planner_tasks"}, {})
        for code, wrong in PLANS.items()
    },
    **{
        code: ("a.json", json.dumps({"work_orders": [{**ORDER, **wrong}], **CONTRACT}), {"check": "work_orders"}, {})
        for code, wrong in ORDERS.items()
    },
    "E000": ("a.json", "{}\n", {"check": "work_orders"}, {}),
    "E317": ("a.json", "{}\n", {"check": "one_per_input"}, {}),
    **{
        code: ("a.json", json.dumps({"execution_layers": layers}), {"check": "architecture_stability"}, {})
        for code, layers in ARCHITECTURES.items()
    },
    "W347": (
        "a.json",
        json.dumps({"execution_layers": [LAYER]}),
        {"check": "architecture_stability", "with": {"released_in": ["f.md"]}},
        {"f.md": "Realease: a.py\n"},
    ),
    "E334": ("a.json", '{"passed": true}\n', {"check": "json_values", "with": {"values": {"passed": False}}}, {}),
    "E335": ("a.json", '{"b": 1, "a": 2}\n', {"check": "json_values", "with": {"order": ["a", "b"]}}, {}),
}


def _of_the_checks(code: str) -> Trigger:
    return lambda project: checked(project, *CHECKED[code])


for _code in CHECKED:
    TRIGGERS.of(_code)(_of_the_checks(_code))


def _of_the_revisions(code: str) -> Trigger:
    def trigger(project: Project) -> set[str]:
        """Have one architecture accepted, and hold the next one to it."""
        first, next_ = ({"execution_layers": [layer]} for layer in (LAYER, {**LAYER, **CHANGED[code]}))
        check = {"check": "architecture_stability"}
        assert not checked(project, "a.json", json.dumps(first), check, {})
        return checked(project, "a.json", json.dumps(next_), check, {})

    return trigger


for _code in CHANGED:
    TRIGGERS.of(_code)(_of_the_revisions(_code))


@TRIGGERS.of("W329")
def flaky_step(project: Project) -> set[str]:
    """Fail in the first run, and pass in the second one."""
    ran = project.root / ".ran"
    step = {"shell": f"test -f {ran} || {{ touch {ran}; false; }}", "reruns": 1}
    stage = {"sandbox": "off", "outputs": ["a"], "shell": "echo a > a", "verify": [step]}
    project.write(scripted({"a": stage}, {}))
    return shown(project.build("--allow-unsandboxed"))


# ---- limits and secrets ---------------------------------------------------------------------------

CODE: Mapping[str, Any] = {"outputs": ["app.py"], "llm": {"returns": "code"}}
KEY = "sk-ant-" + "api03-" + "x1Y2" * 20


def limited(project: Project, limits: Mapping[str, Any], **top: Any) -> set[str]:
    """Build a stage that asks a program, within limits; return the codes that are told."""
    asked = {"provider": "command", "model": "m", "command": ["cat"], "returns": "code", "prompt": "p.j2"}
    stages = {"a": {"outputs": ["app.py"], "llm": asked}}
    project.write({**scripted(stages, {}, defaults={}, stop_conditions=limits, **top), "p.j2": "write app.py\n"})
    return shown(project.build())


@TRIGGERS.of("E501")
def call_over_the_limit(project: Project) -> set[str]:
    """Allow one call, and need two."""
    stages = {name: {**CODE, "outputs": [f"{name}.py"]} for name in ("a", "b")}
    answers = {"a": ["x = 1\n"], "b": ["x = 2\n"]}
    project.write(scripted(stages, answers, stop_conditions={"max_llm_calls": 1}))
    return shown(project.build("-j1"))


@TRIGGERS.of("E502")
def dollar_over_the_limit(project: Project) -> set[str]:
    """Allow less than one call can cost."""
    asked = {
        "provider": "openai",
        "model": "m",
        "base_url": "http://127.0.0.1:9/v1",
        "returns": "code",
        "prompt": "p.j2",
    }
    top: dict[str, Any] = {"prices": {"m": {"input": 1, "output": 1}}, "stop_conditions": {"max_cost_usd": 0.001}}
    files = scripted({"a": {"outputs": ["app.py"], "llm": asked}}, {}, defaults={}, **top)
    return shown(project.write({**files, "p.j2": "write app.py\n"}).build())


@TRIGGERS.of("E503")
def token_over_the_limit(project: Project) -> set[str]:
    """Allow fewer tokens than one call can take."""
    return limited(project, {"max_tokens": 10})


@TRIGGERS.of("E504")
def second_over_the_limit(project: Project) -> set[str]:
    """Allow less time than the stage takes."""
    project.write(scripted({"a": {"outputs": ["a"], "shell": "sleep 60"}}, {}, stop_conditions={"max_wall": 0.3}))
    return shown(project.build())


@TRIGGERS.of("E601")
def secret_in_a_prompt(project: Project) -> set[str]:
    """Give a model a file that holds the value of a secret."""
    project.write({**scripted({"a": {**CODE, "inputs": ["spec.md"]}}, {"a": ["x = 1\n"]}), "spec.md": f"key: {KEY}\n"})
    return shown(project.build(env={"SERVICE_API_KEY": KEY}))


@TRIGGERS.of("E604")
def file_that_is_never_sent(project: Project) -> set[str]:
    """Name an input of a model that `never_send` matches."""
    stages = {"a": {**CODE, "inputs": ["spec.md"]}}
    project.write({**scripted(stages, {"a": ["x = 1\n"]}, never_send=["*.md"]), "spec.md": "text\n"})
    return shown(project.build())


@TRIGGERS.of("E602")
def secret_in_a_command(project: Project) -> set[str]:
    """Write a secret into the command of a step."""
    project.write(scripted({"a": {"outputs": ["a.txt"], "shell": f"echo {KEY} > a.txt"}}, {}))
    return shown(project.build(env={"SERVICE_API_KEY": KEY}))


@TRIGGERS.of("E603")
def secret_in_an_answer(project: Project) -> set[str]:
    """Let a model answer with a secret."""
    project.write(scripted({"a": CODE}, {"a": [f"```python\nx = '{KEY}'\n```\n"]}))
    return shown(project.build(env={"SERVICE_API_KEY": KEY}))
