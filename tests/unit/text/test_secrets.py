"""What counts as a secret, in which spellings it is found, and that nothing of it is left."""

import base64
import html
import json
import re
import string
import time
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.text import secret_patterns
from orch23.text.secret_patterns import KEY_FORMATS, formats_in
from orch23.text.secrets import SecretFinding, Secrets, is_secret_name, redaction_mark, secrets_from

VALUE = 'c4nary/+Value?&"k\\9 \u00e4-3f8'
LONG = "".join(f"{number:02x}Zq" for number in range(40))

SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda value: value,
    "json": lambda value: json.dumps({"error": value}),
    "json, unescaped": lambda value: json.dumps([value], ensure_ascii=False),
    "json in json": lambda value: json.dumps(json.dumps(value)),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 after one byte": lambda value: base64.b64encode(b":" + value.encode()).decode(),
    "base64 after two bytes": lambda value: base64.b64encode(b"u:" + value.encode() + b"\n").decode(),
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    "base64 in lines": lambda value: base64.encodebytes(b"x" * 50 + value.encode()).decode(),
    "base64 in lines with \\r": lambda value: (
        base64.encodebytes(b"x" * 50 + value.encode()).replace(b"\n", b"\r\n").decode()
    ),
    "hex": lambda value: value.encode().hex(),
    "hex in capitals": lambda value: value.encode().hex().upper(),
    "hex with colons": lambda value: value.encode().hex(":"),
    "hex in lines": lambda value: "\n".join(_cut((b"--" * 9 + value.encode()).hex(), 60)),
    "percent": lambda value: urllib.parse.quote(value, safe=""),
    "percent, with slashes": lambda value: "https://h/?k=" + urllib.parse.quote(value),
    "form": lambda value: urllib.parse.urlencode({"key": value}),
    "percent, all of it": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()),
    "unicode escapes": lambda value: "".join(f"\\u{unit}" for unit in _units(value)),
    "unicode escapes in capitals": lambda value: "".join(f"\\u{unit.upper()}" for unit in _units(value)),
    "byte escapes": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()),
    "python": repr,
    "html": html.escape,
}


def _units(value: str) -> list[str]:
    return _cut(value.encode("utf-16-be").hex(), 4)


def _cut(text: str, width: int) -> list[str]:
    return [text[at : at + width] for at in range(0, len(text), width)]


def leaks(text: str, value: str) -> list[str]:
    """Return how a value can still be read out of a text: each ten characters of each spelling."""
    flat = text.replace("\n", "")
    windows = {name: spell(value).replace("\n", "") for name, spell in SPELLINGS.items() if "in lines" not in name}
    return [
        name
        for name, spelled in windows.items()
        if any(spelled[at : at + 24] in flat for at in range(max(1, len(spelled) - 24)))
    ]


@pytest.mark.parametrize(
    "value", [VALUE, LONG, LONG[:9], "\u00fcber\U0001f511gehei\u00df"], ids=["odd", "long", "short", "wide"]
)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_is_found_and_taken_out_in_every_spelling(spelling: str, value: str) -> None:
    secrets = Secrets({"MY_KEY": value})
    text = f"line one\nbefore {SPELLINGS[spelling](value)} after"
    assert [finding.name for finding in secrets.find(text)] == ["MY_KEY"]
    plain = secrets.redact(text)
    assert "[redacted MY_KEY]" in plain
    assert plain.startswith("line one\nbefore ")
    assert plain.endswith(" after")
    assert leaks(plain, value) == []


@pytest.mark.parametrize(
    ("name", "it_is"),
    [
        *((name, True) for name in ("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD")),
        *((name, True) for name in ("APP_SECRET", "CLIENT_SECRET_2", "AWS_CREDENTIALS", "openai_api_key", "SMTP_PASS")),
        *((name, True) for name in ("AWS_ACCESS_KEY_ID", "VAULT_PASSPHRASE", "MY.SECRET", "KEY", "PASSWD", "API_KEYS")),
        *((name, False) for name in ("KEYBOARD_LAYOUT", "SSH_AUTH_SOCK", "MAX_TOKENS", "TOKENIZERS_PARALLELISM")),
        *(
            (name, False)
            for name in ("PWD", "OLDPWD", "KEYRING_BACKEND", "MONKEY", "SSL_KEY_FILE", "TOKEN_URL", "PATH")
        ),
        *((name, False) for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "SECRETARY", "COMPASS", "KEY_TYPE", "")),
    ],
)
def test_the_name_of_a_variable_decides_whether_it_has_a_secret(name: str, it_is: bool) -> None:
    assert is_secret_name(name) is it_is
    assert (name in secrets_from({name: "v3ry-long-value-8"}).values) is it_is


