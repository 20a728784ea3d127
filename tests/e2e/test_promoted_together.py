"""`promote: together`: of the items of one foreach either all results reach the workspace, or none does."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.pipelines import REACHING_OUTSIDE, calls, ends, green, note, noted, pipeline, prompt, shell, what_came
from tests.e2e.test_crash import build_and_die
from tests.project import Outcome, Project

pytestmark = [
    pytest.mark.slow,  # whole builds, many of them: `make test` runs them, `make check` does not
    pytest.mark.usefixtures("steps_reach_outside"),  # they note outside of their sandbox that they ran
]

_STRIDE = 17 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 211  # a prime meets all kinds
LAYERS = ("api", "page", "store")
MAKE = "mkdir -p app/$1; for w in $(cat src/$1.txt); do echo $w > app/$1/$w; done; echo $1 >> {notes}\n"


def story(project: Project, foreach: str = "", more: str = "") -> None:
    """Write three layers of an app. A layer is a folder with a file for each word of its text; the word `bad` fails."""
    project.write(
        shell(
            f"""\
  layers:
    foreach: {{in: [{", ".join(LAYERS)}], as: layer, promote: together{foreach}}}
    inputs: [make.sh, 'src/${{{{ layer }}}}.txt']
    outputs: ['app/${{{{ layer }}}}/']
    shell: [bash, make.sh, '${{{{ layer }}}}']
    verify: [{{shell: 'test ! -e app/${{{{ layer }}}}/bad'}}]
  after: {{inputs: ['app/api/*'], outputs: [all.txt], shell: 'ls app/api > all.txt; {note(project, "after")}'}}
{more}""",
            {
                "make.sh": MAKE.format(notes=f"{project.root}-notes.log"),
                **{f"src/{layer}.txt": "one two\n" for layer in LAYERS},
            },
        )
    )


def built(project: Project, **foreach: str) -> dict[str, bytes]:
    """Write the story and build it; return all files."""
    story(project, **foreach)
    green(project.build())
    Path(f"{project.root}-notes.log").unlink()
    return project.files()


def change(project: Project, **texts: str) -> None:
    """Give layers another text each: two words of which `one` is gone, if nothing else is said."""
    for layer in LAYERS:
        project.write({f"src/{layer}.txt": texts.get(layer, "two three") + "\n"})


def made(project: Project) -> dict[str, bytes]:
    """Return the files that a build makes, and the lock file."""
    return {path: data for path, data in project.files().items() if not path.startswith("src/")}


def promotions(project: Project) -> list[str]:
    """Return the stages in whose name files of the workspace changed in the newest run, in order, and the ends."""
    kinds = ("promoted", "stage_restored")
    return [e["role"] for e in project.events() if e["type"] in kinds and (e["data"]["files"] or e["data"]["removed"])]


# ---- all of them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", ["-j1", "-j4"])
def test_what_all_items_made_is_promoted_after_the_last_of_them(project: Project, jobs: str) -> None:
    built(project)
    change(project)
    green(project.build(jobs))
    types = [(e["type"], e["role"]) for e in project.events() if e["role"].startswith("layers@")]
    first = next(i for i, (kind, _) in enumerate(types) if kind == "promoted")
    assert {role for kind, role in types[:first] if kind == "attempt_finished"} == {f"layers@{n}" for n in LAYERS}
    assert [kind for kind, _ in types[first:]] == ["promoted"] * 3 + ["stage_finished"] * 3
    assert len([kind for kind, _ in types if kind == "stage_held"]) == 2, "the last one waits for nobody"
    assert set(project.files("app")) == {f"app/{n}/{w}" for n in LAYERS for w in ("two", "three")}
    assert ends(project) == {"after": "built", **{f"layers@{n}": "built" for n in LAYERS}}
    assert project.plan() == {"after": "fresh", **{f"layers@{n}": "fresh" for n in LAYERS}}


def test_it_is_one_transaction(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from orch23.store.promotion import Promoter  # noqa: PLC0415  the effect that is counted

    seen: list[set[str]] = []
    real = Promoter._apply

    def counted(self, new, old):
        seen.append(set(new))
        return real(self, new, old)

    built(project)
    change(project)
    monkeypatch.setattr(Promoter, "_apply", counted)
    green(project.build())
    assert seen == [{f"app/{n}/{w}" for n in LAYERS for w in ("one", "three")}, {"all.txt"}]


def test_without_it_each_item_is_promoted_by_itself(project: Project) -> None:
    built(project)
    project.replace("pipeline.yaml", "promote: together", "promote: each")
    assert set(project.plan().values()) == {"fresh"}, "it is no part of any key"
    change(project, page="bad")
    assert project.build("-j1").code == 1
    assert (ends(project)["layers@api"], project.exists("app/api/three")) == ("built", True)


# ---- or none ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [("-j1",), ("-j4",), ("-j1", "-k")])
def test_nothing_reaches_the_workspace_if_one_item_fails(project: Project, argv: tuple[str, ...]) -> None:
    built(project)
    before = made(project)
    change(project, page="bad")
    outcome = project.build(*argv)
    assert outcome.code == 1
    assert made(project) == before, "no file is new, changed or gone, and the lock file is as it was"
    last = {"-j1": "blocked", "-j4": "held"}[argv[0]] if len(argv) == 1 else "held"
    assert ends(project) == {"layers@api": "held", "layers@page": "failed", "layers@store": last, "after": "blocked"}
    assert promotions(project) == []
    assert noted(project).count("after") == 0


def test_the_next_build_makes_nothing_again_that_waits_in_the_store(project: Project) -> None:
    built(project)
    change(project, page="bad")
    assert project.build("-k").code == 1
    ran = sorted(noted(project))
    assert project.plan()["layers@api"] == project.plan()["layers@store"] == "restore"
    before = made(project)
    assert project.build().code == 1
    assert ends(project)["layers@api"] == ends(project)["layers@store"] == "held"
    assert made(project) == before
    assert sorted(noted(project)) == sorted([*ran, "page"]), "only what failed ran again"
    project.edit("src/page.txt", "good\n")
    green(project.build())
    assert noted(project)[-2:] == ["page", "after"]
    assert ends(project) == {
        "layers@api": "restored",
        "layers@page": "built",
        "layers@store": "restored",
        "after": "built",
    }
    assert sorted(project.files("app")) == [
        "app/api/three",
        "app/api/two",
        "app/page/good",
        "app/store/three",
        "app/store/two",
    ]


def test_a_first_build_that_fails_leaves_no_file_at_all(project: Project) -> None:
    story(project)
    change(project, store="bad")
    assert project.build("-k").code == 1
    assert not project.exists("app")
    assert json.loads(project.read("pipeline.lock"))["records"] == {"~": None}


def test_going_back_is_fresh_with_nothing_run(project: Project) -> None:
    before = built(project)
    change(project, page="bad")
    assert project.build("-k").code == 1
    ran = noted(project)
    change(project, **dict.fromkeys(LAYERS, "one two"))
    assert set(project.plan().values()) == {"fresh"}
    green(project.build())
    assert (project.files(), noted(project)) == (before, ran)


def test_going_to_a_former_state_restores_all_of_it_at_once(project: Project) -> None:
    built(project)
    change(project)
    green(project.build())
    ran = noted(project)
    change(project, **dict.fromkeys(LAYERS, "one two"))
    green(project.build())
    assert promotions(project) == ["layers@api", "layers@page", "layers@store", "after"]
    assert noted(project) == ran


def test_what_is_fresh_stays_fresh_and_what_waits_is_reported_with_the_way_out(project: Project) -> None:
    built(project)
    change(project, api="one two", page="bad")
    outcome = project.build("-k")
    assert ends(project)["layers@api"] == "fresh"
    assert outcome.err.count("layers@store") == 2, "a line of its own, and a name in the block at the end"
    assert "withheld: layers@page failed" in outcome.err
    assert "3 stages" not in outcome.err
    assert "4 stages: 1 fresh, 1 held, 1 failed, 1 blocked" in outcome.err
    assert "in the store, but not in the workspace: layers@store" in outcome.err
    assert "next: fix layers@page, then `orch23 build" in outcome.err
    reported = [json.loads(line) for line in project.build("-k", "--json").out.splitlines()]
    finished = next(e for e in reported if e["type"] == "stage_finished" and e["role"] == "layers@store")
    assert (finished["data"]["status"], finished["data"]["by"]) == ("held", ["layers@page"])
    newest = project.journals()[-1].stem
    state = json.loads(project.read(f"logs/{newest}/state.json"))
    assert state["stages"]["layers@store"]["status"] == "held"
    assert state["stages"]["layers@page"]["status"] == "failed"
    assert "1 held" in project.run("runs").out


def test_who_watches_closely_is_reported_at_once(project: Project) -> None:
    story(project)
    assert "waits for layers@page, layers@store" in project.build("-v", "-j1").err


# ---- who comes after -------------------------------------------------------------------------------


def test_what_reads_one_item_waits_for_all_of_them(project: Project) -> None:
    built(project)
    change(project, store="bad")
    project.build("-k", "-j1")
    assert ends(project)["after"] == "blocked", "it reads api alone"
    graph = project.run("graph", "--json").json()
    assert {e["from"] for e in graph["edges"] if e["to"] == "after"} == {f"layers@{n}" for n in LAYERS}


def test_a_second_foreach_that_is_joined_item_by_item_waits_for_all(project: Project) -> None:
    more = f"""\
  tests:
    foreach: {{in: [{", ".join(LAYERS)}], as: layer}}
    needs: [layers]
    shell: '{note(project, "test")}'
