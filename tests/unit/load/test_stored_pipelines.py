"""A stored pipeline equals the pipeline of its text; of an edited text only the edited stages are parsed."""

import random
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.load.pipeline import load_pipeline, parse_pipeline
from orch23.model.pipeline import Pipeline
from orch23.model.plan import InvalidPipelineError, LoadedPipeline
from tests.unit.load.test_stage_texts import TEXT, changed

EDITS = (
    lambda text: text.replace("make, a]", "make, --, a]"),
    lambda text: text.replace("  d:\n", "  new: {shell: [make, new], outputs: [new]}\n  d:\n"),
    lambda text: text.replace("  a: {shell: [make, a], outputs: [a]}\n", ""),
    lambda text: text.replace("if: false", "if: true"),
    lambda text: text.replace('  "b":\n', '  # more\n\n  "b":\n    desc: |\n      b\n'),
)


class Stored:
    """Values by name, as the index keeps them."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[bytes, bytes]] = {}

    def get(self, name: str, made_of: bytes) -> bytes | None:
        known = self.values.get(name)
        return known[1] if known is not None and known[0] == made_of else None

    def put(self, name: str, made_of: bytes, value: bytes) -> None:
        self.values[name] = made_of, value


def loaded(folder: Path, text: str, stored: Stored | None, **options: dict[str, str]) -> LoadedPipeline | None:
    (folder / "p.yaml").write_text(text)
    try:
        return load_pipeline(folder / "p.yaml", folder, cache=stored, sets=options.get("sets"))
    except InvalidPipelineError:
        return None


def same(one: Pipeline, other: Pipeline) -> None:
    """Compare two pipelines, with the places of their stages and keys."""
    names = [stage.name for stage in (*other.stages, *other.skipped)]
    for path in (*(f"stages/{name}" for name in names), "version", "jobs", "defaults", "defaults/timeout", "vars/word"):
        assert one.locations.get(path) == other.locations.get(path), path
    for path in ("stages/d/shell", "stages/c/outputs/0"):
        assert one.locate(*path.split("/")) == other.locate(*path.split("/"))
    kept = (
        "name",
        "file",
        "stages",
        "skipped",
        "vars",
        "stop",
        "prices",
        "rates",
        "jobs",
        "pools",
        "pool_executors",
        "pool_resources",
        "exit_codes",
        "cache",
    )
    assert [getattr(one, name) for name in kept] == [getattr(other, name) for name in kept]


@pytest.mark.parametrize("edit", EDITS)
def test_of_an_edited_text_only_the_edited_stages_are_read(tmp_path: Path, edit) -> None:
    stored = Stored()
    assert loaded(tmp_path, TEXT, stored) is not None
    text = edit(TEXT)
    assert text != TEXT
    with patch("orch23.load.pipeline.parse_pipeline", side_effect=parse_pipeline) as parsing:
        found = loaded(tmp_path, text, stored)
    assert all(len(call.args[0]) < len(TEXT) for call in parsing.call_args_list)
    again, plain = loaded(tmp_path, text, stored), loaded(tmp_path, text, None)
    assert found is not None
    assert again is not None
    assert plain is not None
    same(found.pipeline, plain.pipeline)
    same(again.pipeline, plain.pipeline)


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("word: one", "word: two"),
        TEXT.replace("timeout: 9s", "timeout: 8s"),
        TEXT.replace("jobs: 2", "jobs: 3"),
        TEXT.replace("outputs: [b]", "outputs: [b]\n    promote: alone"),
    ],
)
def test_if_more_than_stages_differs_the_whole_text_is_parsed(tmp_path: Path, text: str) -> None:
    stored = Stored()
    loaded(tmp_path, TEXT, stored)
    found, plain = loaded(tmp_path, text, stored), loaded(tmp_path, text, None)
    assert found is not None
    assert plain is not None
    same(found.pipeline, plain.pipeline)
    assert found.warnings == plain.warnings


def test_other_options_make_another_pipeline(tmp_path: Path) -> None:
    stored = Stored()
    loaded(tmp_path, TEXT, stored)
    found = loaded(tmp_path, TEXT, stored, sets={"word": "three"})
    assert found is not None
    assert found.pipeline.vars == {"word": "three"}


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_any_edit_gives_the_pipeline_of_the_whole_text(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("stored")
    chance, stored, text = random.Random(seed), Stored(), TEXT
    loaded(folder, text, stored)
    for _ in range(4):
        edited = chance.choice(EDITS)(text) if chance.random() < 0.4 else changed(text, chance)
        found, plain = loaded(folder, edited, stored), loaded(folder, edited, None)
        assert (found is None) == (plain is None), edited
        if found is not None and plain is not None:
            same(found.pipeline, plain.pipeline)
            assert found.warnings == plain.warnings
            text = edited


def test_two_pieces_that_are_one_scalar_are_read_as_that(tmp_path: Path) -> None:
    """The lines of two stages become one quoted text: the second stage is gone."""
    before = "version: 1\nstages:\n" + "".join(f"  s{n}: {{shell: [make], outputs: [o{n}]}}\n" for n in range(9))
    text = before.replace("  s3: {shell: [make], outputs: [o3]}\n", '  s3: {outputs: [o3], shell: "make\n').replace(
        "  s4: {shell: [make], outputs: [o4]}\n", '  s4: all"}\n'
    )
    stored = Stored()
    loaded(tmp_path, before, stored)
    found, plain = loaded(tmp_path, text, stored), loaded(tmp_path, text, None)
    assert plain is not None
    assert "s4" not in {stage.name for stage in plain.pipeline.stages}
    assert found is not None
    same(found.pipeline, plain.pipeline)


@pytest.mark.parametrize(
    "value",
    [b"", b"\x94\xa1a", b"\x80", b"\x91\xa1\xff", msgspec.msgpack.encode(("text", {"name": 3}, {}, {}))],
)
def test_a_stored_pipeline_that_does_not_decode_is_read_again(tmp_path: Path, value: bytes) -> None:
    stored = Stored()
    first = loaded(tmp_path, TEXT, stored)
    (name,) = stored.values
    stored.put(name, stored.values[name][0], value)
    again = loaded(tmp_path, TEXT, stored)
    assert first is not None
    assert again is not None
    same(again.pipeline, first.pipeline)
    assert stored.values[name][1] != value, "the next command finds it"


def test_a_stored_step_of_a_kind_that_is_not_known_is_read_again(tmp_path: Path) -> None:
    stored = Stored()
    loaded(tmp_path, TEXT, stored)
    (name,) = stored.values
    made_of, value = stored.values[name]
    assert b"ShellStep" in value or b"shell" in value
    stored.put(name, made_of, value.replace(b"\xa4type\xa5shell", b"\xa4type\xa5other"))
    assert stored.values[name][1] != value
    assert loaded(tmp_path, TEXT, stored) is not None


@pytest.mark.needs("cache")
def test_a_stored_pipeline_keeps_its_shared_cache(tmp_path: Path) -> None:
    stored, key = Stored(), f"ed25519:{'A' * 43}="
    text = f"{TEXT}cache: {{url: /srv/cache, responses: true, signed_by: [{key}]}}\n"
    first = loaded(tmp_path, text, stored)
    with patch("orch23.load.pipeline.parse_pipeline") as parsing:
        again = loaded(tmp_path, text, stored)
    assert first is not None
    assert again is not None
    assert not parsing.called
    cache = {"url": "/srv/cache", "responses": True, "verify": "never", "signed_by": (key,)}
    assert first.pipeline.cache == again.pipeline.cache == cache
