"""What staleness rests on: the nine rules of the language's design, each by what a user sees."""

import json
import shutil

import pytest

from tests.e2e.pipelines import calls, ends, green, note, noted, pipeline, prompt, proposing, shell
from tests.project import Project

pytestmark = pytest.mark.usefixtures("steps_reach_outside")  # they note outside of their sandbox that they ran

# ---- 1: inputs -----------------------------------------------------------------------------------


def test_rule_1_a_literal_input_that_no_one_makes_is_an_error(project: Project) -> None:
    project.write(shell("  copy: {inputs: [in.txt], outputs: [out.txt], shell: cat in.txt > out.txt}\n"))
    refused = project.build()
    assert refused.code == 65
    assert "in.txt" in refused.err
    assert "pipeline.yaml:4:" in refused.err


def test_rule_1_an_optional_input_may_come_and_go(project: Project) -> None:
    command = "cat in.txt > out.txt || echo none > out.txt"
    stage = f"{{inputs: [{{path: in.txt, optional: true}}], outputs: [out.txt], shell: '{command}'}}"
    project.write(shell(f"  copy: {stage}\n"))
    green(project.build())
    assert project.read("out.txt") == "none\n"
    project.write({"in.txt": "some\n"})
    assert project.plan() == {"copy": "run"}
    green(project.build())
    assert project.read("out.txt") == "some\n"
    project.delete("in.txt")
    assert project.plan() == {"copy": "restore"}


def test_rule_1_a_glob_sees_what_is_added_changed_and_removed_and_may_be_empty(project: Project) -> None:
    project.write(
        shell("  join: {inputs: ['in/*.txt'], outputs: [out.txt], shell: 'cat in/*.txt > out.txt || true'}\n")
    )
    green(project.build())
    assert project.read("out.txt") == ""
    project.write({"in/a.txt": "a\n", "in/b.txt": "b\n", "in/c.md": "c\n"})
    green(project.build())
    assert project.read("out.txt") == "a\nb\n"
    project.edit("in/c.md", "other\n")
    assert project.plan() == {"join": "fresh"}
    project.delete("in/a.txt")
    green(project.build())
    assert project.read("out.txt") == "b\n"


def test_rule_1_a_listing_counts_names_and_never_contents(project: Project) -> None:
    project.write(
        pipeline(
            "  index: {inputs: [{list: 'docs/**'}], outputs: [index.txt], llm: {prompt: p.md.j2, returns: text}}\n",
            {"docs/a.md": "a\n", "p.md.j2": prompt("index", "{% for one in inputs %}{{ one.text }}{% endfor %}")},
        )
    )
    green(project.build())
    assert "docs/a.md" in project.read("index.txt")
    project.edit("docs/a.md", "another text\n")
    assert project.plan() == {"index": "fresh"}
    project.write({"docs/b.md": "b\n"})
    assert project.plan() == {"index": "run"}


SPEC = "# Spec\n## One\nfirst\n## Two\nsecond\n"


@pytest.mark.parametrize(
    ("declared", "path", "before", "elsewhere", "here"),
    [
        ("spec.md#One", "spec.md", SPEC, SPEC.replace("second", "2nd"), SPEC.replace("first", "1st")),
        (
            "spec.json#/tasks/[id=T1]",
            "spec.json",
            '{"tasks": [{"id": "T0"}, {"id": "T1", "n": 1}]}',
            '{"tasks": [{"id": "T1", "n": 1}], "more": 2}',
            '{"tasks": [{"id": "T1", "n": 2}]}',
        ),
        ("spec.yaml#/a", "spec.yaml", "a: 1\nb: 2\n", "# said\na: 1\nb: 3\n", "a: 4\nb: 3\n"),
    ],
)
def test_rule_1_a_slice_is_stale_by_its_own_part_alone(
    project: Project, declared: str, path: str, before: str, elsewhere: str, here: str
) -> None:
    project.write(
        pipeline(
            f"  ask: {{inputs: ['{declared}'], outputs: [out.txt], llm: {{prompt: p.md.j2, returns: text}}}}\n",
            {path: before, "p.md.j2": prompt("ask", "{{ inputs[0].text }} .")},
        )
    )
    green(project.build())
    project.edit(path, elsewhere)
    assert project.plan() == {"ask": "fresh"}
    project.edit(path, here)
    assert project.plan() == {"ask": "run"}


