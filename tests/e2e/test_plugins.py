"""A check of an installed distribution: only for the pipeline that names it, and with its version in the key."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from orch23.checks.registry import available_checks, check_revision
from orch23.model.errors import ConfigurationError
from orch23.model.plugins import missing_plugins
from tests.installed import CODE, ENTRIES, Install, searched
from tests.processes import run_program
from tests.project import Project, decisions

AHEAD = "import time; real = time.time_ns; time.time_ns = lambda: real() + 10**10"
PIPELINE = """\
version: 1
plugins: [Acme-Checks]
stages:
  a: {inputs: [in.txt], outputs: [out.txt], shell: [cp, in.txt, out.txt], verify: [{check: no_word}]}
"""


def wheel(folder: Path, version: str, code: str = CODE, entries: str = ENTRIES) -> Path:
    """Make a wheel of a distribution with one of each, as its author would publish it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"acme_checks-{version}-py3-none-any.whl"
    info = f"acme_checks-{version}.dist-info"
    files = {
        "acme_checks.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: acme-checks\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entries,
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")))
    return path


def install(made: Path, site: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*command, "--upgrade", "--target", site, made], check=True, capture_output=True)


class Installed:
    """A project, and a folder of installed distributions beside it."""

    def __init__(self, project: Project, folder: Path) -> None:
        self.project, self.site = project.write({"pipeline.yaml": PIPELINE, "in.txt": "good\n"}), folder / "site"
        self.folder = folder

    def install(self, version: str, *, with_pip: bool = False) -> None:
        shutil.rmtree(self.site, ignore_errors=True)  # pip leaves what another version had in a `--target`
        if with_pip:
            install(wheel(self.folder / "wheels", version), self.site)
        else:
            self.unpack(version, site=self.site)

    def unpack(self, version: str, *, code: str = CODE, entries: str = ENTRIES, site: Path | None = None) -> Path:
        """Install without pip, into a folder of its own unless one is named."""
        folder = site or self.folder / f"site-of-{version}"
        with zipfile.ZipFile(wheel(self.folder / "wheels", version, code, entries)) as archive:
            archive.extractall(folder)
        return folder

    def run(self, *argv: str, sites: tuple[Path, ...] | None = None, ahead: bool = False) -> tuple[int, str]:
        """Run a command. `ahead` sets the clock so that no file is too young for a snapshot."""
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.project.home), "ORCH23_TRUST": "1"}
        path = (*((self.site,) if sites is None else sites), Path(__file__).parents[2])
        env |= {"PYTHONPATH": ":".join(map(str, path))}
        done = run_program(argv, cwd=self.project.root, env=env, before=AHEAD if ahead else "")
        return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_a_check_of_an_installed_wheel_judges_outputs_and_its_version_is_in_the_key(
    project: Project, tmp_path: Path
) -> None:
    world = Installed(project, tmp_path)
    code, reported = world.run("plan")
    assert code == 65
    assert "error[E844]: the plugin `Acme-Checks` is not installed\n --> pipeline.yaml:2:11" in reported
    assert "E828" not in reported, "that follows from it"
    world.install("1.0", with_pip=True)
    code, reported = world.run("build")
    assert (code, "1 built" in reported) == (0, True), reported
    code, reported = world.run("build")
    assert (code, "up to date" in reported) == (0, True), reported
    assert "acme-checks 1.0, revision 3" in project.read("pipeline.lock")
    world.install("1.1", with_pip=True)
    code, reported = world.run("plan", "--json")
    assert (code, decisions(reported)) == (0, {"a": "verify"}), "another version may judge otherwise"
    assert world.run("build")[0] == 0
    assert "acme-checks 1.1, revision 3" in project.read("pipeline.lock")
    project.edit("in.txt", "a forbidden word\n")
    code, reported = world.run("build")
    assert code == 1
    assert "[ACME1]" in reported
    assert "`out.txt` has a forbidden word" in reported


