"""What `python -m stats` has to print, once there is one."""

import importlib
import importlib.util
import json

import pytest


@pytest.mark.skipif(importlib.util.find_spec("stats.__main__") is None, reason="its task comes later")
def test_each_figure_is_a_line(tmp_path, capsys):
    main = importlib.import_module("stats.__main__").main
    file = tmp_path / "logins.json"
    file.write_text(json.dumps({"ada": 3, "bob": 1, "eve": 2}))
    main([str(file)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "count: 3"
    assert lines[1].startswith("mean: 2")
