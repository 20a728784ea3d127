"""What is written in pieces is what would be written at once."""

import json
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from orch23.model.digest import Json, digest_json
from orch23.store.run_state import StateEncoder


@dataclass(frozen=True)
class Stage:
    """A stage that counts how often it was asked."""

    text: str
    asked: list[int] = field(default_factory=list, compare=False)

    def to_json(self) -> dict[str, Json]:
        self.asked.append(1)
        return {"z": self.text, "files": [self.text, 1], "a": None, "no": []}


def at_once(head: dict[str, Json], stages: dict[str, Stage]) -> str:
    body: dict[str, Json] = {**head, "stages": {name: stage.to_json() for name, stage in stages.items()}}
    return json.dumps({**body, "sum": digest_json(body)}, indent=1, ensure_ascii=False)


TEXT = st.text(st.sampled_from('ab"\\{}:\n \u00e9'), max_size=6) | st.just('"stages": {}')
HEAD = st.dictionaries(st.sampled_from(["run_id", "zoo", "error"]), TEXT | st.none() | st.integers())


@given(st.lists(st.tuples(HEAD, st.dictionaries(TEXT, TEXT, max_size=4)), max_size=3))
def test_the_text_is_that_of_the_whole(states: list[tuple[dict[str, Json], dict[str, str]]]) -> None:
    writer = StateEncoder()
    for head, texts in states:
        stages = {name: Stage(text) for name, text in texts.items()}
        assert writer.encode(head, stages) == at_once(head, stages)


def test_a_stage_that_has_not_changed_is_not_encoded_again() -> None:
    writer, stays, moves = StateEncoder(), Stage("a"), Stage("b")
    writer.encode({}, {"stays": stays, "moves": moves})
    writer.encode({}, {"stays": stays, "moves": Stage("c")})
    assert len(stays.asked) == 1
