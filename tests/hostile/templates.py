"""Templates of prompts, and of files that are rendered, that would not end, fill the memory, or look around."""

import os

from tests.hostile.holding import Case
from tests.project import Project

PIPELINE = """version: 1
vars: {n: 3}
stages:
  s: {outputs: [a.txt], inputs: [in.txt], render: {template: t.j2}}
"""


def template(text: str | bytes, *says: str, line: int = 1, column: int = 1) -> Case:
    """Return the case of a template."""
    return Case(
        files={"pipeline.yaml": PIPELINE, "in.txt": "{{ 7 * 7 }}{% for a in b %}\n", "t.j2": text},
        argv=("build",),
        says=(f"t.j2:{line}:{column}" if line else "t.j2", *says),
        code=1,
    )


def _unread(text: str | bytes, *says: str) -> Case:
    files = {"pipeline.yaml": PIPELINE, "in.txt": "", "t.j2": text}
    return Case(files=files, argv=("build",), says=("E831", "t.j2", *says), code=65)


def _place(spoil: str) -> Case:
    def put(project: Project) -> None:
        path = project.root / "t.j2"
        match spoil:
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case _:
                path.symlink_to(spoil)

    return Case(
        files={"pipeline.yaml": PIPELINE, "in.txt": ""}, spoil=put, argv=("build",), says=("E831", "t.j2"), code=65
    )


def _doubled(first: str, again: str) -> str:
    return "{% set a = " + first + " %}" + ("{% set a = " + again + " %}") * 60 + "{{ a }}"


