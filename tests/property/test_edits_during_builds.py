"""However a project is edited while it is built, the builds after that come to what a fresh build comes to.

A history builds a project and edits it at random moments of the builds: inputs, the pipeline, vars, templates, prompts,
outputs, the lock file, whole folders. After each step it is built until nothing is to be done, and its outputs are held
against those of its sources, built with no store, lock file or output.
"""

import contextlib
import os
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from tests.moments import (
    UP_TO_DATE,
    Moments,
    age,
    check_nothing_is_missed,
    noticed,
    run,
    settle,
)
from tests.project import Project

RAM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
HISTORIES = 3000
SAMPLE = 16
TEXTS = "{% for one in inputs %}{{ one.path }}={{ one.text }}{% endfor %}"

SMALL = """\
version: 1
name: story
vars: {word: one}
stages:
  head: {render: {template: prompts/head.j2}, inputs: ["spec.md#One"], outputs: [out/head.txt]}
  every: {render: {template: prompts/every.j2}, inputs: ["src/**/*.txt"], outputs: [out/every.txt]}
  tail: {render: {template: prompts/every.j2}, inputs: [out/head.txt, out/every.txt], outputs: [out/deep/tail.txt]}
  maybe:
    if: ${{ vars.word == "one" }}
    render: {template: prompts/head.j2}
    inputs: [src/a.txt]
    outputs: [out/maybe.txt]
  made: {shell: [cp, out/deep/tail.txt, out/made.txt], inputs: [out/deep/tail.txt], outputs: [out/made.txt]}
  "2": {shell: [cp, src/sub/b.txt, out/2.txt], inputs: [src/sub/b.txt], outputs: [out/2.txt]}
  optional:
    render: {template: prompts/every.j2}
    inputs: [src/a.txt, {path: opt/sub/more.txt, optional: true}]
    outputs: [out/optional.txt]
  names: {render: {template: prompts/every.j2}, inputs: [{list: "src/*.txt"}, spec.md], outputs: [out/names.txt]}
  ask:
    inputs: ["spec.md#Two"]
    outputs: [out/ask.txt]
    llm: {provider: scripted, model: scripted, answers: answers.yaml, prompt: prompts/ask.md.j2, returns: text}
"""
FOREACH = """\
version: 1
name: items
vars: {word: one}
stages:
  each:
    foreach: {from: items.yaml, as: item}
    render: {template: prompts/item.j2}
    inputs: [src/a.txt, "items.yaml#/0"]
    outputs: ["out/${{ item }}.txt"]
  after: {render: {template: prompts/every.j2}, inputs: [src/sub/b.txt], outputs: [out/after.txt]}
"""
FILES = {
    "spec.md": "# One\nfirst\n# Two\nsecond\n",
    "vars.yaml": "word: one\n",
    "prompts/head.j2": "{{ vars.word }} {{ inputs[0].text }}",
    "prompts/every.j2": TEXTS,
    "prompts/item.j2": "{{ item }} {{ inputs[0].text }}",
    "prompts/ask.md.j2": "{{ vars.word }} {{ inputs[0].text }}",
    "answers.yaml": "ask:\n  - {when: second, answers: [said second]}\n  - {when: other, answers: [said other]}\n",
    "items.yaml": "[one, two]\n",
    "src/a.txt": "a\n",
    "src/sub/b.txt": "b\n",
}
PIPELINES = {
    "src/sub/b.txt, out/2.txt]": "--, src/sub/b.txt, out/2.txt]",
    "[cp, out/deep/tail.txt, out/made.txt]": "[cp, src/a.txt, out/made.txt]",
    "inputs: [src/sub/b.txt], outputs: [out/2.txt]": "inputs: [src/**/b.txt], outputs: [out/2.txt]",
    'inputs: ["spec.md#One"]': 'inputs: ["spec.md#Two"]',
    "vars: {word: one}": "vars: {word: two}",
    "  names:": "  more: {render: {template: prompts/every.j2}, inputs: [spec.md], outputs: [out/more.txt]}\n  names:",
    "version: 1\n": "version: 1\n# a note\n",
    "    outputs: [out/optional.txt]\n": "    outputs: [out/optional.txt]\n    salt: more\n",
    "name: items": "name: more",
    "inputs: [src/sub/b.txt], outputs: [out/after.txt]": "inputs: [src/a.txt], outputs: [out/after.txt]",
    '    inputs: [src/a.txt, "items.yaml#/0"]': "    inputs: [spec.md]",
    "stages:\n": "stages: [\n",
}
VARIANTS = {
    "spec.md": (
        FILES["spec.md"],
        FILES["spec.md"].replace("first", "other"),
        FILES["spec.md"].replace("second", "other"),
    ),
    "vars.yaml": ("word: one\n", "word: two\n", "word: two # a note\n"),
    "prompts/head.j2": (FILES["prompts/head.j2"], "{{ inputs[0].text }}!"),
    "prompts/every.j2": (TEXTS, TEXTS.replace("path", "text")),
    "prompts/item.j2": (FILES["prompts/item.j2"], "{{ item }}"),
    "prompts/ask.md.j2": (FILES["prompts/ask.md.j2"], "say {{ inputs[0].text }}"),
    "answers.yaml": (FILES["answers.yaml"], f"# a note\n{FILES['answers.yaml']}"),
    "items.yaml": ("[one, two]\n", "[one, two, three]\n", "[one]\n"),
    "src/a.txt": ("a\n", "b\n", "longer\n"),
    "src/sub/b.txt": ("b\n", "a\n"),
    "src/new.txt": ("new\n",),
    "opt/sub/more.txt": ("more\n", "less\n"),
}
MANY = 70
PROGRAMS = (5, 10, 40, 45)
"""Stages of a wide project that run a program; the second and the last read what those before them wrote."""
BEFORE = (9, 44)


