"""Whatever asks for a run of an llm stage, it starts from the base that ADR 19 gives."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from orch23.model.llm import Response
from tests.repository import PROMPT, EchoModel, Repository, ends, green, llm, pipeline, spec

M = "src/m.py"
EDIT = "# mine\n"


@pytest.fixture
def model() -> Iterator[EchoModel]:
    with EchoModel().answering() as model:
        yield model


@pytest.fixture
def accepted(tmp_path: Path, model: EchoModel) -> Repository:
    """Return a project whose stage `feature` edits a file in place, with an accepted edit of the result."""
    repository = Repository(tmp_path / "p")
    declare(repository)
    repository.write({"FEATURE.md": spec(f"{M}: one"), M: "# base\n"})
    green(repository.run("build", "a.yaml"))
    edit(repository)
    green(repository.run("accept", "a.yaml", "feature"))
    green(repository.run("build", "a.yaml"))
    return repository


def declare(repository: Repository, **more: Any) -> None:
    repository.write(pipeline({"feature": llm(["FEATURE.md"], [M], **more)}))


def edit(repository: Repository) -> None:
    repository.write({M: repository.read(M) + EDIT})


def starts_from_the_edit(repository: Repository, model: EchoModel, *argv: str) -> None:
    before = repository.read(M)
    assert EDIT in before
    green(repository.run("build", "a.yaml", *argv))
    assert model.last.base[M] == before
    assert repository.read(M).startswith(before)


WAYS = (("-f", "feature"), ("--resample", "feature"), ("-f", "feature", "--overwrite-edited"))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_forced_run_starts_from_an_accepted_edit(
    accepted: Repository, model: EchoModel, way: tuple[str, ...]
) -> None:
    starts_from_the_edit(accepted, model, *way)
    assert "up to date" in accepted.run("build", "a.yaml").err


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS[:2], ids=" ".join)
def test_a_forced_run_starts_from_a_committed_edit(tmp_path: Path, model: EchoModel, way: tuple[str, ...]) -> None:
    repository = Repository(tmp_path / "p")
    declare(repository)
    repository.write({"FEATURE.md": spec(f"{M}: one"), M: "# base\n"})
    repository.init()
    green(repository.run("build", "a.yaml"))
    edit(repository)
    assert repository.run("build", "a.yaml", *way).code == 6
    repository.commit()
    starts_from_the_edit(repository, model, *way)


@pytest.mark.slow
def test_a_forced_run_without_an_edit_repeats_its_request(tmp_path: Path, model: EchoModel) -> None:
    repository = Repository(tmp_path / "p")
    declare(repository)
    repository.write({"FEATURE.md": spec(f"{M}: one"), M: "# base\n"})
    repository.init()
    green(repository.run("build", "a.yaml"))
    repository.commit()
    made = repository.read(M)
    green(repository.run("build", "a.yaml", "-f", "feature"))
    assert len(model.calls) == 1, "the response is recorded"
    green(repository.run("build", "a.yaml", "--resample", "feature"))
    assert model.bases(M) == ["# base\n", "# base\n"]
    assert repository.read(M) == made


@pytest.mark.slow
def test_a_plan_file_of_a_forced_run_starts_from_an_accepted_edit(accepted: Repository, model: EchoModel) -> None:
    green(accepted.run("plan", "a.yaml", "-f", "feature", "--out", "p.json"))
    starts_from_the_edit(accepted, model, "--plan", "p.json")


@pytest.mark.slow
def test_a_stage_without_a_cache_starts_from_an_accepted_edit(accepted: Repository, model: EchoModel) -> None:
    declare(accepted, cache=False)
    starts_from_the_edit(accepted, model)


@pytest.mark.slow
def test_a_forced_run_after_a_reset_starts_from_an_accepted_edit(accepted: Repository, model: EchoModel) -> None:
    green(accepted.run("reset", "a.yaml"))
    starts_from_the_edit(accepted, model, "-f", "feature")


@pytest.mark.slow
def test_an_accepted_edit_that_fails_a_new_verification_is_the_base_of_the_run(
    accepted: Repository, model: EchoModel
) -> None:
    declare(accepted, verify=[{"shell": f"test $(grep -c one {M}) = 2"}])
    before = accepted.read(M)
    green(accepted.run("build", "a.yaml"))
    assert ends(accepted) == {"feature": "built"}
    assert model.last.base[M] == before
    assert accepted.read(M).startswith(before)


@pytest.mark.slow
def test_a_forced_item_of_a_chain_starts_from_an_accepted_edit(tmp_path: Path, model: EchoModel) -> None:
    repository = Repository(tmp_path / "p")
    items = [{"id": name, "files": [M], "text": name} for name in ("x", "y")]
    stage = llm([], [M], foreach={"in": items, "key": "id", "as": "one", "order": "sequential"})
    del stage["inputs"]
    repository.write({**pipeline({"chain": stage}), M: "# base\n"})
    green(repository.run("build", "a.yaml"))
    edit(repository)
    green(repository.run("accept", "a.yaml", "chain"))
    for way in (("-f", "chain@y"), ("--resample", "chain@x"), ("-f", "chain")):
        green(repository.run("build", "a.yaml", *way))
        assert EDIT in repository.read(M), way


@pytest.mark.slow
@pytest.mark.parametrize("start", ["current", "baseline"])
def test_the_next_run_after_a_failed_verification_keeps_the_edit(
    accepted: Repository, model: EchoModel, start: str
) -> None:
    retry = {"max": 0, "from": start}
    declare(accepted, verify=[{"shell": f"test $(grep -c one {M}) -ge 2"}], retry=retry)
    green(accepted.run("build", "a.yaml"))
    assert EDIT in accepted.read(M)
    accepted.write({"FEATURE.md": spec(f"{M}: one or two")})
    green(accepted.run("build", "a.yaml"))
    assert EDIT in accepted.read(M), "also if the input changes after that"


@pytest.mark.slow
def test_a_forced_item_before_an_edited_one_keeps_the_edit(tmp_path: Path, model: EchoModel) -> None:
    repository = Repository(tmp_path / "p")
    items = [{"id": name, "files": [M], "text": name} for name in ("x", "y")]
    stage = llm([], [M], foreach={"in": items, "key": "id", "as": "one", "order": "sequential"})
    del stage["inputs"]
    repository.write({**pipeline({"chain": stage}), M: "# base\n"})
    green(repository.run("build", "a.yaml"))
    edit(repository)
    green(repository.run("accept", "a.yaml", "chain"))
    complete = model.complete
    with patch.object(EchoModel, "complete", lambda _self, request: other(complete(request))):
        green(repository.run("build", "a.yaml", "--resample", "chain@x"))
    assert EDIT in repository.read(M)


def other(response: Response) -> Response:
    """Return another response to the same request."""
    written = json.loads(response.text)
    for one in written["writes"]:
        one["content"] += "# another answer\n"
    return replace(response, text=json.dumps(written))


@pytest.mark.slow
def test_accepting_an_edit_for_a_changed_spec_does_not_keep_other_files_of_the_former_one(
    tmp_path: Path, model: EchoModel
) -> None:
    other = "src/n.py"
    repository = Repository(tmp_path / "p")
    repository.write(pipeline({"feature": llm(["FEATURE.md"], [M, other])}))
    repository.write({"FEATURE.md": spec(f"{M}: one", f"{other}: one")})
    repository.init()
    green(repository.run("build", "a.yaml"))
    repository.commit()
    repository.write({"FEATURE.md": spec(f"{M}: two", f"{other}: two")})
    edit(repository)
    refused = repository.run("accept", "a.yaml", "feature")
    assert (refused.code, f"{other} would stay as made for earlier inputs" in refused.err) == (64, True)
    repository.commit()
    starts_from_the_edit(repository, model)
    assert "two" in repository.read(other)


UNSEEN = '{"item": null, "own": [], "inputs": [["FEATURE.md", {{ inputs[0].text | tojson }}, false]]}\n'


@pytest.fixture
def unseen(tmp_path: Path, model: EchoModel) -> Repository:
    """Return a committed project whose prompt shows no file of its stage, before an edit."""
    del model
    repository = Repository(tmp_path / "p")
    declare(repository)
    repository.write({PROMPT: UNSEEN, "FEATURE.md": spec(f"{M}: one")})
    repository.init()
    green(repository.run("build", "a.yaml"))
    repository.commit()
    return repository


@pytest.mark.slow
@pytest.mark.stride(7)
@pytest.mark.parametrize("how", ["accepted", "committed", "accepted and committed"])
@pytest.mark.parametrize("way", [(), *WAYS[:2]], ids=" ".join)
def test_an_edit_that_the_prompt_does_not_show_is_for_the_user_to_decide(
    unseen: Repository, model: EchoModel, way: tuple[str, ...], how: str
) -> None:
    edit(unseen)
    if "accepted" in how:
        green(unseen.run("accept", "a.yaml", "feature"))
    if not way:
        unseen.edit("FEATURE.md", spec(f"{M}: two"))
    if "committed" in how:
        unseen.commit()
    before, calls = unseen.read(M), len(model.calls)
    if "--resample" not in way:
        planned = unseen.run("plan", "a.yaml", "--json", *way).json()["stages"]
        assert [one["action"] for one in planned] == ["edited"]
    stopped = unseen.run("build", "a.yaml", *way)
    assert (stopped.code, ends(unseen), unseen.read(M)) == (6, {"feature": "edited"}, before)
    assert "the prompt does not show it" in stopped.err
    assert len(model.calls) == calls
    green(unseen.run("build", "a.yaml", "--overwrite-edited", *way))
    assert EDIT not in unseen.read(M)
    assert "up to date" in unseen.run("build", "a.yaml").err


@pytest.mark.slow
@pytest.mark.parametrize("way", [(), *WAYS[:2]], ids=" ".join)
def test_what_only_the_stage_wrote_need_not_be_shown(unseen: Repository, way: tuple[str, ...]) -> None:
    if not way:
        unseen.edit("FEATURE.md", spec(f"{M}: two"))
    assert "1 built" in green(unseen.run("build", "a.yaml", *way)).err


@pytest.mark.slow
@pytest.mark.parametrize("shown", ["own[0].text if own else ''", "inputs[1].text | indent(4)"])
def test_an_edit_may_be_shown_indented_or_as_the_own_result(unseen: Repository, shown: str) -> None:
    edit(unseen)
    green(unseen.run("accept", "a.yaml", "feature"))
    unseen.edit(PROMPT, UNSEEN.replace('"own": []', f'"own": [], "shown": {{{{ ({shown}) | tojson }}}}'))
    for _ in range(2):
        green(unseen.run("build", "a.yaml", "-f", "feature"))


@pytest.mark.slow
def test_an_unseen_edit_that_fails_a_new_verification_is_kept(unseen: Repository, model: EchoModel) -> None:
    edit(unseen)
    green(unseen.run("accept", "a.yaml", "feature"))
    before = unseen.read(M)
    declare(unseen, verify=[{"shell": f"! grep -q mine {M}"}])
    unseen.write({PROMPT: UNSEEN})
    assert unseen.run("build", "a.yaml").code == 1
    assert (unseen.read(M), len(model.calls)) == (before, 1)
