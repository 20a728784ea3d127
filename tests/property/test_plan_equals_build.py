"""A plan does not lie: whatever upstream then writes, a build does what the plan said, unless the plan said maybe.

A stage reads `made` (an upstream stage is still to write it) and `source`. Its records hold any values of both.
"""

from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.decide.freshness import Candidate, DecisionFacts, decide
from orch23.model.digest import FileEntry, digest_bytes
from orch23.model.plan import Decision, Edited, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.model.record import Record, core_of, key_of

VALUES = ("1", "2", "3")


def entry(text: str) -> FileEntry:
    return FileEntry(digest_bytes(text.encode()))


@dataclass(frozen=True)
class Stage:
    """What a stage looks like but for what upstream writes: the rest of its manifest, its records, the disk."""

    source: str
    command: str
    verify: str
    records: tuple[Record, ...]
    lost: frozenset[str]
    disk: str | None
    edited: bool
    forced: bool
    cacheable: bool
    failed_before: bool

    def known(self, made: str | None) -> DecisionFacts:
        """Return what a build knows once upstream wrote `made`; None where it wrote nothing (an optional input)."""
        manifest = manifest_of(made, self.source, self.command, self.verify)
        candidates = [
            Candidate(record=r, target=dict(r.outputs), is_available=r.stage not in self.lost or self.holds(r))
            for r in self.records
        ]
        disk = {"out": entry(self.disk) if self.disk is not None else None}
        current = tuple(c for c in candidates if c.record.key == key_of(manifest))
        same_core = next(
            (c for c in candidates if core_of(c.record.manifest) == core_of(manifest) and c.is_available), None
        )
        return DecisionFacts(
            stage="s",
            manifest=manifest,
            current=current,
            same_core=same_core if not current else None,
            previous=self.records[0] if self.records else None,
            disk=disk,
            edited=("out",) if self.edited else (),
            failed_before=self.failed_before,
            forced=self.forced,
            cacheable=self.cacheable,
        )

    def holds(self, record: Record) -> bool:
        return self.disk is not None and dict(record.outputs) == {"out": entry(self.disk)}

    def foreseen(self, last: str | None) -> DecisionFacts:
        """Return what a plan knows: upstream is unsettled, and stands with what it last wrote."""
        return replace(self.known(last), pending_upstream=("up",), uncertain=("made",), possible=self.records)


def manifest_of(made: str | None, source: str, command: str, verify: str) -> dict[str, str]:
    manifest = {"kind": "shell", "command": command, "input:source": source, "verify.input:t": verify}
    return manifest if made is None else {**manifest, "input:made": made}


values = st.sampled_from(VALUES)


@st.composite
def stages(draw):
    records = []
    for number in range(draw(st.integers(0, 4))):
        manifest = manifest_of(draw(st.none() | values), draw(values), draw(values), draw(values))
        out = {"out": entry(draw(values))}
        records.append(Record(stage=f"r{number}", key=key_of(manifest), manifest=manifest, outputs=out))
    return Stage(
        source=draw(values),
        command=draw(values),
        verify=draw(values),
        records=tuple(records),
        lost=draw(st.frozensets(st.sampled_from(["r0", "r1", "r2", "r3"]))),
        disk=draw(st.none() | values),
        edited=draw(st.integers(0, 9)) == 0,
        forced=draw(st.integers(0, 9)) == 0,
        cacheable=draw(st.integers(0, 9)) != 0,
        failed_before=draw(st.booleans()),
    )


def kind(decision: Decision) -> type[Decision]:
    return type(decision)


@given(stages(), st.none() | values, st.none() | st.sampled_from((*VALUES, "never seen")))
def test_what_a_plan_is_sure_of_a_build_does_whatever_upstream_writes(stage, last, made):
    planned, built = decide(stage.foreseen(last)), decide(stage.known(made))
    if not isinstance(planned, Maybe):
        assert kind(planned) is kind(built)
        assert isinstance(planned, Run | Edited)  # while upstream is unsettled nothing else can be promised


@given(stages(), st.none() | values)
def test_a_plan_says_maybe_only_if_some_record_could_become_todays(stage, last):
    planned = decide(stage.foreseen(last))
    hopeful = any(
        manifest_of(made, stage.source, stage.command, "") == {**r.manifest, "verify.input:t": ""}
        for r in stage.records
        for made in (*VALUES, None)
    )
    assume(not (stage.edited or stage.forced or not stage.cacheable))
    assert isinstance(planned, Maybe) == hopeful


@given(stages(), st.none() | values)
def test_a_settled_stage_is_decided_alike_by_plan_and_build_and_twice(stage, made):
    known = stage.known(made)
    decision = decide(known)
    assert decide(known) == decision
    assert not isinstance(decision, Maybe)


@given(stages(), st.none() | values)
def test_what_a_decision_rests_on_is_so(stage, made):
    known = stage.known(made)
    current = [c.record for c in known.current]
    match decide(known):
        case Fresh(record=record):
            assert record in current
            assert known.disk == dict(record.outputs)
        case Restore(record=record):
            assert record in current
            assert known.disk != dict(record.outputs)
            assert record.stage not in stage.lost
        case VerifyOnly(record=record, reasons=reasons):
            assert not current
            assert core_of(record.manifest) == core_of(known.manifest)
            assert {r.code for r in reasons} == {"verify_changed"}
        case Run(reasons=reasons):
            assert reasons
            usable = any(known.disk == dict(r.outputs) or r.stage not in stage.lost for r in current)
            assert stage.forced or not stage.cacheable or not usable
        case Edited():
            assert stage.edited
        case other:
            raise AssertionError(other)
