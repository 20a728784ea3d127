"""Set up Jinja as a sandbox, and render prompt and template files in it.

`UNKNOWN` is a value that is not known yet: members and filters of it are unknown too, so nothing is decided from it.
Text of a spec or of a model is only a value here, never a template.
"""

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing
from msgspec import Struct

from orch23.model.diagnostic import did_you_mean, quoted_names
from orch23.model.fields import normalize_path
from orch23.model.media import Media
from orch23.resolve import prompt_blocks, template_limits
from orch23.resolve.expression_syntax import UNKNOWN, UNKNOWN_MARK, Unknown
from orch23.resolve.template_limits import MAX_RENDERED_TEXT, refuse_undefined, step_budget

_FILTERS_TEXT = """
    abs batch capitalize d default dictsort first float groupby indent int items join last length list lower map
    max min reject rejectattr replace reverse round select selectattr slice sort string sum title tojson trim
    truncate unique upper wordcount
"""
# Not `random`: the same values must always give the same prompt, and so the same key.
_FILTERS = frozenset(_FILTERS_TEXT.split())
# For prompts and templates only: values of a pipeline do not contain blocks of data.
_OF_FILES = {"block": prompt_blocks.block, "blocks": prompt_blocks.blocks}
_GUARDS = {
    template_limits.SIZE_FILTER: template_limits.check_size,
    template_limits.COUNT_FILTER: template_limits.count_rounds,
}
TEMPLATE_GLOBALS = frozenset({"range"})
# Methods that make a text of any size from a number: `"".center(10**9)` would take 1 GB.
_WIDE_METHODS = frozenset({"format", "format_map", "center", "ljust", "rjust", "zfill", "expandtabs"})


