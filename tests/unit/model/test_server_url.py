"""URLs of servers: their normal form, and the errors of those that cannot be called."""

import pytest

from orch23.model.server_url import is_loopback, normalize_url, recordable_model, url_fault


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("https://API.Example.com", "https://api.example.com"),
        ("https://api.example.com/", "https://api.example.com"),
        ("https://api.example.com:443/v1/", "https://api.example.com/v1"),
        ("HTTP://api.example.com:80//", "http://api.example.com"),
        ("http://api.example.com:443/v1", "http://api.example.com:443/v1"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("http://[::1]:8080/v1", "http://[::1]:8080/v1"),
        ("http://[2001:DB8::1]/V1", "http://[2001:db8::1]/V1"),
        ("https://api.example.com./V1", "https://api.example.com/V1"),
    ],
)
def test_one_address_has_one_form(written, normal):
    assert normalize_url(written) == normal
    assert normalize_url(normal) == normal


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("http://localhost:11434/v1", True),
        ("http://LOCALHOST", True),
        ("http://models.localhost/v1", True),
        ("http://127.0.0.1:1/v1", True),
        ("http://127.8.9.1", True),
        ("http://[::1]:1/v1", True),
        ("http://[::ffff:127.0.0.1]/v1", True),
        ("http://0.0.0.0:8000", False),
        ("http://192.168.0.1", False),
        ("https://localhost.example.com", False),
        ("https://127.0.0.1.example.com", False),
        ("http://[::ffff:8.8.8.8]/v1", False),
        ("http://[broken", False),
        ("https://api.openai.com/v1", False),
    ],
)
def test_only_this_machines_own_names_are_loopback(url, own):
    assert is_loopback(url) is own


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("api.example.com/v1", "http://"),
        ("ftp://example.com", "http://"),
        ("file:///etc/passwd", "http://"),
        ("http://", "no host"),
        ("http:///v1", "no host"),
        ("https://me:hunter2@example.com/v1", "password"),
        ("https://hunter2@example.com/v1", "password"),
        ("https://example.com/v1?key=hunter2", "query"),
        ("https://example.com/v1?", "query"),
        ("https://example.com/v1#hunter2", "fragment"),
        ("https://example.com:hunter2/v1", "cannot be read"),
        ("https://example.com:99999", "cannot be read"),
        ("https://example.com:0", "port 0"),
        ("http://[::1", "cannot be read"),
        ("https://example.com/a b", "blank"),
        ("https://example.com/\n", "blank"),
    ],
)
def test_the_error_of_a_bad_url_does_not_contain_the_url(url, word):
    fault = url_fault(url)
    assert fault is not None
    assert word in fault
    assert "hunter2" not in fault


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "https://api.example.com", "http://[::1]:1"])
def test_a_sound_address_has_no_fault(url):
    assert url_fault(url) is None


@pytest.mark.parametrize(
    ("name", "plain"), [("gpt-5.2", "gpt-5.2"), ("org/model", "org/model"), ("/home/me/models/m.gguf", "m.gguf")]
)
def test_a_model_that_is_a_file_is_recorded_without_its_folder(name, plain):
    assert recordable_model(name) == plain
