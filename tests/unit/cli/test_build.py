"""A build of what an edit reaches, and what makes it begin again with everything."""

from typing import Any
from unittest.mock import patch

import pytest

from orch23.cli.actions.build import _build_part
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ConsentError, Orch23Error


def built(stopped: Orch23Error) -> int | None:
    nothing: Any = None
    with (
        patch("orch23.cli.actions.build.open_partial_project", return_value=(nothing, nothing)),
        patch("orch23.cli.actions.build._run", side_effect=stopped),
    ):
        return _build_part(nothing, nothing, nothing, lambda **_: nothing, nothing)


def test_what_is_wrong_with_a_part_is_found_again_in_the_whole() -> None:
    assert built(ConfigurationError(Diagnostic("E412", "no key"))) is None


def test_who_has_not_consented_is_not_asked_a_second_time_for_the_whole() -> None:
    with pytest.raises(ConsentError):
        built(ConsentError(Diagnostic("E426", "not allowed")))
