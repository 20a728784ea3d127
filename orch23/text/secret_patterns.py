"""Formats of vendors' keys, encodings in which a secret may appear in text, and names of keys with secret values."""

import json
import math
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from orch23.model.patterns import lazy_pattern

_WORDS = "A-Za-z0-9"
_PLACEHOLDER = lazy_pattern(r"example|placeholder|xxxx|your[-_]|\.\.\.|1234567890", re.IGNORECASE)
_MIN_DISTINCT = 8
_KEY_NAME: Final = (
    r"(?:[\w-]*[_-])?"
    r"(?:(?:api|secret|access|auth|private)[_-]?(?:key|token)|key|token|secret|password|passwd|credentials?)"
)
_ASSIGNED: Final = (
    rf"(?i)(?<![\w-])((?!key\b)(?:{_KEY_NAME}\s*:\s+|([\"']){_KEY_NAME}\2\s*:\s*))"
    r"(\"[^\"\n]*\"?|'[^'\n]*'?|(?!\$\{\{)[^\s,{}\[\]#\"'](?:[^\s,}]|[^\S\n]++(?!#))*+)"
)


class KeyFormat(Struct, frozen=True):
    """One format: its name, the text that each such key starts with, and the pattern of the whole key.

    The pattern is compiled only if a text contains the head, which is rare.
    """

    name: str
    head: str
    pattern: str

    def may_match(self, text: str) -> bool:
        """Return whether such a key may be in one of the texts that are joined here, with NUL between them."""
        return self.head in text and (self.pattern is _PEM or any(True for _ in self.find(text)))

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the places of such keys in a text."""
        if self.head not in text:
            return
        for match in re.finditer(self.pattern, text):
            if _is_random(match[0][len(self.head) :]):
                yield match.span()


def _is_random(text: str) -> bool:
    """Return whether the part after the head is random, not words or a placeholder."""
    letters = [char for char in text if char.isalnum()]
    mixed = any(char.isdigit() for char in letters) or len({char.isupper() for char in letters}) > 1
    return mixed and len(set(letters)) >= _MIN_DISTINCT and _PLACEHOLDER.search(text) is None


def _form(name: str, head: str, rest: str) -> KeyFormat:
    """Return the format of a key without a letter, digit or dash before it.

    The look-behind comes after the head, so that `re` can search for the literal head first.
    """
    literal = head.replace(".", r"\.")  # the one special character in a head; `re.escape` takes longer
    return KeyFormat(name, head, f"{literal}(?<![{_WORDS}_-]{literal}){rest}(?![{_WORDS}])")


_BODY = f"[{_WORDS}_-]"
_PEM = (
    r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\\{1,4}[nr]|\s)*+"
    r"(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash)[^\n]{0,200}+\n\s*+)*+"
    r"(?:[A-Za-z0-9+/=]{40,}+(?:\\{1,4}[nr]|\s)*+)++[A-Za-z0-9+/=]*+"
    r"(?:(?:\\{1,4}[nr]|\s)*+-----END [A-Z0-9 ]{1,60}-----)?"
)

KEY_FORMATS: tuple[KeyFormat, ...] = (
    _form("Anthropic key", "sk-ant-", f"{_BODY}{{20,}}+"),
    _form("OpenRouter key", "sk-or-v1-", r"[0-9a-f]{32,}+"),
    _form("OpenAI key", "sk-", rf"(?!ant-|or-)(?:(?:proj|svcacct|admin|None)-{_BODY}{{20,}}+|[{_WORDS}]{{32,}}+)"),
    *(_form("GitHub token", f"gh{kind}_", f"[{_WORDS}]{{36,}}+") for kind in "pousr"),
    _form("GitHub token", "github_pat_", f"[{_WORDS}_]{{22,}}+"),
    *(_form("GitLab token", f"gl{kind}-", f"{_BODY}{{20,}}+") for kind in ("pat", "dt", "rt", "ptt", "soat", "agent")),
    *(_form("Slack token", f"xox{kind}-", f"[{_WORDS}-]{{20,}}+") for kind in "abeoprs"),
    _form("Slack token", "xapp-", f"[{_WORDS}-]{{30,}}+"),
    *(_form("AWS access key", head, r"[A-Z0-9]{16}") for head in ("AKIA", "ASIA")),
    _form("Google key", "AIza", f"{_BODY}{{35}}"),
    _form("Google token", "ya29.", f"{_BODY}{{30,}}+"),
    _form("Hugging Face token", "hf_", f"[{_WORDS}]{{30,}}+"),
    _form("npm token", "npm_", f"[{_WORDS}]{{36}}"),
    _form("PyPI token", "pypi-", f"AgEIcHlwaS5vcmc{_BODY}{{50,}}+"),
    *(_form("Stripe key", head, f"[{_WORDS}]{{24,}}+") for head in ("sk_live_", "rk_live_", "sk_test_", "rk_test_")),
    _form("Stripe secret", "whsec_", f"[{_WORDS}+/=]{{24,}}+"),
    _form("SendGrid key", "SG.", rf"{_BODY}{{16,32}}\.{_BODY}{{32,64}}"),
    _form("DigitalOcean token", "dop_v1_", r"[0-9a-f]{64}"),
    *(_form("Shopify token", f"shp{kind}_", r"[0-9a-fA-F]{32}") for kind in ("at", "ca", "pa", "ss")),
    _form("Docker token", "dckr_pat_", f"{_BODY}{{20,}}+"),
    _form("Groq key", "gsk_", f"[{_WORDS}]{{40,}}+"),
    _form("xAI key", "xai-", f"[{_WORDS}]{{60,}}+"),
    _form("Perplexity key", "pplx-", f"[{_WORDS}]{{40,}}+"),
    _form("Replicate token", "r8_", f"[{_WORDS}]{{37}}"),
    _form("NVIDIA key", "nvapi-", f"{_BODY}{{50,}}+"),
    _form("Linear key", "lin_api_", f"[{_WORDS}]{{40}}"),
    _form("Databricks token", "dapi", r"[0-9a-f]{32}"),
    _form("age key", "AGE-SECRET-KEY-1", r"[0-9A-Z]{58}"),
    KeyFormat("private key", "-----BEGIN ", _PEM),
)
# Heads with one of these parts are searched for only in texts with the part.
_COMMON_PARTS = ("sk-", "gh", "gl", "xox", "shp", "k_live_", "k_test_")


# This search runs for every event, and looks up no attributes. Two formats may have the same head. A search for one
# character takes a tenth of the time of one for a part, and most heads have a sign that many texts do not have.
_BY_PART: dict[tuple[str, str], list[tuple[str, KeyFormat]]] = {}
for _one in KEY_FORMATS:
    _part = next((part for part in _COMMON_PARTS if part in _one.head), _one.head)
    _sign = "_" if "_" in _one.head else "-" if "-" in _one.head else "." if "." in _one.head else ""
    _BY_PART.setdefault((_sign, _part), []).append((_one.head, _one))


def formats_in(text: str) -> list[KeyFormat]:
    """Return the formats whose heads are in a text. There are few, and most texts have none."""
    found, signs = list[KeyFormat](), ["", *filter(text.__contains__, "_-.")]
    for (sign, part), forms in _BY_PART.items():
        if sign in signs and part in text:
            found += [form for head, form in forms if head in text]
    return found


_BITS, _SIX = 8, 6
_UNRESERVED = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-~")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
_URL_SAFE = str.maketrans("+/", "-_")


def encodings_of(value: str) -> tuple[str, ...]:
    """Return every spelling of a value, each once; of base64 the part that does not depend on other bytes."""
    data = value.encode("utf-8", "surrogateescape")
    found = (value, *_escaped(value), *_percent(data), *_numbered(value, data), *_base64(data))
    return tuple(dict.fromkeys(one for one in found if one))


def _escaped(value: str) -> Iterator[str]:
    """Yield the value as written in JSON, in JSON inside JSON, in Python and in HTML."""
    for ascii_only in (True, False):
        once = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        yield from (once, once.replace("/", "\\/"), json.dumps(once, ensure_ascii=ascii_only)[1:-1])
    yield from (repr(value)[1:-1], value.translate(_HTML))


def _percent(data: bytes) -> Iterator[str]:
    """Yield the value as written in a URL: minimal escapes, slashes kept, `+` for spaces, or all bytes escaped."""
    for kept in (_UNRESERVED, _UNRESERVED | frozenset(b"/"), frozenset[int]()):
        for digits in ("02X", "02x"):
            text = "".join(chr(byte) if byte in kept else f"%{byte:{digits}}" for byte in data)
            yield from (text, text.replace("%20", "+"))


def _numbered(value: str, data: bytes) -> Iterator[str]:
    """Yield the value as the hexadecimal numbers of its UTF-16 units or its bytes."""
    wide = value.encode("utf-16-be", "surrogatepass")
    units = [wide[at : at + 2].hex() for at in range(0, len(wide), 2)]
    for pairs in (units, [unit.upper() for unit in units]):
        yield from ("".join(f"{lead}u{pair}" for pair in pairs) for lead in ("\\", "\\\\"))
    for text in (data.hex(), data.hex(":"), data.hex(" "), data.hex("-")):
        yield from (text, text.upper())
    for lead in ("\\", "\\\\"):
        yield from ("".join(f"{lead}x{byte:{digits}}" for byte in data) for digits in ("02x", "02X"))


def _base64(data: bytes) -> Iterator[str]:
    """Yield base64 in both alphabets, for the three offsets of the value in the encoded bytes."""
    import binascii  # noqa: PLC0415 - few builds have secrets

    for shift in range(3):
        whole = binascii.b2a_base64(bytes(shift) + data, newline=False).decode("ascii")
        first, last = math.ceil(shift * _BITS / _SIX), (shift + len(data)) * _BITS // _SIX
        yield from (whole[first:last], whole[first:last].translate(_URL_SAFE))


def is_secret_key(key: str) -> bool:
    """Return whether a key that the language does not have is named as one with a secret value."""
    return re.fullmatch(_KEY_NAME, key, re.IGNORECASE) is not None


def mask_secrets(text: str) -> str:
    """Return a YAML text with `*` for each character of a value whose key is named like a secret.

    The key `key` alone, which the language has, and expressions stay.
    """
    return re.sub(_ASSIGNED, lambda found: found[1] + "*" * len(found[3]), text)
