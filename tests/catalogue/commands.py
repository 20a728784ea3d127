"""Command lines that ask for what makes no sense or is not there."""

import os
import subprocess
import sys
from unittest.mock import patch

from orch23.cli.group import orch23 as program
from orch23.execute.credential_helper import credential_helper
from orch23.model import features
from orch23.model.digest import digest_bytes
from orch23.model.shared_cache import cache_settings
from tests.catalogue.provoking import Triggers, raised, reported, shown
from tests.project import Outcome, Project, scripted

TRIGGERS = Triggers()
ONE = {"pipeline.yaml": "version: 1\nname: one\nstages:\n  a: {outputs: [a.txt], shell: echo a > a.txt}\n"}


def built(project: Project) -> Project:
    """Build a stage that makes a.txt."""
    assert project.write(ONE).build().code == 0
    return project


@TRIGGERS.of("E641")
def options_that_contradict_each_other(project: Project) -> set[str]:
    """Ask for one stage alone and for all after it."""
    return shown(project.write(ONE).run("plan", "--only", "--downstream", "a"))


@TRIGGERS.of("E681", needs="plan_files")
def plan_file_that_is_none(project: Project) -> set[str]:
    """Build the output of `plan --json` as a plan file."""
    project.write(ONE).write({"plan.json": project.run("plan", "--json").out})
    return shown(project.run("build", "--plan", "plan.json"))


@TRIGGERS.of("E682", needs="plan_files")
def plan_that_no_longer_holds(project: Project) -> set[str]:
    """Build a plan after another build."""
    assert project.write(ONE).run("plan", "--out", "plan.json").code == 0
    return shown(built(project).run("build", "--plan", "plan.json"))


HELD = {"pipeline.yaml": ONE["pipeline.yaml"].replace("a.txt}", "a.txt, approve: true}")}


@TRIGGERS.of("E646", needs="approval")
def change_that_waits(project: Project) -> set[str]:
    """Build a stage whose changes a user has to approve."""
    assert project.write(HELD).build().code == 8
    return reported(project)


@TRIGGERS.of("E647", needs="approval")
def nothing_to_approve(project: Project) -> set[str]:
    """Approve a result that is promoted."""
    return shown(built(project).run("approve", "a"))


@TRIGGERS.of("E327", needs="approval")
def rejected_command(project: Project) -> set[str]:
    """Reject the result of a command, and build again."""
    project.write(HELD).build()
    assert project.run("reject", "a", "-m", "no").code == 0
    return shown(project.build())


@TRIGGERS.of("W671")
def pipeline_that_cannot_be_planned(project: Project) -> set[str]:
    """Clear the store of a project in which another pipeline is not valid."""
    wrong = {"pipelines/wrong.yaml": "version: 1\nstages:\n  a: {shel: 'true'}\n"}
    return shown(built(project).write(wrong).run("gc"))


@TRIGGERS.of("E642")
def nothing_to_accept(project: Project) -> set[str]:
    """Accept a stage that no one edited."""
    return shown(built(project).run("accept", "a"))


@TRIGGERS.of("E645")
def file_with_conflict_markers(project: Project) -> set[str]:
    """Accept a file that git left with the lines around a conflict."""
    built(project).edit("a.txt", "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> other\n")
    return shown(project.run("accept", "a"))


@TRIGGERS.of("E643")
def clean_what_a_person_edited(project: Project) -> set[str]:
    """Edit an output, then clean."""
    code = {"code": {"outputs": ["app.py"], "llm": {"returns": "code"}}}
    assert project.write(scripted(code, {"code": ["x = 1\n"]})).build().code == 0
    project.edit("app.py", "x = 2\n")
    return shown(project.run("clean"))


