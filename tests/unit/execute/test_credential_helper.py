"""Credential helpers: the protocol of Bazel, for the server that the user named; nothing that they print is shown."""

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.execute.credential_helper import CredentialHelper, Credentials, _Reply, credential_helper
from orch23.model.errors import ConfigurationError
from orch23.model.shared_cache import HELPER_VARIABLE
from tests.environments import executable

URL = "https://cache.example.org/team"
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
SECRET = "s3cr3t-value"
TOKEN = {"headers": {"Authorization": [f"Bearer {SECRET}"]}}


class Helper:
    """A helper of the user: a shell script that notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = NOW
        self.calls = folder / "calls"
        self.program = folder / "helper"

    def prints(self, reply: object, *, before: str = "", after: str = "") -> "Helper":
        text = reply if isinstance(reply, str) else json.dumps(reply)
        (self.folder / "reply").write_text(text)
        script = f'#!/bin/sh\necho "$@" >> {self.calls}\n{before}\ncat {self.folder}/reply\n{after}\n'
        executable(self.program, script.encode())
        return self

    @property
    def number(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    def made(self, timeout_s: float = 20.0, url: str = URL) -> CredentialHelper:
        environ = {"PATH": os.environ["PATH"], "MARK": "of the user"}
        return CredentialHelper(
            url=url, program=self.program, environ=environ, now=lambda: self.time, timeout_s=timeout_s
        )


@pytest.fixture
def helper(tmp_path: Path) -> Helper:
    return Helper(tmp_path).prints(TOKEN)


def fault(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigurationError) as error:
        call()
    (found,) = error.value.diagnostics
    assert found.code == "E733"
    assert found.hint
    text = "".join(map(str, (error.value, error.value.__cause__, found)))
    assert SECRET not in text
    return found.message


# ---- the protocol -----------------------------------------------------------------------------------


def test_the_helper_reads_the_address_and_prints_headers(helper: Helper) -> None:
    helper.prints(TOKEN, before=f"cat > {helper.folder}/request; echo $MARK $PWD > {helper.folder}/seen")
    assert helper.made().headers_for(f"{URL}/cas/ab") == (("Authorization", f"Bearer {SECRET}"),)
    assert json.loads((helper.folder / "request").read_text()) == {"uri": URL}
    assert helper.calls.read_text() == "get\n"
    assert (helper.folder / "seen").read_text() == "of the user /\n"


@pytest.mark.parametrize(
    ("reply", "headers"),
    [
        ({}, ()),
        ({"headers": {}}, ()),
        ({"headers": {"a": []}}, ()),
        ({"headers": {"X-A": ["1", "2"], "x-b": [""]}}, (("X-A", "1"), ("X-A", "2"), ("x-b", ""))),
        ({"headers": {"a": ["b c\td"]}, "more": [1]}, (("a", "b c\td"),)),
    ],
)
def test_every_reply_of_the_protocol_is_understood(helper: Helper, reply, headers) -> None:
    assert helper.prints(reply).made().headers_for(URL) == headers


def test_for_grpc_it_gets_the_address_with_https(helper: Helper, tmp_path: Path) -> None:
    helper.prints(TOKEN, before=f"cat > {helper.folder}/request")
    made = credential_helper("grpcs://build.lan:8980/main", tmp_path / "root", {HELPER_VARIABLE: str(helper.program)})
    assert made is not None
    assert made.headers_for("grpcs://build.lan:8980/main") == (("Authorization", f"Bearer {SECRET}"),)
    assert json.loads((helper.folder / "request").read_text()) == {"uri": "https://build.lan:8980/main"}
    assert made.headers_for("grpcs://other.lan:8980/main") == ()
    assert credential_helper("grpc://cache.example.org", tmp_path, {HELPER_VARIABLE: str(helper.program)}) is None


def test_a_helper_need_not_read_its_input(helper: Helper) -> None:
    assert helper.prints(TOKEN, before="exec <&-").made().headers_for(URL)


def test_what_it_writes_to_stderr_is_no_output(helper: Helper) -> None:
    assert helper.prints(TOKEN, before=f"echo {SECRET} >&2").made().headers_for(URL)


# ---- for which requests -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example.org/team",
        "https://cache.example.org.evil.org/team",
        "https://evil.org/https://cache.example.org/team",
        "https://cache.example.org:8443/team",
        "http://cache.example.org/team",
        "https://cache.example.org@evil.org/",
        "https://me:password@cache.example.org/team",
        "https://[cache.example.org/team",
        "https://cache.example.org:port/team",
        "https://evil.org#https://cache.example.org",
        "//cache.example.org/team",
        "",
        "/srv/cache",
    ],
)
def test_another_server_gets_nothing_and_the_helper_is_not_called(helper: Helper, url: str) -> None:
    assert helper.made().headers_for(url) == ()
    assert helper.number == 0


def test_all_paths_of_the_server_get_them(helper: Helper) -> None:
    made = helper.made()
    for url in (URL, f"{URL}/ac/1", "https://cache.example.org/", "HTTPS://CACHE.example.org:443/x"):
        assert made.headers_for(url)
    assert helper.number == 1


# ---- how long ---------------------------------------------------------------------------------------


def test_they_are_used_until_they_expire(helper: Helper) -> None:
    helper.prints({**TOKEN, "expires": "2026-11-28T13:00:00Z"})
    made = helper.made()
    for minutes, calls in ((0, 1), (59, 1), (60, 2)):
        helper.time = NOW + timedelta(minutes=minutes)
        if minutes == 60:
            helper.prints({**TOKEN, "expires": "2026-11-28T17:00:00+02:00"})
        assert made.headers_for(URL)
        assert helper.number == calls
    helper.time = NOW + timedelta(hours=2, minutes=59, seconds=49)
    assert made.headers_for(URL)
    assert helper.number == 2
    helper.time = NOW + timedelta(hours=2, minutes=59, seconds=51)
    assert made.headers_for(URL)
    assert helper.number == 3, "shortly before their end they are renewed"


def test_without_an_end_they_are_used_for_half_an_hour(helper: Helper) -> None:
    made = helper.made()
    for minutes, calls in ((0, 1), (29, 1), (30, 2)):
        helper.time = NOW + timedelta(minutes=minutes)
        assert made.headers_for(URL)
        assert helper.number == calls


def test_refused_credentials_are_forgotten(helper: Helper) -> None:
    made = helper.made()
    made.headers_for(URL)
    helper.prints({"headers": {"a": ["new"]}})
    made.forget()
    assert made.headers_for(URL) == (("a", "new"),)
    assert helper.number == 2


def test_many_threads_call_it_once(helper: Helper) -> None:
    made, found = helper.made(), []
    threads = [threading.Thread(target=lambda: found.append(made.headers_for(URL))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert helper.number == 1


# ---- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "after", "why"),
    [
        (TOKEN, "exit 3", "exited with status 3"),
        (TOKEN, "kill -9 $$", "exited with status 137"),
        ("", "", "JSON"),
        (f"{SECRET}", "", "JSON"),
        (f'{{"headers": {{"a": ["{SECRET}"]}}', "", "JSON"),
        (f'{{"headers": {{"a": "{SECRET}"}}}}', "", "JSON"),
        (f'{{"headers": ["{SECRET}"]}}', "", "JSON"),
        (f'{{"headers": {{"a": ["{SECRET}"], "a": ["b"]}}}}', "", "JSON"),
        (f'["{SECRET}"]', "", "JSON"),
        ('{"expires": 5}', "", "JSON"),
        ({"expires": SECRET}, "", "`expires`"),
        ({"expires": "2026-11-28T13:00:00"}, "", "`expires`"),
        ({"expires": "2026-11-28T11:59:59Z"}, "", "expired"),
        ({"headers": {"a": [f"b\r\nX: {SECRET}"]}}, "", "header"),
        ({"headers": {"a": ["b\n"]}}, "", "header"),
        ({"headers": {"a": ["\0"]}}, "", "header"),
        ({"headers": {"a": [" b"]}}, "", "header"),
        ({"headers": {"a": ["\u20ac"]}}, "", "header"),
        ({"headers": {"a b": ["c"]}}, "", "header"),
        ({"headers": {"a:": ["c"]}}, "", "header"),
        ({"headers": {"": ["c"]}}, "", "header"),
        ({"headers": {"Host": ["evil.org"]}}, "", "header"),
        ({"headers": {"Content-Length": ["5"]}}, "", "header"),
        ({"headers": {"TRANSFER-encoding": ["chunked"]}}, "", "header"),
        ("x" * 70_000, "", "more than 65536 bytes"),
    ],
)
def test_a_failure_says_why_and_shows_nothing_that_was_printed(helper: Helper, reply, after, why) -> None:
    helper.prints(reply, before=f"echo {SECRET} >&2", after=after)
    assert why in fault(lambda: helper.made().headers_for(URL))


@pytest.mark.slow
def test_a_helper_that_prints_without_end_or_waits_is_killed(helper: Helper) -> None:
    helper.prints("", after="while :; do echo 0123456789012345678901234567890123456789; done")
    assert "more than" in fault(lambda: helper.made().headers_for(URL))
    helper.prints(TOKEN, after="read line < /dev/zero")
    assert "too long" in fault(lambda: helper.made(timeout_s=0.2).headers_for(URL))


def test_a_helper_that_failed_is_not_called_for_each_request(helper: Helper) -> None:
    helper.prints(TOKEN, after="exit 1")
    made = helper.made()
    for _ in range(3):
        fault(lambda: made.headers_for(URL))
    assert helper.number == 1
    helper.prints(TOKEN)
    made.forget()
    assert made.headers_for(URL)


def test_a_helper_that_cannot_be_started_is_a_fault(helper: Helper) -> None:
    helper.program.write_bytes(b"\x7fELF no program")
    assert "could not be started" in fault(lambda: helper.made().headers_for(URL))


def test_a_build_that_ends_stops_the_helper(helper: Helper) -> None:
    made = helper.made()
    made.cancel.set()
    helper.prints(TOKEN, after="read line < /dev/zero")
    assert "the build ended" in fault(lambda: made.headers_for(URL))


def test_nothing_shows_the_values(helper: Helper) -> None:
    made = helper.made()
    made.headers_for(URL)
    assert SECRET not in repr(Credentials(made.headers_for(URL), NOW))
    assert SECRET not in repr(made)
    assert "of the user" not in repr(made), "the environment may have other secrets"


@given(st.dictionaries(st.text(), st.lists(st.text(), max_size=3).map(tuple), max_size=3))
def test_no_header_has_a_line_break_or_a_blank_name(headers) -> None:
    try:
        found = (
            CredentialHelper(url=URL, program=Path("/helper"), environ={})._credentials(_Reply(headers), NOW).headers
        )
    except ConfigurationError:
        return
    for name, value in found:
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set(' ":\r\n')
        assert not set(value) & set("\r\n\0")
        value.encode("latin-1")


# ---- which program ----------------------------------------------------------------------------------


def named(text: str, tmp_path: Path, path: str = "", url: str = URL) -> Path | None:
    found = credential_helper(url, tmp_path / "project", {HELPER_VARIABLE: text, "PATH": path})
    return None if found is None else found.program


def test_the_user_names_a_program_by_its_path_or_its_name(tmp_path: Path) -> None:
    program = executable(tmp_path / "bin" / "helper", b"#!/bin/sh\n")
    assert named(str(program), tmp_path) == program
    assert named("helper", tmp_path, f"/nowhere:{program.parent}") == program
    assert credential_helper(URL, tmp_path, {}) is None
    assert named("", tmp_path) is None
    assert named(str(program), tmp_path, url="/srv/cache") is None, "a directory needs no credentials"


def test_a_program_of_the_project_is_not_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = executable(tmp_path / "project" / "bin" / "helper", b"#!/bin/sh\n")
    (tmp_path / "link").symlink_to(program.parent)
    monkeypatch.chdir(program.parent)
    for path in (str(program.parent), str(tmp_path / "link"), ".", "", "::", "bin"):
        assert "not a program" in fault(partial(named, "helper", tmp_path, path))
    # The user may name it all the same.
    assert named(str(program), tmp_path) == program


def test_what_is_no_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "bin" / "helper", b"")
    (tmp_path / "plain").write_text("")
    monkeypatch.chdir(tmp_path)
    assert "not a program" in fault(lambda: named("helper", tmp_path, "bin:./bin"))
    for text in ("bin/helper", "./bin/helper", str(tmp_path / "plain"), str(tmp_path), str(tmp_path / "gone"), "gone"):
        fault(partial(named, text, tmp_path, str(tmp_path)))
