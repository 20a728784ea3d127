"""What a prompt finds at an input: its text, and its value where the text is JSON."""

import pytest

from orch23.resolve.prompt_inputs import PromptInput, PromptInputs
from orch23.resolve.templates import TemplateFileError, render_text


def rendered(template: str, path: str, text: str) -> str:
    """Render a template that is given one file."""
    return render_text(template, {"inputs": PromptInputs((PromptInput(path, "", "", lambda: text),))}, "p.j2")


def test_the_value_of_json_can_be_walked() -> None:
    text = '{"layers": [{"name": "models", "files": ["a.py"]}, {"name": "ui", "files": []}]}'
    template = "{% for one in inputs['a.json'].value.layers %}{{ one.name }}={{ one.files | tojson }};{% endfor %}"
    assert rendered(template, "a.json", text) == 'models=["a.py"];ui=[];'


@pytest.mark.parametrize("text", ["# A heading", '{"a": 1, "a": 2}', "NaN", ""])
def test_the_value_of_invalid_json_is_an_error_with_its_location(text: str) -> None:
    with pytest.raises(TemplateFileError) as caught:
        rendered("\n{{ inputs[0].value }}", "a.md", text)
    assert caught.value.line == 2
    assert "`value` of `a.md` cannot be used, because it is not JSON: line 1" in caught.value.message


def test_the_text_is_not_read_as_json_unless_it_is_asked_for() -> None:
    assert rendered("{{ inputs[0].text }}", "a.md", "# A") == "# A"
