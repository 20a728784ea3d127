"""Formats that show a screen of text beside their own output name the steps that run for long."""

from pathlib import Path

import pytest

from orch23.model.pipeline import Pipeline
from orch23.report.formats import View
from orch23.report.live import LiveScreen
from orch23.report.registry import own_format
from orch23.report.values import Style


@pytest.mark.parametrize("name", ["auto", "plain", "github", "junit"])
def test_the_screen_within_a_format_is_followed(name: str) -> None:
    followed: list[object] = []
    pipeline = Pipeline(name="x", file="p.yaml", stages=())
    form = own_format(name)
    assert form is not None
    tell, clock = followed.append, lambda: 0.0
    form.make(
        View(pipeline=pipeline, tell=tell, answer=tell, logs=Path(), style=Style(), clock=clock, watch=followed.append)
    )
    assert [type(one) for one in followed] == [LiveScreen]
