"""Detect that a response is incomplete: placeholders, a bare `...`, a diff, or a text that repeats itself at its end.

Prose may contain "the rest of the code". So a phrase counts only if a comment mark, dots or a bracket are before it and
nothing follows it. A vague phrase needs more: a line of its own, dots around it, or a file that existed before.

A small model may write the same lines until its tokens are used up.
"""

import ast
import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from orch23.text.source_syntax import emptied_functions, is_python, new_ellipses, python_comments, python_tree

# Characters; no placeholder is longer, so the patterns need not search further.
_LINE = 400
_DOTS = r"(?:\.{2,}|…)"
_MARK = r"(?:\#+|//+|\{?/\*+|<!--|--+|;+|%+|\{\#)"
_CLOSING = " \t.…])>*/#-}"
MARKDOWN = (".md", ".markdown", ".mdx")
_CODE_TEXT = (
    ".js .jsx .mjs .cjs .ts .tsx .go .rs .java .kt .c .h .cc .cpp .hpp .cs .php .rb .swift .scala .css .scss .less "
    ".vue .svelte .sql .sh"
)
# Languages in which a line of only dots is not valid.
_CODE = tuple(_CODE_TEXT.split())

_WORDS = r"(?:\w+ )"
_THE = r"(?:(?:the|this|your|my|all|of|our) ){0,3}"
_THING = (
    r"(?:code|files?|contents?|functions?|methods?|class(?:es)?|implementations?|modules?|logic|imports?|tests?|"
    r"documents?|scripts?|body|definitions?|schema|routes|handlers|components?|styles?|sections?|stuff|everything)"
)
_PART = r"(?:code|functions?|methods?|class(?:es)?|implementations?|logic|imports?|definitions?)"
_FORMER = r"(?:existing|previous|original|remaining|unchanged|other|same|more|old)"
_KEEP = "(?:keep|leave|retain|preserve)"
_SAME = (
    r"(?:unchanged|untouched|unmodified|intact|identical|(?:the )?same(?: as (?:before|above))?"
    r"|as (?:is|before|above|it was|they were)|omitted|elided|snipped|truncated)"
)
_STATE = (
    rf"(?:(?:(?:is|are|was|were|remains?|stays?|left|kept) )?(?:exactly |all )?{_SAME}|(?:goes )?here"
    rf"|continues?(?: here)?)(?: for (?:brevity|clarity|space))?"
)
_REST_OF = rf"(?:the )?(?:rest|remainder) of {_THE}{_WORDS}{{0,2}}?{_THING}"
_LEFT = (
    rf"(?:{_REST_OF}|{_THE}(?:rest|remainder|everything else|all else|others?)"
    rf"|{_THE}{_FORMER} {_WORDS}{{0,2}}?{_THING})"
)
_LAST_CHARACTERS = 20_000
_LEAST_TIMES = 6
_LEAST_LENGTH = 300
# The repetition is at least this part of the text: code may have a table of equal rows.
_LEAST_SHARE = 0.5


def _either(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{phrase})" for phrase in phrases), re.IGNORECASE)


# In any comment, brackets or dots.
_STRONG = _either(
    rf"{_LEFT} {_STATE}",
    rf"(?:rest|remainder) of {_THE}{_WORDS}{{0,2}}?\w+ (?:unchanged|omitted|as before)",
    rf"{_WORDS}{{0,5}}(?:omitted|elided|snipped|truncated|shortened|skipped) for (?:brevity|clarity|space)",
    rf"(?:add|insert|put|place) (?:your|the (?:rest|remaining|existing)) {_WORDS}{{0,2}}?{_THING} here",
    rf"your {_WORDS}{{0,2}}?code (?:goes )?here",
)
# Only on a line of its own.
_ALONE = _either(
    _REST_OF,
    "unchanged",
    r"(?:same|identical) as (?:before|earlier|(?:in )?the original)",
    r"no changes? (?:here|below|above)",
    "snip",
    rf"(?:todo|note|fixme)\W+{_KEEP} {_THE}(?:rest|remaining|existing|others?)(?: {_WORDS}{{0,3}}\w+)?",
)
# Only with dots or brackets around it; or on a line of its own in a file that was there before.
_VAGUE = _either(
    rf"{_THE}{_FORMER} {_WORDS}{{0,1}}{_PART}",
    rf"(?:the )?{_PART} (?:is|are|remains?|stays?) (?:exactly )?{_SAME}",
    rf"{_KEEP} {_THE}(?:rest|remaining|existing|original|others?)(?: {_WORDS}{{0,3}}?)? ?{_SAME}",
)
# Only with dots or square brackets around it.
_DOTTED = _either(
    _LEFT,
    r"(?:same|identical) as above",
    r"no changes? needed",
    r".{0,60}\b(?:unverändert|inchangée?s?|sin cambios|без изменений)",
    r".{0,60}(?:不变|変更なし)",
)
_CUT_AWAY = re.compile(rf"{_WORDS}{{0,5}}(?:omitted|truncated|elided|snipped)(?: {_WORDS}{{0,2}}\w+)?", re.IGNORECASE)
_WHOLE_LINE = re.compile(rf"\s*(?P<mark>{_MARK})?\s*(?P<dots>{_DOTS})?\s*(?P<open>[\[(<]*)\s*(?P<more>{_DOTS})?\s*")
_TRAILING = re.compile(rf"\s(?P<mark>{_MARK})\s*(?P<dots>{_DOTS})?\s*(?P<open>[\[(<]*)\s*(?P<more>{_DOTS})?\s*")
_MARKDOWN_MARK = re.compile(r"\s*(?:<!--|\.{2,}|…|[\[(<])")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")


