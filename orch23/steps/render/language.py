"""YAML syntax of a render step."""

from typing import Annotated, TypeAlias

from msgspec import NODEFAULT, Meta

from orch23.model.fields import Problems
from orch23.model.language import Document, Key, Language, Text
from orch23.steps.render.spec import RenderStep


class RenderDocument(Document):
    """A template."""

    template: Text = Key("templates/page.html.j2", default=NODEFAULT).doc("A Jinja2 file.")


Render: TypeAlias = Annotated[Text, Meta(description="The template.")] | RenderDocument


def read_render(value: Render, at: Problems) -> RenderStep | None:
    """Return the step of a template; report an error and return None if it is invalid."""
    if isinstance(value, RenderDocument):
        path = at.below("render").file("template", value.template)
    else:
        path = at.file("render", value)
    return None if path is None else RenderStep(path)


RENDER_LANGUAGE = Language(
    form=Render,
    description="Render a Jinja2 file to the only output of the stage.",
    read=read_render,
    short="template",
    example="templates/page.html.j2",
)
