"""Names of keys whose values are secret, such as `api_key` and `password`."""

import re
from typing import Final

_NAME: Final = (
    r"(?:[\w-]*[_-])?"
    r"(?:(?:api|secret|access|auth|private)[_-]?(?:key|token)|key|token|secret|password|passwd|credentials?)"
)
_ASSIGNED: Final = (
    rf"(?i)(?<![\w-])((?!key\b)(?:{_NAME}\s*:\s+|([\"']){_NAME}\2\s*:\s*))"
    r"(\"[^\"\n]*\"?|'[^'\n]*'?|(?!\$\{\{)[^\s,{}\[\]#\"'](?:[^\s,}]|[^\S\n]++(?!#))*+)"
)


def is_secret_name(key: str) -> bool:
    """Return whether a key that the language does not have is named as one with a secret value."""
    return re.fullmatch(_NAME, key, re.IGNORECASE) is not None


def mask_secrets(text: str) -> str:
    """Return a YAML text with `*` for each character of a value whose key is named like a secret.

    The key `key` alone, which the language has, and expressions stay.
    """
    return re.sub(_ASSIGNED, lambda found: found[1] + "*" * len(found[3]), text)