def test_rule_1_a_heading_that_is_missing_or_there_twice_stops_the_stage(project: Project) -> None:
    project.write(
        pipeline(
            "  ask: {inputs: ['spec.md#Three'], outputs: [out.txt], llm: {prompt: p.md.j2, returns: text}}\n",
            {"spec.md": SPEC, "p.md.j2": prompt("ask", "{{ inputs[0].text }} .")},
        )
    )
    for text in (SPEC, SPEC + "## Three\na\n## Three\nb\n"):
        project.write({"spec.md": text})
        stopped = project.build()
        assert stopped.code in {1, 65}
        assert "Three" in stopped.err
        assert calls(project) == []


def test_rule_1_a_schema_is_checked_before_anything_runs(project: Project) -> None:
    project.write(
        shell(
            f"""\
  first: {{outputs: [a.txt], shell: 'echo a > a.txt; {note(project, "first")}'}}
  use: {{inputs: [{{path: data.json, schema: data.schema.json}}], outputs: [b.txt], shell: cp data.json b.txt}}
""",
            {"data.json": '{"n": "three"}', "data.schema.json": '{"properties": {"n": {"type": "integer"}}}'},
        )
    )
    refused = project.build()
    assert refused.code == 65
    assert "data.json" in refused.err
    assert noted(project) == []
    project.edit("data.json", '{"n": 3}')
    green(project.build())


# ---- 2: ownership --------------------------------------------------------------------------------


def test_rule_2_a_stage_owns_the_files_that_it_wrote_in_its_directory(project: Project) -> None:
    project.write(
        shell(
            "  split: {inputs: [names.txt], outputs: [out/], shell: 'mkdir -p out; for n in $(cat names.txt); "
            "do echo $n > out/$n; done'}\n",
            {"names.txt": "a b c\n", "out/mine.txt": "a person's\n"},
        )
    )
    green(project.build())
    assert sorted(project.files("out")) == ["out/a", "out/b", "out/c", "out/mine.txt"]
    project.edit("names.txt", "a c\n")
    green(project.build())
    assert sorted(project.files("out")) == ["out/a", "out/c", "out/mine.txt"], "what it no longer makes is gone"
    project.delete("out/a")
    assert project.plan() == {"split": "restore"}
    project.edit("names.txt", "\n")
    assert project.build().code == 1, "a directory needs a file at least"
    assert project.exists("out/c")


def test_rule_2_a_write_inside_the_fence_is_owned_and_one_outside_is_refused(project: Project) -> None:
    project.write(
        shell(
            """\
  make:
    inputs: [more.txt]
    outputs: [out/main.txt]
    allowed_paths: {write: [out/]}
    shell: mkdir -p out other; echo m > out/main.txt; for n in $(cat more.txt); do echo x > $n; done
""",
            {"more.txt": "out/also.txt\n"},
        )
    )
    green(project.build())
    assert sorted(project.files("out")) == ["out/also.txt", "out/main.txt"]
    project.edit("more.txt", "other/evil.txt\n")
    refused = project.build()
    assert refused.code == 1
    assert "other/evil.txt" in refused.err
    assert not project.exists("other")
    project.edit("more.txt", "\n")
    green(project.build())
    assert sorted(project.files("out")) == ["out/main.txt"], "the last result owned it, this one lacks it"


def test_rule_2_two_owners_of_a_file_are_refused_with_both_places(project: Project) -> None:
    project.write(
        shell("  a: {outputs: [x.txt], shell: echo a > x.txt}\n  b: {outputs: ['x.txt'], shell: echo b > x.txt}\n")
    )
    refused = project.build()
    assert refused.code == 65
    assert "pipeline.yaml:4:" in refused.err
    assert "pipeline.yaml:5:" in refused.err


def test_rule_2_a_stage_without_outputs_is_fresh_by_its_record(project: Project) -> None:
    project.write(
        shell(f"  check: {{inputs: [in.txt], shell: 'test -s in.txt; {note(project, 'check')}'}}\n", {"in.txt": "x"})
    )
    green(project.build())
    green(project.build())
    assert noted(project) == ["check"]


# ---- 3: a chain of one ---------------------------------------------------------------------------