class TestWithNothingToDo:
    """The answer of the last build is repeated only while the same plugins would be found."""

    @pytest.fixture
    def world(self, project: Project, tmp_path: Path) -> Installed:
        return Installed(project, tmp_path)

    def up_to_date(self, world: Installed, *sites: Path) -> tuple[Path, ...]:
        """Build until the answer is repeated."""
        for expected in ("1 built", "up to date", "up to date"):
            code, reported = world.run("build", sites=sites, ahead=True)
            assert (code, expected in reported) == (0, True), reported
        return sites

    @pytest.mark.slow
    def test_the_answer_is_repeated(self, world: Installed) -> None:
        old = world.unpack("1.0")
        self.up_to_date(world, old)
        (old / "acme_checks-1.0.dist-info" / "entry_points.txt").write_text("")
        assert "up to date" in world.run("build", sites=(old,), ahead=True)[1], "plugins are not looked up"

    @pytest.mark.slow
    def test_another_version_elsewhere_is_found(self, world: Installed) -> None:
        old, new = world.unpack("1.0"), world.unpack("1.1")
        self.up_to_date(world, old)
        code, reported = world.run("build", sites=(new,), ahead=True)
        assert (code, "1 verified" in reported) == (0, True), reported
        assert "acme-checks 1.1" in world.project.read("pipeline.lock")

    @pytest.mark.slow
    def test_a_plugin_that_is_not_found_any_more_is_missed(self, world: Installed) -> None:
        self.up_to_date(world, world.unpack("1.0"))
        code, reported = world.run("build", sites=(), ahead=True)
        assert (code, "error[E844]" in reported) == (65, True), reported

    @pytest.mark.slow
    def test_a_version_that_is_installed_in_front_of_it_is_found(self, world: Installed, tmp_path: Path) -> None:
        (front := tmp_path / "front").mkdir()
        sites = self.up_to_date(world, front, world.unpack("1.0"))
        world.unpack("1.1", site=front)
        code, reported = world.run("build", sites=sites, ahead=True)
        assert (code, "1 verified" in reported) == (0, True), reported

    @pytest.mark.slow
    def test_a_plugin_whose_code_is_edited_in_place_is_asked_again(self, world: Installed) -> None:
        sites = self.up_to_date(world, world.unpack("1.0"))
        # One digit more: Python reuses bytecode if a source has the size it had and was written in the same second.
        (sites[0] / "acme_checks.py").write_text(CODE.replace('"no_word", 3', '"no_word", 14'))
        code, reported = world.run("build", sites=sites, ahead=True)
        assert (code, "1 verified" in reported) == (0, True), reported
        assert "acme-checks 1.0, revision 14" in world.project.read("pipeline.lock")


@pytest.mark.slow
def test_a_distribution_that_is_only_installed_adds_nothing(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    world.install("1.0")
    project.edit("pipeline.yaml", PIPELINE.replace("plugins: [Acme-Checks]\n", ""))
    code, reported = world.run("plan")
    assert code == 65
    assert "error[E828]: no check is named `no_word`" in reported


def test_what_a_plugin_has_is_looked_up_by_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel(tmp_path, "2.0")) as archive:
        archive.extractall(tmp_path / "site")
    with searched(tmp_path / "site"):
        names = ("acme-checks", "no-such-distribution")
        checks = available_checks(names)
        assert missing_plugins(names) == ("no-such-distribution",)
        assert "no_word" in checks
        assert "json_schema" in checks
        assert "other" not in checks
        assert [name for name in checks if name not in available_checks(())] == ["no_word", "odd"]
        assert (checks["no_word"].name, check_revision(checks, "no_word")) == ("no_word", "acme-checks 2.0, revision 3")
        assert check_revision(checks, "json_schema") == 2
        with pytest.raises(KeyError):
            checks["other"]
        said = r"`odd` of the plugin acme-checks 2.0 \(orch23.checks\) cannot be used: it must be a `Check`, and is 5"
        with pytest.raises(ConfigurationError, match=said):
            checks["odd"]


@pytest.mark.parametrize(("over", "check"), [("in: [x]", "nope"), ("in: [x]", "${{ item }}"), ("from: l.json", "nope")])
def test_an_unknown_check_in_a_foreach_is_reported_before_anything_runs(
    project: Project, over: str, check: str
) -> None:
    project.write(
        {
            "pipeline.yaml": f"""\
version: 1
stages:
  list: {{outputs: [l.json], shell: "echo '[1]' > l.json"}}
  a:
    foreach: {{{over}}}
    outputs: ["out/${{{{ item }}}}"]
    shell: [touch, "out/${{{{ item }}}}"]
    verify: [{{check: "{check}"}}]
"""
        }
    )
    outcome = project.build()
    assert (outcome.code, outcome.err.count("error[")) == (65, 1), outcome.err
    assert "error[E828]: no check is named `" in outcome.err


EACH = """\
version: 1
plugins: [acme-checks]
stages:
  shout: {upper: {text: "hi ", times: 2}, outputs: [shout.txt]}
  each: {foreach: {in: [a, b]}, upper: {text: "${{ item }}"}, outputs: ["each/${{ item }}"]}
  ask:
    llm: {provider: parrot, model: polly, prompt: p.md, returns: code}
    inputs: [shout.txt]
    outputs: [ask.txt]
"""


