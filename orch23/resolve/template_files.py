"""Render Jinja files as text: sandboxed, strict, capped, without I/O.

Text of a spec or of a model is only ever a value here, never a template.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from types import CodeType

import jinja2

from orch23.resolve.bounds import budget
from orch23.resolve.sandbox import MAX_TEXT, hint_of, plain_message, template_environment

_COMPILED = 256


class TemplateProblem(Exception):  # noqa: N818 - a problem of the work, told to its author; not an error of the tool
    """A prompt or template file that cannot be rendered; `line` counts from 1, in the file `name`."""

    def __init__(self, line: int, message: str, hint: str | None = None, name: str = "") -> None:
        """Keep place, fact and way out."""
        super().__init__(f"{name}:{line}: {message}")
        self.line, self.message, self.hint, self.name = line, message, hint, name


def render_text(
    source: str, names: Mapping[str, object], name: str, load: Callable[[str], str | None] | None = None
) -> str:
    """Render a prompt or template file. `{% include %}` and `{% import %}` work through `load`, if it is given.

    Raises:
        TemplateProblem: the template is malformed, uses what is not defined, or makes more than 4 MiB.

    """
    loader = jinja2.FunctionLoader(load if load is not None else _nothing)
    sandbox = template_environment().overlay(loader=loader, cache_size=0)
    try:
        code = _compiled(source, name)
        template = jinja2.Template.from_code(sandbox, code, sandbox.make_globals(None))
        with budget():
            return _joined(template.generate(dict(names)), name)
    except TemplateProblem:
        raise
    except jinja2.TemplateSyntaxError as error:
        raise TemplateProblem(error.lineno, plain_message(error), hint_of(error, names), error.name or name) from None
    except jinja2.TemplateNotFound as error:
        hint = "only files that the stage may see can be included"
        raise TemplateProblem(_line_of(error, name), f"there is no template `{error.name}`", hint, name) from None
    except Exception as error:  # noqa: BLE001 - a template may raise anything; all of it is its author's to mend
        raise TemplateProblem(_line_of(error, name), plain_message(error), hint_of(error, names), name) from None


@functools.lru_cache(maxsize=_COMPILED)
def _compiled(source: str, name: str) -> CodeType:
    """Return the code of a template: a prompt is rendered several times a stage, and by many items of a foreach."""
    return template_environment().compile(source, name, name)


def _joined(parts: Iterable[str], name: str) -> str:
    """Join what a template gives, up to the cap."""
    out: list[str] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > MAX_TEXT:
            raise TemplateProblem(1, f"the text is over {MAX_TEXT} characters", "give it less to show", name)
        out.append(part)
    return "".join(out)


def _nothing(name: str) -> None:
    """Find no template."""
    del name


def _line_of(error: BaseException, name: str) -> int:
    """Return the line of the template where an error rose; Jinja compiles with the lines of the source."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
