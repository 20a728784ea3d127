"""Merges of two users' branches: which version of the lock file is kept does not decide what a build does."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository import EchoModel, Repository, addition, ends, green, llm, pipeline, spec, up_to_date

LOCKS = ("ours", "theirs", "markers", "deleted")
HAND = "# resolved by hand\n"


@pytest.fixture
def model() -> Iterator[EchoModel]:
    with EchoModel().answering() as answering:
        yield answering


class Users:
    """Two users of one project: Anna in a clone of her own, Ben in the folder of the project."""

    def __init__(self, root: Path, stages: dict[str, dict], files: dict[str, str]) -> None:
        self.ben = Repository(root / "ben")
        self.ben.init()
        self.ben.write({**files, **pipeline(stages)})
        green(self.ben.run("build", "a.yaml"))
        self.ben.commit()
        self.anna = self.ben.clone(root / "anna")

    def merge(self, lock: str, files: dict[str, str | None], *, rebase: bool = False) -> None:
        """Merge Anna's branch into Ben's, with this version of the lock file and these files, and commit."""
        self.ben.git("fetch", "-q", str(self.anna.root), "main")
        with contextlib.suppress(AssertionError):  # the conflicts
            self.ben.git(*(("rebase",) if rebase else ("merge", "--no-edit")), "FETCH_HEAD")
        if lock == "deleted":
            self.ben.delete("a.lock")
        elif lock != "markers":
            self.ben.git("checkout", f"--{lock}", "a.lock")
        for path, text in files.items():
            if text is None:
                self.ben.delete(path)
            else:
                self.ben.write({path: text})
        self.ben.git("add", "-A")
        self.ben.git("-c", "core.editor=true", *(("rebase", "--continue") if rebase else ("commit", "-qm", "merge")))


def gen(**more: object) -> dict[str, dict]:
    return {"gen": llm(["GEN.md"], ["gen.py"], **more)}


def two_users(tmp_path: Path, stages: dict[str, dict] | None = None) -> Users:
    """Anna has a new result for a new spec; Ben has accepted an edit of the old one."""
    users = Users(tmp_path, stages or gen(), {"GEN.md": spec("gen.py: a")})
    users.anna.edit("GEN.md", spec("gen.py: b"))
    green(users.anna.run("build", "a.yaml"))
    users.anna.commit()
    users.ben.edit("gen.py", addition("a") + "# ben\n")
    green(users.ben.run("accept", "a.yaml", "gen"))
    users.ben.commit()
    return users


def kept(repository: Repository, model: EchoModel, text: str, path: str = "gen.py") -> None:
    """Check that builds keep a file and call no model."""
    calls = len(model.calls)
    outcome = green(repository.run("build", "a.yaml"))
    assert len(model.calls) == calls, "a paid call"
    assert repository.read(path) == text
    up_to_date(repository.run("build", "a.yaml"))
    assert "<<<<<<<" not in repository.read("a.lock"), outcome.out


@pytest.mark.stride(7)
@pytest.mark.slow
@pytest.mark.parametrize("rebase", [False, True])
@pytest.mark.parametrize("clone", ["", "clone"])
@pytest.mark.parametrize("lock", LOCKS)
def test_a_merge_resolved_by_hand_is_kept_whichever_lock_is_taken(tmp_path, model, lock, clone, rebase):
    users = two_users(tmp_path)
    users.merge(lock, {"gen.py": HAND}, rebase=rebase)
    where = users.ben.clone(tmp_path / "clone") if clone else users.ben
    planned = where.run("plan", "--json", "a.yaml").json()["stages"]
    assert [one["action"] for one in planned] == ["verify"]
    kept(where, model, HAND)
    assert where.read("a.lock").count('"accepted"') == 1


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("text", [HAND, addition("b")])
@pytest.mark.parametrize("lock", LOCKS)
def test_a_merge_is_kept_if_lock_files_are_not_trusted(tmp_path, model, lock, text):
    users = two_users(tmp_path)
    users.merge(lock, {"gen.py": text})
    calls = len(model.calls)
    outcome = green(users.ben.run("build", "a.yaml", env={"ORCH23_TRUST": "0"}))
    assert "verified" in outcome.err
    assert (len(model.calls), users.ben.read("gen.py")) == (calls, text)
    up_to_date(users.ben.run("build", "a.yaml", env={"ORCH23_TRUST": "0"}))


@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS)
def test_clean_gives_back_the_file_that_the_result_of_the_other_branch_started_from(tmp_path, lock):
    command = "cd src; test -e made || echo made > made; for one in *; do grep -q {0} $one || echo {0} >> $one; done"
    stages = {"tidy": {"edits": ["src/*"], "shell": command.format("one")}}
    users = Users(tmp_path, stages, {"src/a": "a\n"})
    mine = {path: users.anna.read(path) + "# anna\n" for path in ("src/a", "src/made")}
    users.anna.write({**pipeline({"tidy": {**stages["tidy"], "shell": command.format("two")}}), **mine})
    users.anna.commit()
    green(users.anna.run("build", "a.yaml"))
    users.anna.commit()
    users.ben.edit("src/a", "b\n")
    green(users.ben.run("build", "a.yaml"))
    users.ben.commit()
    users.merge(lock, {"src/a": users.anna.read("src/a")})
    green(users.ben.run("clean", "a.yaml"))
    # If no record has these bytes, they count as saved by the user.
    more = "" if lock in ("theirs", "markers") else "two\n"
    assert {path: users.ben.read(path) for path in mine} == {path: text + more for path, text in mine.items()}


@pytest.mark.slow
@pytest.mark.stride(3)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_result_that_git_took_from_the_other_side_is_no_edit(tmp_path, model, lock):
    users = two_users(tmp_path)
    users.merge(lock, {"gen.py": addition("b")})
    kept(users.ben, model, addition("b"))
    assert ends(users.ben)["gen"] in ("fresh", "verified")


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("clone", ["", "clone"])
@pytest.mark.parametrize("lock", LOCKS)
def test_an_edit_accepted_for_other_inputs_is_for_the_user_to_decide(tmp_path, model, lock, clone):
    users = two_users(tmp_path)
    mine = users.ben.read("gen.py")
    users.merge(lock, {"gen.py": mine})
    where = users.ben.clone(tmp_path / "clone") if clone else users.ben
    calls = len(model.calls)
    assert where.run("build", "a.yaml").code == 6
    assert (len(model.calls), where.read("gen.py")) == (calls, mine)
    green(where.run("accept", "a.yaml", "gen"))
    kept(where, model, mine)


@pytest.mark.stride(7)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["hand", "accepted", "other"])
@pytest.mark.parametrize("lock", LOCKS)
def test_without_the_commits_of_a_merge_no_file_of_a_user_is_overwritten(tmp_path, model, lock, name):
    """In a clone with --depth 1, bytes of the other branch are lost; it may have to pay for its result again."""
    users = two_users(tmp_path)
    text = {"hand": HAND, "accepted": users.ben.read("gen.py"), "other": addition("b")}[name]
    users.merge(lock, {"gen.py": text})
    users.ben.git("clone", "-q", "--depth", "1", f"file://{users.ben.root}", str(tmp_path / "clone"))
    clone = Repository(tmp_path / "clone")
    assert clone.run("build", "a.yaml").code in (0, 6)
    assert clone.read("gen.py").startswith(text)


@pytest.mark.slow
@pytest.mark.parametrize("lock", ["ours", "theirs"])
def test_the_other_result_is_taken_if_the_accepted_edit_is_discarded(tmp_path, model, lock):
    users = two_users(tmp_path)
    users.merge(lock, {"gen.py": users.ben.read("gen.py")})
    calls = len(model.calls)
    green(users.ben.run("build", "a.yaml", "--overwrite-edited"))
    assert (len(model.calls), users.ben.read("gen.py")) == (calls, addition("b"))


@pytest.mark.slow
@pytest.mark.parametrize("lock", ["ours", "theirs"])
def test_a_merge_that_does_not_pass_fails_without_a_call(tmp_path, model, lock):
    users = two_users(tmp_path)
    users.merge(lock, {"gen.py": "bad\n"})
    calls = len(model.calls)
    assert users.ben.run("build", "a.yaml").code == 1
    assert (len(model.calls), users.ben.read("gen.py")) == (calls, "bad\n")


@pytest.mark.slow
@pytest.mark.stride(3)
@pytest.mark.parametrize("lock", LOCKS)
def test_a_merge_that_is_not_committed_is_left_to_the_user(tmp_path, model, lock):
    users = two_users(tmp_path)
    users.merge(lock, {"gen.py": HAND})
    users.ben.edit("gen.py", HAND + "# more\n")
    calls = len(model.calls)
    assert users.ben.run("build", "a.yaml").code == 6
    assert (len(model.calls), users.ben.read("gen.py")) == (calls, HAND + "# more\n")


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS)
def test_during_a_merge_the_records_of_both_sides_are_known(tmp_path, model, lock):
    users = two_users(tmp_path)
    ben = users.ben
    ben.git("fetch", "-q", str(users.anna.root), "main")
    with contextlib.suppress(AssertionError):
        ben.git("merge", "FETCH_HEAD")
    ben.write({"gen.py": addition("b")})
    if lock == "deleted":
        ben.delete("a.lock")
    elif lock != "markers":
        ben.git("checkout", f"--{lock}", "a.lock")
    kept(ben, model, addition("b"))


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS)
def test_items_of_a_foreach_are_merged_alike(tmp_path, model, lock):
    def items(*texts: str) -> dict[str, dict]:
        each = [{"id": n, "files": [f"t_{n}.py"], "text": text} for n, text in zip("xyz", texts, strict=False)]
        how = {"in": each, "key": "id", "as": "one"}
        return {"par": {**llm([], ["t_${{ one.id }}.py"]), "foreach": how}}

    users = Users(tmp_path, items("a", "a", "a"), {})
    users.anna.write(pipeline(items("b", "a", "b")))
    green(users.anna.run("build", "a.yaml"))
    users.anna.commit()
    for name in "xy":
        users.ben.edit(f"t_{name}.py", f"# ben {name}\n")
    green(users.ben.run("accept", "a.yaml", "par"))
    users.ben.commit()
    users.merge(lock, {"t_x.py": HAND, "a.yaml": users.anna.read("a.yaml")})
    kept(users.ben, model, HAND, "t_x.py")
    assert (users.ben.read("t_y.py"), users.ben.read("t_z.py")) == ("# ben y\n", addition("b"))


@pytest.mark.stride(3)
@pytest.mark.slow
@pytest.mark.parametrize("lock", LOCKS)
def test_a_file_that_existed_is_merged_alike(tmp_path, model, lock):
    users = Users(tmp_path, {"feature": llm(["F.md"], ["m.py"])}, {"F.md": spec("m.py: a"), "m.py": "# base\n"})
    users.anna.edit("F.md", spec("m.py: b"))
    green(users.anna.run("build", "a.yaml"))
    users.anna.commit()
    users.ben.edit("m.py", "# base\n" + addition("a") + "# ben\n")
    users.ben.commit()  # accepted by the next build
    green(users.ben.run("build", "a.yaml"))
    users.ben.commit()
    users.merge(lock, {"m.py": "# base\n" + HAND})
    kept(users.ben, model, "# base\n" + HAND, "m.py")


def site(text: str) -> str:
    return spec(*(f"site/{one[0]}.py: {one[1]}" for one in text.split()))


@pytest.mark.stride(11)
@pytest.mark.slow
@pytest.mark.parametrize("is_green", [False, True])
@pytest.mark.parametrize("lock", ["ours", "markers", "deleted"])
@pytest.mark.parametrize(
    ("first", "theirs", "edit"),
    [("ap bp", "aq bp", ""), ("ap bp", "ap bq", ""), ("ap bp", "aq bp", HAND), ("ap", "ap cp", "")],
)
def test_a_file_in_a_folder_that_only_the_other_result_has_is_no_base(
    tmp_path, model, first, theirs, edit, lock, is_green
):
    """The spec of the other branch is not taken; a failed build leaves its file, which must not become a base."""
    stages = {"site": llm(["SITE.md"], ["site/"]), "copy": {"outputs": ["copy.txt"], "shell": "echo 1 > copy.txt"}}
    users = Users(tmp_path, stages, {"SITE.md": site(first)})
    mine = site("ap" if "b" in first else "aq")
    if edit:
        users.ben.edit("site/b.py", addition("p") + edit)
    if not is_green:
        users.ben.edit("copy.txt", "by hand\n")
    users.ben.commit()
    users.anna.git("pull", "-q", str(users.ben.root), "main")
    for one, text in (users.anna, site(theirs)), (users.ben, mine):
        one.edit("SITE.md", text)
        one.run("build", "a.yaml")
        one.commit()
    calls = len(model.calls)
    users.merge(lock, {"SITE.md": mine})
    for where in users.ben.clone(tmp_path / "clone"), users.ben:
        for _ in range(2):
            assert where.run("build", "a.yaml").code == (0 if is_green else 6)
        assert (len(model.calls), ends(where)["site"]) == (calls, "fresh")


@pytest.mark.slow
def test_a_changed_spec_after_a_merge_starts_from_the_merged_file(tmp_path, model):
    users = two_users(tmp_path)
    users.merge("ours", {"gen.py": HAND})
    users.ben.edit("GEN.md", spec("gen.py: c"))
    green(users.ben.run("build", "a.yaml"))
    assert model.last.base == {"gen.py": HAND}


LINES = "".join(f"{number}\n" for number in range(9))
MERGED = f"anna\n{LINES}ben\n"


@pytest.mark.stride(17)
@pytest.mark.slow
@pytest.mark.parametrize("force", [(), ("-f", "copy")])
@pytest.mark.parametrize("rebase", [False, True])
@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize(
    "step",
    [
        {"shell": "cp a.md d/a.txt", "outputs": ["d/a.txt"]},
        {"render": "copy.j2", "outputs": ["d/a.txt"]},
        {"shell": "mkdir -p d; cp a.md d/a.txt", "outputs": ["d/"]},
    ],
)
def test_a_generated_file_of_the_other_branch_is_no_edit(tmp_path, step, lock, rebase, force):
    stages = {"copy": {"inputs": ["a.md"], **step}}
    users = Users(tmp_path, stages, {"a.md": f"one\n{LINES}two\n", "copy.j2": "{{ inputs[0].text }}"})
    for one, text in (users.anna, f"anna\n{LINES}two\n"), (users.ben, f"one\n{LINES}ben\n"):
        one.edit("a.md", text)
        green(one.run("build", "a.yaml"))
        one.commit()
    users.merge(lock, {"d/a.txt": users.anna.read("d/a.txt"), "a.md": MERGED}, rebase=rebase)
    for where in users.ben, users.ben.clone(tmp_path / "clone"):
        green(where.run("build", "a.yaml", *force))
        assert where.read("d/a.txt") == MERGED
        up_to_date(where.run("build", "a.yaml"))


CONFLICT = "<<<<<<< HEAD\none\n=======\ntwo\n>>>>>>> 1234567\n"


@pytest.mark.slow
@pytest.mark.stride(5)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("how", ["committed", "accepted", "run"])
def test_a_file_with_conflict_markers_is_not_accepted(tmp_path, model, how, end):
    users = two_users(tmp_path)
    conflict = CONFLICT.replace("\n", end)
    (users.ben.root / "gen.py").write_bytes(conflict.encode())
    if how == "run":
        users.ben.edit("GEN.md", spec("gen.py: c"))
    if how != "accepted":
        users.ben.commit()
    lock, calls = users.ben.read("a.lock"), len(model.calls)
    refused = users.ben.run(*(("accept", "a.yaml", "gen") if how == "accepted" else ("build", "a.yaml")))
    assert refused.code == (65 if how == "accepted" else 1)
    assert "E645" in refused.err
    assert "from line 1 on" in refused.err
    assert (users.ben.root / "gen.py").read_bytes() == conflict.encode()
    assert (users.ben.read("a.lock"), len(model.calls)) == (lock, calls)
    green(users.ben.run("build", "a.yaml", "--overwrite-edited"))
    if how == "committed":
        assert "<<<<<<<" not in users.ben.read("gen.py")


@pytest.mark.slow
@pytest.mark.stride(2)
@pytest.mark.parametrize("text", ["a\n=======\nb\n", ">>>>>>> x\n=======\n<<<<<<< y\n", "<<<<<<< x\n"])
def test_lines_that_only_look_like_markers_are_accepted(tmp_path, model, text):
    users = two_users(tmp_path)
    users.ben.edit("gen.py", text)
    users.ben.commit()
    kept(users.ben, model, text)
