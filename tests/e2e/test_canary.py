"""A canary: whatever happens, the key in the environment is in nothing that orch23 writes, prints or sends."""

import base64
import json
import os
import stat
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from orch23.engine.build import Build
from tests.e2e.pipelines import green, pipeline, shell
from tests.model_program import ROOT
from tests.project import Outcome, Project

CANARY = "sk-ant-api03-c4nARy+/9d8F7g6H5j4K3l2M1n0P_Zz"
OTHER = 'bird "of" \\ \u00e4 7fj3Ldk9'
SECRETS = {"ANTHROPIC_API_KEY": CANARY, "OTHER_TOKEN": OTHER}

SPOKEN = f"""
import base64, json, os, sys, urllib.parse
question = json.load(sys.stdin)["messages"][-1]["content"]
with open({ROOT} + "-sent.log", "a") as log:
    log.write(question + "\\n----\\n")

def spelled():
    for name in ("ANTHROPIC_API_KEY", "OTHER_TOKEN"):
        value = os.environ[name]
        yield from (value, base64.b64encode(value.encode()).decode(), base64.b64encode(b"x" + value.encode()).decode())
        yield from (base64.encodebytes(value.encode() * 3).decode(), base64.urlsafe_b64encode(value.encode()).decode())
        yield from (value.encode().hex(), value.encode().hex().upper(), urllib.parse.quote(value, safe=""))
        yield from (json.dumps(value), "".join(f"\\\\u{{ord(one):04x}}" for one in value), repr(value))

said = "\\n".join(spelled())
"""
ANSWERS = f"{SPOKEN}\nsys.stdout.write(said)\nsys.stderr.write(said)\n"
FAILS = f"{SPOKEN}\nsys.stderr.write(said[-400:])\nsys.stderr.write(said)\nsys.exit(3)\n"

STAGES = """\
  refused:
    inputs: [specs/app.md]
    outputs: [refused.txt]
    llm: {returns: text, prompt: show.j2}
  echoes:
    outputs: [echoes.txt]
    retry: {max: 1, when: [llm_output_invalid]}
    llm: {returns: text, prompt: plain.j2, transcripts: transcripts}
  fails:
    outputs: [fails.txt]
    llm: {returns: text, prompt: plain.j2, command: [PYTHON, fails.py]}
  prints:
    outputs: [prints.txt]
    shell: "env | tee prints.txt; cat /proc/[0-9]*/environ /proc/self/environ 2>/dev/null || true"
  tests:
    inputs: [tests/]
    pytest: {paths: [tests]}
"""
PROMPTS = {
    "show.j2": "{{ inputs[0].text }}",
    "plain.j2": "Say something.\n{{ previous or '' }}\n{{ brief.excerpt if brief else '' }}\n",
    "answers.py": ANSWERS,
    "fails.py": FAILS,
    "tests/test_env.py": "import os\n\ndef test_env():\n    raise ValueError(str(os.environ))\n",
}


def story(stages: str, files: Mapping[str, str]) -> dict[str, str]:
    made = pipeline(stages, {**PROMPTS, **files})
    given = f"pass_env: [{', '.join(SECRETS)}], command:"
    made["pipeline.yaml"] = made["pipeline.yaml"].replace("model.py", "answers.py").replace("command:", given, 1)
    python = made["pipeline.yaml"].split("command: [")[1].split(",")[0]
    made["pipeline.yaml"] = made["pipeline.yaml"].replace("PYTHON", python)
    return made


def spelled(value: str) -> Iterator[bytes]:
    """Give the six spellings (base64 at its three places, and for URLs), as bytes."""
    data = value.encode()
    yield data
    for before in (b"", b"x", b"xx"):
        whole = base64.b64encode(before + data)
        yield whole[4:-4]
        yield whole[4:-4].replace(b"+", b"-").replace(b"/", b"_")
    yield from (data.hex().encode(), data.hex().upper().encode())
    yield urllib.parse.quote(value, safe="").encode()
    yield json.dumps(value)[1:-1].encode()
    yield "".join(f"\\u{ord(char):04x}" for char in value).encode()


