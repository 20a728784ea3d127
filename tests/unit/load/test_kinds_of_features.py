"""Step kinds of features: stored values of a missing one are read again, and changed code of each makes them stale."""

from pathlib import Path

import pytest

from orch23.model.features import missing_feature
from orch23.model.plugins import LazyMapping
from orch23.model.step import Step
from orch23.steps import registry
from orch23.steps.registry import OF_FEATURES, STEP_KINDS, decode_step
from orch23.store.project_store import open_store


@pytest.mark.parametrize("kind", OF_FEATURES)
def test_a_stored_step_of_a_missing_kind_cannot_be_decoded(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(registry, "missing_kind", lambda name: missing_feature(OF_FEATURES[name]))
    monkeypatch.setattr(registry, "_OWN", LazyMapping(STEP_KINDS, registry._load))
    with pytest.raises(ValueError, match=f"no Step with the tag `{kind}`"):
        decode_step(Step, {"type": kind})


def test_changed_code_of_the_language_or_of_a_kind_makes_stored_pipelines_stale(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    folders = [place.rpartition(":")[0].split(".")[1:-1] for place in STEP_KINDS.values()]
    for table in (store.pipelines, store.plans):
        assert all(any("/".join(one).startswith(there) for there in table._folders) for one in folders)
    assert "language" in store.pipelines._folders