@pytest.mark.parametrize(
    "value",
    [
        *("", "short1", "password", "Postgres", "changeme!", "xxxxxxxxxxxx", "aaaabbbb", "12345678", "not-needed"),
        *("/etc/ssl/private/site.key", "~/.ssh/id_rsa", "./keys/mine", "/run/secrets/db_password", "/tmp/x/y/"),
    ],
)
def test_a_value_that_any_text_may_hold_is_no_secret(value: str) -> None:
    assert dict(secrets_from({"MY_KEY": value}).values) == {}


@pytest.mark.parametrize(
    "value", ["hunter2hunter", "correct horse battery", "/AbCd+1234/efgh", "Tr0ub4dor", "98213409"]
)
def test_a_value_of_its_own_is_one(value: str) -> None:
    assert dict(secrets_from({"MY_KEY": f" {value}\n"}).values) == {"MY_KEY": value}


def test_the_password_in_a_url_is_a_secret_whatever_it_is_called() -> None:
    secrets = secrets_from({"DATABASE_URL": "postgres://bob:s3cr3tpw99@db:5432/app", "HOMEPAGE": "https://h/"})
    assert dict(secrets.values) == {"DATABASE_URL": "s3cr3tpw99"}


def test_of_a_secret_of_several_lines_a_single_one_is_taken_out_too() -> None:
    secrets = secrets_from({"DEPLOY_KEY": "-----BEGIN X-----\nMIIEowIBAAKCAQ\n7fj3Ldk9Qw8ePz0a1s2d\n-----END X-----"})
    assert secrets.redact("it said 7fj3Ldk9Qw8ePz0a1s2d.") == "it said [redacted DEPLOY_KEY]."
    assert secrets.redact("-----END X----- MIIEowIBA") == "-----END X----- MIIEowIBA"


_RANDOM = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0eF3hI6kL9nO2qR5tU8wX1zA4"

KEYS = {
    "Anthropic key": f"sk-ant-api03-{_RANDOM}-{_RANDOM}AA",
    "OpenAI key": f"sk-proj-{_RANDOM}",
    "OpenRouter key": "sk-or-v1-" + "0f1e2d3c4b5a69788796a5b4c3d2e1f0" * 2,
    "GitHub token": f"ghp_{_RANDOM[:36]}",
    "GitLab token": f"glpat-{_RANDOM[:20]}",
    "Slack token": "xoxb-210987654321-9876501234567-" + _RANDOM[:24],
    "AWS access key": "AKIA" + "Q3EGT7ZLM5WX2YBN",
    "Google key": f"AIza{_RANDOM[:35]}",
    "Hugging Face token": f"hf_{_RANDOM[:34]}",
    "npm token": f"npm_{_RANDOM[:36]}",
    "PyPI token": f"pypi-AgEIcHlwaS5vcmc{_RANDOM}",
    "Stripe key": f"sk_live_{_RANDOM[:24]}",
    "SendGrid key": f"SG.{_RANDOM[:22]}.{_RANDOM[:43]}",
    "DigitalOcean token": "dop_v1_" + "0f1e2d3c4b5a69788796a5b4c3d2e1f0" * 2,
    "Groq key": f"gsk_{_RANDOM[:52]}",
    "age key": "AGE-SECRET-KEY-1" + "Q3EGT7ZLM5WX2YBNQ3EGT7ZLM5WX2YBNQ3EGT7ZLM5WX2YBNQ3EGT7ZLM5",
}


@pytest.mark.parametrize("name", KEYS)
def test_the_format_of_a_vendors_key_is_found_in_any_text(name: str) -> None:
    for text in (f"export K={KEYS[name]}", f'"{KEYS[name]}",', f"({KEYS[name]})\n"):
        assert Secrets().find(f"one\n{text}") == (SecretFinding(name, 2),)
        assert Secrets().redact(text) == text.replace(KEYS[name], redaction_mark(name))


def test_every_format_is_searched_where_its_head_is() -> None:
    assert formats_in("\n".join(form.head for form in KEY_FORMATS)) == list(KEY_FORMATS)
    for form in KEY_FORMATS:
        assert form in formats_in(f"said {form.head}x")
        assert form not in formats_in(f"said {form.head[:-1]}\n")