def wide() -> dict[str, str]:
    """Return a project of so many stages that partial builds are made of it as it is; some stages run a program."""
    stages = []
    for number in range(MANY):
        reads = f"in/{number}.txt, out/{number - 1}.txt" if number % 7 == 3 else f"in/{number}.txt"
        does = f"shell: [cp, in/{number}.txt, out/{number}.txt]" if number % 5 == 0 else "render: {template: t.j2}"
        stages.append(f"  s{number}: {{{does}, inputs: [{reads}], outputs: [out/{number}.txt]}}\n")
    return {
        "pipeline.yaml": f"version: 1\nname: wide\nstages:\n{''.join(stages)}",
        "t.j2": TEXTS,
        "vars.yaml": "{}\n",
        **{f"in/{number}.txt": f"{number}\n" for number in range(MANY)},
    }


PROJECTS = {
    "small": ({**FILES, "pipeline.yaml": SMALL}, 0),
    "foreach": ({**FILES, "pipeline.yaml": FOREACH}, 0),
    "wide": (wide(), 64),
}


@dataclass(slots=True)
class Editor:
    """Edits one project in the working directory, as chance has it."""

    chance: random.Random
    kind: str
    aside: int = 0
    moments: Counter[str] = field(default_factory=Counter)
    before: list[tuple[Path, str]] = field(default_factory=list)

    def prepare(self) -> None:
        """Put folders aside that may take the place of others, so that their files are not young then."""
        if self.chance.random() < 0.2:
            for folder in ("src", "prompts", "in"):
                if Path(folder).is_dir() and not Path(f"{folder}-next").exists():
                    shutil.copytree(folder, f"{folder}-next", symlinks=True)
                    files = sorted(path for path in Path(f"{folder}-next").rglob("*") if path.is_file())
                    if files:
                        self._give_another_text(self.chance.choice(files), f"{folder}/")

    def edit(self) -> None:
        """Edit once; what cannot be done now is not done."""
        deeds = [self.save] * (24 if self.kind == "wide" else 8) + [self.save_pipeline] * 3
        deeds += [self.stealthily, self.touch, self.remove, self.change_output, self.change_lock, self.swap, self.link]
        with contextlib.suppress(OSError):
            self.chance.choice(deeds)()

    def begin(self) -> None:
        """Give the next build something to do; in a wide project mostly one stage that runs a program.

        What a stage that shows its inputs was given is too young then for the build to be remembered.
        """
        if self.kind == "wide" and self.chance.random() < 0.8:
            put(f"in/{self.chance.choice(PROGRAMS)}.txt", f"{self.chance.random()}\n")
        else:
            self.edit()

    def save(self) -> None:
        if self.kind == "wide":
            number = self.chance.choice([0, 0, *BEFORE, *BEFORE, *PROGRAMS, 11, 69])
            put(f"in/{number}.txt", self.chance.choice([f"{number}\n", "new\n", "other\n"]))
            return
        self.save_at(self.chance.choice(list(VARIANTS)))

    def save_at(self, path: str) -> None:
        put(path, self.chance.choice(VARIANTS.get(path, ("new\n",))))

    def save_for_a_while(self) -> None:
        """Save a file that `put_back` lets be as it was."""
        with contextlib.suppress(OSError):
            path = self._some_source()
            self.before.append((path, path.read_text()))
            self.save_at(str(path))

    def put_back(self) -> None:
        for path, text in self.before:
            put(str(path), text)
        self.before.clear()

    def save_pipeline(self) -> None:
        text = PROJECTS[self.kind][0]["pipeline.yaml"]
        if self.kind == "wide":
            for _ in range(self.chance.choice([0, 1, 1, 2])):
                number = self.chance.choice([0, 5, 10, 40, 65])
                text = text.replace(f"[cp, in/{number}.txt,", f"[cp, --, in/{number}.txt,")
                number = self.chance.choice([1, 3, 10, 41])
                text = text.replace(f"outputs: [out/{number}.txt]", f"outputs: [out/{number}.txt], salt: more")
        for old, new in self.chance.sample(list(PIPELINES.items()), self.chance.choice([0, 1, 1, 2])):
            text = text.replace(old, new)
        put("pipeline.yaml", text)

    def stealthily(self) -> None:
        """Change bytes, and keep their number and the time of the change."""
        path = self._some_source()
        before, data = path.stat(), path.read_bytes()
        path.write_bytes(data.swapcase())
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    def touch(self) -> None:
        os.utime(self._some_source())

    def remove(self) -> None:
        self._some_source().unlink()

    def change_output(self) -> None:
        found = sorted(path for path in Path("out").rglob("*") if path.is_file())
        path = self.chance.choice(found or [Path("out/none")])
        if self.chance.random() < 0.7:
            path.unlink()
        else:
            path.write_text("by hand\n")

    def change_lock(self) -> None:
        lock = Path("pipeline.lock")
        text = lock.read_text()
        names = re.findall(r'\n  "([^"~]+)": \{\n', text)
        if not names or self.chance.random() < 0.4:
            lock.unlink()
            return
        name = re.escape(self.chance.choice(names))
        lock.write_text(re.sub(rf'\n  "{name}": \{{\n.*?\n  \}},', "", text, count=1, flags=re.DOTALL))

    def swap(self) -> None:
        folder = self.chance.choice(["src", "prompts", "in"])
        if Path(f"{folder}-next").is_dir():
            self.aside += 1
            Path(folder).rename(f"{folder}-{self.aside}")
            Path(f"{folder}-next").rename(folder)

    def link(self) -> None:
        folder = Path(self.chance.choice(["opt", "opt/sub"]))
        if folder.is_symlink():
            folder.unlink()
        elif not folder.exists() and folder.parent.is_dir():
            folder.symlink_to(self.chance.choice(["src", "nowhere"]))

    def _some_source(self) -> Path:
        known = [*VARIANTS, "in/1.txt", "in/10.txt", "in/40.txt"]
        known.remove("answers.yaml")  # an answer that was recorded stays, where a fresh build needs the file
        return Path(self.chance.choice([path for path in known if Path(path).is_file()]))

    def _give_another_text(self, path: Path, folder: str) -> None:
        texts = VARIANTS.get(folder + "/".join(path.parts[1:]), ("next\n",))
        path.write_text(texts[-1])


