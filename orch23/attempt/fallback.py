"""Call the entries of `llm.fallback` if the provider of a stage is down."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.attempt.conversation import CallListener, CallResult, RecordedConversation
from orch23.model.diagnostic import Diagnostic
from orch23.model.errors import ConfigurationError, ConsentError, ProviderError
from orch23.model.event import Event, Warned
from orch23.model.llm import Request
from orch23.providers.retries import OUTAGES, FallbackSetting

_TIMED_OUT, _NOT_RECORDED, _OFFLINE = "E402", "E403", "E423"
_FORBIDDEN = frozenset({_NOT_RECORDED, _OFFLINE})


class FallbackConversation(RecordedConversation, Struct, frozen=True, kw_only=True):
    """The conversation of an attempt that has fallbacks.

    `others` are those of the fallbacks, and `build` returns the request of one; None if it must not be sent.
    """

    others: Sequence[RecordedConversation]
    build: Callable[[RecordedConversation], Request | None]
    setting: FallbackSetting
    _requests: dict[int, Request | None] = field(default_factory=dict)

    def next_sample(self, request: Request) -> Request:
        """Return the first of the requests that is recorded: of the provider, then of each fallback.

        If none is, return the request to the provider. The requests before the returned one count as used: a replay
        makes the same choice.
        """
        chosen = RecordedConversation.next_sample(self, request)
        if not self.is_recorded(chosen):
            for conversation, other in self._fallbacks():
                if conversation.is_recorded(other):
                    return other
        return chosen

    def complete(self, request: Request, deadline_s: float, listener: CallListener) -> CallResult:
        """Get the response of the provider, or of the first fallback that has one if the provider is down.

        Raises:
            ProviderError: there is no response, or a call is forbidden and nothing is recorded.
            LimitError: a limit of the run or the stage is reached.
        """
        failed: list[Diagnostic] = []
        skipped: list[str] = []
        is_forbidden = False
        for conversation, candidate in self._in_order(request):
            # Without permission to call, only recorded responses of the fallbacks are of use.
            if is_forbidden and not conversation.is_recorded(candidate):
                continue
            conversation.skipped.extend(skipped)
            skipped.clear()
            if failed:
                self._report(failed[-1], candidate)
            try:
                found = RecordedConversation.complete(conversation, candidate, deadline_s, listener)
            except (ProviderError, ConfigurationError, ConsentError) as error:
                codes = {one.code for one in error.diagnostics}
                is_outage = isinstance(error, ProviderError) and codes <= OUTAGES
                is_forbidden = is_forbidden or bool(codes & _FORBIDDEN)
                # An error of the request, the key or the account needs the user, and not another provider.
                if not (is_outage or is_forbidden or candidate.fallback):
                    raise
                if is_outage and _TIMED_OUT not in codes:
                    self.setting.outages.begin(candidate)
                failed.extend(one for one in error.diagnostics if one not in failed)
                skipped.extend(conversation.skipped)
                conversation.skipped.clear()
            else:
                if not found.response.replayed:
                    self.setting.outages.end(candidate)
                return found
        # A call that took too long is a failed attempt, which `retry` may repeat: also if no fallback can be called.
        too_long = [one for one in failed if one.code == _TIMED_OUT]
        raise ProviderError(*(too_long if failed[0].code == _TIMED_OUT else failed))

    def _in_order(self, request: Request) -> Iterator[tuple[RecordedConversation, Request]]:
        """Yield the conversations to try; the provider last while it is known to be down."""
        first = (self, request)
        if request.fallback:
            # It is recorded. Those after it are tried if it was truncated and more tokens are not recorded.
            yield from (one for one in self._fallbacks() if self._number(one[1]) >= self._number(request))
            return
        is_late = self.setting.is_usable and not self.is_recorded(request) and self.setting.outages.is_down(request)
        yield from () if is_late else (first,)
        yield from self._fallbacks()
        yield from (first,) if is_late else ()

    def _fallbacks(self) -> Iterator[tuple[RecordedConversation, Request]]:
        for number, conversation in enumerate(self.others):
            if number not in self._requests:
                built = self.build(conversation)
                request = None if built is None else conversation.next_sample(replace(built, fallback=True))
                self._requests[number] = request
            request = self._requests[number]
            if request is not None:
                yield conversation, request

    def _number(self, request: Request) -> int:
        return next(number for number, one in self._requests.items() if one is not None and one == request)

    def _report(self, error: Diagnostic, candidate: Request) -> None:
        what = "the fallback " if candidate.fallback else ""
        text = f"{error.message}; calls {what}{candidate.provider} {candidate.model}"
        self.setting.notice(Event(Warned(code="W425"), text, self.call.stage, "warning"))
