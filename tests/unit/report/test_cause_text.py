"""The key that a likely cause shows, in one line."""

from orch23.model.event_data import LikelyCause
from orch23.report.cause_text import yaml_line


def test_a_key_is_written_in_one_line() -> None:
    def line(key: str, value: str, *, appends: bool = False) -> str:
        return yaml_line(LikelyCause(kind="path", text="t", key=key, value=value, appends=appends))

    assert line("inputs", "b/c.md", appends=True) == "inputs: [..., b/c.md]"
    assert line("env/PYTHONPATH", "a:src") == 'env: {PYTHONPATH: "a:src"}'
    assert line("env/A", 'x "y"') == 'env: {A: "x \\"y\\""}'
    assert line("verify/inputs", "b", appends=True) == "verify: {inputs: [..., b]}"
