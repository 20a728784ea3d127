"""What stands for a value that is not known yet, among the names of an expression."""

from typing import Final, TypeAlias

from orch23.model.digest import Json

# A noncharacter: it survives upper, lower and trim, and no file of a project may hold it.
MARK: Final = "\ufdd0"


class Wild:
    """What stands for an item that is not known yet: whatever is taken from it is as unknown."""

    __slots__ = ()

    def __str__(self) -> str:
        """Give the mark that `wild_patterns` looks for."""
        return MARK

    __html__ = __str__


WILD: Final = Wild()

# Names may hold the placeholder of an unknown item beside plain values.
Value: TypeAlias = "Json | Wild"