class _Remark(Struct, frozen=True):
    """The remark of a line: its words, and what is around them."""

    words: str
    alone: bool
    marked: bool
    opened: str
    dots_before: bool
    dots_after: bool

    @property
    def dotted(self) -> bool:
        return self.dots_before or self.dots_after or bool(self.opened)

    @property
    def boxed(self) -> bool:
        return self.dots_before or "[" in self.opened or "<" in self.opened


def find_placeholders(path: str, content: str, base: str | None) -> tuple[tuple[int, str], ...]:
    """Return (line, text) of each line that replaces omitted text. Lines that the base has as often are left out.

    `base` is the old text of the file, None for a new file. In a new file a bare `# ...` may be style; in an edited one
    it replaces something.
    """
    known = Counter() if base is None else Counter(line.strip() for line in base.split("\n"))
    found: list[tuple[int, str]] = []
    for number, line in _lines(path, content):
        text = line.strip()
        if text and _replaces_text(path, line[:_LINE], edited=base is not None):
            if known[text]:
                known[text] -= 1
            else:
                found.append((number, text))
    if found and is_python(path):
        found = _in_comments(content, found, edited=base is not None)
    return tuple(found)


def omitted_code(path: str, content: str, base: str | None) -> tuple[tuple[int, str], ...]:
    """Return (line, what) of code of a Python file that `...` replaces."""
    tree = python_tree(content) if base is not None and path.endswith(".py") else None
    if base is None or not isinstance(tree, ast.Module):
        return ()
    bodies = [(line, f"the body of `{name}`") for line, name in emptied_functions(tree, base)]
    return (*bodies, *((line, "`...` among other statements") for line in new_ellipses(tree, base)))


def _lines(path: str, content: str) -> list[tuple[int, str]]:
    """Return the numbered lines to check: in Markdown those outside of code blocks, which are examples."""
    numbered = list(enumerate(content.split("\n"), start=1))
    if not path.lower().endswith(MARKDOWN):
        return numbered
    outside: list[tuple[int, str]] = []
    closing: str | None = None
    for number, line in numbered:
        fence = _FENCE.match(line)
        if closing is not None:
            closing = None if fence and line.strip().startswith(closing) and not line.strip().strip("`~") else closing
        elif fence is not None:
            closing = fence[1]
        else:
            outside.append((number, line))
    return outside


def _in_comments(content: str, found: list[tuple[int, str]], *, edited: bool) -> list[tuple[int, str]]:
    """Return those lines of Python that parses in which a comment is the placeholder."""
    if not isinstance(python_tree(content), ast.Module):
        return found
    remarks = python_comments(content)
    return [
        (number, text)
        for number, text in found
        if number in remarks
        and _is_placeholder(f"{'' if text == remarks[number] else 'x '}{remarks[number]}"[:_LINE], edited=edited)
    ]


def _replaces_text(path: str, line: str, *, edited: bool) -> bool:
    if path.lower().endswith(MARKDOWN) and not _MARKDOWN_MARK.match(line):
        # In Markdown `#` is a heading and `--` is not a comment.
        return False
    if line.strip() in {"...", "…"}:
        return edited and path.endswith(_CODE)
    return _is_placeholder(line, edited=edited)