def put(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


@cache
def built(kind: str) -> Path:
    """Return a project that is built, to be copied; it lasts as long as the process."""
    files, fewest = PROJECTS[kind]
    folder = Path(_KEPT.name, kind)
    Project(folder).write(files)
    with noticed(fewest) as moments, contextlib.chdir(folder):
        assert settle(moments, "pipeline.yaml", "--vars", "vars.yaml").code == 0
    return folder


_KEPT = tempfile.TemporaryDirectory(dir=RAM)


@contextlib.contextmanager
def project(kind: str) -> Iterator[Moments]:
    """Give the moments of runs in a copy of a built project, which is the working directory."""
    source = built(kind)
    with tempfile.TemporaryDirectory(dir=RAM) as name, noticed(PROJECTS[kind][1]) as moments:
        folder = Path(name, "project")
        shutil.copytree(source, folder, symlinks=True)
        with contextlib.chdir(folder):
            yield moments


KINDS = ("look", "look", "look", "event", "event", "read", "loaded", "compared", "part", "end", "replan")
NAMED = ("run_started", "stage_decided", "attempt_started", "attempt_finished", "promoted", "stage_finished")


def play(seed: int, note: Callable[[str], None] = lambda _what: None) -> None:
    """Play one history; `note` hears what was seen, to count it."""
    chance = random.Random(seed)
    kind = chance.choice(["small"] * 6 + ["foreach"] * 2 + ["wide"] * 2)
    with project(kind) as moments:
        editor = Editor(chance, kind)
        argv = ["pipeline.yaml", *chance.choice([[], ["--vars", "vars.yaml"]])]
        for _ in range(2):
            age()
            assert run(moments, "build", *argv).code == 0
            editor.moments |= moments.counts
        age()
        for _ in range(chance.choice([1, 1, 2])):
            step(editor, moments, argv, note)


def step(editor: Editor, moments: Moments, argv: list[str], note: Callable[[str], None]) -> None:
    """Edit, build and edit meanwhile; then hold everything against a fresh build."""
    chance = editor.chance
    editor.prepare()
    if chance.random() < 0.8:
        editor.begin()
    elif chance.random() < 0.7:  # then a build decides everything, and finds nothing to do
        shutil.rmtree(".orch23/snapshots", ignore_errors=True)
    aged = chance.random() < 0.7
    if aged:
        age()
    for _ in range(chance.choice([1, 1, 2, 3])):
        for edit in chance.choice(
            [[editor.edit], [editor.edit], [editor.edit], [editor.save_for_a_while, editor.put_back]]
        ):
            moment = chance.choice([*KINDS, *NAMED])
            moments.at(moment, edit, chance.randint(1, max(1, editor.moments[moment])))
    names = [["2"], ["head"]] if editor.kind == "small" else [[]]
    selected = chance.choice([[], [], [], *names])
    done = run(moments, "build", *argv, *selected, f"-j{chance.choice([1, 2])}")
    editor.moments |= moments.counts
    note("edited meanwhile" if not moments.forget() else "a moment did not come")
    note(f"{editor.kind}: exit code {done.code}")
    note("aged" if aged else "young")
    note("partial" if moments.counts["part"] and " fresh " in done.err else "of the whole")
    if chance.random() < 0.7:
        age()
    agree(moments, argv)
    check_nothing_is_missed(moments, *argv)


def agree(moments: Moments, argv: list[str]) -> None:
    """Hold plan, status and the next build to each other, of which the first two change nothing."""
    plan, status = run(moments, "plan", *argv), run(moments, "status", *argv)
    assert plan.code == status.code, (plan, status)
    at_rest = UP_TO_DATE in plan.out
    assert at_rest == (UP_TO_DATE in status.out), f"plan and status disagree: {plan} {status}"
    if at_rest:
        build = run(moments, "build", *argv)
        assert (build.code, UP_TO_DATE in build.err) == (0, True), f"plan and build disagree: {plan} {build}"


@pytest.mark.stride(9)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_sample(seed: int) -> None:
    play(seed)


@pytest.mark.thorough
@pytest.mark.timeout(7200)
def test_many_histories() -> None:
    for seed in range(SAMPLE, SAMPLE + HISTORIES):
        try:
            play(seed)
        except Exception as error:
            message = f"history {seed}"
            raise AssertionError(message) from error