def test_rule_3_a_file_that_a_model_is_to_edit_is_its_version_0_and_stays_it(project: Project) -> None:
    project.write(
        pipeline(
            "  edit: {inputs: [spec.md], outputs: [app.py], llm: {prompt: p.md.j2, returns: files}}\n",
            {
                "spec.md": "a\n",
                "app.py": "# mine\n",
                "p.md.j2": proposing("edit", {"app.py": "inputs['app.py'].text ~ '# ' ~ inputs['spec.md'].text"}),
            },
        )
    )
    green(project.build())
    assert project.read("app.py") == "# mine\n# a\n"
    project.edit("spec.md", "b\n")
    green(project.build())
    assert project.read("app.py") == "# mine\n# b\n", "it starts from what the person had, each time"


def test_rule_3_a_file_that_a_command_would_overwrite_is_edited(project: Project) -> None:
    project.write(shell("  make: {outputs: [app.py], shell: echo x > app.py}\n", {"app.py": "# mine\n"}))
    assert project.plan() == {"make": "run"}
    assert "may end as edited (existed before the stage first ran: app.py)" in project.run("plan").out
    assert project.build().code == 6
    assert project.read("app.py") == "# mine\n"


def test_rule_3_a_failed_item_blocks_the_later_ones(project: Project) -> None:
    project.write(
        shell(
            """\
  step:
    foreach: {in: [a, b, c], as: n, order: sequential}
    outputs: [log.txt]
    shell: [sh, -c, 'test $0 != b && echo $0 >> log.txt', "${{ n }}"]
"""
        )
    )
    assert project.build().code == 1
    assert ends(project) == {"step@a": "built", "step@b": "failed", "step@c": "blocked"}


# ---- 4: verify has inputs of its own -------------------------------------------------------------


def test_rule_4_verify_works_on_a_copy_and_no_model_sees_its_inputs(project: Project) -> None:
    project.write(
        pipeline(
            """\
  code:
    inputs: [spec.md]
    outputs: [app.txt]
    llm: {prompt: p.md.j2, returns: text}
    verify:
      inputs: [secret_test.sh]
      steps: [{shell: [sh, secret_test.sh]}, {shell: 'test $(cat app.txt) = hello; test ! -s left.txt'}]
    scratch: [left.txt]
""",
            {
                "spec.md": "hello",
                "secret_test.sh": "echo left > left.txt\n",
                "p.md.j2": prompt("code", "{% for one in inputs %}{{ one.text }}{% endfor %}"),
            },
        )
    )
    green(project.build())
    assert project.read("app.txt").strip() == "hello"
    assert not project.exists("left.txt")


# ---- 5: own outputs (the walk through it is in test_walks.py) ------------------------------------


def test_rule_5_what_was_shown_of_own_outputs_is_recorded(project: Project) -> None:
    shown = "{% if own %}{{ own['notes.txt'].text }}{% endif %}{{ inputs['spec.md'].text }}"
    project.write(
        pipeline(
            """\
  code:
    inputs: [spec.md]
    outputs: [notes.txt]
    llm: {prompt: code.md.j2, returns: text, context: {own_outputs: true}, transcripts: heard}
""",
            {"spec.md": "uno\n", "code.md.j2": prompt("code", shown)},
        )
    )
    green(project.build())
    project.edit("spec.md", "due\n")
    green(project.build())
    texts = (b"uno" in data and b"due" in data for data in project.files("heard").values())
    assert any(texts)


# ---- 6: foreach ----------------------------------------------------------------------------------


PLANNED = """\
  plan:
    inputs: [spec.md]
    outputs: [plan.json]
    llm: {prompt: plan.md.j2, returns: json}
    retry: 2
  code:
    foreach: {from: "plan.json#/tasks", key: id, as: task}
    inputs: ["spec.md#${{ task.section }}"]
    outputs: ["${{ task.file | under('out') }}"]
    shell: [sh, -c, 'mkdir -p out && echo x > $0', "${{ task.file | under('out') }}"]
"""


def planned(first: str, second: str) -> str:
    return prompt("plan{% if brief %} again{% endif %}", f"{{% if brief %}}{second}{{% else %}}{first}{{% endif %}}")


GOOD = '{"tasks": [{"id": "T1", "section": "One", "file": "a.txt"}]}'


