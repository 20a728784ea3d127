"""A team shares results: what one checkout has built, another finds in the shared cache, verified, at no cost."""

import errno
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from orch23.features.cache import disk, opening
from orch23.features.cache.environment import Environments
from orch23.model.pipeline import Stage
from orch23.steps.shell.spec import ShellStep
from tests.e2e.pipelines import calls, green, pipeline, prompt, shell
from tests.e2e.test_nothing_to_do import orch23
from tests.e2e.test_what_an_edit_loads import PROGRAM
from tests.project import Project
from tests.repository import Repository

pytestmark = pytest.mark.slow

STAGES = """
  write: {inputs: [spec.md], outputs: [draft.md], llm: {prompt: write.j2, returns: text}}
  polish: {inputs: [draft.md], outputs: [text.md], llm: {prompt: polish.j2, returns: text}}
  copy:
    inputs: [text.md]
    outputs: [out/a.md, out/run]
    shell: "cp text.md out/a.md; cp text.md out/run; chmod +x out/run"
  count: {inputs: [out/a.md], outputs: [count.txt], shell: "wc -c < out/a.md > count.txt"}
"""
FILES = {
    "spec.md": "the spec",
    "write.j2": prompt("write", "draft of {{ inputs[0].text }}\n"),
    "polish.j2": prompt("polish", "polished {{ inputs[0].text }}"),
}
MADE = ("draft.md", "text.md", "out/a.md", "out/run", "count.txt")


def checkout(root: Path, *, head: str = "cache: {platform: any}\n", **files: str) -> Project:
    return Project(root).write(pipeline(STAGES, {**FILES, **files}, head=head))


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path / "shared")


@pytest.fixture
def first(tmp_path: Path, cache: str) -> Project:
    """Return a checkout whose results are in the cache."""
    project = checkout(tmp_path / "alice/project")
    green(project.build("--cache", cache))
    return project


def test_a_second_checkout_builds_nothing_and_calls_no_model(first: Project, tmp_path: Path, cache: str) -> None:
    assert calls(first) == ["write", "polish"]
    second = checkout(tmp_path / "bob/elsewhere/project")
    done = second.build("--cache", cache)
    green(done)
    assert calls(second) == []
    assert second.ran() == []
    assert {path: second.files()[path] for path in MADE} == {path: first.files()[path] for path in MADE}
    assert "shared cache: 4 restored (" in done.err
    assert second.build("--cache", cache).err.endswith("up to date (4 stages)\n")
    assert second.build().err.endswith("up to date (4 stages)\n")


def test_a_plan_shows_what_the_cache_has_and_downloads_nothing(first: Project, tmp_path: Path, cache: str) -> None:
    second = checkout(tmp_path / "bob/project")
    before = second.files()
    assert set(second.plan("--cache", cache).values()) == {"restore"}
    shown = second.run("plan", "--cache", cache)
    rows = [line for line in shown.out.splitlines() if " restore " in line]
    assert len(rows) == 4
    assert all(line.endswith("the shared cache has its result") for line in rows), shown.out
    assert (second.files(), second.exists(".orch23")) == (before, False)
    second.edit("spec.md", "another spec")
    shown = second.run("plan", "--cache", cache)
    assert " would store in the shared cache: write polish copy count" in shown.out


def test_after_an_edit_only_the_stages_that_it_changes_run(first: Project, tmp_path: Path, cache: str) -> None:
    second = checkout(tmp_path / "bob/project", **{"polish.j2": prompt("polish", "shiny {{ inputs[0].text }}")})
    green(second.build("--cache", cache))
    assert calls(second) == ["polish"]
    assert second.ran() == ["polish", "copy", "count"]
    (used,) = second.events_of("shared_cache")
    assert (used["data"]["restored"], used["data"]["stored"]) == (1, 3)
    # The first checkout gets what the second one made.
    first.edit("polish.j2", prompt("polish", "shiny {{ inputs[0].text }}"))
    green(first.build("--cache", cache))
    assert (calls(first), first.ran()) == (["write", "polish"], [])
    assert first.files()["count.txt"] == second.files()["count.txt"]


