"""Hold the calls of a build that may not call models."""

from collections.abc import Callable
from typing import NoReturn

from msgspec import Struct

from orch23.model.errors import AwaitsResponseError
from orch23.model.llm import Request


class HoldingProvider(Struct, frozen=True):
    """A provider in a build that may not call models: the stage waits."""

    def complete(self, request: Request, deadline_s: float, on_text: Callable[[str], None]) -> NoReturn:
        """Refuse a request.

        Raises:
            AwaitsResponseError: always.

        """
        del request, deadline_s, on_text
        raise AwaitsResponseError
