"""The corpus of answers: what a model may answer, and what becomes of it. One file an answer, and an index."""

import re
from dataclasses import dataclass
from pathlib import Path

import yaml

ANSWERS = Path(__file__).parent / "answers"
PLAUSIBLE = Path(__file__).parent / "responses.yaml"
HIDDEN = "ws/src/unseen.py"
_FILL = re.compile(r"«(.)\*(\d+)»|«(CR|BOM)»")
_SIGNS = {"CR": "\r", "BOM": "\ufeff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer with the stage that it is given to, and what is expected: codes and kind, or writes and content."""

    name: str
    text: str
    returns: str = "files"
    stop: str = "end"
    output: str = "ws/src/new.py"
    codes: tuple[str, ...] = ()
    kind: str = "llm_output_invalid"
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    content: str = ""
    needs: str = ""

    @property
    def names_files(self) -> bool:
        """Return whether the answer names its files; else the pipeline names the one."""
        return self.returns in ("files", "blocks", "edits")


def answers(side: str) -> tuple[Answer, ...]:
    """Return the answers of `bad` or `good`, in the order of the index."""
    index = yaml.safe_load((ANSWERS / "index.yaml").read_text(encoding="utf-8"))[side]
    return tuple(_read(side, name, meta) for name, meta in index.items())


def workspace() -> dict[str, str]:
    """Return the files that are there before an answer, as the model is shown them."""
    folder = ANSWERS / "workspace"
    return {
        path.relative_to(folder).as_posix().removesuffix(".txt"): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.txt"))
    }


def _read(side: str, name: str, meta: dict[str, object]) -> Answer:
    text = _FILL.sub(_filled, (ANSWERS / side / name).read_text(encoding="utf-8"))
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in meta.items()}
    return Answer(name=name, text=text, **lists)  # type: ignore[arg-type]  # the index is read by people


def _filled(found: re.Match[str]) -> str:
    return _SIGNS[found[3]] if found[3] else found[1] * int(found[2])