@pytest.mark.parametrize("name", KEYS)
def test_a_key_alone_on_its_line_is_found(name: str) -> None:
    key, mark = KEYS[name], redaction_mark(name)
    for text in (f"name\n{key}\nother\n", f"{key}\n{key}\n{key}", f"a\r\n  {key}\r\nb"):
        assert Secrets().may_contain([text])
        assert {finding.name for finding in Secrets().find(text)} == {name}
        plain = Secrets().redact(text)
        assert mark in plain
        assert key[len(key) // 2 :] not in plain
        assert Secrets().redact(plain) == plain
    assert Secrets().find(f"name\n{key}\nother\n") == (SecretFinding(name, 2),)


def _found_by_patterns(text: str) -> list[tuple[int, int, str]]:
    """Search for every format, also where its head is not in the text."""
    return sorted(
        (*match.span(), form.name)
        for form in KEY_FORMATS
        for match in re.finditer(form.pattern, text)
        if secret_patterns._is_random(match[0][len(form.head) :])
    )


_HEADS = st.sampled_from([form.head for form in KEY_FORMATS])
_BODIES = st.sampled_from([_RANDOM, _RANDOM[:36], _RANDOM.lower(), _RANDOM.upper(), "0f1e2d3c4b5a6978" * 4])
_KEY_PIECES = st.one_of(
    st.builds("".join, st.tuples(_HEADS, _BODIES)),
    st.builds("".join, st.tuples(_HEADS.map(str.swapcase), _BODIES)),
    st.sampled_from(sorted(KEYS.values())),
    _HEADS,
    _BODIES,
    st.sampled_from(["\n", " ", "-", "_", "x", "\\n", '"', "PRIVATE KEY-----", "MIIEowIBAA" * 5]),
)


@given(st.lists(_KEY_PIECES, max_size=6).map("".join))
def test_no_key_is_missed_since_its_head_is_searched_first(text: str) -> None:
    found = sorted((*span, form.name) for form in formats_in(text) for span in form.find(text))
    assert found == _found_by_patterns(text)
    assert Secrets().may_contain([text]) or not found
    plain = Secrets().redact(text)
    assert _found_by_patterns(plain) == []
    assert Secrets().redact(plain) == plain


def test_a_private_key_is_taken_out_whole_also_with_its_lines_escaped() -> None:
    body = "\n".join(_cut((_RANDOM * 6)[:250], 64))
    text = f"a\n-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\nb\n"
    assert Secrets().redact(text) == "a\n[redacted private key]\nb\n"
    assert Secrets().redact(json.dumps({"k": text})) == '{"k": "a\\n[redacted private key]\\nb\\n"}'
    assert Secrets().find(text) == (SecretFinding("private key", 2),)


@pytest.mark.parametrize(
    "prose",
    [
        "Put your key (sk-ant-..., or ghp_...) into ANTHROPIC_API_KEY; never commit it.",
        "sk-ant-api03-your-key-goes-here-and-nowhere-else-at-all, sk-ant-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "the task-based risk-adjusted desk-top sk-learn-like-estimators-and-their-friends-in-python",
        "AKIAIOSFODNN7EXAMPLE is what the documentation writes",
        "It begins with -----BEGIN PRIVATE KEY----- and ends with -----END PRIVATE KEY-----, on lines of their own.",
        "npm_config_registry hf_hub_download_with_a_rather_long_name github_pat_ is a prefix",
        "glpat-<your token>, xoxb-your-token-goes-in-this-place-please, AIza is the head of a Google key",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "monkeysk-ant-" + _RANDOM,
    ],
)
def test_prose_is_left_alone(prose: str) -> None:
    assert Secrets().find(prose) == ()
    assert Secrets().redact(prose) == prose


def test_a_finding_has_the_line_and_no_value() -> None:
    secrets = Secrets({"A_TOKEN": LONG, "B_TOKEN": "zz-9-second"})
    found = secrets.find(f"x\n{LONG} zz-9-second\n\n{LONG} {LONG}\n")
    assert found == (SecretFinding("A_TOKEN", 2), SecretFinding("B_TOKEN", 2), SecretFinding("A_TOKEN", 4))
    assert LONG not in repr(found) + repr(secrets)


def test_a_line_is_counted_by_the_text_as_it_is_although_broken_words_are_read_over() -> None:
    secrets = Secrets({"A_TOKEN": LONG})
    wrapped = base64.encodebytes(LONG.encode()).decode()
    assert secrets.find(f"a\nb\nc\n\n{wrapped}d\n{LONG}\n") == (
        SecretFinding("A_TOKEN", 5),
        SecretFinding("A_TOKEN", 9),
    )


def test_where_secrets_overlap_nothing_is_left_of_either() -> None:
    secrets = Secrets({"A_KEY": "abcd-1234-efgh", "B_KEY": "1234-efgh-5678", "C_KEY": "4-efgh-5"})
    assert secrets.redact("x abcd-1234-efgh-5678 y") == "x [redacted A_KEY] y"


def test_a_mark_is_no_place_to_hide_in_and_a_name_is_no_secret() -> None:
    secrets = Secrets({"A_KEY": "abcd-1234-efgh", "B_KEY": "redacted A_KEY", 'ODD"\nKEY': "odd-odd-9"})
    assert secrets.redact("[redacted abcd-1234-efgh]") == "[redacted [redacted A_KEY]]"
    assert secrets.redact("[redacted A_KEY]") == "[redacted A_KEY]"
    assert json.loads(secrets.redact(json.dumps("odd-odd-9"))) == "[redacted ODD??KEY]"


_ALPHABET = st.sampled_from("ab1-[] \n%=K+/\\redacted")
_VALUES = st.text(_ALPHABET, min_size=8, max_size=14).filter(lambda value: len(set(value)) > 3)


@given(st.lists(_VALUES, min_size=1, max_size=3), st.data())
def test_taking_out_twice_is_taking_out_once_and_leaves_nothing(values: list[str], data: st.DataObject) -> None:
    secrets = Secrets({f"V{number}_KEY": value for number, value in enumerate(values)})
    pieces = st.one_of(st.sampled_from(values), st.text(_ALPHABET, max_size=6), st.just("[redacted V0_KEY]"))
    text = "".join(data.draw(st.lists(pieces, max_size=8)))
    once = secrets.redact(text)
    assert secrets.redact(once) == once
    assert secrets.find(once) == ()


@given(st.text(string.ascii_letters + string.digits + "+/=_-\n \\%", max_size=200))
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert Secrets({"A_KEY": "\u00e4bcd\u00e9fgh"}).redact(text) == text


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(
    ("before", "after"), [("...", "..."), ("\u2026", "\u2026"), ("...\n", "\n..."), ("...\\n", "\\n...")]
)
def test_what_a_marked_cut_has_left_of_a_secret_is_taken_out_too(spelling: str, before: str, after: str) -> None:
    secrets = Secrets({"MY_KEY": LONG})
    if "in lines" in spelling:
        return
    spelled = SPELLINGS[spelling](LONG)
    middle = len(spelled) // 2
    for text in (f"said {spelled[:middle]}{after} more", f"more {before}{spelled[middle:]} said"):
        plain = secrets.redact(text)
        assert "[redacted MY_KEY]" in plain
        assert leaks(plain, LONG) == []
        assert secrets.redact(plain) == plain


def test_the_head_of_a_vendors_keys_before_dots_is_prose() -> None:
    key = f"sk-ant-api03-{_RANDOM}"
    secrets = Secrets({"ANTHROPIC_API_KEY": key})
    assert secrets.find("set it to sk-ant-api03-..., or abcdefgh...") == ()
    assert secrets.redact(f"is `{key[:20]}...`") == "is `[redacted ANTHROPIC_API_KEY]...`"


@pytest.mark.stride(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "lorem ipsum task-based dolor, 0123456789abcdef\n" * 200_000,
        "sk-ant-" * 1_400_000,
        "ghp_" + "a" * 10_000_000,
        "-----BEGIN PRIVATE KEY-----" * 370_000,
        "QUJD" * 2_500_000,
        "\n" + " " * 10_000_000,
        f"{LONG[:-1]} " * 60_000,
        f"{LONG[:9]}...{LONG[-9:]} " * 400_000,
    ],
    ids=["prose", "heads", "one word", "begins", "base64", "blanks", "nearly", "cuts"],
)
def test_ten_megabytes_take_seconds_and_not_minutes(text: str) -> None:
    secrets = Secrets({"A_KEY": LONG, "B_KEY": VALUE, "C_TOKEN": "third-value-3"})
    began = time.process_time()
    secrets.redact(text)
    assert time.process_time() - began < 20


