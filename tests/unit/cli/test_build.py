"""A partial build, and when the whole pipeline is built instead."""

from typing import Any
from unittest.mock import patch

import pytest

from orch23.cli.actions.build import _build_part
from orch23.cli.build_parts import BuildRequest
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ConsentError, Orch23Error


def built(stopped: Orch23Error) -> int | None:
    nothing: Any = None
    with (
        patch("orch23.cli.actions.build.open_partial_project"),
        patch("orch23.cli.actions.build._run", side_effect=stopped),
    ):
        return _build_part(nothing, nothing, nothing, BuildRequest(), nothing)


def test_an_error_of_a_partial_build_falls_back_to_the_whole_build() -> None:
    assert built(ConfigurationError(Diagnostic("E412", "no key"))) is None


def test_missing_consent_is_not_asked_for_a_second_time() -> None:
    with pytest.raises(ConsentError):
        built(ConsentError(Diagnostic("E426", "not allowed")))