@pytest.mark.slow
def test_a_wheel_adds_a_kind_of_step_a_provider_and_an_output_format(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    project.write({"pipeline.yaml": EACH, "p.md": "say {{ inputs[0].text }}"})
    world.install("1.0")
    code, reported = world.run("build", "--output", "shout")
    assert code == 0, reported
    assert sorted(reported.splitlines()) == [f"{name}: built!" for name in ("ask", "each@a", "each@b", "shout")]
    made = [project.read(path) for path in ("shout.txt", "each/b", "ask.txt")]
    assert made == ["HI HI ", "B", "polly says 1\n"]
    code, reported = world.run("build")
    assert (code, "up to date (4 stages)" in reported) == (0, True), reported
    project.edit("p.md", "tell {{ inputs[0].text }}")
    code, reported = world.run("build")
    assert (code, "1 built" in reported) == (0, True), reported
    assert world.run("status")[0] == 0
    assert world.run("explain", "shout")[0] == 0
    world.install("1.1")
    code, reported = world.run("plan", "--json")
    assert (code, decisions(reported)) == (0, dict.fromkeys(("ask", "each@a", "each@b", "shout"), "run"))
    code, reported = world.run("explain", "shout")
    assert "acme-checks 1.1" in reported, reported


@pytest.mark.slow
def test_the_command_line_can_name_a_provider_of_a_plugin(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    sites = (world.unpack("1.0"),)
    stage = EACH[EACH.index("  ask:") :].replace("provider: parrot", "provider: scripted, answers: a.yaml")
    stage = stage.replace("    inputs: [shout.txt]\n", "")
    text = f"version: 1\nplugins: [acme-checks]\nstages:\n{stage}"
    project.write({"pipeline.yaml": text, "p.md": "say something", "a.yaml": "ask: nothing\n"})
    code, reported = world.run("build", "--provider", "parot", sites=sites)
    assert (code, "[E405]: there is no provider `parot`" in reported) == (65, True)
    assert re.search(r"did you mean `(orch23 .*--provider )?parrot`\?", reported), reported
    code, reported = world.run("build", "--provider", "parrot", "--budget", "0.01", sites=sites)
    assert (code, "note[W802]: `--provider parrot` drops `answers` of ask" in reported) == (0, True), reported
    assert project.read("ask.txt") == "polly says 1\n"
    project.edit("pipeline.yaml", text.replace("plugins: [acme-checks]\n", ""))
    code, reported = world.run("plan", "--provider", "parrot", sites=sites)
    assert (code, "[E405]: there is no provider `parrot`" in reported) == (65, True), reported


@pytest.mark.slow
def test_mistakes_in_what_a_plugin_adds_are_reported_as_any_others(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    world.install("1.0")
    text = "version: 1\nplugins: [acme-checks]\nexecutor: pretnd\nstages:\n  a: {upper: {txt: x}, outputs: [a]}\n"
    project.edit("pipeline.yaml", text)
    code, reported = world.run("plan")
    assert code == 65
    assert "error[E802]: unknown key `txt` in `upper` of stage `a`" in reported, reported
    assert ("did you mean `text`?" in reported, "error[E810]" in reported) == (True, False), reported
    project.edit("pipeline.yaml", text.replace("txt", "text"))
    code, reported = world.run("plan")
    assert (code, "error[E846]: no executor is named `pretnd`" in reported) == (65, True), reported
    project.edit("pipeline.yaml", text.replace("txt", "text").replace("executor: pretnd\n", ""))
    code, reported = world.run("build", "--output", "shuot")
    assert (code, "there is no output format `shuot`" in reported, "did you mean `shout`?" in reported) == (
        64,
        True,
        True,
    ), reported


@pytest.mark.slow
def test_an_executor_of_a_wheel_runs_the_processes(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    world.install("1.0")
    stages = "stages:\n  a: {shell: [touch, o.txt], outputs: [o.txt]}\n"
    text = f"version: 1\nplugins: [acme-checks]\nexecutor: pretend\n{stages}"
    project.edit("pipeline.yaml", text)
    code, reported = world.run("build")
    assert (code, project.read("o.txt")) == (0, "touch o.txt"), reported
    project.edit("pipeline.yaml", text.replace("executor: pretend\n", ""))
    code, reported = world.run("plan", "--json")
    assert decisions(reported) == {"a": "run"}, "who ran it is part of the key"


@pytest.mark.slow
def test_an_executor_of_a_wheel_runs_the_stages_of_its_pools(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    world.install("1.0")
    pools = "pools: {far: {executor: pretend, resources: {gpu: 1}}}\ndefaults: {sandbox: off}\n"
    stages = "stages:\n  a: {shell: [touch, o.txt], outputs: [o.txt], pools: [far]}\n"
    stages += "  b: {shell: echo b > b.txt, outputs: [b.txt]}\n"
    text = f"version: 1\nplugins: [acme-checks]\n{pools}{stages}"
    project.edit("pipeline.yaml", text)
    code, reported = world.run("build", "--allow-unsandboxed")
    assert (code, project.read("o.txt"), project.read("b.txt")) == (0, "touch o.txt", "b\n"), reported
    assert reported.count("the executor `pretend` takes no resources: those of its pools have no effect") == 1
    project.edit("pipeline.yaml", text.replace(", pools: [far]", ""))
    code, reported = world.run("plan", "--json")
    assert decisions(reported) == {"a": "run", "b": "fresh"}, "who ran it is part of the key"


VERIFIED = """\
version: 1
plugins: [acme-checks]
defaults: {sandbox: off}
stages:
  a: {inputs: [in.txt], outputs: [out.txt], shell: [cp, in.txt, out.txt], verify: [{lacks: {file: out.txt, word: bad}}]}
"""


@pytest.mark.slow
def test_a_process_of_a_plugin_can_verify_a_result(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    sites = (world.unpack("1.0"),)
    project.edit("pipeline.yaml", VERIFIED.replace("lacks: {", "lacks: {report: r, "))
    code, reported = world.run("plan", sites=sites)
    assert (code, "error[E856]: `report` cannot be used in verify" in reported) == (65, True), reported
    project.edit("pipeline.yaml", VERIFIED.replace("lacks: {file: out.txt, word: bad}", "upper: {text: x}"))
    code, reported = world.run("plan", sites=sites)
    assert (code, "error[E802]: unknown key `upper` in `verify` of stage `a`" in reported) == (65, True), reported
    assert "`lacks`" in reported, "what can verify is named"
    project.edit("pipeline.yaml", VERIFIED)
    code, reported = world.run("build", "--allow-unsandboxed", "-v", sites=sites)
    assert (code, "1 built" in reported) == (0, True), reported
    manifest = json.loads(project.read("pipeline.lock"))["records"]["a"]["manifest"]
    assert manifest["verify"] == [{"lacks": ["out.txt", "bad"], "plugin": "acme-checks 1.0"}]
    code, reported = world.run("plan", "--json", sites=(world.unpack("1.1"),))
    assert decisions(reported) == {"a": "verify"}, "another version may judge otherwise"
    project.edit("in.txt", "a bad word\n")
    code, reported = world.run("build", "--allow-unsandboxed", sites=sites)
    assert (code, "grep --quiet -- bad out.txt" in reported) == (1, True), reported


@pytest.mark.needs("authoring")
def test_help_explains_the_codes_of_the_plugins_of_a_pipeline(project: Project, install: Install) -> None:
    name = install(CODE.replace("acme_checks", "{name}"), ENTRIES.replace("acme_checks", "{name}"))
    outcome = project.run("help", "ACME1")
    assert outcome.code == 66
    assert "codes of a plugin need the plugin in `plugins` of pipeline.yaml" in outcome.err
    project.write({"pipeline.yaml": f"version: 1\nplugins: [{name}]\n"})
    outcome = project.run("help", "acme1")
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("ACME1: a forbidden word\n\nAn output has a word that may not be there.")
    assert f"It is a code of the plugin {name} 1.0." in outcome.out
    assert "near codes: ACME1" in project.run("help", "ACME2").err
    project.replace("pipeline.yaml", name, "not-installed")
    outcome = project.run("help", "ACME1")
    assert (outcome.code, "no code, command or page is named ACME1" in outcome.err) == (66, True), outcome.err


@pytest.mark.slow
def test_the_schema_has_what_plugins_add(project: Project, tmp_path: Path) -> None:
    world = Installed(project, tmp_path)
    world.install("1.0")
    stages = {}
    for arguments in ((), ("pipeline.yaml",)):
        code, reported = world.run("schema", *arguments)
        assert code == 0, reported
        stages[arguments] = json.loads(reported)["definitions"]["stage"]["properties"]
    assert "upper" in stages[()]
    assert stages[()] == stages["pipeline.yaml",]
    project.delete("pipeline.yaml")
    code, reported = world.run("schema")
    assert "upper" not in json.loads(reported)["definitions"]["stage"]["properties"]
