"""Let a model look at files before it responds: a map, and the parts that it asks for in a few requests (ADR 91)."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from orch23.features.explore.outlines import has_grammar, outline_of
from orch23.features.explore.parts import EXPLORE_SCHEMA, FORM, Part, find_part, read_answer, search, split_place
from orch23.features.explore.repo_map import RepoMap, map_of
from orch23.model.diagnostic import nearest_names, question
from orch23.model.digest import Json, digest_bytes
from orch23.model.llm import Message, Request
from orch23.model.paths import match_any
from orch23.model.pipeline import Stage
from orch23.report.values import pluralize
from orch23.resolve.discovered import explorable
from orch23.resolve.prompt_blocks import DataBlock, render_blocks
from orch23.resolve.prompt_inputs import PromptInput
from orch23.resolve.resolution import ResolvedStage, VisibleFiles
from orch23.resolve.text_slices import SliceError
from orch23.text.secrets import Secrets

# Code has fewer characters a token than other texts: with three, the limit holds for most vendors.
CHARACTERS_PER_TOKEN: Final = 3
_LEAST_MAP: Final = 4  # the part of the limit that the map has beside a long prompt: a quarter
_LARGEST_BYTES: Final = 1_000_000
_LARGEST_TOTAL_BYTES: Final = 64_000_000
_BLOCK: Final = 180  # characters of the lines around a part
_LINE: Final = 40  # characters of an average line

_HEAD: Final = """\
The task at the end is for a later request. Do not do it now. First name what you need to see of the repository.

{map}

Respond with one JSON object and nothing else:
{form}
`show`: parts of files. `PATH#L10-40` is lines, `PATH#def NAME` and `PATH#class NAME` are definitions of Python (the
name of a method is `CLASS.METHOD`), and `PATH` is a whole file. Name parts of large files. Later you can change only
what you were shown.
`search`: texts, or regular expressions between slashes. The places where they occur are shown.
If you need to see nothing, both lists are empty.

"""
_TAIL: Final = """

