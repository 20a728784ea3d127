"""Fields, key and description of a render step."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from orch23.model.digest import Json
from orch23.model.record import Facts
from orch23.model.step import Step, check_one_file

if TYPE_CHECKING:
    from orch23.model.fields import Problems


class RenderStep(Step, Struct, frozen=True, omit_defaults=True, tag="render"):
    """Render a Jinja2 file to the only output of the stage, without a model or a process."""

    kind: ClassVar[str] = "render"
    language: ClassVar[str] = "orch23.steps.render.language:RENDER_LANGUAGE"
    run: ClassVar[str] = "orch23.runners.render:RENDER_RUNNER"
    show: ClassVar[str] = "orch23.steps.render.spec:show_render"
    author_keys: ClassVar[tuple[str, ...]] = ("template",)
    renders: ClassVar[str] = "template"
    is_cheap: ClassVar[bool] = True

    template: str

    def aspects(self, facts: Facts) -> Mapping[str, Json]:
        """Return only the kind: the manifest has the rendered text of every step that renders one."""
        del facts
        return {"kind": self.kind}

    def check_outputs(self, outputs: tuple[str, ...], writes: tuple[str, ...], at: "Problems") -> None:
        """Report a stage that does not have exactly one output file."""
        del writes
        check_one_file(outputs, "a render stage", at)


def show_render(step: RenderStep) -> str:
    """Return the template."""
    return step.template
