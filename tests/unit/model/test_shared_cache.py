"""The settings of the shared cache: which address counts, and what a build may do with it."""

import base64
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.language.pipeline_document import SettingsDocument
from orch23.language.reading import read_document
from orch23.model.errors import ConfigurationError
from orch23.model.fields import Problems
from orch23.model.language import read_fields
from orch23.model.pipeline import CACHE_VARIABLE
from orch23.model.shared_cache import (
    HELPER_VARIABLE,
    CacheOptions,
    CacheSettings,
    cache_grant,
    cache_settings,
    cache_url_fault,
)
from orch23.model.step import Grant

SERVER, FOLDER, OTHER = "https://cache.example.org/team", "/srv/cache", "/srv/other"
OTHER_SERVER = "https://other.example.org"
KEY = f"ed25519:{base64.b64encode(bytes(32)).decode()}"


def settings(declared=(), url=None, write=False, variable=None, trusted=True) -> CacheSettings:
    environ = {} if variable is None else {CACHE_VARIABLE: variable}
    return cache_settings(dict(declared), environ, CacheOptions(url=url, write=write), is_trusted=trusted)


def used(*arguments, **options) -> tuple[str, str]:
    found = settings(*arguments, **options)
    return found.url, found.mode


def read(body: Any):
    at = Problems("")
    document, wrong = read_document({"cache": body}, SettingsDocument, "")
    found = None if document is None else read_fields(document, at).get("cache", {})
    return found, [(problem.path, problem.code) for problem in (*wrong, *at.found)]


def test_without_any_address_there_is_no_cache() -> None:
    assert settings() == CacheSettings()
    assert (CacheSettings().reads, CacheSettings().writes, CacheSettings().directory) == (False, False, None)


def test_the_command_line_wins_over_the_environment_and_that_over_the_pipeline() -> None:
    everywhere: Any = {"declared": {"url": SERVER}, "variable": OTHER}
    assert used(**everywhere, url=FOLDER) == (FOLDER, "read-write")
    assert used(**everywhere) == (OTHER, "read-write")
    assert used({"url": SERVER}) == (SERVER, "read")


def test_a_directory_is_written_and_a_server_only_if_the_user_says_so() -> None:
    assert settings(url=FOLDER).writes
    for found in (settings(url=SERVER), settings(variable=SERVER), settings({"url": SERVER})):
        assert (found.reads, found.writes) == (True, False)
    for found in (
        settings(url=SERVER, write=True),
        settings(variable=SERVER, write=True),
        settings({"url": SERVER}, write=True),
    ):
        assert (found.reads, found.writes) == (True, True)


def test_the_address_of_a_pipeline_counts_only_in_a_trusted_directory() -> None:
    declared = {"url": FOLDER, "responses": True, "signed_by": (KEY,)}
    assert used(declared, trusted=False) == ("", "off")
    assert used(declared, trusted=True) == (FOLDER, "read-write")
    # What the pipeline says about results stays in force for a cache of the user.
    kept = settings(declared, variable=OTHER, trusted=False)
    assert (kept.url, kept.responses, kept.signed_by) == (OTHER, True, (KEY,))


def test_consent_is_needed_for_an_address_that_only_the_pipeline_names() -> None:
    declared = {"url": "file:///srv//cache/"}
    assert cache_grant(declared, {}) == Grant(kind="cache", name=FOLDER)
    assert str(cache_grant(declared, {})) == "use results of the shared cache /srv/cache"
    assert cache_grant({}, {}) is None
    assert cache_grant({**declared, "mode": "off"}, {}) is None
    assert cache_grant(declared, {CACHE_VARIABLE: SERVER}) is None
    assert cache_grant(declared, {CACHE_VARIABLE: "off"}) is None
    assert cache_grant(declared, {CACHE_VARIABLE: ""}) is not None
    assert cache_grant(declared, {}, CacheOptions(url=SERVER)) is None


def test_consent_names_the_credentials_that_a_server_of_the_pipeline_gets() -> None:
    environ = {HELPER_VARIABLE: "helper"}
    assert cache_grant({"url": SERVER}, environ) == Grant(kind="cache", name=SERVER, keys=(HELPER_VARIABLE,))
    assert cache_grant({"url": SERVER}, environ) != cache_grant({"url": SERVER}, {HELPER_VARIABLE: ""})
    assert cache_grant({"url": FOLDER}, environ) == cache_grant({"url": FOLDER}, {}), "a directory gets none"