Respond with the JSON object alone: {form}
"""
_REST: Final = len(_HEAD) + len(_TAIL) + 3 * len(FORM) + 500  # with the lines around map and task


class Explorer(Struct, kw_only=True, dict=True):
    """What the model of a stage was shown in all attempts so far, and what it may still ask for.

    `texts` are the files that it may look at, by path, `whole` those that the prompt shows anyway. `left` is the number
    of characters that can still be shown, `turns` the number of requests. `exchanges` are their fingerprints, `inputs`
    the parts for a prompt, as they were before any attempt.
    """

    stage: Stage
    texts: Mapping[str, str]
    whole: frozenset[str]
    turns: int
    left: int
    schema: ClassVar[Json] = EXPLORE_SCHEMA
    parts: list[Part] = []
    inputs: list[PromptInput] = []
    exchanges: list[str] = []
    errors: list[str] = []
    is_done: bool = False
    _task: str = ""

    @cached_property
    def known(self) -> RepoMap:
        """The map, for the task of the first request."""
        return map_of(self._task, [outline_of(path, text) for path, text in self.texts.items()])

    @property
    def summary(self) -> str:
        """What the model may look at, and how often it may ask."""
        how = "definitions by tree-sitter" if has_grammar(".js") else "definitions of Python by ast"
        note = f" ({self.known.note})" if self._task and self.known.note else ""
        turns = f"up to {pluralize(self.stage.explore_turns, 'request')}"
        return f"a map of {pluralize(len(self.texts), 'file')}, {how}{note}; {turns}"

    @property
    def may_ask(self) -> bool:
        """Whether another request can show the model more in this attempt."""
        return not self.is_done and self.turns > 0 and self.left > _LINE and bool(self.texts)

    def request_of(self, request: Request) -> Request:
        """Return the request in which the model names what it needs to see for the task of another request.

        It has at most the characters of `tokens`, or those of the first task with a quarter of them. Its map depends on
        texts that are the same each time: the words of a failure may differ.
        """
        self._task = self._task or _task_of(request.identity)
        whole = self.stage.explore_tokens * CHARACTERS_PER_TOKEN
        most = max(whole, _REST + len(self._task) + whole // _LEAST_MAP)
        # What was shown needs the place of most of the map.
        size = whole // _LEAST_MAP if self.parts else most - _REST - len(self._task)
        blocks = render_blocks([DataBlock("map of the repository", self.known.render(size))])
        head = _HEAD.format(map=blocks, form=FORM)
        after = f"Requests like this one that are left: {self.turns}. They can show about {self.left // _LINE} lines.\n"
        after += "".join(f"Error in your last response: {one}\n" for one in self.errors)[: whole // _LEAST_MAP]
        half = (most - _REST - len(blocks) - len(after)) // 2 if self.exchanges else most

        def asking(message: Message, texts: tuple[Message, ...]) -> Message:
            task = _task_of(texts)
            task = task if len(task) <= 2 * half else f"{task[:half]}\n[...]\n{task[-half:]}"
            block = render_blocks([DataBlock("task", task)])
            return replace(message, content=f"{head}{after}\n{block}{_TAIL.format(form=FORM)}")

        return replace(
            request,
            system="",
            system_identity=None,
            system_users="",
            messages=(replace(asking(request.messages[0], request.messages), media=request.media),),
            identity=(asking(request.identity[0], request.identity),),
            returns="explore",
            stable=len(head),
            family=0,
            added=("", ""),
            is_final=self.turns == 1,
        )

    def take(self, text: str, fingerprint: str) -> tuple[str, ...]:
        """Note what a response asks for; return the errors in it. Each response costs a turn, whatever is in it."""
        self.turns -= 1
        self.exchanges.append(fingerprint)
        before, self.errors = len(self.parts), []
        try:
            show, searches = read_answer(text)
        except ValueError as error:
            self.errors.append(str(error))
            return tuple(self.errors)
        asked = [*((self._show, one) for one in show), *((self._search, one) for one in searches)]
        for number, (act, one) in enumerate(asked):
            # What one does not need, the others can have.
            problem = act(one, self.left // (len(asked) - number))
            self.errors += [f"`{one}`: {problem}"] if problem else []
        self.is_done = not self.errors and len(self.parts) == before
        return tuple(self.errors)

    def _show(self, place: str, most: int) -> str:
        path, selector = split_place(place)
        if path in self.whole:
            return ""  # the prompt has it
        if path not in self.texts:
            near = nearest_names(path, sorted(self.texts))
            return f"cannot be shown{f': {question(near)}' if near else ''}"
        try:
            part = find_part(self.texts[path], path, selector, self.known, most - _BLOCK)
        except SliceError as error:
            return f"{error}; {error.hint}"
        self._add(part)
        return ""

    def _search(self, query: str, most: int) -> str:
        try:
            found = search(self.texts, query, self.known)
        except ValueError as error:
            return str(error)
        for number, part in enumerate(found):
            before = self.left
            if len(part.text) + _BLOCK <= min(before, most) // (len(found) - number):
                self._add(part)
            most -= before - self.left
        return "" if found else "matches no line"

    def _add(self, part: Part) -> None:
        if any(one.covers(part) for one in self.parts):
            return
        self.left -= len(part.text) + _BLOCK
        self.parts.append(part)
        digest = digest_bytes(part.text.encode()).sha256
        self.inputs.append(PromptInput(part.path, part.selector, digest, partial(str, part.text), explored=True))


def _task_of(messages: Sequence[Message]) -> str:
    return "\n\n".join(one.content for one in messages)


def explorer_of(
    resolved: ResolvedStage, tree: VisibleFiles, never_send: tuple[str, ...], secrets: Secrets, own: tuple[str, ...]
) -> Explorer:
    """Return what the model of a stage may look at. `own` are patterns of files that orch23 writes itself.

    Raises:
        MissingBytesError: the bytes of a file are lost.
    """
    stage, texts, left = resolved.stage, dict[str, str](), _LARGEST_TOTAL_BYTES
    whole = frozenset(one.path for one in resolved.given if not one.slice)
    for path, entry in explorable(stage, tree, never_send).items():
        # What a build writes there would make the next map another one, so that no recorded response is found.
        if match_any(own, path):
            continue
        left -= entry.digest.size_bytes
        if left >= 0 and entry.digest.size_bytes <= _LARGEST_BYTES and path not in whole:
            data = tree.read(path, entry)
            text = data.decode("utf-8", "replace")
            if b"\0" not in data and "\ufffd" not in text and not secrets.find(text):
                texts[path] = text
    left = stage.explore_tokens * CHARACTERS_PER_TOKEN
    return Explorer(stage=stage, texts=texts, whole=whole, turns=stage.explore_turns, left=left)
