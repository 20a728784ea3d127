"""What a render step is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from orch23.model.digest import Json
from orch23.model.facts import Facts
from orch23.model.step import Step, name_one, one_literal

if TYPE_CHECKING:
    from orch23.model.fields import Problems


class RenderStep(Step, Struct, frozen=True, omit_defaults=True, tag="render"):
    """Render a Jinja2 file to the stage's one output, with no model and no process."""

    kind: ClassVar[str] = "render"
    language: ClassVar[str] = "orch23.steps.render.language:LANGUAGE"
    run: ClassVar[str] = "orch23.steps.render.run:RUN"
    show: ClassVar[str] = "orch23.steps.render.show:show"
    author_keys: ClassVar[tuple[str, ...]] = ("template",)
    renders: ClassVar[str] = "template"
    is_cheap: ClassVar[bool] = True

    template: str

    def aspects(self, facts: Facts) -> Mapping[str, Json]:
        """Return its kind: the text that is rendered is an aspect of every step that renders."""
        del facts
        return {"kind": self.kind}

    def check_outputs(self, outputs: tuple[str, ...], writes: tuple[str, ...], at: "Problems") -> None:
        """Report more or less than one output."""
        del writes
        if not one_literal(outputs):
            place = "outputs" if outputs else ""
            at.add(place, "E855", "a render stage makes exactly one file", name_one(outputs))
