import re
from pathlib import Path

import orch23.cache
from orch23.cache.codes import CACHE_CODES


def test_every_code_has_a_title_and_an_explanation_and_is_used() -> None:
    folder = Path(orch23.cache.__path__[0])
    source = (folder / "codes.py").read_text()
    others = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "codes.py")
    names = dict(re.findall(r'^([EW]_\w+) = "(\w+)"', source, re.MULTILINE))
    assert set(names.values()) == set(CACHE_CODES)
    assert all(name in others for name in names)
    for code, (title, explanation) in CACHE_CODES.items():
        assert re.fullmatch(r"[EW]72\d", code)
        assert title
        assert not title.endswith(".")
        assert len(explanation) > 80
