"""Caches of package managers: who fills them, who sees them, and that a poisoned one changes no later result."""

import contextlib
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from orch23.execute.launch import Launch, LaunchRefusedError, TierChoice
from orch23.execute.local_executor import LocalExecutor
from orch23.execute.sandbox_dir import SandboxDirs
from orch23.execute.sandbox_tree import SandboxDir
from orch23.features.tool_caches.table import TOOLS
from orch23.features.tool_caches.views import keep_views, make_mount, open_caches
from orch23.language.document import CommonDocument
from orch23.model.action import NAMESPACES_TIER, Action, CacheMode, Cancelled, Completed, EngineUnavailable
from orch23.model.diagnostic import Diagnostic
from orch23.model.pipeline import Stage
from orch23.steps.shell.spec import ShellStep
from tests.doubles import memory
from tests.e2e.pipelines import decided_by_parts, ends, green, pipeline, prompt, shell
from tests.project import Outcome, Project
from tests.sandbox.probe import launcher
from tests.sandbox.users import need

TIERS = ("namespaces", "bubblewrap", "landlock", "none")
CACHE = ".orch23/tool-caches/npm"
# A package manager: `add NAME TEXT`, and `get NAME`, which fails for a name that it does not have.
TOOL = """\
set -e
case $1 in
  add) mkdir -p "$npm_config_cache/pkg"; echo "$3" > "$npm_config_cache/pkg/$2";;
  get) cat "$npm_config_cache/pkg/$2";;
esac
"""
FETCH = """\
  fetch:
    inputs: [tool.sh]
    outputs: [fetched.txt]
    network: true
    cache: true
    tool_caches: [npm]
    shell: sh tool.sh add pad good; echo "${npm_config_offline:-online}" > fetched.txt
"""
USE = """\
  use:
    inputs: [tool.sh, fetched.txt]
    outputs: [used.txt]
    tool_caches: [npm]
"""


@contextlib.contextmanager
def machine(tier: str) -> Iterator[None]:
    need(tier)
    choice = TierChoice(None if tier == "none" else launcher(tier))
    with patch("orch23.cli.build_run._best_tier", return_value=choice):
        yield


def build(project: Project, tier: str, *options: str) -> Outcome:
    with machine(tier):
        return project.build("--allow-unsandboxed", *options)


def cached(project: Project) -> dict[str, bytes]:
    return {path.removeprefix(f"{CACHE}/"): data for path, data in _files(project.root / CACHE).items()}


def _files(folder: Path) -> dict[str, bytes]:
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


GOOD = {"pkg/pad": b"good\n"}


def test_each_name_of_the_key_is_a_row_of_the_table() -> None:
    kinds = CommonDocument.declared["tool_caches"], CommonDocument.__annotations__["tool_caches"]
    assert all(f'"{name}"' in repr(kinds[1]).replace("'", '"') for name in TOOLS)
    for tool in TOOLS.values():
        for values in (tool.variables, tool.offline, tool.read_only):
            assert all(text.format(cache="/c", tmp="/t") for text in values.values())


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_the_stage_with_the_network_fills_a_cache_once_and_others_read_it(project: Project, tier: str) -> None:
    verify = "    verify: [{shell: 'test \"$(sh tool.sh get pad)\" = good'}]\n"
    use = f'{USE}{verify}    shell: (sh tool.sh get pad; echo "$npm_config_offline") > used.txt\n'
    project.write(shell(FETCH + use, {"tool.sh": TOOL}))
    green(build(project, tier))
    assert (project.read("fetched.txt"), project.read("used.txt")) == ("online\n", "good\ntrue\n")
    assert cached(project) == GOOD
    assert not (project.home / ".npm").exists()
    with machine(tier):
        assert set(project.plan().values()) == {"fresh"}
    green(build(project, tier))
    assert ends(project) == {"fetch": "fresh", "use": "fresh"}


