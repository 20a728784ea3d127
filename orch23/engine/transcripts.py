"""Say where a pipeline keeps its transcripts."""

from collections.abc import Mapping

from orch23.model.pipeline import ForeachStage, LLMStep, Pipeline


def transcript_folders(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the folders that the declared stages name, sorted; of a foreach also where it has no items today."""
    found: set[str] = set(pipeline.transcripts)
    for stage in pipeline.stages:
        if isinstance(stage, ForeachStage):
            llm = stage.body.get("llm")
            place = llm.get("transcripts") if isinstance(llm, Mapping) else None
        else:
            place = stage.step.transcripts if isinstance(stage.step, LLMStep) else None
        if isinstance(place, str):
            found.add(place)
    return tuple(sorted(found))