def test_a_cache_that_is_only_read_gets_nothing(tmp_path: Path, cache: str) -> None:
    head = f"cache: {{url: {cache}, mode: read, platform: any}}\n"
    project = checkout(tmp_path / "project", head=head)
    done = project.build()
    green(done)
    assert "shared cache: 4 not found\n" in done.err
    assert not Path(cache).exists()
    assert "would store" not in project.run("plan", "--force", "write").out
    green(project.build("--force", "write", "--cache", cache, "--cache-write"))
    assert (Path(cache) / "ac").is_dir()


def test_a_cache_that_is_off_is_neither_read_nor_written(first: Project, tmp_path: Path, cache: str) -> None:
    second = checkout(tmp_path / "bob/project")
    done = second.build("--cache", "off", env={"ORCH23_CACHE_URL": cache})
    green(done)
    assert second.ran() == ["write", "polish", "copy", "count"]
    assert "shared cache" not in done.err
    third = checkout(tmp_path / "carol/project")
    green(third.build(env={"ORCH23_CACHE_URL": cache}))
    assert third.ran() == []


def test_a_claim_of_the_lock_file_that_the_cache_has_is_not_verified_again(
    first: Project, tmp_path: Path, cache: str
) -> None:
    untrusted = {"ORCH23_TRUST": ""}
    second = checkout(tmp_path / "bob/project").write(first.files())
    (second.root / "out/run").chmod(0o755)
    green(second.build("--cache", cache, env=untrusted))
    assert (second.ran(), calls(second)) == ([], [])
    assert second.files() == first.files()
    # The same without the outputs: only the lock file was committed.
    third = checkout(tmp_path / "carol/project").write({"pipeline.lock": first.read("pipeline.lock")})
    green(third.build("--cache", cache, env=untrusted))
    assert (third.ran(), calls(third)) == ([], [])
    assert third.files() == first.files()


def test_another_environment_has_other_results(first: Project, tmp_path: Path, cache: str) -> None:
    second = checkout(tmp_path / "bob/project", head="cache: {platform: another}\n")
    green(second.build("--cache", cache))
    # The response of a model does not depend on the machine.
    assert second.ran() == ["copy", "count"]
    assert (calls(first), calls(second)) == (["write", "polish"], [])


def test_forced_and_uncached_stages_are_not_restored(first: Project, tmp_path: Path, cache: str) -> None:
    second = checkout(tmp_path / "bob/project")
    second.replace("pipeline.yaml", "  count: {", "  count: {cache: false, ")
    green(second.build("--cache", cache, "--force", "write"))
    assert calls(second) == ["write"]
    assert second.ran() == ["write", "count"]
    assert second.events_of("shared_cache")[0]["data"]["restored"] == 2


def test_results_are_verified_again_if_the_pipeline_says_so(first: Project, tmp_path: Path, cache: str) -> None:
    stages = STAGES.replace(
        "polish.j2, returns: text}", "polish.j2, returns: text}, verify: [{shell: test -s text.md}]"
    )
    one = Project(tmp_path / "one").write(pipeline(stages, FILES, head="cache: {platform: any}\n"))
    green(one.build("--cache", cache))
    two = Project(tmp_path / "two").write(pipeline(stages, FILES, head="cache: {platform: any, verify: always}\n"))
    shown = two.plan("--cache", cache)
    assert (shown["write"], shown["polish"]) == ("restore", "verify")
    green(two.build("--cache", cache))
    assert calls(two) == []
    ends = {one["role"]: one["data"]["status"] for one in two.events_of("stage_finished")}
    assert ends == {**dict.fromkeys(("write", "copy", "count"), "restored"), "polish": "verified"}
    assert [one["role"] for one in two.events_of("check_result")] == ["polish"]
    assert first.files()["text.md"] == two.files()["text.md"]