class _Missing(jinja2.StrictUndefined):
    __slots__ = ()

    @property
    def _undefined_message(self) -> str:
        owner, name = self._undefined_obj, self._undefined_name
        if self._undefined_hint:
            return str(self._undefined_hint)
        if owner is missing:
            return f"`{name}` is not defined"
        if not isinstance(owner, Mapping):
            return f"the value has no `{name}`"
        near = did_you_mean(name, owner) if isinstance(name, str) else None
        return f"the mapping has no `{name}`" + (f"; {near}" if near else "")


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja without features that read files, allocate memory by a number, or are not deterministic."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(template_limits.join_limited)

    def compile(self, source: str | nodes.Template, *args: Any, **kwargs: Any) -> Any:
        name, filename = (*args, None, None)[:2]
        read = self.parse(source, name, filename) if isinstance(source, str) else source
        guarded = template_limits.LimitInserter().visit(read)
        guarded.set_environment(self)
        return super().compile(guarded, *args, **kwargs)

    def call(self, context: Any, called: Any, *args: object, **kwargs: object) -> object:
        template_limits.check_call(called, (*args, *kwargs.values()))
        return super().call(context, called, *args, **kwargs)

    def getattr(self, obj: object, attribute: str) -> object:
        """Prefer a mapping's member to its method, so that a var may be named `items`."""
        if obj is UNKNOWN:
            return UNKNOWN
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        if attribute in _WIDE_METHODS:
            return self.unsafe_undefined(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: object, argument: object) -> object:
        if obj is UNKNOWN or argument is UNKNOWN or (isinstance(obj, str) and UNKNOWN_MARK in obj):
            return UNKNOWN
        if argument in _WIDE_METHODS and not isinstance(obj, Mapping):
            return self.unsafe_undefined(obj, str(argument))
        return super().getitem(obj, argument)

    def call_binop(self, context: object, operator: str, left: object, right: object) -> object:
        """Add values that are not too large, and multiply only numbers: a text times a number could have any size."""
        del context
        if operator == "+":
            return template_limits.add_limited(left, right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            if operator == "*":
                return template_limits.multiply_limited(left, right)
            if operator == "%":
                return left % right
            if abs(right) <= 64 and abs(left) <= 1 << 32:  # noqa: PLR2004 - 2048 bits at most
                return left**right
        message = f"`{operator}` is for (small) numbers only"
        raise TypeError(message)


def _under(value: object, prefix: object) -> object:
    """Return a path, a condition, or a list of these with a prefix before each path."""
    if not isinstance(prefix, str):
        message = "`under` needs a prefix that is a string"
        raise TypeError(message)
    refuse_undefined(value)
    if isinstance(value, str | Unknown):
        return f"{prefix.rstrip('/')}/{value}" if prefix else str(value)
    if isinstance(value, Mapping) and "path" in value:
        return {**value, "path": _under(value["path"], prefix)}
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [_under(element, prefix) for element in value]
    message = "`under` needs a path, a condition, or a list of them"
    raise TypeError(message)


def _under_folder(value: object, prefix: object) -> object:
    """Return the same with the prefix as paths of a pipeline are read: `.` is the root."""
    # Not in prompts: the text of a request must stay the same.
    is_relative = isinstance(prefix, str) and not prefix.startswith("/")
    return _under(value, normalize_path(str(prefix)).strip("/") if is_relative else prefix)


def _as_json(value: object, indent: int | None = None) -> str:
    """Return a value as JSON in its own order. Jinja's filter would sort keys and escape `<`, `&` and `'` for HTML."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=_plain)


def _plain(value: object) -> object:
    """Convert mappings and sequences that are not dict and list, for `json.dumps`."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    refuse_undefined(value)
    message = "`tojson` needs texts, numbers, booleans, lists and mappings"
    raise TypeError(message)


def _passes_unknown(function: Callable[..., object]) -> Callable[..., object]:
    """Return a filter that returns the unknown value if an argument is unknown."""

    @functools.wraps(function)
    def wrapped(*args: object, **kwargs: object) -> object:
        return UNKNOWN if _has_unknown([*args, *kwargs.values()]) else function(*args, **kwargs)

    return wrapped


def _has_unknown(values: Collection[object]) -> bool:
    return any(
        value is UNKNOWN
        or (isinstance(value, str) and UNKNOWN_MARK in value)
        or (isinstance(value, list | tuple) and _has_unknown(value))
        for value in values
    )


@functools.cache
def expression_environment() -> ImmutableSandboxedEnvironment:
    """Return the environment of expressions. Evaluations do not change it."""
    made = template_environment().overlay()
    left_out = {*_OF_FILES, *_GUARDS}
    made.filters = {name: _passes_unknown(function) for name, function in made.filters.items() if name not in left_out}
    made.filters |= {"under": _under_folder, **_GUARDS}
    return made


@functools.cache
def template_environment() -> ImmutableSandboxedEnvironment:
    """Return the environment of prompt and template files, which have no unknown values."""
    # Prompts are text and not HTML, so nothing is escaped.
    made = _Environment(
        undefined=_Missing,
        keep_trailing_newline=True,
        autoescape=False,
        cache_size=0,
        finalize=template_limits.check_output,
    )
    usual = {name: function for name, function in made.filters.items() if name in _FILTERS} | {"tojson": _as_json}
    made.filters = {name: template_limits.limit_filter(name, function) for name, function in usual.items()}
    made.filters |= {"under": _under, **_OF_FILES, **_GUARDS}
    made.globals = {name: made.globals[name] for name in TEMPLATE_GLOBALS}
    return made


def first_line_of_error(error: Exception) -> str:
    """Return the first line of an error's message."""
    text = str(error.message) if isinstance(error, jinja2.TemplateError) and error.message else str(error)
    words = text.split("\n", 1)[0].split("; did you mean", 1)[0] or type(error).__name__
    return words.replace("'end of print statement'", "end")


def hint_of_error(error: Exception, names: Mapping[str, object]) -> str | None:
    """Return a hint for an error, if its message allows one."""
    text = str(error)
    _, found, near = text.partition("; did you mean")
    if found:
        return f"did you mean{near}"
    unknown = re.match(r"`(\w+)` is not defined", text)
    if unknown:
        return did_you_mean(unknown[1], names) or f"known here: {quoted_names(sorted(names))}"
    lacking = re.match(r"No filter named '(\w+)'", text)
    return did_you_mean(lacking[1], [*_FILTERS, "under", *_OF_FILES]) if lacking else None


class TemplateFileError(Exception):
    """A prompt or template file that cannot be rendered; `line` counts from 1, in the file `name`."""

    def __init__(self, line: int, message: str, hint: str | None = None, name: str = "") -> None:
        """Set location, message and hint."""
        super().__init__(f"{name}:{line}: {message}")
        self.line, self.message, self.hint, self.name = line, message, hint, name


class RenderedPrompt(Struct, frozen=True):
    """A rendered prompt, whether a block of data is in it, and the pictures and PDFs of its blocks."""

    text: str
    has_blocks: bool
    media: tuple[Media, ...] = ()


def render_prompt(source: str, names: Mapping[str, object], name: str) -> RenderedPrompt:
    """Render a prompt as it is sent: each block of data has a delimiter of its own.

    Raises:
        TemplateFileError: as for `render_text`; or the template changes the block of a picture or a PDF.
    """
    text, delimiters = prompt_blocks.with_own_delimiters(functools.partial(render_text, source, names, name))
    return RenderedPrompt(text, delimiters.is_used, _placed(delimiters.media, text, name))


def _placed(media: Collection[Media], text: str, name: str) -> tuple[Media, ...]:
    placed = tuple(one for one in media if one.marker in text)
    for one in media:
        if one not in placed and one.sha256 in text.lower():
            message = f"the block of `{one.path}` is changed, so that it cannot be sent"
            raise TemplateFileError(1, message, f"show it as it is: `{{{{ inputs['{one.path}'] | block }}}}`", name)
    return placed


def render_text(source: str, names: Mapping[str, object], name: str) -> str:
    """Render a prompt or template file. `{% include %}` and `{% import %}` find no other template.

    Without `with_own_delimiters`, the blocks of each use of a filter have one delimiter together.

    Raises:
        TemplateFileError: the template is malformed, uses an undefined name, or renders more than 4 MiB.
    """
    try:
        template = _compiled(source, name)
        with step_budget():
            return _joined(template.generate(dict(names)), name)
    except TemplateFileError:
        raise
    except jinja2.TemplateNotFound as error:
        hint = "only files that the stage may see can be included"
        raise TemplateFileError(_line_of(error, name), f"there is no template `{error.name}`", hint, name) from None
    except Exception as error:  # noqa: BLE001 - a template may raise anything; its author has to fix it
        message, hint_of = first_line_of_error(error), hint_of_error(error, names)
        line, file = _line_of(error, name), name
        if isinstance(error, jinja2.TemplateSyntaxError):
            line, file = error.lineno, error.name or name
        raise TemplateFileError(line, message, hint_of, file) from None


@functools.lru_cache(maxsize=256)
def names_used(source: str) -> frozenset[str]:
    """Return the names that a well-formed template takes from outside, also in branches that are not rendered."""
    return frozenset(meta.find_undeclared_variables(template_environment().parse(source)))


@functools.lru_cache(maxsize=256)
def _compiled(source: str, name: str) -> jinja2.Template:
    """Return a template. It is cached: each stage, and each item, renders its prompt several times."""
    sandbox = _file_environment()
    code = template_environment().compile(source, name, name)
    # A dict and not a ChainMap, as `make_globals` returns: each rendering copies it.
    return jinja2.Template.from_code(sandbox, code, dict(sandbox.globals))


@functools.cache
def _file_environment() -> ImmutableSandboxedEnvironment:
    """Return the environment in which templates are rendered: it has no other templates."""
    return template_environment().overlay(loader=jinja2.FunctionLoader(lambda _name: None), cache_size=0)


def _joined(parts: Iterable[str], name: str) -> str:
    out: list[str] = []
    size = 0
    for part in parts:
        size += len(part)
        if size > MAX_RENDERED_TEXT:
            raise TemplateFileError(1, f"the text is over {MAX_RENDERED_TEXT} characters", "shorten its inputs", name)
        out.append(part)
    return "".join(out)


def _line_of(error: BaseException, name: str) -> int:
    """Return the line of the template that raised an error; Jinja compiles with the lines of the source."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