TEMPLATES: dict[str, Case] = {
    # without an end
    "loops in loops": template(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"
    ),
    "loops in loops of a list": template(
        "{% set l = range(50000) | list %}\n{% for a in l %}{% for b in l %}{% set c = b %}{% endfor %}{% endfor %}",
        "steps",
        line=2,
    ),
    "a loop of loops of itself": template(
        "{% for a in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}", "E832"
    ),
    "a macro that calls itself": template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "E832"),
    "a macro that calls itself twice": template(
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", "steps"
    ),
    "filters in a loop": template("{% for a in range(99999) %}{% set b = range(99999) | list %}{% endfor %}", "steps"),
    "a list that is sorted in a loop": template(
        "{% set l = range(50000) | list %}{% for a in range(99999) %}{% set b = l | sort %}{% endfor %}", "steps"
    ),
    # without a bound
    "a long range": template("{{ range(10 ** 9) | list }}", "E832"),
    "a text times a number": template("{{ 'a' * 10 ** 9 }}", "`*` is for (small) numbers"),
    "a list times a number": template("{{ [1] * 10 ** 9 }}", "`*` is for (small) numbers"),
    "a tower of powers": template("{{ 9 ** 9 ** 9 ** 9 }}", "`**` is for (small) numbers"),
    "a number that squares itself": template(_doubled("99", "a * a"), "bits"),
    "a text that doubles itself": template(_doubled("'aa'", "a ~ a"), "characters"),
    "a text that is added to itself": template(_doubled("'aa'", "a + a"), "characters"),
    "a block that doubles itself": template(
        "{% set a = 'aa' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60 + "{{ a }}", "characters"
    ),
    "a list that is added to itself": template(_doubled("[1]", "a + a"), "E832"),
    "a list that holds itself twice": template(_doubled("[1]", "[a, a]"), "E832"),
    "a tuple that holds itself twice": template(_doubled("(1, 2)", "(a, a)"), "E832"),
    "a mapping that holds itself twice": template(_doubled("{'a': 1}", "{'a': a, 'b': a}"), "E832"),
    "a text that replaces itself": template(_doubled("'aaaa'", "a | replace('a', a)"), "characters"),
    "a method that replaces": template(_doubled("'aaaa'", "a.replace('a', a)"), "characters"),
    "a text that joins itself": template(_doubled("'aaaa'", "a | join(a)"), "characters"),
    "a method that joins": template(_doubled("'aaaa'", "a.join(a)"), "characters"),
    "a method that translates": template("{{ 'a'.translate({97: 'b'}) }}", "translate"),
    "a flood": template("{% for a in range(99999) %}{{ 'a' ~ '" + "b" * 100 + "' }}{% endfor %}", "4194304 characters"),
    "a batch of any size": template("{{ [1] | batch(10 ** 9, 'x') | list }}", "10,000"),
    "slices of any number": template("{{ [1] | slice(10 ** 9) | list }}", "10,000"),
    "an indent of any width": template("{{ 'a' | indent(10 ** 9, true) }}", "characters"),
    "an indent of JSON": template("{{ [1] | tojson(10 ** 9) }}", "10,000"),
    "a precision of any size": template("{{ 1 | round(10 ** 9, 'ceil') }}", "digits"),
    "a text that is centred": template("{{ 'a' | center(10 ** 9) }}", "center"),
    "a method that centres": template("{{ 'a'.center(10 ** 9) }}", "E832"),
    "a method that formats": template("{{ '{0:>1000000000}'.format(1) }}", "E832"),
    "a sign that formats": template("{{ '%1000000000d' % 1 }}", "E832"),
    "a filter that formats": template("{{ '%1000000000d' | format(1) }}", "format"),
    # looking around
    "the class of a text": template("{{ ''.__class__.__mro__[1].__subclasses__() }}", "E832"),
    "the class by an item": template("{{ ''['__class__'] }}", "E832"),
    "an attribute by a filter": template("{{ '' | attr('__class__') }}", "attr", column=9),
    "an attribute by map": template("{{ ['a'] | map(attribute='__class__') | list }}", "E832"),
    "the globals of a function": template("{{ range.__init__.__globals__ }}", "E832"),
    "the globals of a macro": template("{% macro f() %}{% endmacro %}{{ f.__globals__ }}", "E832"),
    "the code of a macro": template("{% macro f() %}{% endmacro %}{{ f._func.__code__ }}", "E832"),
    "the template itself": template("{{ self.__init__ }}", "E832"),
    "the environment of a loop": template("{% for a in [1] %}{{ loop.__class__ }}{% endfor %}", "E832"),
    "a global that reads": template("{{ lipsum.__globals__.os.environ }}", "lipsum"),
    "a list that is changed": template("{% set a = [1] %}{{ a.append(2) }}", "E832"),
    "another file": template("{% include '../../etc/passwd' %}", "E832"),
    "another file by a name": template("{% import 'in.txt' as a %}", "E832"),
    "a parent": template("{% extends 'in.txt' %}", "E832"),
    # malformed
    "a name that is not there": template("\n\n{{ nam }}", "nam", line=3, column=4),
    "a member that is not there": template("\n{{ vars.m }}", "`m`", line=2),
    "an end that is missing": template("{% for a in vars %}", "E832"),
    "an end too many": template("\n{% endfor %}", "E832", line=2, column=4),
    "an unknown tag": template("\n{% do a %}", "E832", line=2, column=4),
    "a thousand brackets": template("{{ " + "(" * 1000 + " }}", "E832"),
    "a thousand brackets that close": template("{{ " + "(" * 1000 + "1" + ")" * 1000 + " }}", "E832"),
    "a thousand loops": template("{% for a in b %}" * 1000, "E832"),
    "a division by nothing": template("\n{{ 1 / 0 }}", "E832", line=2),
    "an escape in a name": template("{% include '\x1b[31m\u202e' %}", "\\x1b[31m"),
    "no UTF-8": _unread(b"\xff", "UTF-8"),
    "over a MiB": _unread("a" * (1 << 20) + "a", "1,048,576"),
    "a pipe": _place("pipe"),
    "a folder": _place("folder"),
    "a link to a file": _place("in.txt"),
    "a link out of the project": _place("/etc/passwd"),
    "a link to a device": _place("/dev/zero"),
}