"""
    story(project, more=more)
    change(project, store="bad")
    project.build("-k")
    assert {n for n, end in ends(project).items() if end == "blocked"} == {
        "after",
        *(f"tests@{n}" for n in LAYERS),
    }
    assert "test" not in noted(project)


def test_a_list_is_tried_with_the_slices_that_another_item_made_and_that_wait(project: Project) -> None:
    """`page` makes a list of sections of what `api` makes: it is held to the new sections, not to those on the disk."""
    project.write(
        shell(
            """\
  layers:
    foreach: {in: [api, page], as: layer, promote: together}
    inputs: ['src/${{ layer }}.json', "${{ ['app/api.json'] if layer == 'page' else [] }}"]
    outputs: ['app/${{ layer }}.json']
    shell: cp src/${{ layer }}.json app/${{ layer }}.json
  each:
    foreach: {from: 'app/page.json#/list', as: part}
    inputs: ["${{ part | under('app/api.json#/parts') }}"]
    outputs: ["${{ part | under('parts') }}"]
    shell: [touch, "${{ part | under('parts') }}"]
""",
            {"src/api.json": '{"parts": {"one": 1}}', "src/page.json": '{"list": ["one"]}'},
        )
    )
    green(project.build())
    project.write({"src/api.json": '{"parts": {"two": 2}}', "src/page.json": '{"list": ["two"]}'})
    green(project.build())
    assert sorted(project.files("parts")) == ["parts/two"]
    project.edit("src/page.json", '{"list": ["one"]}')
    refused = project.build()
    assert refused.code == 1
    assert "[E833] each@one: `app/api.json#/parts/one`" in refused.err


def test_an_item_sees_what_another_made_before_either_is_promoted(project: Project) -> None:
    story(project, foreach=", key: id, needs: after")
    project.replace(
        "pipeline.yaml",
        f"in: [{', '.join(LAYERS)}]",
        "in: [{id: api}, {id: page, after: [api]}, {id: store, after: [page]}]",
    )
    text = project.read("pipeline.yaml").replace("${{ layer }}", "${{ layer.id }}")
    text = text.replace("{shell: 'test", "{shell: 'cat app/api/two && test")
    project.edit("pipeline.yaml", text.replace("verify: [", "verify:\n      inputs: [app/api/**]\n      steps: ["))
    green(project.build())
    change(project, api="two four", store="bad")
    assert project.build().code == 1
    assert ends(project)["layers@page"] == "held", "its verification reads what api made, which is held"
    assert sorted(project.files("app/api")) == ["app/api/one", "app/api/two"]
    change(project, api="four", store="good")
    assert project.build().code == 1
    assert ends(project)["layers@api"] == "failed", "what it reads itself is what is held, not what is on disk"


# ---- chains ----------------------------------------------------------------------------------------

CHAIN = """\
  edit:
    foreach: {in: [one, two, three], order: sequential, promote: together}
    inputs: ['src/${{ item }}.txt']
    outputs: [app.txt, 'own/${{ item }}.txt']
    shell: 'cat src/${{ item }}.txt | tee -a app.txt > own/${{ item }}.txt'
    verify: [{shell: '! grep bad app.txt'}]