def _is_placeholder(line: str, *, edited: bool) -> bool:
    remark = _remark(line)
    if remark is None:
        return False
    # A line of its own in a file that was there before: it replaces something.
    replaces = edited and remark.alone
    if not remark.words:
        return replaces and remark.dots_before and (remark.marked or "[" in remark.opened)
    phrases = (
        (_STRONG.fullmatch, True),
        (_ALONE.fullmatch, remark.alone),
        (_VAGUE.fullmatch, remark.dotted or replaces),
        (_DOTTED.fullmatch, remark.boxed or remark.dots_after),
        (_CUT_AWAY.fullmatch, remark.boxed),
    )
    if any(counts and matches(remark.words) for matches, counts in phrases):
        return True
    enclosed = remark.dots_before and (remark.dots_after or "(" in remark.opened)
    return replaces and remark.marked and enclosed


def _remark(line: str) -> _Remark | None:
    whole = _WHOLE_LINE.match(line)
    alone = whole is not None and any(whole[name] for name in ("mark", "dots", "open"))
    found = whole if alone else _TRAILING.search(line)
    if found is None:
        return None
    rest = line[found.end() :]
    core = rest.rstrip(_CLOSING)
    tail = rest[len(core) :]
    dots = bool(found["dots"] or found["more"])
    return _Remark(
        words=" ".join(core.replace(")", "").replace("]", "").split()),
        alone=alone,
        marked=bool(found["mark"]),
        opened=found["open"],
        dots_before=dots,
        dots_after=".." in tail or "…" in tail,
    )


_DIFF_FIRST = re.compile(r"diff --git |--- \S|\+\+\+ \S|@@ -\d|Index: |\*\*\* Begin Patch|\*\*\* \S+\t")
_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|^@@ .* @@$|^\*\*\* (?:Update|Add|Delete) File: ", re.MULTILINE)
_CONFLICT = (re.compile(r"<{5,9}(?: |$)"), re.compile(r"={5,9}\s*$"), re.compile(r">{5,9}(?: |$)"))
_DIFFS = (".diff", ".patch", ".rej")
_PROSE = (*MARKDOWN, ".rst", ".txt", ".adoc")


def is_diff(path: str, content: str, base: str | None) -> bool:
    """Return whether a content is a diff, or blocks to search and replace, and not the file itself."""
    if path.lower().endswith(_DIFFS) or (base is not None and is_diff(path, base, None)):
        return False
    text = content.removeprefix("\ufeff").lstrip().replace("\r\n", "\n")
    if _DIFF_FIRST.match(text) and _HUNK.search(text):
        return True
    first = _first_conflict(text)
    return first == 0 or (first is not None and not path.lower().endswith(_PROSE))


def has_patch(response: str) -> bool:
    """Return whether a response that is no file has a hunk of a patch, or a block to search and replace."""
    text = response.replace("\r\n", "\n")
    return _HUNK.search(text) is not None or _first_conflict(text) is not None


def _first_conflict(text: str) -> int | None:
    """Return the first line of a block between conflict marks, or of a search and its replacement."""
    begun, step = 0, 0
    for number, line in enumerate(text.split("\n")):
        if step and _CONFLICT[0].match(line):
            begun, step = number, 1
        elif _CONFLICT[step].match(line):
            begun, step = begun if step else number, step + 1
        if step == len(_CONFLICT):
            return begun
    return None


def repeated_end(text: str) -> str:
    """Return the shortest block that a text repeats up to its end, where it may be cut; empty if there is none.

    A block of several lines begins with a line. It counts if it is repeated at least 6 times, and fills 300 characters
    and half of the text. Only the last 20,000 characters are read.
    """
    tail = text[-_LAST_CHARACTERS:]
    least = max(_LEAST_LENGTH, int(len(tail) * _LEAST_SHARE))
    if len(tail) < least:
        return ""
    backwards = tail[::-1]
    equal = common_prefixes(backwards)
    for period in range(1, len(tail) // _LEAST_TIMES + 1):
        length = period + equal[period]
        if length >= max(least, period * _LEAST_TIMES):
            start = len(tail) - length
            block = tail[start : start + period]
            line = block.find("\n") + 1
            return block[line:] + block[:line]
    return ""


def common_prefixes(text: Sequence[object]) -> list[int]:
    """Return, for each position, how many characters or items from there equal those at the beginning (Z function)."""
    found = [0] * len(text)
    left = right = 0
    for position in range(1, len(text)):
        known = min(right - position, found[position - left]) if position < right else 0
        while position + known < len(text) and text[known] == text[position + known]:
            known += 1
        found[position] = known
        if position + known > right:
            left, right = position, position + known
    return found