@pytest.mark.parametrize(
    "bad",
    [
        '{"tasks": [{"id": "T1", "section": "Nowhere", "file": "a.txt"}]}',
        '{"tasks": [{"id": "T1", "section": "One", "file": "a.txt"}, {"id": "T1", "section": "One", "file": "b.txt"}]}',
        '{"tasks": [{"id": "T 1", "section": "One", "file": "a.txt"}]}',
        '{"tasks": [{"id": "T1", "section": "One", "file": "a.txt"}, {"id": "T2", "section": "One", "file": "a.txt"}]}',
        '{"tasks": "none"}',
        '{"jobs": []}',
    ],
)
def test_rule_6_a_trial_expansion_fails_the_producer_and_feeds_its_retry(project: Project, bad: str) -> None:
    project.write(pipeline(PLANNED, {"spec.md": "# One\nx\n", "plan.md.j2": planned(bad, GOOD)}))
    green(project.build())
    assert calls(project) == ["plan", "plan again"]
    assert project.read("out/a.txt") == "x\n"
    green(project.build())
    assert project.ran() == []


@pytest.mark.parametrize("source", ["facts.json#/known", "plan.json#/notes"])
def test_rule_6_slices_of_what_was_made_before_the_list_are_looked_for(project: Project, source: str) -> None:
    """The items name parts of another stage's file, or of the list's own: both are there when the list is judged."""
    stages = PLANNED.replace("inputs: [spec.md]", "inputs: [facts.json]").replace(
        "spec.md#${{ task.section }}", f"{source}/${{{{ task.section }}}}"
    )
    facts = "  facts:\n    inputs: [spec.md]\n    outputs: [facts.json]\n    shell: cp spec.md facts.json\n"
    good, bad = (GOOD.replace("One", name)[:-1] + ', "notes": {"One": 1}}' for name in ("One", "Nowhere"))
    project.write(pipeline(facts + stages, {"spec.md": '{"known": {"One": 1}}', "plan.md.j2": planned(bad, good)}))
    green(project.build())
    assert calls(project) == ["plan", "plan again"]
    assert project.read("out/a.txt") == "x\n"


def test_rule_6_an_unexpanded_foreach_is_shown_as_such(project: Project) -> None:
    project.write(pipeline(PLANNED, {"spec.md": "# One\nx\n", "plan.md.j2": planned(GOOD, GOOD)}))
    assert project.plan() == {"plan": "run", "code": "expand"}
    green(project.build())
    assert project.plan() == {"plan": "fresh", "code@T1": "fresh"}


def test_rule_6_needs_between_two_foreach_over_one_list_joins_item_to_item(project: Project) -> None:
    project.write(
        shell(
            f"""\
  make:
    foreach: {{from: list.json, as: n}}
    outputs: ["${{{{ n }}}}.txt"]
    shell: [sh, -c, 'test $0 != b && echo $0 > $0.txt', "${{{{ n }}}}"]
  test:
    foreach: {{from: list.json, as: n}}
    needs: [make]
    shell: '{note(project, "tested")}'
  after:
    foreach: {{from: list.json, as: n}}
    needs: ["make[*]"]
    shell: '{note(project, "after")}'
""",
            {"list.json": '["a", "b", "c"]'},
        )
    )
    assert project.build("-k").code == 1
    assert ends(project)["test@a"] == "built"
    assert ends(project)["test@b"] == "blocked"
    assert ends(project)["test@c"] == "built"
    assert {ends(project)[f"after@{n}"] for n in "abc"} == {"blocked"}


def test_rule_6_needs_by_a_field_orders_the_items(project: Project) -> None:
    project.write(
        shell(
            f"""\
  make:
    foreach: {{from: list.json, key: id, as: t, needs: after}}
    shell: [sh, -c, 'echo $0 >> {project.root}-notes.log', "${{{{ t.id }}}}"]
""",
            {"list.json": '[{"id": "a", "after": ["b"]}, {"id": "b", "after": ["c"]}, {"id": "c"}]'},
        )
    )
    green(project.build("-j4"))
    assert noted(project) == ["c", "b", "a"]


# ---- 7: dead files -------------------------------------------------------------------------------


TWO = """\
  keep: {outputs: [k.txt], shell: echo k > k.txt}
  gone: {outputs: [out/g.txt], shell: mkdir -p out && echo g > out/g.txt}
"""


def test_rule_7_dead_files_are_removed_by_a_green_build_and_it_says_so(project: Project) -> None:
    project.write(shell(TWO))
    green(project.build())
    project.edit("pipeline.yaml", shell(TWO.splitlines(keepends=True)[0])["pipeline.yaml"])
    outcome = project.build()
    green(outcome)
    assert not project.exists("out"), "with the folder that it leaves empty"
    assert "out/g.txt" in outcome.err + outcome.out
    assert "gone" not in project.read("pipeline.lock")