"""


@pytest.mark.parametrize("argv", [(), ("-k",)])
def test_of_a_chain_only_the_last_versions_come_and_all_at_once(project: Project, argv: tuple[str, ...]) -> None:
    texts = {f"src/{name}.txt": f"{name}\n" for name in ("one", "two", "three")}
    project.write(shell(CHAIN, {**texts, "app.txt": "mine\n"}))
    project.edit("src/two.txt", "bad\n")
    assert project.build(*argv).code == 1
    assert ends(project) == {"edit@one": "held", "edit@two": "failed", "edit@three": "blocked"}
    assert (project.read("app.txt"), project.exists("own")) == ("mine\n", False)
    assert project.plan()["edit@one"] in ("fresh", "restore")
    project.edit("src/two.txt", "two\n")
    green(project.build(*argv))
    assert "edit@one" not in project.ran()
    assert project.read("app.txt") == "mine\none\ntwo\nthree\n"
    assert sorted(project.files("own")) == ["own/one.txt", "own/three.txt", "own/two.txt"]
    before = project.files()
    project.edit("src/three.txt", "bad\n")
    project.edit("src/one.txt", "ONE\n")
    for _ in range(2):
        assert project.build(*argv).code == 1
        assert set(project.files().items()) - set(before.items()) == {
            ("src/one.txt", b"ONE\n"),
            ("src/three.txt", b"bad\n"),
        }, "the lock is as it was, too, also where an item is fresh by the store alone"
    project.edit("src/three.txt", "three\n")
    green(project.build(*argv))
    assert project.read("app.txt") == "mine\nONE\ntwo\nthree\n"


def test_an_item_of_which_only_the_record_waits_is_held_too(project: Project) -> None:
    stages = CHAIN.replace(", 'own/${{ item }}.txt'", "").replace(
        "| tee -a app.txt > own/${{ item }}.txt", ">> app.txt"
    )
    project.write(shell(stages, {f"src/{name}.txt": f"{name}\n" for name in ("one", "two", "three")}))
    green(project.build())
    lock = project.read("pipeline.lock")
    project.edit("src/three.txt", "bad\n")
    project.edit("src/one.txt", "ONE\n")
    assert project.build().code == 1
    assert project.plan()["edit@one"] == "fresh", "the disk holds the last version alone"
    assert project.build().code == 1
    assert (ends(project)["edit@one"], project.ran()) == ("held", ["edit@three"])
    assert project.read("pipeline.lock") == lock
    project.edit("src/three.txt", "three\n")
    green(project.build())
    assert ends(project) == {"edit@one": "fresh", "edit@two": "fresh", "edit@three": "built"}


def test_a_plan_of_a_chain_counts_with_what_waits(project: Project) -> None:
    texts = {f"src/{name}.txt": f"{name}\n" for name in ("one", "two", "three")}
    project.write(shell(CHAIN, texts))
    green(project.build())
    project.delete("own/one.txt")
    planned = project.plan()
    assert planned["edit@one"] == "restore"
    green(project.build())
    assert {e["role"]: e["data"]["decision"] for e in project.events_of("stage_decided")} == planned


# ---- a person's files ------------------------------------------------------------------------------


def test_an_edited_file_of_one_item_holds_all_back(project: Project) -> None:
    built(project)
    change(project)
    project.edit("app/page/two", "mine\n")
    before = made(project)
    outcome = project.build("-k")
    assert outcome.code == 6
    assert ends(project) == {
        "layers@api": "held",
        "layers@page": "edited",
        "layers@store": "held",
        "after": "blocked",
    }
    assert made(project) == before
    green(project.build("--overwrite-edited"))
    assert sorted(project.files("app/page")) == ["app/page/three", "app/page/two"]


def test_an_edit_that_is_accepted_is_taken_by_itself_and_the_others_follow(project: Project) -> None:
    built(project)
    project.edit("app/page/two", "mine\n")
    change(project, page="one two")
    assert project.build("-k").code == 6
    green(project.run("accept", "layers@page"))
    green(project.build())
    assert ends(project)["layers@page"] == "fresh"
    assert (project.read("app/page/two"), project.exists("app/api/three")) == ("mine\n", True)


def test_a_file_that_somebody_makes_meanwhile_holds_all_back(project: Project) -> None:
    story(project)
    project.replace(
        "pipeline.yaml",
        "shell: 'test",
        f"shell: 'mkdir -p {project.root}/app/page && echo mine > {project.root}/app/page/two; test",
    )
    outcome = project.build("-j1")
    assert outcome.code == 6
    assert ends(project)["layers@page"] == "edited"
    assert ends(project)["layers@api"] == ends(project)["layers@store"] == "held"
    assert project.files("app") == {"app/page/two": b"mine\n"}


# ---- what was asked for ----------------------------------------------------------------------------


def test_only_the_items_that_were_asked_for_are_waited_for(project: Project) -> None:
    built(project)
    change(project, store="bad")
    green(project.build("layers@api", "layers@page"))
    assert promotions(project) == ["layers@api", "layers@page"]
    assert sorted(project.files("app/store")) == ["app/store/one", "app/store/two"]
    green(project.build("--only", "layers@api"))
    assert project.build("after").code == 1, "what comes after wants them all"
    assert ends(project)["layers@store"] == "failed"


# ---- damage ----------------------------------------------------------------------------------------


def test_bytes_that_are_lost_while_they_wait_hold_all_back_and_the_next_build_fixes_it(project: Project) -> None:
    built(project)
    before = made(project)
    change(project, store="two four")
    cas = project.root / ".orch23/cas"
    damage = f"grep -lrx three {cas} | while read f; do chmod u+w $f; echo THREE > $f; done"
    project.replace("make.sh", "mkdir -p app/$1;", f"mkdir -p app/$1; if [ $1 = store ]; then {damage}; fi;")
    outcome = project.build("-j1", "-k")
    assert outcome.code == 1
    assert {p: d for p, d in made(project).items() if p != "make.sh"} == {
        p: d for p, d in before.items() if p != "make.sh"
    }
    assert "E710" in outcome.err
    project.replace("make.sh", damage, "true")
    green(project.build("-j1"))
    assert sorted(project.files("app/store")) == ["app/store/four", "app/store/two"]
    assert project.read("app/api/three") == "three\n"


# ---- the end of the process ------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_leaves_the_workspace_as_it_was(
    project: Project, number: signal.Signals, code: int
) -> None:
    built(project)
    before = made(project)
    change(project)
    gate = project.root.parent / "gate"
    os.mkfifo(gate)
    hold = f"if [ $1 = store -a -p {gate} ]; then echo > {gate}; sleep 60; fi; "
    project.edit("make.sh", hold + project.read("make.sh"))
    before |= {"make.sh": project.read("make.sh").encode()}
    environ = {"PATH": os.environ["PATH"], "HOME": str(project.home), "PYTHONPATH": str(Path(__file__).parents[2])}
    environ["ORCH23_ALLOW_UNSANDBOXED"] = "1"
    script = f"{REACHING_OUTSIDE}\nfrom orch23.entry import run; run()"
    argv = [sys.executable, "-c", script, "-C", str(project.root), "build", "-j1"]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        what_came(gate, process)
        process.send_signal(number)
        _, reported = process.communicate(timeout=30)
    assert process.returncode == code, reported.decode()
    gate.unlink()
    assert made(project) == before
    assert [ends(project)[f"layers@{name}"] for name in LAYERS] == ["held", "held", "cancelled"]
    assert project.plan() == {
        "layers@api": "restore",
        "layers@page": "restore",
        "layers@store": "run",
        "after": "run",
    }
    green(project.build())
    assert sorted(project.files("app/api")) == ["app/api/three", "app/api/two"]
    assert noted(project).count("api") == 1


def test_a_stop_condition_holds_all_back(project: Project) -> None:
    stages = """\
  ask:
    foreach: {in: [a, b], promote: together}
    outputs: ['${{ item }}.txt']
    llm: {prompt: ask.md.j2, returns: text}
