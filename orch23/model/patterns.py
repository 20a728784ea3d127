"""Regular expressions that are compiled when they are first used."""

import re
from typing import Any, AnyStr, Generic, cast


class _LazyPattern(Generic[AnyStr]):
    """Has the attributes of a pattern, and compiles it for the first of them."""

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        # From now on the method is found without this function.
        setattr(self, name, found)
        return found


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern like `re.compile`, without the time to compile it: most commands use few of the patterns."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))