_KEYS = (
    "sk-ant-api03-Ab1Cd2Ef3Gh4Ij5Kl6Mn7",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "task-1",
    "sk-",
    "...",
    "\u2026",
)
_PIECES = st.one_of(st.sampled_from(_KEYS), st.text(_ALPHABET, max_size=6))


@given(st.lists(_VALUES, max_size=2), st.data())
def test_where_no_text_of_some_is_suspected_none_of_them_is_changed(values: list[str], data: st.DataObject) -> None:
    secrets = Secrets({f"V{number}_KEY": value for number, value in enumerate(values)})
    pieces = st.one_of(_PIECES, st.sampled_from([*values, *(value[:8] for value in values), "x"]))
    texts = data.draw(st.lists(st.lists(pieces, max_size=5).map("".join), max_size=4))
    assert secrets.may_contain(texts) or [secrets.redact(text) for text in texts] == texts


def test_names_that_only_begin_like_a_key_are_not_suspected() -> None:
    assert not Secrets({"A_KEY": "abcd-1234-efgh"}).may_contain(["task-1", "built", "out/task-1.txt"])
    assert Secrets({"A_KEY": "abcd-1234-efgh"}).may_contain(["task-1", "said abcd-1234-efgh"])
    assert Secrets({"A_KEY": LONG}).may_contain(["built", f"said {LONG[:12]}... more"]), "the rest of one that was cut"