"""
    head = "stop_conditions: {max_llm_calls: 1}\n"
    project.write(pipeline(stages, {"ask.md.j2": prompt("ask {{ item }}", "said {{ item }}")}, head=head))
    assert project.build("-j1").code == 4
    assert ends(project) == {"ask@a": "held", "ask@b": "cancelled"}
    assert not project.exists("a.txt")
    project.edit("pipeline.yaml", project.read("pipeline.yaml").replace("max_llm_calls: 1", "max_llm_calls: 9"))
    green(project.build())
    assert calls(project) == ["ask a", "ask b"], "each asked once"
    assert (project.read("a.txt"), project.read("b.txt")) == ("said a\n", "said b\n")


def _all_or_nothing(project: Project, before: dict[str, bytes], after: dict[str, bytes], where: str) -> None:
    """Hold a project, in which no one has built since it died, to one of two states of its folder `app`."""
    assert made(project) in (before, after), where


def test_a_build_killed_at_any_step_leaves_all_or_nothing_to_the_next_one(project: Project) -> None:
    built(project)
    project.replace("pipeline.yaml", note(project, "after"), "true")
    green(project.build())
    project.delete("all.txt")
    shutil.copytree(project.root, project.root.parent / "saved")

    def restored(**texts: str) -> Project:
        shutil.rmtree(project.root)
        shutil.copytree(project.root.parent / "saved", project.root)
        change(project, **texts)
        return Project(project.root)

    def app(one: Project) -> dict[str, bytes]:
        return {path: data for path, data in one.files().items() if path.startswith("app/")}

    fresh = restored()
    old = app(fresh)
    code, steps = build_and_die(fresh, -1)
    assert code == 0
    new, whole = app(fresh), made(fresh)
    names = steps.splitlines()
    inside = [("Promoter.", number) for number in range(1, steps.count("Promoter.") + 1)]
    half = 0
    for among, number in (*inside, *(("", number) for number in range(1, len(names) + 1, _STRIDE))):
        fresh = restored()
        code, step = build_and_die(fresh, number, among=among)
        where = f"killed before step {number} of {len(names)}, {step}"
        assert code == 137, where
        half += app(fresh) not in (old, new)
        change(fresh, page="bad")  # the group cannot become green any more: what is there must be whole as it is
        assert fresh.build("-j1", "-k").code == 1, where
        assert app(fresh) in (old, new), where
        change(fresh)
        green(fresh.build("-j1"))
        assert made(fresh) == whole, where
    assert half, "some of the deaths were in the midst of the promotion"


# ---- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["stage", "defaults", "item"])
def test_keeping_a_failed_item_alone_contradicts_it(project: Project, where: str) -> None:
    story(project)
    if where == "defaults":
        project.replace("pipeline.yaml", "stages:\n", "defaults: {on_failure: keep}\nstages:\n")
    else:
        text = "keep" if where == "stage" else "'${{ ''keep'' if layer else 0 }}'"
        project.replace("pipeline.yaml", "    inputs: [make", f"    on_failure: {text}\n    inputs: [make")
    outcome: Outcome = project.run("validate")
    assert outcome.code == 65
    text = outcome.out + outcome.err
    assert "E856" in text
    assert "`on_failure: keep` and `foreach.promote: together`" in text
    assert text.count("E856") == 1


@pytest.mark.needs("metrics")
def test_it_is_no_change_that_affects_a_stage(project: Project) -> None:
    from tests.features.metrics.test_affected import git  # noqa: PLC0415 - of a feature

    story(project)
    project.replace("pipeline.yaml", "in: [api, page, store]", "from: list.json")
    reported = "shell: 'test ! -e app/${{ layer }}/bad'"  # the items of a file may be in no text of a command
    project.replace("pipeline.yaml", reported, "shell: [test, '!', -e, 'app/${{ layer }}/bad']")
    making = "  list: {inputs: [names.txt], outputs: [list.json], shell: 'cp names.txt list.json'}\n"
    project.edit("pipeline.yaml", project.read("pipeline.yaml") + making)
    project.write({"names.txt": '["api", "page", "store"]', ".gitignore": ".orch23\nlogs\n"})
    git(project, "init", "-q")
    git(project, "add", "--all")
    git(project, "commit", "-q", "-m", "one")
    project.replace("pipeline.yaml", "promote: together", "promote: each")
    assert "no stage is affected" in project.run("affected", "--since", "HEAD").out