def holds(data: bytes) -> list[bytes]:
    """Return how the canaries, or the halves of them, can be read out of some bytes."""
    flat = data.replace(b"\n", b"")
    parts = [part for value in SECRETS.values() for part in spelled(value)]
    halves = [half for part in parts for half in (part[: len(part) // 2], part[len(part) // 2 :])]
    return [half for half in halves if half in data or half in flat]


def nests(root: Path) -> set[str]:
    """Return the files of a project in which a canary sits."""
    return {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if holds(path.relative_to(root).as_posix().encode())
        or (path.is_file() and not path.is_symlink() and holds(path.read_bytes()))
    }


def silent(*outcomes: Outcome) -> None:
    for outcome in outcomes:
        assert holds(outcome.out.encode()) == []
        assert holds(outcome.err.encode()) == []


def test_the_search_has_teeth(tmp_path: Path) -> None:
    for number, one in enumerate(part for value in SECRETS.values() for part in spelled(value)):
        (tmp_path / str(number)).write_bytes(b"\n" * number + one)
    assert len(nests(tmp_path)) == len([part for value in SECRETS.values() for part in spelled(value)])
    assert holds(b"[redacted ANTHROPIC_API_KEY]") == []


@pytest.mark.slow
def test_a_canary_sits_nowhere_but_in_the_spec_that_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path / "p")
    project.write(story(STAGES, {"specs/app.md": f"# App\n\nUse {CANARY}.\n"}))
    built = [project.build("--keep-going", env=SECRETS), project.build("--keep-going", "--json", env=SECRETS)]
    assert [one.code for one in built] == [5, 5], "the provider's failure is the worst of them"
    silent(*built)
    assert "[E601]: specs/app.md:3: the prompt would send a secret: ANTHROPIC_API_KEY" in built[0].err
    assert "[E603]" in built[0].err

    stages = ("refused", "echoes", "fails", "prints", "tests")
    reported = [project.run("show", stage, *more, env=SECRETS) for stage in stages for more in ((), ("--json",))]
    reported += [project.run(*words, env=SECRETS) for words in (("log",), ("log", "--json"), ("runs", "--json"))]
    reported += [project.run(*words, env=SECRETS) for words in (("plan",), ("plan", "--json"), ("status", "--json"))]
    reported += [project.run("explain", stage, env=SECRETS) for stage in stages]
    reported += [project.run("show", stage, f"--{CANARY}", env=SECRETS) for stage in ("echoes", OTHER)]
    silent(*reported)
    assert any("[redacted OTHER_TOKEN]" in one.out for one in reported)

    def bug(build: Build) -> None:
        del build
        message = f"could not parse {CANARY!r}, {OTHER!r}"
        raise RuntimeError(message)

    monkeypatch.setattr(Build, "run", bug)
    crashed = project.build(env=SECRETS)
    assert crashed.code == 70
    silent(crashed)
    (crash,) = (project.root / "logs").glob("crash-*.txt")
    assert "could not parse '[redacted ANTHROPIC_API_KEY]', '[redacted OTHER_TOKEN]'" in crash.read_text()

    assert nests(project.root) == {"specs/app.md"}
    assert "PATH=" in project.read("prints.txt"), "the step did print its environment"
    transcripts = (project.root / "transcripts").glob("*.json")
    assert any("[redacted ANTHROPIC_API_KEY]" in path.read_text() for path in transcripts)
    sent = Path(f"{project.root}-sent.log").read_bytes()
    assert b"[redacted OTHER_TOKEN]" in sent, "the second attempt was shown its previous answer"
    assert holds(sent) == []


def test_with_redact_the_model_is_asked_without_the_secret(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    stages = (
        "  asks:\n    inputs: [specs/app.md]\n    outputs: [a.txt]\n    llm: {returns: text, prompt: show.j2, MORE}\n"
    )
    files = {"specs/app.md": f"# App\nUse {CANARY}.\n", "answers.py": f"{SPOKEN}\nprint('done')\n"}
    project.write(story(stages.replace("MORE", "secrets: redact"), files))
    green(project.build(env=SECRETS))
    assert Path(f"{project.root}-sent.log").read_text() == "# App\nUse [redacted ANTHROPIC_API_KEY].\n\n----\n"
    (prompt,) = project.root.glob("logs/*/asks/attempt-1/prompt.txt")
    assert prompt.read_text() == "# App\nUse [redacted ANTHROPIC_API_KEY].\n"
    assert {name.split("/")[0] for name in nests(project.root) - {"specs/app.md"}} == {".orch23"}
    assert {name.split("/")[1] for name in nests(project.root) - {"specs/app.md"}} == {"cas"}, "the copy of the input"
    assert project.plan(env=SECRETS) == {"asks": "fresh"}


def test_a_recorded_answer_is_no_way_around_the_guard(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    stages = "  asks:\n    inputs: [app.md]\n    outputs: [a.txt]\n    llm: {returns: text, prompt: show.j2}\n"
    project.write(story(stages, {"app.md": f"Use {CANARY[13:]}.\n", "answers.py": f"{SPOKEN}\nprint('done')\n"}))
    fine = {**SECRETS, "ANTHROPIC_API_KEY": "another-key-4711"}
    green(project.build(env=fine))
    assert Path(f"{project.root}-sent.log").exists()
    late = project.build("--replay", "--force", "asks", env={**SECRETS, "A_KEY": CANARY[13:]})
    assert late.code == 1
    assert "[E601]: app.md:1: the prompt would send a secret: A_KEY" in late.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "part"),
    [
        (f"    shell: [sh, -c, 'true {CANARY}']\n", "command"),
        (f"    env: {{PLAIN: '{CANARY}'}}\n    shell: [touch, a.txt]\n", "env"),
        (f"    salt: 'x{CANARY}'\n    shell: [touch, a.txt]\n", "salt"),
        (f"    llm: {{returns: text, prompt: plain.j2, command: [python3, answers.py, '{CANARY}']}}\n", "endpoint"),
    ],
    ids=["command", "env", "salt", "endpoint"],
)
def test_a_secret_in_the_pipeline_itself_is_not_stored(tmp_path: Path, stage: str, part: str) -> None:
    project = Project(tmp_path / "p").write(story(f"  made:\n    outputs: [a.txt]\n{stage}", {}))
    outcome = project.build(env=SECRETS)
    assert outcome.code == 1
    assert f"[E602]: {part}: a secret would be stored with the result: ANTHROPIC_API_KEY" in outcome.err
    silent(outcome, project.run("plan", env=SECRETS), project.run("plan", "--json", env=SECRETS))
    assert nests(project.root) == {"pipeline.yaml"}
    assert not Path(f"{project.root}-sent.log").exists()


NAME = "c4n-ary_9d8F7g6H5j4K3l2M1n0P"


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        (f"  {NAME}:\n    outputs: [a.txt]\n    shell: [touch, a.txt]\n", "name"),
        (
            "  made:\n    inputs: [seed.txt]\n    outputs: [o/]\n    shell: mkdir -p o; touch o/$(cat seed.txt)\n",
            "the name of an output",
        ),
    ],
    ids=["stage", "output"],
)
def test_a_name_that_is_a_secret_is_not_stored(tmp_path: Path, stage: str, part: str) -> None:
    project = Project(tmp_path / "p").write(shell(stage, {"seed.txt": NAME}))
    outcome = project.build(env={"A_TOKEN": NAME})
    assert outcome.code == 1
    assert "E602" in outcome.err
    assert f"{part}: a secret would be stored with the result: A_TOKEN" in outcome.err
    assert NAME not in outcome.err
    kept = [path for path in project.root.rglob("*") if path.relative_to(project.root).parts[:2] != (".orch23", "cas")]
    assert not [path for path in kept if NAME in str(path.relative_to(project.root))]
    held = {path.name for path in kept if path.is_file() and NAME.encode() in path.read_bytes()}
    assert held <= {"pipeline.yaml", "seed.txt"}