@pytest.mark.slow
def test_an_empty_cache_is_a_reason_to_run_that_plan_states(project: Project) -> None:
    project.write(shell(FETCH + f"{USE}    shell: sh tool.sh get pad > used.txt\n", {"tool.sh": TOOL}))
    green(project.build())
    green(project.build())
    (project.root / CACHE / "pkg/pad").unlink()
    (project.root / CACHE / "pkg").rmdir()
    assert "the tool cache npm is empty" in project.run("plan").out
    green(project.build())
    assert ends(project) == {"fetch": "built", "use": "fresh"}
    assert cached(project) == GOOD


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_what_a_stage_without_the_network_writes_is_dropped(project: Project, tier: str) -> None:
    poison = "sh tool.sh add pad evil; sh tool.sh add more evil; cat $npm_config_cache/pkg/* > used.txt"
    project.write(shell(f"{FETCH}{USE}    shell: {poison}\n", {"tool.sh": TOOL}))
    green(build(project, tier))
    assert project.read("used.txt") == "evil\nevil\n"
    assert cached(project) == GOOD


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_an_llm_stage_that_fails_leaves_a_poisoned_cache_as_it_was(project: Project, tier: str) -> None:
    """Its formatter runs what the model wrote, with the network."""
    stages = f"""{FETCH}
  code:
    inputs: [fetched.txt]
    outputs: [code.sh]
    needs: [fetch]
    network: true
    cache: true
    tool_caches: [npm]
    llm: {{prompt: code.j2, returns: text}}
    format: [{{shell: sh code.sh; sh code.sh; true}}]
    verify: [{{shell: 'false'}}]
"""
    answer = "echo evil > $npm_config_cache/pkg/pad; echo more > $npm_config_cache/more\n"
    project.write(pipeline(stages, {"tool.sh": TOOL, "code.j2": prompt("code", answer)}))
    assert build(project, tier).code == 1
    assert ends(project)["code"] == "failed"
    assert cached(project) == GOOD


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_steps_of_verify_cannot_write_a_cache(project: Project, tier: str) -> None:
    verify = "sh tool.sh add pad evil; rm -rf $npm_config_cache/pkg"
    stages = f"""{FETCH}    verify:
      - shell: test -r $npm_config_cache/pkg/pad && {{ {verify}; }} || true
{USE}    shell: sh tool.sh get pad > used.txt
    verify: [{{shell: '! sh tool.sh add pad evil 2>&1'}}]
"""
    project.write(shell(stages, {"tool.sh": TOOL}))
    outcome = build(project, tier)
    # Without a sandbox it writes to a copy.
    assert ends(project) == {"fetch": "built", "use": "failed" if tier == "none" else "built"}, outcome.err
    assert cached(project) == GOOD


MODEL = """\
  list:
    outputs: [list.txt]
    llm: {prompt: list.j2, returns: text}
  copy:
    inputs: [list.txt]
    outputs: [copied.txt]
    shell: cp list.txt copied.txt
"""
MORE = """\
  more:
    inputs: [tool.sh, copied.txt, fetched.txt]
    outputs: [more.txt]
    network: true
    cache: true
    tool_caches: [npm]
    shell: sh tool.sh add pad new; sh tool.sh add $(cat copied.txt) good; cp copied.txt more.txt
"""
LAST = """\
  last:
    inputs: [tool.sh, more.txt]
    outputs: [last.txt]
    tool_caches: [npm]
    shell: (sh tool.sh get pad; sh tool.sh get $(cat more.txt)) > last.txt
"""


def of_model(project: Project, more: str = MORE, last: str = LAST) -> Project:
    return project.write(pipeline(MODEL + FETCH + more + last, {"tool.sh": TOOL, "list.j2": prompt("list", "x1\n")}))


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_a_view_is_kept_when_its_stage_is_promoted(project: Project, tier: str) -> None:
    """The stage sees what a model wrote only by way of another one."""
    green(build(of_model(project), tier))
    assert project.read("last.txt") == "new\ngood\n"
    assert cached(project) == {"pkg/pad": b"new\n", "pkg/x1": b"good\n"}
    assert sorted(one.name for one in (project.root / CACHE).parent.iterdir()) == ["npm", "npm.lock"]