def test_without_a_platform_the_environment_of_each_stage_counts(
    tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (checkout(tmp_path / name, head="") for name in ("one", "two"))
    green(one.build("--cache", cache))
    green(two.build("--cache", cache))
    assert two.ran() == []
    other = {"system": "other 1", "architecture": "x86_64", "libc": "musl"}
    monkeypatch.setattr(opening, "Environments", partial(Environments, machine=other))
    three = checkout(tmp_path / "three", head="")
    green(three.build("--cache", cache))
    assert (calls(three), three.ran()) == ([], ["copy", "count"])


def test_the_executor_of_the_command_line_is_that_of_the_environment(
    tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the results of a cluster would be stored as those of this machine.
    project = checkout(tmp_path / "one", head="")
    green(project.build("--cache", cache))
    made: list[str] = []

    def environments(*, executor_of: Callable[[Stage], str], **given: object) -> Environments:
        made.append(executor_of(Stage(name="s", step=ShellStep(("true",)))))
        return Environments(executor_of=executor_of, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(opening, "Environments", environments)
    green(project.build("--cache", cache, "--executor", "dask", "--scheduler", "tcp://127.0.0.1:1"))
    assert made == ["dask"]


def test_a_stage_whose_environment_is_not_known_is_not_shared(tmp_path: Path, cache: str) -> None:
    stages = "  any: {inputs: [spec.md], outputs: [o.txt], shell: '$(echo cp) spec.md o.txt'}\n"
    one, two = (Project(tmp_path / name).write(pipeline(stages, FILES)) for name in ("one", "two"))
    for project in (one, two):
        shown = project.run("plan", "--cache", cache).out
        assert " not shared: any: " in shown
        assert "would store" not in shown
        green(project.build("--cache", cache))
        assert project.ran() == ["any"]
    document = two.run("plan", "--cache", cache, "--json", "--force", "any").json()
    assert list(document["not_shared"]) == ["any"]
    assert not Path(cache).exists()


def test_a_result_that_does_not_pass_here_is_made_again(
    tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCH23_ALLOW_UNSANDBOXED", "1")
    mark, more = tmp_path / "fails-once", tmp_path / "more"
    stages = f"""
  make:
    inputs: [spec.md]
    outputs: [o.txt]
    shell: "cat spec.md {more} > o.txt || true"
    verify: [{{shell: "if test -e {mark}; then rm {mark}; exit 1; fi"}}]
"""
    head = "cache: {platform: any, verify: always}\ndefaults: {sandbox: off}\n"
    one, two, three = (
        Project(tmp_path / name).write(shell(stages, FILES, head=head)) for name in ("one", "two", "three")
    )
    green(one.build("--cache", cache))
    mark.touch()
    more.write_text(" and more")
    done = two.build("--cache", cache)
    green(done)
    assert "[W697] the result of the shared cache does not pass" in done.err
    assert [one["data"]["passed"] for one in two.events_of("check_result")] == [False, True]
    # Its result replaces the one that did not pass.
    green(three.build("--cache", cache))
    assert (three.ran(), three.read("o.txt")) == (["make"], "the spec and more")
    assert three.events_of("stage_finished")[0]["data"]["status"] == "verified"


def test_an_edit_that_a_user_committed_is_not_shared(tmp_path: Path, cache: str) -> None:
    project = Repository(tmp_path / "project")
    project.write(pipeline(STAGES, FILES, head="cache: {platform: any}\n"))
    project.init()
    with_trust = {"ORCH23_TRUST": "1"}
    green(project.build("write", env=with_trust))
    project.edit("draft.md", "edited by hand")
    project.commit()
    green(project.build("write", "--cache", cache, env=with_trust))
    assert [one["data"]["status"] for one in project.events_of("stage_finished")] == ["verified"]
    assert not Path(cache).exists()


def test_lists_chains_and_groups_are_restored_and_leave_the_same_lock_file(tmp_path: Path, cache: str) -> None:
    stages = """
  list: {inputs: [spec.md], outputs: [items.json], shell: "echo '[\\"x\\", \\"y\\"]' > items.json"}
  edit:
    foreach: {from: items.json, as: item, order: sequential}
    inputs: [spec.md, notes.md]
    outputs: [notes.md]
    llm: {prompt: edit.j2, returns: text}
  part:
    foreach: {from: items.json, as: item, promote: together}
    inputs: [notes.md]
    outputs: ["parts/${{ item }}.md"]
    shell: [cp, notes.md, "parts/${{ item }}.md"]
"""
    files = {
        "spec.md": "the spec",
        "notes.md": "notes",
        "edit.j2": prompt("edit", "{{ inputs['notes.md'].text }} and {{ item }}"),
    }
    projects = []
    for name in ("one", "two", "three"):
        project = Project(tmp_path / name).write(pipeline(stages, files, head="cache: {platform: any}\n"))
        if name != "one":
            # The first item of the chain is fresh: the file on disk is the version of the second one.
            assert set(project.plan("--cache", cache).values()) <= {"restore", "fresh"}
        green(project.build("--cache", cache))
        projects.append(project)
    one, two, three = projects
    assert calls(one) == ["edit", "edit"]
    for project in (two, three):
        assert (calls(project), project.ran()) == ([], [])
        assert project.files() == one.files()
    two.edit("spec.md", "another spec")
    green(two.build("--cache", cache))
    two.edit("spec.md", "the spec")
    green(two.build("--cache", cache))
    assert two.ran() == []
    assert two.files() == one.files()


def test_a_file_that_a_stage_edits_in_place_is_restored_over_the_same_original(tmp_path: Path, cache: str) -> None:
    stages = "  edit: {inputs: [spec.md, m.txt], outputs: [m.txt], llm: {prompt: edit.j2, returns: text}}\n"
    files = {"spec.md": "s", "m.txt": "original", "edit.j2": prompt("edit", "edited {{ inputs['m.txt'].text }}")}
    one = Project(tmp_path / "one").write(pipeline(stages, files))
    green(one.build("--cache", cache))
    two = Project(tmp_path / "two").write(pipeline(stages, files))
    green(two.build("--cache", cache))
    assert (calls(two), two.read("m.txt")) == ([], one.read("m.txt"))
    assert two.read("pipeline.lock") == one.read("pipeline.lock")
    assert two.run("clean").code == 0
    assert two.read("m.txt") == "original"
    three = Project(tmp_path / "three").write(pipeline(stages, {**files, "m.txt": "another original"}))
    green(three.build("--cache", cache))
    assert calls(three) == ["edit"]


def test_a_response_is_shared_if_the_pipeline_says_so_and_verified_by_each_checkout(tmp_path: Path, cache: str) -> None:
    stages = """
  write:
    inputs: [spec.md]
    outputs: [draft.md]
    llm: {prompt: write.j2, returns: text}
    verify: [{shell: "grep -q draft draft.md"}]
"""
    head = "cache: {platform: PLATFORM, responses: true}\n"
    one = Project(tmp_path / "one").write(pipeline(stages, FILES, head=head.replace("PLATFORM", "a")))
    green(one.build("--cache", cache))
    assert calls(one) == ["write"]
    # Another environment: the result is not shared, and the response is.
    two = Project(tmp_path / "two").write(pipeline(stages, FILES, head=head.replace("PLATFORM", "b")))
    done = two.build("--cache", cache)
    green(done)
    assert (calls(two), two.ran()) == ([], ["write"])
    assert [one["data"]["passed"] for one in two.events_of("check_result")] == [True]
    assert two.events_of("shared_cache")[0]["data"]["responses"] == 1
    assert "1 response" in done.err
    # Without the cache it is recorded here, too.
    green(two.build("--force", "write"))
    assert calls(two) == []
    # A pipeline that does not share responses neither uses nor stores any.
    three = Project(tmp_path / "three").write(pipeline(stages, FILES, head="cache: {platform: c}\n"))
    green(three.build("--cache", cache))
    assert calls(three) == ["write"]


def test_only_results_that_a_listed_key_signed_are_used(tmp_path: Path, cache: str) -> None:
    one, two, three = (checkout(tmp_path / name) for name in ("one", "two", "three"))
    listed, other = (one.run("cache", "key", "new", name).out.strip() for name in ("ci", "other"))
    head = "cache: {{platform: any, signed_by: ['{}']}}\n"
    for project, keys in ((one, listed), (two, listed), (three, other)):
        project.write(pipeline(STAGES, FILES, head=head.format(keys)))
    # Without the private key, nothing is stored: it would count nowhere.
    done = two.build("--cache", cache)
    green(done)
    assert "W732" not in done.err
    text = "warning: [W732] results are not stored in the shared cache: you have none of the keys in `cache.signed_by`"
    key = "`orch23 cache key new NAME` creates one, and"
    done = two.build("--cache", cache, "--cache-write", "--force", "copy")
    assert done.err.count(f"{text}; {key} without `--cache-write`, results are only read\n") == 1
    two.write(pipeline(STAGES, FILES, head=head.format(listed).replace("any", "any, mode: read-write")))
    done = two.build("--cache", cache, "--force", "copy")
    assert done.err.count(f"{text}; {key} with `mode: read` in `cache`, they are only read\n") == 1
    assert not Path(cache).exists()
    green(one.build("--cache", cache))
    four = checkout(tmp_path / "four", head=head.format(listed))
    done = four.build("--cache", cache)
    green(done)
    assert (four.ran(), calls(four)) == ([], [])
    # To verify results needs no private key.
    assert "W732" not in done.err + four.run("plan", "--cache", cache).err + four.build("--cache", cache).err
    done = three.build("--cache", cache)
    green(done)
    assert three.ran() == ["write", "polish", "copy", "count"]
    assert "[W731]" in done.err


def test_a_build_whose_cache_is_on_a_full_disk_passes_with_one_warning(
    tmp_path: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "write_all", full)
    project = checkout(tmp_path / "project")
    done = project.build("--cache", cache)
    green(done)
    warnings = [line for line in done.err.splitlines() if "shared cache" in line]
    off = f"results are not uploaded to the shared cache {cache} for the rest of this run"
    assert warnings == [
        f"warning: {off}: No space left on device",
        " - shared cache: 4 not found, 4 not stored (copy, count, polish, write)",
    ]
    assert not [path for path in Path(cache).rglob("*") if path.is_file()]
    assert project.build().err.endswith("up to date (4 stages)\n")


@pytest.mark.parametrize("before", ["", ", signed_by: ['{other}']"], ids=["unsigned", "of another key"])
def test_an_entry_that_does_not_count_is_replaced_by_a_signer_that_did_not_look_it_up(
    tmp_path: Path, cache: str, before: str
) -> None:
    stages = "  write: {inputs: [spec.md], outputs: [draft.md], llm: {prompt: write.j2, returns: text}}\n"
    one, two, three = (Project(tmp_path / name) for name in ("one", "two", "three"))
    other, listed = (project.run("cache", "key", "new", "ci").out.strip() for project in (one, two))
    one.write(pipeline(stages, FILES, head=f"cache: {{platform: any{before.format(other=other)}}}\n"))
    green(one.build("--cache", cache))
    for project in (two, three):
        project.write(pipeline(stages, FILES, head=f"cache: {{platform: any, signed_by: ['{listed}']}}\n"))
    # `--force` asks no cache, so nothing has rejected the entry that is there.
    green(two.build("--cache", cache, "--force", "write"))
    done = three.build("--cache", cache)
    green(done)
    assert (three.ran(), calls(three)) == ([], [])
    assert "W731" not in done.err


def test_a_build_without_a_shared_cache_loads_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH23_ALLOW_UNSANDBOXED", "1")
    head = "defaults: {sandbox: off}\n"
    stages = "  copy: {inputs: [spec.md], outputs: [o.md], shell: cp spec.md o.md}\n"
    project = Project(tmp_path / "project").write(shell(stages, FILES, head=head))
    parts = (
        "orch23.features.cache",
        "orch23.features.cache.reapi",
        "orch23.model.shared_cache",
        "orch23.cli.shared_",
        "orch23.decide.shared_",
    )

    def loaded() -> list[str]:
        done = orch23(project.root, "build", program=PROGRAM)
        assert done.returncode == 0, done.stderr
        modules, *_ = json.loads(project.read("loaded.json"))
        return [name for name in modules if name.startswith(parts)]

    assert loaded() == []
    project.edit("spec.md", "another spec")
    assert loaded() == []
    monkeypatch.setenv("ORCH23_CACHE_URL", str(tmp_path / "shared"))
    project.edit("spec.md", "a third spec")
    assert "orch23.features.cache.results" in loaded()


def test_a_pipeline_whose_cache_is_off_uses_only_that_of_the_command_line(
    first: Project, tmp_path: Path, cache: str
) -> None:
    head = "cache: {platform: any, mode: off}\n"
    second, other = checkout(tmp_path / "two", head=head), str(tmp_path / "other")
    done = second.build(env={"ORCH23_CACHE_URL": cache})
    green(done)
    assert (second.ran(), "shared cache" in done.err) == (["write", "polish", "copy", "count"], False)
    # The option overrides it entirely: a directory is written, too.
    green(checkout(tmp_path / "three", head=head).build("--cache", other))
    four = checkout(tmp_path / "four", head=head)
    green(four.build("--cache", other))
    assert four.ran() == []


@pytest.mark.needs("doctor")
@pytest.mark.parametrize("damage", [lambda key: key.chmod(0o644), lambda key: key.write_text("garbage")])
def test_a_private_key_that_cannot_be_used_is_a_warning(
    tmp_path: Path, cache: str, damage: Callable[[Path], object]
) -> None:
    project, config = checkout(tmp_path / "project"), tmp_path / "config"
    env = {"XDG_CONFIG_HOME": str(config)}
    line = project.run("cache", "key", "new", "ci", env=env).out.strip()
    project.write(pipeline(STAGES, FILES, head=f"cache: {{platform: any, signed_by: ['{line}']}}\n"))
    damage(config / "orch23/keys/ci")
    done = project.build("--cache", cache, env=env)
    green(done)
    (warning,) = (one for one in done.err.splitlines() if one.startswith("warning"))
    assert warning.startswith("warning: [W732] results are not stored in the shared cache: the private key ")
    assert "4 not found\n" in done.err
    assert not Path(cache).exists()
    shown = project.run("doctor", env={**env, "ORCH23_BUILD_CACHE": cache})
    (line,) = (one for one in shown.out.splitlines() if "cache keys" in one)
    assert "the private key" in line
    assert not line.startswith("✔")


def test_an_offline_build_says_once_that_a_server_is_not_used_and_so_does_its_plan(tmp_path: Path) -> None:
    stages = "  count: {inputs: [spec.md], outputs: [count.txt], shell: wc -c < spec.md > count.txt}\n"
    project = Project(tmp_path / "project").write(shell(stages, FILES, head="cache: {platform: any}\n"))
    options = ("--offline", "--cache-write", "--cache", "http://127.0.0.1:9/team")
    said = "warning: the shared cache http://127.0.0.1:9/team is not used because of `--offline`\n"
    shown = project.build("-n", *options)
    assert shown.err.count(said) == 1
    assert "would store" not in shown.out
    done = project.build(*options)
    green(done)
    assert done.err.count(said) == 1
    assert done.err.count("shared cache") == 1
    # A directory is used.
    green(project.build("--offline", "--force", "count", "--cache", str(tmp_path / "shared")))
    assert (tmp_path / "shared/ac").is_dir()


def test_a_response_that_was_only_looked_at_is_not_counted(tmp_path: Path, cache: str) -> None:
    stages = "  write: {inputs: [spec.md], outputs: [draft.md], llm: {prompt: write.j2, returns: text}}\n"
    files = {**FILES, "write.j2": prompt("write", "draft of {{ inputs[0].text }}")}
    head = "cache: {platform: any, responses: true}\n"
    one, two = (Project(tmp_path / name).write(pipeline(stages, files, head=head)) for name in ("one", "two"))
    green(one.build("--cache", cache))
    green(two.build("--cache", cache))
    two.edit("spec.md", "another spec")
    done = two.build("--cache", cache)
    green(done)
    assert calls(two) == ["write"]
    assert "shared cache: 1 not found, 1 stored" in done.err, done.err


def test_a_path_of_the_command_line_is_relative_to_the_working_directory(tmp_path: Path) -> None:
    stages = "  count: {inputs: [spec.md], outputs: [count.txt], shell: wc -c < spec.md > count.txt}\n"
    project = Project(tmp_path / "project").write(shell(stages, FILES, head="cache: {platform: any}\n"))
    green(project.build("--cache", "../shared"))
    assert (tmp_path / "shared/ac").is_dir()
    # That of a variable counts in every directory.
    done = project.build("--force", "count", env={"ORCH23_CACHE_URL": "../shared"})
    assert done.code != 0
    assert "E730" in done.err
    assert "absolute path" in done.err
