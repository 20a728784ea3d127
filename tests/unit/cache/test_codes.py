import re
from pathlib import Path

import orch23.cache
from orch23.cache.codes import CACHE_CODES


def test_every_code_has_a_title_and_an_explanation_and_is_used() -> None:
    source = (Path(orch23.cache.__path__[0]) / "codes.py").read_text()
    names = dict(re.findall(r'^([EW]_\w+) = "(\w+)"', source, re.MULTILINE))
    assert set(names.values()) == set(CACHE_CODES)
    assert all(source.count(name) > 2 for name in names)
    for code, (title, explanation) in CACHE_CODES.items():
        assert re.fullmatch(r"[EW]72\d", code)
        assert title
        assert not title.endswith(".")
        assert len(explanation) > 80