@pytest.mark.slow
@pytest.mark.parametrize("tier", TIERS)
def test_a_view_is_dropped_if_its_stage_is_not_promoted(project: Project, tier: str) -> None:
    """Its own step passes, and its verification does not; a later stage sees the cache as it was."""
    of_model(project, f"{MORE}    verify: [{{shell: 'false'}}]\n", f"{USE}    shell: sh tool.sh get pad > used.txt\n")
    assert build(project, tier).code == 1
    project.delete("used.txt")
    assert build(project, tier, "--force", "use").code == 1
    assert ends(project) == dict.fromkeys(("list", "copy", "fetch"), "fresh") | {"more": "failed", "use": "built"}
    assert project.read("used.txt") == "good\n"
    assert cached(project) == GOOD


@pytest.mark.slow
def test_a_partial_build_knows_what_a_model_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an edit that reaches one stage, its plan does not have the edges of the stages before."""
    more = MORE + "".join(f"  s{n}: {{outputs: [s{n}], shell: touch s{n}}}\n" for n in range(4))
    project = of_model(decided_by_parts(tmp_path / "p", monkeypatch), more)
    green(project.build())
    green(project.build())
    project.replace("pipeline.yaml", "cp copied.txt more.txt", "cp copied.txt more.txt; exit 1")
    project.replace("pipeline.yaml", "add pad new", "add pad evil")
    assert project.build().code == 1
    assert {one["role"] for one in project.events() if one["type"] == "stage_decided"} == {"more"}
    assert cached(project)["pkg/pad"] == b"new\n"


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["lock file", "store"])
def test_files_of_another_pipeline_may_come_from_a_model(project: Project, kept: str) -> None:
    """A third pipeline copies the file of the model, and a stage without the network copies that again."""
    again = "  again: {inputs: [copied.txt], outputs: [again.txt], shell: cp copied.txt again.txt}\n"
    copy = "  copy: {inputs: [list.txt], outputs: [copied.txt], shell: cp list.txt copied.txt}\n"
    more = MORE.replace("copied.txt", "again.txt") + "    verify: [{shell: 'false'}]\n"
    models = pipeline(MODEL.partition("  copy:")[0], {"list.j2": prompt("list", "x1\n")})
    texts = {"models.yaml": models.pop("pipeline.yaml"), "copies.yaml": shell(copy)["pipeline.yaml"]}
    project.write({**models, **texts, **shell(FETCH + again + more, {"tool.sh": TOOL})})
    for name in texts:
        green(project.run("build", name))
        if kept == "store":
            project.delete(name.replace(".yaml", ".lock"))
    if kept == "lock file":
        shutil.rmtree(project.root / ".orch23")
    assert project.build().code == 1
    assert ends(project) == {"fetch": "built", "again": "built", "more": "failed"}
    assert cached(project) == GOOD


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (
            USE.replace("[tool.sh, fetched.txt]", "[tool.sh]"),
            "add a stage with `network: true` and `tool_caches: [npm]`",
        ),
        (FETCH + USE.replace(", fetched.txt", ""), "write `needs: [fetch]` in `use`"),
    ],
)
def test_a_cache_that_nothing_fills_before_is_an_error_with_the_line_to_add(
    project: Project, stages: str, expected: str
) -> None:
    project.write(shell(f"{stages}    shell: sh tool.sh get pad > used.txt\n", {"tool.sh": TOOL}))
    outcome = project.run("validate")
    assert "[E856]" in outcome.err
    assert "no stage before `use` fills the tool cache `npm`" in outcome.err
    assert expected in outcome.err
    if "fetch" in expected:
        project.replace("pipeline.yaml", "  use:\n", "  use:\n    needs: [fetch]\n")
        green(project.run("validate"))


def test_a_cache_that_another_pipeline_filled_may_be_used(project: Project) -> None:
    stages = USE.replace(", fetched.txt", "")
    project.write(shell(f"{stages}    shell: sh tool.sh get pad > used.txt\n", {"tool.sh": TOOL}))
    project.write({f"{CACHE}/pkg/pad": "good\n"})
    green(project.run("validate"))


@pytest.mark.slow
def test_clean_and_gc_remove_caches_and_the_next_build_fills_them(project: Project) -> None:
    project.write(shell(FETCH + f"{USE}    shell: sh tool.sh get pad > used.txt\n", {"tool.sh": TOOL}))
    green(project.build())
    assert "cache" not in project.run("clean", "use").out
    assert "removed the tool cache npm" in project.run("clean").out
    assert not project.exists(CACHE)
    green(project.build())
    assert cached(project) == GOOD
    green(project.run("gc"))
    assert cached(project) == GOOD
    assert "1 folder" in project.run("gc", "--keep", "1B").out
    green(project.build())
    os.utime(project.root / f"{CACHE}.lock", (0, 0))
    assert project.run("gc", "--keep", "30d", "--json").json()["copied_folders"] == 1
    green(project.build())
    assert cached(project) == GOOD


def test_the_caches_are_in_no_key(project: Project) -> None:
    def keys() -> list[str]:
        return [one["key"] for one in json.loads(project.run("plan", "--json").out)["stages"]]

    project.write(shell(FETCH, {"tool.sh": TOOL}))
    before = keys()
    project.replace("pipeline.yaml", "    tool_caches: [npm]\n", "")
    assert keys() == before


# --- views, without a build ------------------------------------------------------------------------------------------


def directory(folder: Path, number: int = 1) -> SandboxDir:
    made = SandboxDir(folder / "rooms" / f"s{number}", f"s{number}")
    for part in (made.orch23_folder, made.root):
        part.mkdir(parents=True)
    return made


def opened(
    folder: Path, number: int, name: str, mode: CacheMode = "view", stage: str = "", *, stop: bool = False
) -> Any:
    action = Action(argv=("true",), inputs={}, tool_caches=(name,), cache_mode=mode, views_of=stage)
    event = threading.Event()
    if stop:
        event.set()
    place = directory(folder, number)
    return open_caches(folder / "tool-caches", place, action, "landlock", can_layer=True, stop=event)


@pytest.mark.parametrize("tier", ["landlock", "none"])
def test_a_large_cache_is_not_copied_and_the_way_out_is_named(
    tmp_path: Path, tier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mount(number: int, mode: CacheMode, own_tier: str, most_bytes: int) -> Path:
        monkeypatch.setattr("orch23.features.tool_caches.views.MOST_COPIED", most_bytes)
        return make_mount(directory(tmp_path, number), cache, mode, own_tier, threading.Event(), can_layer=True).files

    (cache := tmp_path / "npm").mkdir()
    (cache / "big").write_bytes(b"12345")
    with pytest.raises(LaunchRefusedError) as refused:
        mount(1, "view", tier, 4)
    assert refused.value.diagnostic.code == "E483"
    assert "`sandbox: namespaces`" in str(refused.value.diagnostic.hint)
    assert mount(2, "view", tier, 5) != cache
    assert mount(3, "fill", tier, 4) == mount(4, "view", "namespaces", 4) == cache


@pytest.mark.parametrize(("held", "wanted"), [("fill", "fill"), ("fill", "read-only"), ("view", "fill")])
def test_a_step_that_fills_a_cache_has_it_alone(tmp_path: Path, held: CacheMode, wanted: CacheMode) -> None:
    with opened(tmp_path, 1, "npm", held):
        with opened(tmp_path, 2, "go", wanted, stop=True):
            pass
        with pytest.raises(InterruptedError), opened(tmp_path, 3, "npm", wanted, stop=True):
            pass
    with opened(tmp_path, 4, "npm", wanted, stop=True):
        pass


def test_views_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with opened(tmp_path, 1, "npm"), opened(tmp_path, 2, "npm", stop=True):
        pass


def test_a_machine_without_the_caches_runs_no_step_with_them(tmp_path: Path) -> None:
    action, no_inputs = Action(argv=("true",), inputs={}, tool_caches=("npm",)), cast("Any", None)
    executor = LocalExecutor(sandbox_dirs=SandboxDirs(tmp_path, no_inputs), contents=memory(), workers=1)
    with contextlib.closing(executor):
        outcome = executor.run(action)
    assert isinstance(outcome, EngineUnavailable)
    assert outcome.diagnostic is not None
    assert outcome.diagnostic.code == "E488"


class _NoLayers:
    """Namespaces in which no layer can be mounted. It notes whether each launch had one."""

    tier = NAMESPACES_TIER

    def __init__(self, code: str) -> None:
        self.code, self.launched = code, list[bool]()

    def prepare(self, launch: Launch) -> contextlib.AbstractContextManager[Launch]:
        (cache,) = launch.sandbox_dir.caches
        self.launched.append(cache.layers is not None)
        if cache.layers is not None:
            raise LaunchRefusedError(Diagnostic(self.code, "no"))
        return contextlib.nullcontext(replace(launch, argv=("cat", f"{cache.files}/pad")))


@pytest.mark.parametrize(("code", "launched"), [("E485", [True, False]), ("E483", [True])])
def test_where_no_layer_can_be_mounted_a_view_is_a_copy(tmp_path: Path, code: str, launched: list[bool]) -> None:
    caches, far = tmp_path / "tool-caches", _NoLayers(code)
    (caches / "npm").mkdir(parents=True)
    (caches / "npm/pad").write_text("good\n")
    dirs = SandboxDirs(tmp_path / "rooms", cast("Any", None), tool_caches=caches)
    with contextlib.closing(LocalExecutor(sandbox_dirs=dirs, contents=memory(), workers=1, launcher=far)) as executor:
        outcome = executor.run(Action(argv=("true",), inputs={}, tool_caches=("npm",)))
    assert far.launched == launched
    if code == "E485":
        assert isinstance(outcome, Completed)
        assert outcome.result.output.text == "good\n"
    else:
        assert isinstance(outcome, EngineUnavailable)


def test_a_build_that_is_cancelled_does_not_wait_for_the_copy_of_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches, copied = tmp_path / "tool-caches", list[int]()
    (caches / "npm").mkdir(parents=True)
    for number in range(3):
        (caches / f"npm/{number}").write_text("x")
    dirs = SandboxDirs(tmp_path / "rooms", cast("Any", None), tool_caches=caches)
    executor = LocalExecutor(sandbox_dirs=dirs, contents=memory(), workers=1)

    def share_blocks(source: int, _target: int) -> bool:
        copied.append(source)
        executor.cancel()
        return False

    monkeypatch.setattr("orch23.features.tool_caches.views.share_blocks", share_blocks)
    with contextlib.closing(executor):
        assert executor.run(Action(argv=("true",), inputs={}, tool_caches=("npm",))) == Cancelled()
    assert len(copied) == 1


def test_no_link_of_a_view_leads_out_of_the_cache(tmp_path: Path) -> None:
    """A first view puts a link to a folder into the cache; a second one has a folder of that name."""
    outside, stage = tmp_path / "outside", Stage(name="s", step=ShellStep(command="x"), tool_caches=("npm",))
    outside.mkdir()
    (outside / "x").write_text("user")
    for number in (1, 2):
        with opened(tmp_path, number, "npm", "view", "s") as made:
            view = made.caches[0].files
            if number == 1:
                (view / "pkg").symlink_to(outside)
            else:
                (view / "pkg").unlink()
                (view / "pkg").mkdir()
                (view / "pkg/x").write_text("evil")
            os.mkfifo(view / f"pipe{number}")
        keep_views(tmp_path / "tool-caches", [stage])
    with opened(tmp_path, 3, "npm") as made:
        assert (outside / "x").read_text() == "user"
        assert [one.name for one in made.caches[0].files.iterdir()] == ["pkg"]


def test_of_a_view_of_cargo_only_packages_are_kept(tmp_path: Path) -> None:
    """A configuration of cargo names programs that later verifications would run."""
    (tmp_path / "rooms").mkdir(exist_ok=True)
    stage = Stage(name="s", step=ShellStep("true"), tool_caches=("cargo",))
    with opened(tmp_path, 1, "cargo", "view", "s") as made:
        for path in ("registry/a", "git/b", "config.toml", "bin/cargo-x"):
            (made.caches[0].files / path).parent.mkdir(exist_ok=True)
            (made.caches[0].files / path).write_text(path)
    keep_views(tmp_path / "tool-caches", [stage])
    with opened(tmp_path, 2, "cargo") as made:
        assert sorted(one.name for one in made.caches[0].files.iterdir()) == ["git", "registry"]
