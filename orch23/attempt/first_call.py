"""Follow the first attempt of a stage through the recordings, without any call."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from orch23.attempt.conversation import RequestBuilder, find_recorded
from orch23.decide.protected_files import own_file_patterns
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json
from orch23.model.features import EXPLORE, load_feature
from orch23.model.llm import Exchange, Request
from orch23.providers.recordings import RecordingProvider
from orch23.resolve.prompt_inputs import AttemptContext, Exploration
from orch23.resolve.resolution import ResolvedStage, VisibleFiles

if TYPE_CHECKING:
    from orch23.steps.llm.spec import LLMStep


class FirstCall(Struct, frozen=True, kw_only=True):
    """The first request of a stage without a recorded response, else the last one.

    `found` are all recorded responses that its first attempt would use, `missing` is the request without one.
    `problems` forbid the request. `explores` says what the model may look at.
    """

    request: Request
    found: tuple[Exchange, ...]
    missing: Request | None
    problems: tuple[Diagnostic, ...]
    explores: str


def first_call_of(
    resolved: ResolvedStage,
    tree: VisibleFiles,
    requests: RequestBuilder,
    opened: "Callable[[], Iterable[tuple[LLMStep, RecordingProvider, Mapping[str, Json]]]]",
) -> FirstCall | None:
    """Return the first call of a stage; None if its prompt cannot be rendered.

    `opened` yields its provider, and its fallbacks, with their parameters. The first one that is recorded is used.

    Raises:
        MissingBytesError: the bytes of a file are lost.
    """
    explored: Exploration | None = None
    if resolved.stage.explore:
        own = own_file_patterns(requests.pipeline)
        explored = load_feature(EXPLORE["begin"])(resolved, tree, requests.pipeline.never_send, requests.secrets, own)

    def calls(exploring: Exploration | None, found: tuple[Exchange, ...]) -> Iterator[FirstCall]:
        given = (*resolved.given, *(explored.inputs if explored else ()))
        for step, recorded, params in opened():
            this = AttemptContext(given=given, model=step.model, exploring=exploring)
            request, problems = requests.build(resolved, step, this, params)
            if request is not None:
                known, missing = find_recorded(recorded, step, request)
                yield FirstCall(
                    request=request,
                    found=(*found, *known),
                    missing=missing,
                    problems=problems,
                    explores=explored.summary if explored else "",
                )

    found: tuple[Exchange, ...] = ()
    while True:
        exploring = explored if explored and explored.may_ask else None
        each = calls(exploring, found)
        call = next(each, None)
        if call is not None and call.missing is not None:
            recorded = (replace(one, request=replace(one.request, fallback=True)) for one in each if not one.problems)
            call = next((one for one in recorded if one.missing is None), call)
        if call is None or call.missing is not None or exploring is None:
            return call
        found = call.found
        exploring.take(found[-1].response, found[-1].fingerprint)
