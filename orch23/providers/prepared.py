"""Hold a step to what asking needs on this machine, at the last moment before it is asked."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from orch23.model.errors import ConfigurationError, ConsentError
from orch23.model.llm import Provider, Request, Response
from orch23.providers.adapter import Asking, Setting
from orch23.providers.consent import needed, not_granted
from orch23.providers.registry import ready


class Prepared(Struct, frozen=True):
    """A provider that is asked only with a key, a library, a program.

    What a build would ask for sure is held to that before its first stage; this is for what shows only later.
    """

    inner: Provider
    setting: Setting
    asking: Asking

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> Response:
        """Answer a request.

        Raises:
            ConfigurationError: something is missing; nothing was reserved or sent.
            ConsentError: the user has not consented to it; likewise.

        """
        step = replace(self.asking.step, model=request.model)
        missing = ready(step, self.setting.environ, self.setting.root)
        if missing:
            raise ConfigurationError(*missing)
        grant = needed(step, self.setting)
        if grant is not None and not self.setting.is_granted(grant):
            raise ConsentError(not_granted(grant, self.setting.trust_command))
        return self.inner.complete(request, deadline_s, on_text)