def test_another_path_of_the_same_server_is_another_cache() -> None:
    assert cache_grant({"url": SERVER}, {}) != cache_grant({"url": f"{SERVER}/other"}, {})
    assert cache_grant({"url": SERVER}, {}) == cache_grant({"url": "HTTPS://cache.example.org:443/team/"}, {})


def test_a_pipeline_can_forbid_to_write_or_to_use_a_cache_unless_the_command_line_asks_for_it() -> None:
    assert used({"url": FOLDER, "mode": "read"}) == (FOLDER, "read")
    assert used({"mode": "read"}, variable=FOLDER) == (FOLDER, "read")
    assert used({"mode": "read"}, variable=FOLDER, write=True) == (FOLDER, "read-write")
    assert used({"url": SERVER, "mode": "off"}) == ("", "off")
    assert used({"mode": "off"}, variable=FOLDER) == ("", "off")
    assert used({"mode": "off"}, url=SERVER) == (SERVER, "read")
    # The option overrides it entirely.
    assert used({"mode": "off"}, url=FOLDER) == used({}, url=FOLDER) == (FOLDER, "read-write")
    assert used({"mode": "off"}, url=SERVER, write=True) == (SERVER, "read-write")
    assert used({"mode": "off"}, url="", variable=FOLDER) == ("", "off")


def test_a_pipeline_can_write_to_the_server_that_it_names_with_consent_to_that() -> None:
    declared = {"url": SERVER, "mode": "read-write"}
    assert used(declared) == (SERVER, "read-write")
    assert used(declared, trusted=False) == ("", "off")
    assert used({"url": FOLDER, "mode": "read-write"}) == (FOLDER, "read-write")
    grant = cache_grant(declared, {})
    assert grant != cache_grant({"url": SERVER}, {}), "consent to read it is not enough"
    assert str(grant) == f"use results of the shared cache {SERVER}, and store results there"
    assert cache_grant({"url": FOLDER, "mode": "read-write"}, {}) == cache_grant({"url": FOLDER}, {})
    # A clone must not make a build write to a server of the user.
    for of_user in ({"url": OTHER_SERVER}, {"variable": OTHER_SERVER}):
        assert used(declared, **of_user) == (OTHER_SERVER, "read")
        assert used(declared, **of_user, write=True) == (OTHER_SERVER, "read-write")


def test_the_user_can_turn_the_cache_of_a_pipeline_off() -> None:
    assert used({"url": FOLDER}, url="off") == ("", "off")
    assert used({"url": FOLDER}, variable="off") == ("", "off")
    assert used({"url": FOLDER}, url=OTHER, variable="off") == (OTHER, "read-write")
    assert used({"url": FOLDER}, variable="") == (FOLDER, "read-write")


@pytest.mark.parametrize(
    "how",
    [{}, {"declared": {"url": SERVER}, "trusted": False}, {"url": "off"}, {"declared": {"url": SERVER, "mode": "off"}}],
)
def test_to_write_without_a_cache_is_an_error(how) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings(**how, write=True)
    assert error.value.diagnostics[0].code == "E730"
    assert error.value.diagnostics[0].hint is not None


def test_buckets_and_servers_with_grpc_are_servers_too() -> None:
    for text, url in (
        ("S3://bucket/team/", "s3://bucket/team"),
        ("grpcs://cache.example.org:9092/", "grpcs://cache.example.org:9092"),
        ("grpc://127.0.0.1:9092", "grpc://127.0.0.1:9092"),
        ("gs://bucket", "gs://bucket"),
    ):
        assert used(url=text) == (url, "read")
        assert used(url=text, write=True) == (url, "read-write")
        assert settings(url=text).directory is None