def test_rule_7_a_red_build_removes_nothing(project: Project) -> None:
    project.write(shell(TWO))
    green(project.build())
    project.edit("pipeline.yaml", shell("  keep: {outputs: [k.txt], shell: exit 1}\n")["pipeline.yaml"])
    assert project.build().code == 1
    assert project.exists("out/g.txt")


def test_rule_7_globs_do_not_see_dead_files(project: Project) -> None:
    project.write(shell(TWO))
    green(project.build())
    join = "  join: {inputs: ['out/*.txt'], outputs: [all.txt], shell: 'cat out/*.txt > all.txt || true'}\n"
    project.edit("pipeline.yaml", shell(join)["pipeline.yaml"])
    green(project.build())
    assert project.read("all.txt") == ""
    green(project.build())
    assert project.ran() == []


def test_rule_7_other_bytes_at_a_dead_path_are_a_persons_file(project: Project) -> None:
    project.write(shell(TWO))
    green(project.build())
    project.edit("out/g.txt", "mine now\n")
    join = "  join: {inputs: ['out/*.txt'], outputs: [all.txt], shell: cat out/*.txt > all.txt}\n"
    project.edit("pipeline.yaml", shell(join)["pipeline.yaml"])
    green(project.build())
    assert project.read("out/g.txt") == "mine now\n"
    assert project.read("all.txt") == "mine now\n"


# ---- 8: records ----------------------------------------------------------------------------------


def test_rule_8_the_lock_alone_keeps_a_stage_fresh_and_so_does_the_store_alone(project: Project) -> None:
    project.write(
        shell("  copy: {inputs: [in.txt], outputs: [out.txt], shell: cat in.txt > out.txt}\n", {"in.txt": "x\n"})
    )
    green(project.build())
    lock = project.read("pipeline.lock")
    project.delete("pipeline.lock")
    assert project.plan() == {"copy": "fresh"}
    green(project.build())
    assert project.read("pipeline.lock") == lock, "what is fresh by the store is written to the lock"
    shutil.rmtree(project.root / ".orch23")
    assert project.plan() == {"copy": "fresh"}
    project.delete("out.txt")
    assert project.plan() == {"copy": "run"}, "the lock proves, but holds no bytes"


def test_rule_8_both_sides_of_a_conflict_in_the_lock_are_read_and_a_side_that_is_no_lock_is_reported(
    project: Project,
) -> None:
    project.write(shell("  copy: {outputs: [out.txt], shell: echo x > out.txt}\n"))
    green(project.build())
    lock = project.read("pipeline.lock")
    project.edit("pipeline.lock", f"<<<<<<< ours\n{lock}=======\n{lock}>>>>>>> theirs\n")
    green(project.build())
    assert project.read("pipeline.lock") == lock
    project.edit("pipeline.lock", f"<<<<<<< ours\n{lock[1:]}=======\n{lock}>>>>>>> theirs\n")
    stopped = project.build()
    assert stopped.code == 3
    assert "pipeline.lock" in stopped.err


def test_rule_8_a_failed_stage_is_not_written_to_the_lock_and_the_green_ones_are(project: Project) -> None:
    project.write(
        shell(
            "  a: {outputs: [a.txt], shell: echo a > a.txt}\n  b: {inputs: [a.txt], outputs: [b.txt], shell: exit 1}\n"
        )
    )
    assert project.build().code == 1
    lock = project.read("pipeline.lock")
    assert "a.txt" in lock
    assert "b.txt" not in lock


def test_rule_8_a_kept_failure_makes_nothing_fresh_and_is_not_edited(project: Project) -> None:
    project.write(
        shell(
            """\
  make:
    inputs: [in.txt]
    outputs: [out.txt]
    shell: cat in.txt > out.txt
    verify: [{shell: grep good out.txt}]
    on_failure: keep
""",
            {"in.txt": "bad\n"},
        )
    )
    assert project.build().code == 1
    assert project.read("out.txt") == "bad\n"
    assert project.plan() == {"make": "run"}
    assert project.build().code == 1
    project.edit("in.txt", "good\n")
    green(project.build())
    assert project.read("out.txt") == "good\n"
    project.edit("in.txt", "bad\n")
    assert project.plan() == {"make": "run"}, "a kept failure is never restored"