@pytest.mark.slow
def test_of_what_a_command_prints_no_limit_leaves_the_half_of_a_secret(tmp_path: Path) -> None:
    """The excerpt of 4,000 characters has its cuts where they meet a secret, whatever is printed before."""
    script = "import sys; text = open('spec.md').read(); print('x' * int(open('n').read()) + text * 400); sys.exit(1)"
    stage = f'  made:\n    inputs: [spec.md, n]\n    outputs: [a.txt]\n    shell: [python3, -c, "{script}"]\n'
    project = Project(tmp_path / "p").write(shell(stage, {"spec.md": f"use {CANARY}\n", "n": "0"}))
    for number in ("0", "20", "40"):
        project.write({"n": number})
        outcome = project.build(env=SECRETS)
        assert outcome.code == 1
        reported = [outcome.out, outcome.err, *(path.read_text() for path in (project.root / "logs").rglob("*.*"))]
        parts = [CANARY[at : at + 9] for at in range(13, len(CANARY) - 8)]
        assert [part for part in parts if any(part in text for text in reported)] == []


@pytest.mark.slow
def test_the_limit_of_the_previous_answer_leaves_no_half_of_a_secret(tmp_path: Path) -> None:
    """The answer was recorded where the value was no secret; what is shown of it is cut within the value."""
    project = Project(tmp_path / "p")
    llm = "{returns: text, prompt: plain.j2, read: [word]}"
    stages = f"  asks:\n    outputs: [a.txt]\n    llm: {llm}\n    verify: [{{shell: [RUN, '1']}}]\n"
    said = f"{SPOKEN}\nprint('x' * 19_980 + open('word').read() + 'y' * 99)\n"
    project.write({**story(stages.replace("RUN", "sh, -c, 'false', x"), {"answers.py": said}), "word": NAME})
    assert project.build(env=SECRETS).code == 1
    project.replace("pipeline.yaml", "    verify:", "    retry: {max: 1}\n    verify:")
    assert project.build(env={**SECRETS, "A_TOKEN": NAME}).code == 1
    sent = Path(f"{project.root}-sent.log").read_text().split("----\n")
    assert "x[redacted A_TOKEN]" in sent[1]
    assert NAME[:9] not in sent[1]