WRONG = (
    "cache",
    "./cache",
    "~/cache",
    "ftp://host/x",
    "s3:/x",
    "s3:///x",
    "s3://name:secret@bucket/x",
    "grpcs://user:secret@host",
    "grpcs://host#secret",
    "grpc://host:9092",
    "https://",
    "https://user:secret@host/x",
    "https://host/x?token=secret",
    "https://host/x#secret",
    "http://cache.example.org/x",
    "https://ho st/secret",
    "https://[secret/x",
    "https://host:secret/x",
    "file://elsewhere/srv/secret",
    "file:///srv/cache?secret",
    "/srv/../etc",
    "file:///srv/%2e%2e/etc",
    "/srv/a\nb",
    "file:///a%00b",
    "/",
    "file:///",
    "/./",
    "/" + "x" * 5000,
)


@pytest.mark.parametrize("address", WRONG)
def test_an_address_that_cannot_be_used_is_refused_and_not_shown(address) -> None:
    assert cache_url_fault(address) is not None
    for how in ({"url": address}, {"variable": address}):
        with pytest.raises(ConfigurationError) as error:
            settings(**how)
        assert [one.code for one in error.value.diagnostics] == ["E730"]
        assert "secret" not in str(error.value)
    assert read({"url": address})[1] == [("cache/url", "E812")]


def test_addresses_have_one_form() -> None:
    assert used(url="FILE:///srv/./cache/") == (FOLDER, "read-write")
    assert used(url="file:///srv/with%20blank") == ("/srv/with blank", "read-write")
    assert used(url="HTTPS://Cache.Example.org:443/team/") == (SERVER, "read")
    assert used(url="http://127.0.0.1:9090/") == ("http://127.0.0.1:9090", "read")


@given(st.text(max_size=30) | st.from_regex(r"(file://|https?://|/)[a-z.:/%0-9@?#-]{0,20}", fullmatch=True))
def test_a_usable_address_keeps_its_form(address: str) -> None:
    if address in {"", "off"} or cache_url_fault(address) is not None:
        return
    found = settings(url=address)
    assert cache_url_fault(found.url) is None
    assert settings(url=found.url) == found
    assert (found.directory is not None) == found.writes


ADDRESSES = (None, FOLDER, SERVER, "off")


@given(st.data())
def test_a_server_is_never_written_and_a_pipeline_never_trusted_by_itself(data) -> None:
    declared = {
        key: value
        for key, values in {"url": (None, FOLDER, SERVER), "mode": (None, "read", "read-write", "off")}.items()
        if (value := data.draw(st.sampled_from(values))) is not None
    }
    url, variable = data.draw(st.sampled_from(ADDRESSES)), data.draw(st.sampled_from(ADDRESSES))
    found = settings(declared, url=url, variable=variable, trusted=False)
    assert not found.writes or found.directory is not None
    assert found.url in {"", url, variable}
    assert (found.url == "") == (found.mode == "off")


def test_the_pipeline_states_how_results_are_believed() -> None:
    stated, wrong = read(
        {"responses": True, "verify": "always", "platform": "image-7", "signed_by": [KEY, f"{KEY} ci@host"]}
    )
    assert wrong == []
    found = settings(stated, url=FOLDER)
    assert found == CacheSettings(
        url=FOLDER,
        mode="read-write",
        responses=True,
        verify="always",
        platform="image-7",
        signed_by=(KEY, f"{KEY} ci@host"),
    )


@pytest.mark.parametrize(
    "body",
    [
        {"signed_by": [key]}
        for key in (KEY[:-1], KEY[8:], KEY + "\n", KEY + " a b", KEY.replace("A", "!"), "ed448:" + KEY[8:], KEY + " ")
    ]
    + [{"signed_by": []}, {"verify": "sometimes"}, {"platform": " "}, {"url": ""}, {"ulr": "/srv/a"}, True],
)
def test_values_of_another_form_are_refused(body) -> None:
    assert read(body)[1]


def test_defaults_of_the_language_are_those_of_the_value() -> None:
    stated, wrong = read({})
    assert wrong == []
    assert settings(stated, trusted=False) == CacheSettings()
    for options in itertools.product((False, True), repeat=2):
        body = dict(zip(("responses", "verify"), (options[0], "always" if options[1] else "never"), strict=True))
        found = settings(read(body)[0], url=FOLDER)
        assert (found.responses, found.verify == "always") == options
