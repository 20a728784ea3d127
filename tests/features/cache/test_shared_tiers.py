"""Which results of a shared cache count: by the tier of their sandbox, by the lock file, by their verification."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from orch23.execute.launch import TierChoice
from orch23.execute.sandbox.bubblewrap import NamespacesLauncher
from orch23.execute.sandbox.landlock import LandlockLauncher
from orch23.features.cache import claims
from orch23.features.cache.claims import TIERS, tier_of
from orch23.model.digest import canonical_json
from tests.cache_server import CacheServer, serving_cache
from tests.e2e.pipelines import calls, green, pipeline, prompt, shell
from tests.project import Outcome, Project
from tests.sandbox.users import need

pytestmark = pytest.mark.slow

STAGES = "  a: {inputs: [in.txt], outputs: [a.txt], KEYSshell: cp in.txt a.txt}\n"
SANDBOXES = {"A": "namespaces", "B": "landlock", "none": "none"}


@contextlib.contextmanager
def machine(tier: str) -> Iterator[None]:
    """Let this machine have the sandbox of a tier."""
    need(SANDBOXES[tier])
    launchers = {"A": NamespacesLauncher(), "B": LandlockLauncher(), "none": None}
    choice = TierChoice(launchers[tier])
    with (
        patch("orch23.cli.build_run._best_tier", return_value=choice),
        patch("orch23.features.cache.opening.best_tier_once", return_value=choice),
    ):
        yield


class Team:
    """Checkouts of a pipeline, each of another user."""

    def __init__(self, folder: Path, cache: str) -> None:
        self.folder, self.cache = folder, cache

    def checkout(self, name: str, *, cache: str = "", keys: str = "", stages: str = STAGES) -> Project:
        head = f"cache: {{platform: any{cache}}}\n"
        text = stages.replace("KEYS", keys)
        files = {"in.txt": "right\n", "test_a.py": "def test_a(): pass\n"}
        return Project(self.folder / name).write(shell(text, files, head=head))

    def build(self, project: Project, tier: str, *options: str) -> Outcome:
        with machine(tier):
            done = project.build("--cache", self.cache, "--allow-unsandboxed", *options)
        green(done)
        return done


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path, str(tmp_path / "cache"))


@pytest.mark.stride(13)
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("mine", TIERS)
@pytest.mark.parametrize("least", ["", "A", "B", "none"])
def test_a_result_counts_if_its_tier_is_not_lower(team: Team, tier: str, mine: str, least: str) -> None:
    declared = f", tier: {least}" if least else ""
    team.build(team.checkout("one"), tier)
    two = team.checkout("two", cache=declared)
    with machine(mine):
        planned = two.run("plan", "--cache", team.cache)
    done = team.build(two, mine)
    counts = TIERS.index(tier) >= TIERS.index(least or mine)
    assert two.ran() == ([] if counts else ["a"])
    assert ("from the shared cache" in done.err) == counts
    assert ("[W684]" in done.err, "[W684]" in planned.err) == (not counts, not counts)
    if not counts:
        assert f"a lower tier of the sandbox: a ({tier})" in planned.err
        assert f"1 of a lower tier: a ({tier})" in done.err


@pytest.mark.stride(5)
@pytest.mark.parametrize(("first", "second"), [("none", "A"), ("none", "B"), ("B", "A")])
@pytest.mark.parametrize("forced", [False, True])
def test_a_higher_tier_replaces_a_lower_one_and_never_the_reverse(
    team: Team, first: str, second: str, forced: bool
) -> None:
    force = ["--force", "a"] if forced else []
    team.build(team.checkout("one"), first)
    team.build(team.checkout("two"), second, *force)
    assert "restored" in team.build(team.checkout("three"), second).err
    team.build(team.checkout("four", cache=", tier: A"), first, "--force", "a")
    assert "restored" in team.build(team.checkout("five"), second).err


def test_a_result_that_was_only_verified_may_have_been_made_anywhere(team: Team) -> None:
    one = team.checkout("one")
    with machine("none"):
        green(one.build("--allow-unsandboxed"))
    verified = STAGES.replace("KEYS", "verify: [{shell: test -e a.txt}], ")
    one.write(shell(verified, head="cache: {platform: any}\n"))
    team.build(one, "A")
    done = team.build(team.checkout("two", stages=verified), "A")
    assert "a lower tier of the sandbox: a (none)" in done.err


def test_an_entry_of_an_earlier_version_has_no_tier(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        without = lambda form: canonical_json({key: one for key, one in form.items() if key != "tier"})  # noqa: E731
        patched.setattr(claims, "canonical_json", without)
        team.build(team.checkout("one"), "A")
    assert "a lower tier of the sandbox: a (none)" in team.build(team.checkout("two"), "A").err
    assert "restored" in team.build(team.checkout("three"), "A").err


def test_a_stage_without_processes_is_shared_from_any_machine(tmp_path: Path) -> None:
    stages = "  w: {inputs: [s.md], outputs: [d.md], llm: {prompt: w.j2, returns: text}}\n"
    files = pipeline(stages, {"s.md": "s", "w.j2": prompt("write", "of {{ inputs[0].text }}")})
    cache = str(tmp_path / "cache")
    for name, tier, expected in (("one", "none", ["write"]), ("two", "A", [])):
        project = Project(tmp_path / name).write(files)
        with machine(tier):
            green(project.build("--cache", cache))
        assert calls(project) == expected


def test_a_stage_that_needs_namespaces_takes_only_their_results(team: Team) -> None:
    team.build(team.checkout("one"), "B")
    two = team.checkout("two", cache=", tier: none", keys="sandbox: namespaces, ")
    team.build(two, "A")
    assert two.ran() == ["a"]


def test_without_a_platform_a_stage_without_a_sandbox_is_not_shared(team: Team) -> None:
    one = team.checkout("one", keys='sandbox: "off", ')
    one.write({"pipeline.yaml": one.read("pipeline.yaml").replace("platform: any", "tier: none")})
    planned = one.run("plan", "--cache", team.cache)
    assert "`sandbox: off`" in planned.out
    assert "stored" not in team.build(one, "none").err
    with_platform = team.build(team.checkout("two", keys='sandbox: "off", '), "A")
    assert "1 stored" in with_platform.err
    assert "restored" in team.build(team.checkout("three", keys='sandbox: "off", '), "A").err


def test_several_sandboxes_are_the_lowest_of_them() -> None:
    assert tier_of(["namespaces", "bubblewrap"]) == "A"
    assert tier_of(["namespaces", "landlock"]) == "B"
    assert tier_of(["landlock", ""]) == tier_of(["of a plugin"]) == tier_of(["none"]) == "none"
    assert tier_of([]) == "A"


# ---- the lock file --------------------------------------------------------------------------------


@pytest.fixture
def disputed(team: Team, tmp_path: Path) -> tuple[Team, str]:
    """Return a team whose cache has another result than a lock file of the same key."""
    stages = f"  a: {{outputs: [a.txt], sandbox: 'off', shell: cat {tmp_path}/said > a.txt}}\n"
    said = tmp_path / "said"
    said.write_text("forged\n")
    team.build(team.checkout("one", stages=stages), "none")
    said.write_text("right\n")
    other = team.checkout("other", stages=stages)
    green(other.build("--allow-unsandboxed"))
    return team, stages


@pytest.mark.stride(2)
@pytest.mark.parametrize("verify", ["", ", verify: always"])
def test_a_result_that_the_lock_file_does_not_name_is_ignored(disputed: tuple[Team, str], verify: str) -> None:
    team, stages = disputed
    two = team.checkout("two", stages=stages, cache=verify)
    lock = Project(team.folder / "other").read("pipeline.lock")
    two.write({"pipeline.lock": lock})
    assert two.plan("--cache", team.cache) == {"a": "run"}
    done = team.build(two, "none")
    assert done.err.count("[W685]") == 1
    assert (two.read("a.txt"), two.read("pipeline.lock")) == ("right\n", lock)
    # Its own result replaces the other one.
    assert "restored" in team.build(team.checkout("three", stages=stages), "none").err
    assert Project(team.folder / "three").read("a.txt") == "right\n"


def test_a_lock_file_that_names_the_result_or_has_no_record_changes_nothing(disputed: tuple[Team, str]) -> None:
    team, stages = disputed
    lock = Project(team.folder / "one").read("pipeline.lock")
    for name, files in (("two", {"pipeline.lock": lock}), ("three", {})):
        done = team.build(team.checkout(name, stages=stages).write(files), "none")
        assert ("[W685]" in done.err, "restored" in done.err) == (False, True)


# ---- verification ---------------------------------------------------------------------------------

CHECKS = {
    "pytest": "  t: {inputs: [test_a.py], KEYSpytest: [test_a.py]}\n",
    "pytest with a report": "  t: {inputs: [test_a.py], KEYSpytest: {paths: [test_a.py], report: report.json}}\n",
    "a shell stage without outputs": "  t: {inputs: [in.txt], KEYSshell: grep -q right in.txt}\n",
    "pytest with checks of its own": "  t: {inputs: [test_a.py], KEYSpytest: [test_a.py], verify: [{shell: 'true'}]}\n",
}


@pytest.mark.stride(4)
@pytest.mark.parametrize("stages", CHECKS.values(), ids=CHECKS)
def test_a_stage_that_verifies_runs_with_verify_always(team: Team, stages: str) -> None:
    green(team.build(team.checkout("one", stages=stages), "A"))
    for verify, expected in (("", []), (", verify: always", ["t"])):
        two = team.checkout(f"two{len(verify)}", stages=stages, cache=verify)
        with machine("A"):
            assert (two.plan("--cache", team.cache)["t"] == "run") == bool(expected)
        team.build(two, "A")
        assert two.ran() == expected


# ---- credentials ----------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[CacheServer]:
    with serving_cache() as server:
        yield server


@pytest.mark.needs("doctor")
def test_a_server_that_only_the_pipeline_names_gets_no_credentials(
    team: Team, server: CacheServer, tmp_path: Path
) -> None:
    helper = tmp_path / "helper"
    helper.write_text('#!/bin/sh\necho \'{"headers": {"Authorization": ["Bearer s3cret"]}}\'\n')
    helper.chmod(0o755)
    environ = {"ORCH23_CACHE_CREDENTIAL_HELPER": str(helper)}

    def sent(name: str, *options: str, **more: str) -> set[str | None]:
        server.headers.clear()
        project = team.checkout(name, cache=f", url: {server.url}")
        shutil.rmtree(project.root / ".orch23", ignore_errors=True)
        done = project.build(*options, env={**environ, **more})
        green(done)
        assert ("gets no credentials" in done.err) == (None in {one.get("authorization") for one in server.headers})
        return {one.get("authorization") for one in server.headers}

    assert sent("one") == {None}
    assert sent("two", ORCH23_CACHE_URL=server.url) == {"Bearer s3cret"}
    assert sent("three", "--cache", server.url) == {"Bearer s3cret"}
    four = team.checkout("four", cache=f", url: {server.url}")
    assert four.run("trust", env={**environ, "ORCH23_TRUST": ""}).code == 0
    assert sent("four", ORCH23_TRUST="") == {"Bearer s3cret"}
    assert sent("four") == {"Bearer s3cret"}
    # The consent was not for a program with credentials.
    five = team.checkout("five", cache=f", url: {server.url}")
    assert five.run("trust", env={"ORCH23_TRUST": ""}).code == 0
    assert sent("five") == {None}
    assert "which you have allowed" in five.run("doctor", "--online", env=environ).out
    assert {one.get("authorization") for one in server.headers} == {None}