@pytest.mark.needs("doctor")
@pytest.mark.needs("vendors")
def test_doctor_says_no_part_of_a_password_in_an_address(tmp_path: Path) -> None:
    llm = f"{{provider: openai, model: m, returns: text, prompt: plain.j2, base_url: 'http://u:{CANARY}@h/'}}"
    project = Project(tmp_path / "p").write(story(f"  asks:\n    outputs: [a.txt]\n    llm: {llm}\n", {}))
    outcome = project.run("doctor", env=SECRETS)
    assert outcome.code != 70, "no crash"
    silent(outcome)
    assert nests(project.root) == {"pipeline.yaml"}


def test_an_edit_with_a_secret_is_not_accepted_into_the_transcripts(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    llm = "{returns: text, prompt: plain.j2, transcripts: transcripts}"
    stages = f"  asks:\n    outputs: [a.txt]\n    llm: {llm}\n"
    project.write(story(stages, {"answers.py": f"{SPOKEN}\nprint('done')\n"}))
    green(project.build(env=SECRETS))
    project.edit("a.txt", f"done\nwith {CANARY}\n")
    refused = project.run("accept", "asks", env=SECRETS)
    assert refused.code == 65
    assert "[E602]: a.txt:2: a secret would be stored with the result: ANTHROPIC_API_KEY" in refused.err
    assert nests(project.root) == {"a.txt"}
    project.edit("a.txt", "done by hand\n")
    green(project.run("accept", "asks", env=SECRETS))


@pytest.mark.slow
def test_what_is_kept_is_private_and_what_is_committed_is_not(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    stages = (
        "  asks:\n    outputs: [a.txt]\n    retry: {max: 1}\n"
        "    llm: {returns: text, prompt: plain.j2, transcripts: transcripts}\n"
        "  copies:\n    inputs: [a.txt]\n    outputs: [b.txt]\n    shell: cp a.txt b.txt\n"
    )
    project.write(story(stages, {"answers.py": f"{SPOKEN}\nprint('done')\n"}))
    for folder in ("logs", ".orch23"):
        (project.root / folder).mkdir()
        (project.root / folder).chmod(0o777)
    before = os.umask(0)
    try:
        green(project.build(env=SECRETS))
        project.edit("plain.j2", "Say more.")
        green(project.build(env=SECRETS))
        project.build("no-such-stage", env=SECRETS)
    finally:
        os.umask(before)
    wrong = {}
    for folder in ("logs", ".orch23"):
        for path in (project.root / folder, *(project.root / folder).rglob("*")):
            mode = stat.S_IMODE(path.lstat().st_mode)
            blob = path.parent.parent.name == "cas"
            if mode != (0o700 if path.is_dir() else 0o444 if blob else 0o600):
                wrong[path.relative_to(project.root).as_posix()] = oct(mode)
    assert wrong == {}
    names = {path.relative_to(project.root).parts[1] for path in (project.root / ".orch23").rglob("*")}
    assert {"lock", "VERSION", "cas", "records", "exchanges"} <= names
    open_ones = [
        *(project.root / "transcripts").iterdir(),
        *(project.root / name for name in ("a.txt", "pipeline.lock")),
    ]
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o044 == 0o044 for path in open_ones)


_READS = """
import ctypes, os, subprocess
from pathlib import Path
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox_dir import SandboxDirs
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as it is for whoever did not change users
{hide}
done = subprocess.run(["cat", f"/proc/{{os.getpid()}}/environ"], capture_output=True)
print("readable" if os.environ["MY_KEY"].encode() in done.stdout else "hidden")
"""
_HIDE = "LocalExecutor(sandbox_dirs=SandboxDirs(Path('rooms'), None), contents=None, workers=1).close()"


@pytest.mark.slow
@pytest.mark.parametrize(("hide", "expected"), [("", "readable"), (_HIDE, "hidden")], ids=["without", "with"])
def test_a_step_cannot_read_the_environment_of_the_build(hide: str, expected: str) -> None:
    """It is no descendant's business what orch23 was started with; the first case shows that the test can fail."""
    done = subprocess.run(
        [sys.executable, "-c", _READS.format(hide=hide)],
        env={"PATH": os.environ["PATH"], "MY_KEY": CANARY, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.strip() == expected, done.stderr
