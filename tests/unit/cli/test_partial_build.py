"""Stages whose text was edited are read alone, if the index has a row of each."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orch23.cli.partial_build import _edited
from orch23.cli.project_loading import _place_finder
from orch23.decide.dependency_index import DependencyIndex, OutdatedIndexError
from orch23.load import stage_texts
from orch23.model.pipeline import Stage

BEFORE = """\
version: 1
stages:
  a: {shell: [cp, a.in, a.out], inputs: [a.in], outputs: [a.out]}
  b: {foreach: {in: [x, y]}, shell: [touch, "${{ item }}"], outputs: ["${{ item }}"]}
"""


class Index:
    """An index with the row of stage `a`."""

    def text(self) -> str:
        return BEFORE

    def row(self, name: str) -> object:
        if name != "a":
            raise OutdatedIndexError
        return SimpleNamespace()


def edited(text: str, read: list[str]) -> Mapping[str, Stage] | None:
    def read_stages(alone: str) -> Mapping[str, Stage]:
        read.append(alone)
        return {"a": cast("Any", None)}

    return _edited(cast("DependencyIndex", Index()), text, read_stages)


def test_an_edited_stage_is_read_alone() -> None:
    read: list[str] = []
    found = edited(BEFORE.replace("[cp, a.in", "[cp, -p, a.in"), read)
    assert list(found or ()) == ["a"]
    assert ["foreach" in text for text in read] == [False]


def test_an_edited_foreach_is_not_read_since_its_items_may_be_many() -> None:
    read: list[str] = []
    with pytest.raises(OutdatedIndexError):
        edited(BEFORE.replace("[x, y]", "[x, z]"), read)
    assert read == []


def test_the_text_is_split_once_for_the_places_of_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    split, texts = stage_texts.split_stages, list[str]()

    def noted(text: str) -> stage_texts.StageTexts | None:
        texts.append(text)
        return split(text)

    monkeypatch.setattr(stage_texts, "split_stages", noted)
    pipeline = SimpleNamespace(file="pipeline.yaml")
    place_of = _place_finder(cast("Any", SimpleNamespace(text=BEFORE, plan=SimpleNamespace(pipeline=pipeline))))
    places = [place_of(f"stages/{name}") for name in "ab"]
    assert [(one.file, one.line, one.column) for one in places] == [("pipeline.yaml", 3, 3), ("pipeline.yaml", 4, 3)]
    assert texts == [BEFORE]