def test_rule_8_an_accepted_edit_of_a_models_file_is_placed_again_from_the_transcripts(project: Project) -> None:
    project.write(
        pipeline(
            "  ask: {inputs: [spec.md], outputs: [out.txt], llm: {prompt: p.md.j2, returns: text, transcripts: heard}}"
            "\n",
            {"spec.md": "x\n", "p.md.j2": prompt("ask", "{{ inputs[0].text }}")},
        )
    )
    green(project.build())
    project.edit("out.txt", "by hand\n")
    green(project.run("accept", "ask"))
    project.delete("out.txt")
    shutil.rmtree(project.root / ".orch23")
    assert project.plan() == {"ask": "restore"}
    green(project.build())
    assert project.read("out.txt") == "by hand\n"
    assert calls(project) == ["ask"]


# ---- 9: what a model's data may name -------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../outside.txt",
        "a/../../outside.txt",
        "*.txt",
        "a\\b.txt",
        ".git/config",
        ".orch23/records",
        "conftest.py",
        "pipeline.yaml",
        "",
        "a\nb.txt",
    ],
)
def test_rule_9_a_hostile_path_of_an_item_fails_its_producer_and_writes_nothing(project: Project, path: str) -> None:
    bad = json.dumps({"tasks": [{"id": "T1", "file": path}]})
    project.write(
        pipeline(
            """\
  plan: {outputs: [plan.json], llm: {prompt: plan.md.j2, returns: json}}
  code:
    foreach: {from: "plan.json#/tasks", key: id, as: task}
    outputs: ["${{ task.file }}"]
    shell: [touch, "${{ task.file }}"]
""",
            {"plan.md.j2": prompt("plan", bad)},
        )
    )
    before = project.files()
    refused = project.build()
    assert refused.code == 1, refused.err
    assert ends(project) == {"plan": "failed", "code": "blocked"}
    after = project.files()
    assert {name: data for name, data in after.items() if name != "pipeline.lock"} == before


@pytest.mark.parametrize(
    "stage",
    [
        "shell: 'echo ${{ t.v }}'",
        "shell: ['${{ t.v }}', x]",
        "shell: ['${{ t.w }}', x]",
        "shell: [sh, -c, '${{ t.v }}']",
        "shell: [sh, -c, '${{ t.w }}']",
        "shell: [echo, '${{ t.v }}']",
        "shell: [echo, x]\n    env: {X: '${{ t.v }}'}",
        "llm: {prompt: p.md.j2, provider: '${{ t.v }}', returns: text}",
        "llm: {prompt: p.md.j2, base_url: 'https://${{ t.v }}', returns: text}",
        "llm: {prompt: p.md.j2, command: ['${{ t.v }}'], returns: text}",
    ],
)
def test_rule_9_no_item_decides_a_program_a_shell_text_an_option_or_a_provider(project: Project, stage: str) -> None:
    project.write(
        pipeline(
            f"  code:\n    foreach: {{from: list.json, as: t, key: id}}\n    outputs: [x.txt]\n    {stage}\n",
            {"list.json": '[{"id": "a", "v": "-rf", "w": "rm"}]', "p.md.j2": prompt("p", "x")},
        )
    )
    refused = project.build()
    assert refused.code == 65
    assert "E857" in refused.err
    assert calls(project) == []


@pytest.mark.parametrize("stage", ["shell: [wc, -c, '${{ item }}.c']", "shell: [wc, '-l', '-c', './${{ item }}.c']"])
def test_rule_9_an_option_of_a_program_that_runs_no_text_is_no_code(project: Project, stage: str) -> None:
    maker = "  list: {inputs: [items.json], outputs: [l.json], shell: cp items.json l.json}\n"
    body = f"  o:\n    foreach: {{from: l.json}}\n    inputs: ['${{{{ item }}}}.c']\n    {stage}\n"
    project.write(pipeline(maker + body, {"a.c": "int a;\n", "items.json": '["a"]'}))
    green(project.build())
    assert ends(project)["o@a"] == "built"


def test_rule_9_code_that_is_left_to_items_is_the_fault_of_the_pipeline_and_nothing_runs(project: Project) -> None:
    maker = f"  list: {{outputs: [l.json], shell: '{note(project, 'list')}; echo [] > l.json'}}\n"
    body = "  o:\n    foreach: {from: l.json}\n    shell: [timeout, '5', bash, -c, '${{ item }}']\n"
    project.write(pipeline(maker + body))
    refused = project.build()
    assert refused.code == 65
    assert "error[E857]: an item may not decide what `-c` runs" in refused.err
    assert noted(project) == []
