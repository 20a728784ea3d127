"""The template work_orders, as it is shipped: compiled, carried out, changed, and brought back."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pipelines import ends, green
from tests.e2e.templates import HERE
from tests.e2e.work_order_template import (
    ANSWERS,
    PIPELINE,
    PLACE,
    REPO,
    SPEC,
    answered,
    calls,
    copied,
    failures,
    kept,
    makes,
    repository,
    verified_by,
)
from tests.project import Outcome, Project, files_answer
from tests.unit.checks.orders import exists, manifest, order

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("templates"),
    pytest.mark.usefixtures("prepared_pytest"),
]  # whole builds, some of which run a test suite of their own

BUILT = ["repository", "plan", "orders", "factory@WO-01", "factory@WO-02", "factory@WO-03", "summary"]


@pytest.fixture
def shipped(project: Project) -> Project:
    return copied(project)


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Outcome]:
    """Build the shipped project once for all tests that only read what a first build leaves."""
    project = copied(Project(tmp_path_factory.mktemp("work_orders") / "project"))
    outcome = project.build(PIPELINE, "-j", "4")
    green(outcome)
    return project, outcome


@pytest.fixture
def built(first_build: tuple[Project, Outcome], tmp_path: Path) -> Project:
    """Return a copy of the project after its first build."""
    return first_build[0].copy(tmp_path / "project")


def orders(project: Project) -> list[dict[str, Any]]:
    """Return the work orders on disk."""
    return [json.loads(project.read(f"{PLACE}/orders/WO-{n:02d}.json")) for n in (1, 2, 3)]


def test_it_lives_through_a_build_an_edit_of_the_spec_and_its_return(shipped: Project) -> None:
    assert shipped.run("validate", PIPELINE).code == 0
    assert shipped.plan(PIPELINE)["factory"] == "expand"
    green(shipped.build(PIPELINE))
    assert ends(shipped) == dict.fromkeys(BUILT, "built")
    assert calls(shipped) == ["plan", "plan", "factory@WO-01", "factory@WO-02", "factory@WO-03", "factory@WO-03"]
    first = repository(shipped)
    again = shipped.build(PIPELINE)
    assert (again.code, again.err) == (0, "work_orders: up to date (7 stages)\n")

    spec = shipped.read(SPEC)
    shipped.edit(SPEC, spec.replace("two decimals", "three decimals").replace("`1.61 km`", "`1.609 km`"))
    planned = shipped.plan(PIPELINE)
    assert planned == {"repository": "fresh", "plan": "run", "orders": "maybe", "factory": "expand", "summary": "maybe"}
    green(shipped.build(PIPELINE))
    assert calls(shipped) == ["plan", "factory@WO-02"]
    changed = {"plan": "built", "orders": "built", "factory@WO-02": "built", "summary": "built"}
    held = {"repository": "fresh", "factory@WO-01": "fresh", "factory@WO-03": "verified"}
    assert ends(shipped) == {**changed, **held}
    assert {path for path, text in repository(shipped).items() if text != first[path]} == {"units/__main__.py"}

    shipped.edit(SPEC, spec)
    green(shipped.build(PIPELINE))
    assert calls(shipped) == []
    assert repository(shipped) == first
    assert set(shipped.plan(PIPELINE).values()) == {"fresh"}


def test_place_says_where_plan_orders_and_project_lie(shipped: Project) -> None:
    before = set(shipped.files("workspace"))
    green(shipped.build(PIPELINE, "--set", "place=elsewhere", "factory@WO-01"))
    assert set(shipped.files("workspace")) == before
    files = set(shipped.files("elsewhere"))
    assert {"elsewhere/plan.json", "elsewhere/orders/WO-01.json", "elsewhere/project/units/__init__.py"} <= files


@pytest.mark.parametrize(
    ("sets", "project_folder", "place"),
    [
        pytest.param(["project=."], "", PLACE, id="the repository in which the pipeline is"),
        pytest.param(["place=."], "project/", ".", id="its orders at the root"),
        pytest.param(["place=.", "project=."], "", ".", id="both"),
        pytest.param(["project=./src/"], "src/", PLACE, id="a folder with a dot and a slash"),
        pytest.param(["project=src", "place=src//wo/"], "src/", "src/wo", id="its orders in the project"),
    ],
)
def test_work_orders_stand_in_the_repository_that_they_change(
    project: Project, sets: list[str], project_folder: str, place: str
) -> None:
    edits = order(1, allowed_files=["f1.py", "old.py"], postconditions=exists("f1.py", "old.py"))
    asks = order(2, context_files=["old.py"], preconditions=exists("old.py", "f1.py"))
    plan = manifest(edits, asks, verify_contract={"requires": exists("scripts/verify.sh", "f2.py")})
    first = files_answer({"f1.py": "X = 1\n", "old.py": "OLD = 2\n"})
    answered(project, [plan], {"WO-01": [first], "WO-02": [makes(2)]})
    there = {"old.py": "OLD = 1\n", "scripts/verify.sh": "grep -q OLD old.py\n"}
    project.write({f"{project_folder}{path}": text for path, text in there.items()})
    options = [word for one in sets for word in ("--set", one)]
    green(project.build(PIPELINE, *options))
    assert calls(project) == ["plan", "factory@WO-01", "factory@WO-02"]
    assert project.read(f"{place}/repository.txt").split() == [f"{project_folder}{path}" for path in there]
    assert project.read(f"{project_folder}old.py") == "OLD = 2\n"
    written = [json.loads(project.read(f"{place}/orders/WO-0{number}.json"))["verify_exempt"] for number in (1, 2)]
    assert written == [True, False]
    made = {path: project.read(f"{project_folder}{path}") for path in ("f1.py", "f2.py", "old.py", "scripts/verify.sh")}
    summary = json.loads(project.read(f"{place}/run_summary.json"))
    assert summary["repo_tree_hash_after"] == _tree_hash(Project(project.home / "copy").write(made).root)
    assert "up to date" in project.build(PIPELINE, *options).err


def test_a_project_folder_that_no_order_could_write_in_costs_no_call(shipped: Project) -> None:
    for folder in ("-x", "a:b", "con", "w/x.", ".git/x"):
        refused = shipped.build(PIPELINE, "--set", f"project={folder}")
        assert (refused.code, f"error[E857]: an item cannot name a path in `{folder}/`" in refused.err) == (65, True)
        assert "`vars.project` is set by `--set`" in refused.err
    assert shipped.journals() == []


def test_an_order_that_cannot_be_read_is_not_an_order_that_is_not_exempt(shipped: Project) -> None:
    verify = ["bash", "specs/work_orders/tools/verify.sh", "gone.json"]
    ran = subprocess.run(verify, cwd=shipped.root, check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (2, "verify.sh: the order gone.json cannot be read")


def test_its_picture_is_the_one_in_its_page(shipped: Project) -> None:
    page = (HERE / "docs/templates/work_orders.md").read_text()
    drawn = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    assert drawn == [shipped.run("graph", PIPELINE, "--format", "mermaid").out]


# ---- the planner ----------------------------------------------------------------------------------


def test_the_planner_is_asked_with_the_whole_spec_the_repository_and_the_form_of_the_answer(shipped: Project) -> None:
    shipped.write({f"{REPO}/README.md": "units\n"})
    green(shipped.build(PIPELINE))
    asked = kept(shipped, "plan", 1, "prompt.txt")
    for reported in (shipped.read(SPEC), "README.md", shipped.read("specs/schemas/work_orders.v1.json")):
        assert reported.strip() in asked
    for rule in (
        *("without a gap", "without a shell", "`*`, `?` or brackets", "no prose", "is valid Python", "Never ask both"),
        *("postcondition of an earlier order", "`file_exists` of each of `allowed_files`", "verify_contract.requires"),
        *("Never `bash scripts/verify.sh`", "imports only what exists", "up to ten other files"),
    ):
        assert rule in asked
    assert "previous response" not in asked


def test_a_revision_carries_the_codes_and_the_previous_answer(built: Project) -> None:
    asked = kept(built, "plan", 2, "prompt.txt")
    assert [code for code in ("[E003] WO-01", "[E101] WO-03", "[E105] WO-03") if code not in asked] == []
    assert kept(built, "plan", 1, "response.txt").strip() in asked
    assert built.read(SPEC).strip() in asked
    assert asked.startswith(kept(built, "plan", 1, "prompt.txt").rstrip())


def test_every_attempt_at_a_plan_is_kept_with_question_answer_and_errors(built: Project) -> None:
    assert json.loads(kept(built, "plan", 1, "response.txt"))["work_orders"]
    assert "[E105]" in kept(built, "plan", 1, "failure.txt")
    assert json.loads(kept(built, "plan", 2, "response.txt")) == json.loads(built.read(f"{PLACE}/plan.json"))
    (state,) = [json.loads(p.read_text()) for p in built.root.glob("logs/*/state.json")]
    assert {name: one["attempts"] for name, one in state["stages"].items()}["plan"] == 2


def test_verify_exempt_is_computed_whatever_the_plan_leaves_out(built: Project) -> None:
    plan = json.loads(built.read(f"{PLACE}/plan.json"))
    assert all("verify_exempt" not in one for one in plan["work_orders"])
    assert [one.pop("verify_exempt") for one in orders(built)] == [True, True, False]
    whole = json.loads(built.read(f"{PLACE}/orders/WORK_ORDERS_MANIFEST.json"))
    assert whole == {**plan, "work_orders": orders(built)}


def test_what_the_repository_has_already_counts_for_the_contract(project: Project) -> None:
    contract = {"requires": exists("scripts/verify.sh", "f1.py")}
    plan = manifest(order(1), order(2), verify_contract=contract)
    green(verified_by(answered(project, [plan], {"WO-01": [makes(1)], "WO-02": [makes(2)]})).build(PIPELINE))
    computed = json.loads(project.read(f"{PLACE}/orders/WORK_ORDERS_MANIFEST.json"))["work_orders"]
    assert [one["verify_exempt"] for one in computed] == [False, False]


def test_a_program_that_computes_verify_exempt_otherwise_is_refused(shipped: Project) -> None:
    shipped.replace("specs/work_orders/tools/split.py", "not required <= present", "required <= present")
    refused = shipped.build(PIPELINE)
    assert refused.code == 2
    assert "[E005] WO-01 verify_exempt" in kept(shipped, "orders", 1, "failure.txt")
    assert not shipped.exists(f"{PLACE}/orders")
    assert repository(shipped) == {}


def test_orders_that_a_person_has_there_are_not_overwritten(shipped: Project) -> None:
    shipped.write({f"{PLACE}/orders/WO-01.json": "mine\n"})
    refused = shipped.build(PIPELINE)
    assert refused.code == 6
    assert f"not replaced, because no build made what is there: {PLACE}/orders/WO-01.json\n" in refused.err
    assert shipped.read(f"{PLACE}/orders/WO-01.json") == "mine\n"
    green(shipped.build(PIPELINE, "--overwrite-edited"))
    assert orders(shipped)[0]["id"] == "WO-01"


# ---- the factory ----------------------------------------------------------------------------------


def test_the_engineer_is_given_the_order_and_its_files_with_their_digests_and_no_more(built: Project) -> None:
    asked = kept(built, "factory@WO-02", 1, "prompt.txt")
    assert orders(built)[1]["intent"] in asked
    module = built.root / REPO / "units/convert.py"
    before = next(w for w in _writes(built, "factory@WO-01", 1) if w["path"] == "units/convert.py")["content"]
    assert before in asked
    assert before != module.read_text(), "a later order has edited it since"
    assert hashlib.sha256(before.encode()).hexdigest() in asked
    for reported in ('"writes"', "200,000 bytes", "without a shell"):
        assert reported in asked
    for withheld in ("## Temperatures", "Convert temperatures", "verify_exempt", "base_sha256", "failed"):
        assert withheld not in asked


def test_the_second_attempt_starts_from_the_baseline_and_knows_what_failed(built: Project) -> None:
    (failed,) = failures(built, "factory@WO-03")
    assert (failed["kind"], failed["exit_code"]) == ("verify_failed", 1)
    first, second = (kept(built, "factory@WO-03", n, "prompt.txt") for n in (1, 2))
    _, _, feedback = second.partition("That response failed: verify_failed")
    assert second.startswith(first.rstrip())
    assert "test_a_quantity_is_converted[32-F-C-0]" in feedback
    assert "write only: units/convert.py, tests/test_units.py, scripts/verify.sh" in second


def test_all_orders_share_the_instructions(built: Project) -> None:
    asked = [kept(built, f"factory@WO-0{number}", 1, "prompt.txt") for number in (1, 2, 3)]
    head = asked[0].partition("\n# Work order")[0]
    assert "# Response" in head
    assert all(text.startswith(head) for text in asked)


def test_two_orders_edit_one_file_and_the_later_one_starts_from_what_the_earlier_one_made(built: Project) -> None:
    made = {n: {w["path"]: w["content"] for w in _writes(built, f"factory@WO-0{n}", a)} for n, a in ((1, 1), (3, 2))}
    assert made[1]["units/convert.py"] in kept(built, "factory@WO-03", 1, "prompt.txt")
    assert repository(built)["units/convert.py"] == made[3]["units/convert.py"] != made[1]["units/convert.py"]


def test_orders_are_carried_out_strictly_one_after_another(built: Project) -> None:
    steps = [(e["type"], e["role"]) for e in built.events() if e["type"] in ("stage_started", "stage_finished")]
    run = [step for step in steps if step[1].startswith("factory@")]
    assert run == [(kind, f"factory@WO-0{n}") for n in (1, 2, 3) for kind in ("stage_started", "stage_finished")]


def test_the_summary_has_the_hash_that_git_gives_the_tree(shipped: Project) -> None:
    shipped.write({f"{REPO}/units/data/a.txt": "a\n", f"{REPO}/units.cfg": "b\n", f"{REPO}/run": "#!/bin/sh\n"})
    (shipped.root / REPO / "run").chmod(0o755)
    green(shipped.build(PIPELINE))
    reported = json.loads(shipped.read(f"{PLACE}/run_summary.json"))
    assert reported["repo_tree_hash_after"] == _tree_hash(shutil.copytree(shipped.root / REPO, shipped.home / "copy"))
    digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in repository(shipped).items()}
    assert {p: d for one in reported["orders"] for p, d in one["files"].items()}.items() <= digests.items()


def test_the_same_spec_prompts_and_model_are_one_compile_hash_and_another_spec_is_another(shipped: Project) -> None:
    def key() -> str:
        return str(shipped.run("explain", PIPELINE, "plan", "--json").json()["key"])

    first = key()
    assert key() == first
    shipped.replace(SPEC, "two decimals", "four decimals")
    second = key()
    shipped.replace(PIPELINE, "model: scripted", "model: other")
    third = key()
    shipped.replace("prompts/work_orders/planner.md.j2", "Compile", "Do compile")
    assert len({first, second, third, key()}) == 4


def test_its_answers_say_that_no_one_recorded_them(first_build: tuple[Project, Outcome]) -> None:
    project, outcome = first_build
    assert "written by hand, not by a model" in project.read(ANSWERS)
    assert "written by hand" in outcome.out + outcome.err


# ---- what verifies an order -----------------------------------------------------------------------

PASSES = "def test_it():\n    pass\n"
FAILS = "def test_it():\n    assert False\n"


@pytest.mark.parametrize(
    ("there", "contract", "code"),
    [
        pytest.param({"test_a.py": FAILS}, exists("never.py", "f2.py"), 0, id="exempt: compiled, and not tested"),
        pytest.param({"broken.py": "def"}, exists("never.py", "f2.py"), 1, id="exempt: compiled"),
        pytest.param({"scripts/verify.sh": "exit 3\n"}, [], 1, id="the script of the repository is red"),
        pytest.param({"scripts/verify.sh": "exit 0\n", "test_a.py": FAILS}, [], 0, id="the script alone decides"),
        pytest.param({"test_a.py": PASSES}, [], 0, id="without a script: compiled and tested"),
        pytest.param({"test_a.py": FAILS}, [], 1, id="without a script: a test is red"),
        pytest.param({"test_a.py": PASSES, "broken.py": "def"}, [], 1, id="without a script: compiled first"),
    ],
)
def test_an_order_is_compiled_while_exempt_and_then_verified_by_script_or_pytest(
    project: Project, there: dict[str, str], contract: list[Any], code: int
) -> None:
    last = order(2, postconditions=exists("f2.py", "never.py"), allowed_files=["f2.py", "never.py"])
    plan = manifest(order(1), last, verify_contract={"requires": contract})
    answered(project, [plan], {"WO-01": [makes(1)] * 2})
    project.write({f"{REPO}/{path}": text for path, text in there.items()})
    outcome = project.build(PIPELINE, "factory@WO-01")
    assert outcome.code == code, outcome.err
    assert {one["kind"] for one in failures(project)} == ({"verify_failed"} if code else set())
    assert ("f1.py" in repository(project)) == (code == 0)


@pytest.mark.parametrize(
    ("exempt", "script", "noted"),
    [
        (True, True, ["-m compileall -q ."]),
        (False, True, ["its own script"]),
        (False, False, ["-m compileall -q .", "-m pip --version", "-m pytest -q"]),
    ],
    ids=["exempt", "script", "pytest"],
)
def test_what_verifies_an_order_is_so_many_commands_in_this_order(
    tmp_path: Path, exempt: bool, script: bool, noted: list[str]
) -> None:
    """As a stand-in for Python notes them, which runs only what reads the order."""
    programs, project = tmp_path / "bin", tmp_path / "project"
    programs.mkdir()
    (project / "scripts").mkdir(parents=True)
    stand_in = f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} "$@"\necho "$*" >> {tmp_path}/noted\n'
    (programs / "python").write_text(stand_in)
    (programs / "python").chmod(0o755)
    (tmp_path / "order.json").write_text(json.dumps({"verify_exempt": exempt}))
    if script:
        (project / "scripts" / "verify.sh").write_text(f"echo its own script >> {tmp_path}/noted\n")
    argv = ["bash", str(HERE / "specs/work_orders/tools/verify.sh"), str(tmp_path / "order.json")]
    subprocess.run(argv, cwd=project, env={"PATH": f"{programs}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}, check=True)
    assert (tmp_path / "noted").read_text().splitlines() == noted


def test_notes_are_free_text(project: Project) -> None:
    plan = manifest(order(1, notes="rm -rf / && ``` *?[ ${{ nothing }} {{ nothing }}"))
    green(verified_by(answered(project, [plan], {"WO-01": [makes(1)]})).build(PIPELINE))
    assert "rm -rf / && ``` *?[ ${{ nothing }} {{ nothing }}" in kept(project, "factory@WO-01", 1, "prompt.txt")


def test_an_order_may_name_a_file_both_as_context_and_to_be_written_though_it_is_not_there_yet(
    project: Project,
) -> None:
    both = ["f1.py", "new.py"]
    plan = manifest(order(1, context_files=[*both, "base.py"], allowed_files=both, postconditions=exists(*both)))
    verified_by(answered(project, [plan], {"WO-01": [files_answer({"f1.py": "Y = 2\n", "new.py": ""})]}))
    project.write({f"{REPO}/base.py": "B = 1\n", f"{REPO}/f1.py": "X = 1\n"})
    green(project.build(PIPELINE))
    asked = kept(project, "factory@WO-01", 1, "prompt.txt")
    assert (asked.count("B = 1"), asked.count("X = 1")) == (1, 1)


def _writes(project: Project, stage: str, attempt: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(kept(project, stage, attempt, "response.txt"))["writes"]
    return found


def _tree_hash(copy: Path) -> str:
    """Return the hash that git gives the tree of a folder."""
    git = shutil.which("git")
    assert git is not None
    for arguments in (["init", "-q"], ["add", "-A"]):
        subprocess.run([git, *arguments], cwd=copy, check=True)
    return subprocess.run([git, "write-tree"], cwd=copy, check=True, capture_output=True, text=True).stdout.strip()