@TRIGGERS.of("E650")
def disk_that_takes_nothing(project: Project) -> set[str]:
    """Build where no file may grow."""
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); from orch23.entry import run; run()"
    argv = [sys.executable, "-c", limited, "-C", str(project.write(ONE).root), "build"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PYTHONPATH": os.getcwd()})
    return shown(Outcome(done.returncode, done.stdout, done.stderr))


@TRIGGERS.of("E651")
def store_that_a_step_removes(project: Project) -> set[str]:
    """Build a step without a sandbox that removes the store."""
    step = f"{{outputs: [o], shell: 'rm -rf {project.root}/.orch23', sandbox: off}}"
    project.write({"pipeline.yaml": f"version: 1\nstages:\n  a: {step}\n"})
    return shown(project.build("--allow-unsandboxed"))


@TRIGGERS.of("E669", needs="cache")
def signing_key_without_its_library(project: Project) -> set[str]:
    """Create a key where the extra is not installed."""
    with patch("orch23.features.cache.opening.KeyPair.generate", side_effect=ModuleNotFoundError):
        return shown(built(project).run("cache", "key", "new", "ci"))


@TRIGGERS.of("E730")
def cache_at_no_address(_project: Project) -> set[str]:
    """Name a shared cache by a relative path."""
    return raised(lambda: cache_settings({}, {"ORCH23_CACHE_URL": "cache"}))


@TRIGGERS.of("W731", needs="cache")
def result_without_a_signature(_project: Project) -> set[str]:
    """Verify a result that no one signed."""
    from orch23.features.cache.signatures import SignedEntry, signature_fault  # noqa: PLC0415 - of a feature

    found = signature_fault(None, SignedEntry("action", "", digest_bytes(b"")), ())
    return set() if found is None else {found.code}


@TRIGGERS.of("E732")
def key_that_exists(project: Project) -> set[str]:
    """Create a key twice."""
    return shown(*(project.write(ONE).run("cache", "key", "new", "ci") for _ in range(2)))


@TRIGGERS.of("E733")
def credential_helper_that_is_missing(project: Project) -> set[str]:
    """Name a program that does not exist."""
    environ = {"ORCH23_CACHE_CREDENTIAL_HELPER": "/nowhere/helper"}
    return raised(lambda: credential_helper("https://cache.example.org", project.root, environ))


@TRIGGERS.of("E686", needs="otel")
def spans_by_grpc(project: Project) -> set[str]:
    """Ask for spans by a protocol that is not supported."""
    return shown(project.write(ONE).run("build", "--otel", env={"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}))


@TRIGGERS.of("W669")
def plan_without_a_key(project: Project) -> set[str]:
    """Plan a call for which there is no key."""
    step = {"provider": "openai", "model": "m", "prompt": "p.j2", "returns": "text"}
    stages = {"a": {"outputs": ["a.txt"], "llm": step}}
    return shown(project.write({**scripted(stages, {}, defaults={}), "p.j2": "write"}).run("plan"))


@TRIGGERS.of("W689", needs="otel")
def collector_that_does_not_run(project: Project) -> set[str]:
    """Send spans to a port that is closed."""
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_EXPORT_TIMEOUT": "100"}
    return shown(project.write(ONE).run("build", "--otel", env=env))


@TRIGGERS.of("E661")
def no_pipeline_here(project: Project) -> set[str]:
    """Plan in an empty folder."""
    return shown(project.run("plan"))


@TRIGGERS.of("W661")
def files_beside_the_pipeline(project: Project) -> set[str]:
    """Name a file as if the directory of the pipeline were the root."""
    text = "version: 1\nstages: {a: {inputs: [a.txt], shell: 'true'}}\n"
    return shown(project.write({"orch23.toml": "", "sub/p.yaml": text, "sub/a.txt": ""}).run("build", "sub/p.yaml"))


@TRIGGERS.of("W668")
def marker_of_another_user(project: Project) -> set[str]:
    """List runs below a marker that another user made."""
    project.write({"orch23.toml": "", "sub/a.txt": "a\n"})
    with patch("os.geteuid", return_value=os.geteuid() + 1):
        return shown(project.run("-C", "sub", "runs"))


@TRIGGERS.of("E665", needs="metrics")
def revision_of_no_repository(project: Project) -> set[str]:
    """Compare with a revision where there is no git."""
    return shown(project.write(ONE).run("affected", "--since", "HEAD"))


@TRIGGERS.of("E687", needs="metrics")
def state_that_is_none(project: Project) -> set[str]:
    """Compare with what is neither a run nor a revision."""
    return shown(built(project).run("diff", "nothing"))


@TRIGGERS.of("W688", needs="metrics")
def metrics_that_are_gone(project: Project) -> set[str]:
    """Compare metrics after their file was removed."""
    stage = "outputs: [m.json], metrics: [m.json], shell: 'echo {} > m.json'"
    project.write({"pipeline.yaml": f"version: 1\nstages: {{a: {{{stage}}}}}\n"})
    assert project.build().code == 0
    project.delete("m.json")
    return shown(project.run("diff", project.journals()[-1].stem))


@TRIGGERS.of("E663")
def help_on_nothing(project: Project) -> set[str]:
    """Ask for help on a code that is none."""
    return shown(project.run("help", "E999"))


@TRIGGERS.of("E664")
def result_that_is_not_kept(project: Project) -> set[str]:
    """Show the prompt of a stage that asks no one."""
    return shown(built(project).run("show", "a", "--prompt"))


@TRIGGERS.of("W802")
def another_provider_for_once(project: Project) -> set[str]:
    """Put another provider in the place of the pipeline's, which drops what only the former takes."""
    code = {"code": {"outputs": ["app.py"], "llm": {"returns": "code"}}}
    project.write(scripted(code, {"code": ["x = 1\n"]}))
    return shown(project.run("plan", "--provider", "local", "--model", "smollm2"))


@TRIGGERS.of("E668")
def feature_that_was_removed(project: Project) -> set[str]:
    """Run a command of a feature whose folder is not there."""
    removed = {"watch": "removed.command:watch_command"}
    with patch.dict(program.commands, clear=True), patch.dict(features.COMMANDS, removed):
        return shown(project.write(ONE).run("watch"))


@TRIGGERS.of("E667")
def a_folder_that_was_removed(project: Project) -> set[str]:
    """Plan in a folder that was removed."""
    program = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); from orch23.entry import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program, "plan"],
        cwd=project.root,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    return shown(Outcome(done.returncode, done.stdout, done.stderr))
