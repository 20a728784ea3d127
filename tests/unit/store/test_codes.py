import re
from pathlib import Path

import pytest

import orch23.store
from orch23.store.codes import STORE_CODES

SOURCES = [path for path in Path(orch23.store.__path__[0]).glob("*.py") if path.name != "codes.py"]


@pytest.mark.parametrize("code", sorted(STORE_CODES))
def test_every_code_has_a_title_and_an_explanation(code: str) -> None:
    title, explanation = STORE_CODES[code]
    assert re.fullmatch(r"[EW](69|70)\d", code)
    assert title
    assert not title.endswith(".")
    assert len(explanation) > 80


def test_every_code_is_used() -> None:
    names = re.findall(r"^([EW]_\w+) =", (SOURCES[0].parent / "codes.py").read_text(), re.MULTILINE)
    assert len(names) == len(STORE_CODES)
    for name in names:
        assert any(name in path.read_text() for path in SOURCES), name
