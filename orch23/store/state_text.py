"""Write the text of a `state.json`; what is said of a stage that has not moved is not written anew."""

import hashlib
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from orch23.model.digest import Json, canonical_json
from orch23.store.indented import indented

_NO_STAGES = '"stages": {}'


class Told(Protocol):
    """A value that says of itself what is to be written."""

    def to_json(self) -> dict[str, Json]:
        """Return it."""


class _Block(Struct, frozen=True):
    """What is written of one stage: for people, and for the checksum."""

    stage: Told
    shown: str
    canonical: bytes


class StateText(Struct):
    """The texts of the states of one run, one after the other."""

    _blocks: dict[str, _Block] = field(default_factory=dict)

    def write(self, head: Mapping[str, Json], stages: Mapping[str, Told]) -> str:
        """Return the JSON of `head` and `stages`, in this order, with the checksum of its canonical form."""
        blocks = {name: self._block(name, stage) for name, stage in stages.items()}
        told = {name: b"%s:%s" % (canonical_json(name), canonical_json(value)) for name, value in head.items()}
        inner = b",".join(b"%s:%s" % (canonical_json(name), blocks[name].canonical) for name in sorted(blocks))
        told["stages"] = b'"stages":{%s}' % inner
        digest = hashlib.sha256(b"{%s}" % b",".join(told[name] for name in sorted(told))).hexdigest()
        whole = indented({**head, "stages": {}, "sum": digest})
        if not blocks:
            return whole
        shown = ",\n  ".join(f"{indented(name)}: {block.shown}" for name, block in blocks.items())
        before, _, after = whole.rpartition(_NO_STAGES)
        return f'{before}"stages": {{\n  {shown}\n }}{after}'

    def _block(self, name: str, stage: Told) -> _Block:
        known = self._blocks.get(name)
        if known is None or known.stage is not stage:
            body = stage.to_json()
            known = _Block(stage, indented(body).replace("\n", "\n  "), canonical_json(body))
            self._blocks[name] = known
        return known
