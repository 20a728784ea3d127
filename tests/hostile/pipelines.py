"""Pipeline files that are not as a text should be, or are no files at all."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from tests.hostile.holding import Case

NAME = "pipeline.yaml"
V = "version: 1\n"
LONG = "k" * 1_000
GREEN = "version: 1\nstages:\n  s: {outputs: [a.txt], shell: echo a > a.txt}\n"


def text(content: str | bytes, *says: str, problems: int = 1, code: int = 65) -> Case:
    """Return the case of a pipeline file of this content."""
    return Case(
        files={NAME: content},
        says=(f"--> {NAME}:1:1" if not says else says[0], *says[1:]),
        problems=problems,
        code=code,
    )


def place(spoil: Callable[[Path], None], *says: str, code: int = 66) -> Case:
    """Return the case of something that is in the place of the pipeline file."""
    return Case(
        argv=("validate", NAME), spoil=lambda project: spoil(project.root / NAME), says=(NAME, *says), code=code
    )


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def _cut_off(path: Path) -> None:
    path.write_text(GREEN)
    path.chmod(0)


def _laughs() -> str:
    lines = ["l0: &l0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 4)]
    return V + "vars:\n" + "".join(f"  {line}\n" for line in lines) + "stages: {s: {shell: a}}\n"


PIPELINES: dict[str, Case] = {
    # as long or as deep as can be
    "200 kB of [": text("[" * 200_000, "E805", f"{NAME}:1:65"),
    "200 kB of {": text("{" * 200_000, "E8", NAME),
    "200 kB of [ in a value": text(V + "vars: {a: " + "[" * 200_000, "E805", f"{NAME}:2:73"),
    "200 kB of - ": text("- " * 100_000, "E805", f"{NAME}:1:"),
    "200 kB of ? ": text("? " * 100_000, "E806", f"{NAME}:1:"),
    "long keys above many values": text(
        V
        + "vars: {"
        + "".join(f'"{LONG}{n}": {{' for n in range(50))
        + ",".join(f"a{n}: 1" for n in range(60_000))
        + "}" * 51,
        "E805",
        "the keys are too long",
    ),
    "thousands of keys that are not known, and a long comment": text(
        GREEN + "".join(f"{'k' * 40}{n}: 1\n" for n in range(9_000)) + "#" * (8 << 20),
        "E8",
        "more are not shown",
        problems=50,
    ),
    "more vars than anyone declares": text(
        GREEN + "vars:\n" + "".join(f"  a{n}: 1\n" for n in range(9_000)), "E805", NAME
    ),
    "deep by indentation": text("".join(" " * n + f"a{n}:\n" for n in range(300)), "E805", f"{NAME}:65:"),
    "a thousand closed brackets": text(V + "vars: {a: " + "[" * 1000 + "]" * 1000 + "}\n", "E805", f"{NAME}:2:73"),
    "closing what was not open": text("]" * 100_000, "E801", f"{NAME}:1:1"),
    "over 16 MiB of comment": text("#" * (16 << 20) + "\n", "E805", f"{NAME}:1:1", "16777216 bytes"),
    "over 16 MiB of one line": text(V + "name: " + "a" * (16 << 20), "E805", f"{NAME}:1:1"),
    "a key of half a MiB": text(V + "k" * 500_000 + ": 1\nstages: {s: {shell: a}}\n", "E801", NAME),
    "an unknown key of a kB": text(V + "k" * 1000 + ": 1\nstages: {s: {shell: a}}\n", "E802", f"{NAME}:2:1"),
    "a line of 800 kB that is wrong": text(
        V + "name: " + "a" * 800_000 + "\nstages: {s: {shell: a}}\n", "E812", f"{NAME}:2:7"
    ),
    "thirty mistakes": text(
        V + "stages:\n" + "".join(f"  s{n}: {{shell: [], shell: []}}\n" for n in range(15)),
        "E803",
        f"{NAME}:3:19",
        problems=30,
    ),
    # aliases, tags, directives
    "a billion laughs": text(_laughs(), "E804", f"{NAME}:3:7", problems=34),
    "an alias of itself": text(V + "vars: &a {b: *a}\nstages: {s: {shell: a}}\n", "E804", f"{NAME}:2:7", problems=2),
    "a merge of a list": text(V + "stages: {s: {<<: [{shell: a}, {shell: b}], shell: a}}\n", "E804", f"{NAME}:2:14"),
    "a tag of Python": text(
        V + "name: !!python/object/apply:os.system ['touch owned']\nstages: {s: {shell: a}}\n",
        "E804",
        f"{NAME}:2:7",
        problems=2,
    ),
    "a tag of its own": text(
        "%TAG ! tag:x,2000:\n---\nversion: !a 1\nstages: {s: {shell: a}}\n", "E804", f"{NAME}:3:10"
    ),
    "a binary tag": text(V + "name: !!binary aGVsbG8=\nstages: {s: {shell: a}}\n", "E804", f"{NAME}:2:7"),
    "a set": text(V + "vars: !!set {a, b}\nstages: {s: {shell: a}}\n", "E804", f"{NAME}:2:7"),
    "YAML 2": text("%YAML 2.0\n---\nversion: 1\n", "E801", f"{NAME}:1:"),
    "a thousand documents": text("---\n" * 1000 + GREEN, "E804", f"{NAME}:2:1"),
    "a key twice, spelt in two ways": text(
        V + "vars: {\"a\": 1, 'a': 2}\nstages: {s: {shell: a}}\n", "E803", f"{NAME}:2:16"
    ),
    "a key twice, by an escape": text(
        V + 'vars: {a: 1, "\\x61": 2}\nstages: {s: {shell: a}}\n', "E803", f"{NAME}:2:14"
    ),
    "a mapping as a key": text(V + "? {a: 1}\n: 2\n", "E806", f"{NAME}:2:3"),
    "a null as a key": text(V + "~: 1\nstages: {s: {shell: a}}\n", "E806", f"{NAME}:2:1"),
    # characters
    "a NUL": text(b"version: 1\nname: a\x00b\n", "E805", f"{NAME}:2:8", "U+0000"),
    "nothing but NULs": text(b"\x00" * 4096, "E805", f"{NAME}:1:1"),
    "UTF-16": text(GREEN.encode("utf-16"), "E805", f"{NAME}:1:1", "0xff"),
    "UTF-32": text(GREEN.encode("utf-32-be"), "E805", f"{NAME}:1:1"),
    "a byte order mark inside": text(GREEN.encode() + b"\xef\xbb\xbf#\n", "E805", f"{NAME}:4:1", "U+FEFF"),
    "Latin-1": text(GREEN.encode() + b"# caf\xe9\n", "E805", f"{NAME}:4:6", "0xe9"),
    "half a surrogate in UTF-8": text(b"version: 1\nname: \xed\xa0\x80\n", "E805", f"{NAME}:2:7"),
    "an overlong slash": text(b"version: 1\nname: \xc0\xaf\n", "E805", f"{NAME}:2:7"),
    "half of a character": text(b"version: 1\nname: \xe2\x82", "E805", f"{NAME}:2:7"),
    "an escape of a terminal": text(V + "name: \x1b[2J\x1b]0;owned\x07\n", "E805", f"{NAME}:2:7", "U+001B"),
    "a control of Latin-1": text(V + "name: \x9b31m\n", "E805", f"{NAME}:2:7", "U+009B"),
    "a surrogate by an escape": text(V + 'name: "\\ud800"\nstages: {s: {shell: a}}\n', "E801", f"{NAME}:2:"),
    "a tab in the indentation": text(V + "stages:\n  s:\n\t  shell: a\n", "E801", f"{NAME}:4:1"),
    "carriage returns alone": text(GREEN.replace("\n", "\r"), "E805", f"{NAME}:1:11"),
    "all bytes": text(bytes(range(256)) * 16, "E805", f"{NAME}:2:118"),
    "a picture": text(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "E805", f"{NAME}:1:1"),
    # values
    "a number of 400,000 digits": text(
        V + "jobs: " + "9" * 400_000 + "\nstages: {s: {shell: a}}\n", "E807", f"{NAME}:2:7"
    ),
    "a negative number of 5,000 digits": text(
        V + "jobs: -" + "9" * 5_000 + "\nstages: {s: {shell: a}}\n", "E807", f"{NAME}:2:7"
    ),
    "a number without end": text(V + "vars: {a: 1e999}\nstages: {s: {shell: a}}\n", "E807", f"{NAME}:2:11"),
    "not a number, of jobs": text(V + "jobs: .nan\nstages: {s: {shell: a}}\n", "E811", f"{NAME}:2:7"),
    "infinity, of jobs": text(V + "jobs: .inf\nstages: {s: {shell: a}}\n", "E811", f"{NAME}:2:7"),
    "hexadecimal, of jobs": text(V + "jobs: 0x10\nstages: {s: {shell: a}}\n", "E811", f"{NAME}:2:7"),
    "minus zero jobs": text(V + "jobs: -0\nstages: {s: {shell: a}}\n", "E812", f"{NAME}:2:7"),
    "a root that is a number": text("1\n", "E811", f"{NAME}:1:1"),
    "a root that is a text of a MB": text("a" * 1_000_000, "E811", f"{NAME}:1:1"),
    "no text at all": text(b"", "E811", f"{NAME}:1:1"),
    "three dots": text("...\n", "E801", f"{NAME}:1:1"),
    # expressions
    "an expression of 100 kB": text(V + "stages: {s: {shell: '${{ " + "b" * 100_000 + " }}'}}\n", "E841", f"{NAME}:2:"),
    "an expression of a thousand brackets": text(
        V + "stages: {s: {shell: ['${{ " + "(" * 1000 + " }}']}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression of a thousand dots": text(
        V + "stages: {s: {shell: ['${{ vars" + ".a" * 1000 + " }}']}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression that multiplies a text": text(
        V + "stages: {s: {shell: [\"${{ 'a' * 10 ** 9 }}\"]}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression that multiplies a list": text(
        V + "stages: {s: {shell: ['${{ [1] * 10 ** 9 }}']}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression of a tower of powers": text(
        V + "stages: {s: {shell: ['${{ 9 ** 9 ** 9 ** 9 }}']}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression of a long range": text(
        V + "stages: {s: {shell: ['${{ range(10 ** 9) | list }}']}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression of the class of a text": text(
        V + "stages: {s: {shell: [\"${{ ''.__class__.__mro__[1].__subclasses__() }}\"]}}\n", "E8", f"{NAME}:2:"
    ),
    "an expression of an attribute by a filter": text(
        V + "stages: {s: {shell: [\"${{ '' | attr('__class__') }}\"]}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression of an attribute by map": text(
        V + "stages: {s: {shell: [\"${{ ['a'] | map(attribute='__class__') | list }}\"]}}\n", "E84", f"{NAME}:2:"
    ),
    "an expression that formats": text(
        V + "stages: {s: {shell: [\"${{ '{0:>999999999}'.format(1) }}\"]}}\n", "E84", f"{NAME}:2:"
    ),
    "an expression that centres": text(
        V + "stages: {s: {shell: [\"${{ 'a' | center(10 ** 9) }}\"]}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression that fills a batch": text(
        V + 'stages: {s: {shell: ["${{ [1] | batch(10 ** 9, 1) | list }}"]}}\n', "E841", f"{NAME}:2:"
    ),
    "an expression that replaces": text(
        V + "stages: {s: {shell: [\"${{ 'aaaaaaaaaa'" + " | replace('a', 'aaaaaaaaaa')" * 12 + ' }}"]}}\n',
        "E841",
        f"{NAME}:2:",
    ),
    "an expression that indents": text(
        V + "stages: {s: {shell: [\"${{ 'a' | indent(10 ** 9, true) }}\"]}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression that rounds": text(
        V + "stages: {s: {shell: [\"${{ 1 | round(10 ** 9, 'ceil') }}\"]}}\n", "E841", f"{NAME}:2:"
    ),
    "an expression that runs a statement": text(
        V + "stages: {s: {shell: [\"${{ 1 }}{% for a in b %}\", '${{ %} }}']}}\n", "E841", f"{NAME}:2:"
    ),
    # names that are echoed
    "a stage name that turns the line around": text(
        V + 'stages: {"a\u202eb": {shell: a}}\n', "E812", f"{NAME}:2:10", "\\u202e"
    ),
    "a stage name without width": text(V + 'stages: {"a\u200bb": {shell: a}}\n', "E812", f"{NAME}:2:10", "\\u200b"),
    "a stage name with an escape": text(V + 'stages: {"a\\e[31mb": {shell: a}}\n', "E812", f"{NAME}:2:10", "\\x1b"),
    "a path with an escape": text(
        V + 'stages: {s: {outputs: ["a\\e[2Jb"], shell: a}}\n', "E850", f"{NAME}:2:", "\\x1b"
    ),
    "an unknown key of soft hyphens": text(
        V + "\u00ad\u180e\u206a: 1\nstages: {s: {shell: a}}\n", "E802", f"{NAME}:2:1"
    ),
    "a line of bidi around a mistake": text(
        V + "vars: {a: '\u202e\u2066'}\nstages: {s: {shell: a, \u2067t: 1}}\n", "E802", f"{NAME}:3:"
    ),
    # in the place of the file
    "a folder": place(lambda path: path.mkdir(), code=66),
    "a pipe": place(os.mkfifo),
    "a socket": place(_socket),
    "a link to nowhere": place(lambda path: path.symlink_to("gone.yaml")),
    "a link to itself": place(lambda path: path.symlink_to(NAME)),
    "a link to a device": place(lambda path: path.symlink_to("/dev/zero")),
    "a link out of the project": place(lambda path: path.symlink_to("/etc/passwd")),
    "a link to the terminal": place(lambda path: path.symlink_to("/dev/tty")),
    "a folder that is a file": Case(
        files={"a": "x"}, argv=("validate", "a/pipeline.yaml"), code=66, says=("a/pipeline.yaml",)
    ),
    "a name of a thousand characters": Case(argv=("validate", "a" * 1000 + ".yaml"), code=66),
    "a name with a NUL": Case(argv=("validate", "a\0b.yaml"), code=66),
    "a name with an escape": Case(argv=("validate", "a\x1b[31mb\u202e.yaml"), code=66, says=("\\x1b[31m",)),
    "a name that is no text": Case(argv=("validate", "a\udcffb.yaml"), code=66),
}

if os.geteuid() != 0:  # root reads it all the same
    PIPELINES["a file that nobody may read"] = place(_cut_off, "Permission denied")
else:

    def _zeros(path: Path) -> None:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))

    PIPELINES["a device"] = place(_zeros)
