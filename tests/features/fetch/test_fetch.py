"""A download is verified by its digest, cached by that alone, resumed, limited, and leads nowhere that it may not."""

import hashlib
import socket
from collections.abc import Iterator

import pytest

from tests.file_server import FileServer, serving
from tests.project import Project

DATA = bytes(range(256)) * 2_000
SHA = hashlib.sha256(DATA).hexdigest()
OTHER = "0" * 64


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving() as made:
        made.files["/data.bin"] = DATA
        yield made


def pipeline(project: Project, url: str, sha256: str = SHA, more: str = "", stage: str = "") -> Project:
    text = f"version: 1\nstages:\n  get:\n    fetch: {{url: '{url}', sha256: {sha256}{more}}}\n"
    return project.write({"pipeline.yaml": text + f"    outputs: [vendor/data.bin]\n{stage}"})


def test_a_file_is_fetched_once_and_cached_by_its_digest_alone(project: Project, server: FileServer) -> None:
    pipeline(project, f"{server.url}/data.bin?token=a%20b")
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.files("vendor") == {"vendor/data.bin": DATA}
    assert project.plan() == {"get": "fresh"}
    pipeline(project, f"{server.url}/elsewhere")
    assert project.plan() == {"get": "fresh"}, "the address is no part of the key"
    project.delete("vendor/data.bin")
    assert project.build("--offline").code == 0
    assert project.files("vendor") == {"vendor/data.bin": DATA}
    assert [path for path, _ in server.asked] == ["/data.bin?token=a%20b"]
    assert list((project.root / ".orch23/partial").iterdir()) == []


def test_two_stages_that_want_the_same_file_download_it_once(project: Project, server: FileServer) -> None:
    stages = "".join(
        f"  s{n}: {{fetch: {{url: '{server.url}/data.bin', sha256: {SHA}}}, outputs: [out/{n}]}}\n" for n in range(4)
    )
    project.write({"pipeline.yaml": f"version: 1\nstages:\n{stages}"})
    assert project.build("-j", "4").code == 0
    assert len(server.asked) == 1
    assert set(project.files("out").values()) == {DATA}


def test_another_file_than_the_named_one_is_not_used(project: Project, server: FileServer) -> None:
    pipeline(project, f"{server.url}/data.bin", OTHER)
    outcome = project.build()
    assert outcome.code == 1
    assert f"E452]: {server.url}/data.bin has the SHA-256 {SHA}, not {OTHER}" in outcome.err.replace("\n", "")
    assert project.files("vendor") == {}
    assert list((project.root / ".orch23/partial").iterdir()) == []


@pytest.mark.slow
def test_what_breaks_off_goes_on_where_it_broke_off(project: Project, server: FileServer) -> None:
    server.cuts = [100_000, 50_000]
    pipeline(project, f"{server.url}/data.bin")
    assert project.build().code == 0
    assert server.ranges() == ["", "bytes=100000-", "bytes=150000-"]
    assert server.sent == len(DATA)


@pytest.mark.slow
def test_the_next_build_goes_on_where_the_last_one_ended(project: Project, server: FileServer) -> None:
    server.cuts = [100_000, 1_000, 1_000]
    pipeline(project, f"{server.url}/data.bin")
    outcome = project.build()
    assert (outcome.code, "E451" in outcome.err) == (1, True), outcome.err
    assert project.build().code == 0
    assert server.ranges()[-1] == "bytes=102000-"
    assert project.files("vendor") == {"vendor/data.bin": DATA}


def test_a_server_without_ranges_sends_the_whole_file_again(project: Project, server: FileServer) -> None:
    server.cuts, server.ignores_ranges, server.hides_length = [100_000], True, False
    pipeline(project, f"{server.url}/data.bin")
    assert project.build().code == 0
    assert project.files("vendor") == {"vendor/data.bin": DATA}


@pytest.mark.slow
def test_a_rest_that_belongs_to_another_file_is_fetched_again(project: Project, server: FileServer) -> None:
    server.cuts = [100_000, 1, 1]
    pipeline(project, f"{server.url}/data.bin")
    assert project.build().code == 1
    (part,) = (project.root / ".orch23/partial").iterdir()
    for found in (b"x" * 1000, b"x" * (len(DATA) + 1)):  # the second is longer than what the server has
        part.write_bytes(found)
        assert project.build().code == 0
        project.delete("vendor/data.bin")
        project.run("gc", "--max-size", "0")
        assert project.run("reset").code == 0


@pytest.mark.parametrize("hides_length", [False, True])
def test_a_file_that_is_too_large_is_not_fetched_whole(
    project: Project, server: FileServer, *, hides_length: bool
) -> None:
    server.hides_length = hides_length
    server.files["/data.bin"] = DATA * 20
    pipeline(project, f"{server.url}/data.bin", more=", max_size: 100KB")
    outcome = project.build()
    assert (outcome.code, "E453" in outcome.err) == (1, True), outcome.err


def test_passing_trouble_of_a_server_is_tried_again_and_a_missing_file_is_not(
    project: Project, server: FileServer
) -> None:
    server.statuses = [503]
    pipeline(project, f"{server.url}/data.bin")
    assert project.build().code == 0
    assert len(server.asked) == 2
    pipeline(project, f"{server.url}/nothing", OTHER)
    outcome = project.build()
    assert (outcome.code, "the server responded with 404" in outcome.err) == (1, True), outcome.err
    assert len(server.asked) == 3


def test_offline_nothing_is_fetched_that_is_not_on_this_machine(project: Project) -> None:
    pipeline(project, "https://files.invalid/data.bin")
    outcome = project.build("--offline")
    assert "error[E455]: get: https://files.invalid/data.bin is on another machine" in outcome.err
    assert " --> pipeline.yaml:4:" in outcome.err
    assert outcome.code == project.build("--offline").code != 0


def test_offline_no_redirect_leads_to_another_machine(project: Project, server: FileServer) -> None:
    server.redirects = {"/away": "http://files.invalid/data.bin", "/here": "/data.bin"}
    pipeline(project, f"{server.url}/away", more=", redirects: ['http://files.invalid']")
    outcome = project.build("--offline")
    assert (outcome.code, "E455" in outcome.err) == (1, True), outcome.err
    assert "/away redirects to http://files.invalid, which is on another machine" in outcome.err.replace("\n", " ")
    pipeline(project, f"{server.url}/here")
    assert project.build("--offline").code == 0


def test_offline_no_proxy_of_another_machine_is_used_and_no_name_is_looked_up(
    project: Project, server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    look_up = socket.getaddrinfo

    def noted(host, *args, **more):
        looked_up.append(host)
        return look_up(host, *args, **more)

    monkeypatch.setattr("socket.getaddrinfo", noted)
    pipeline(project, f"{server.url.replace('127.0.0.1', 'files.localhost')}/data.bin")
    outcome = project.build("--offline", env={"http_proxy": "http://proxy.invalid:3128"})
    assert outcome.code == 0, outcome.err
    assert len(server.asked) == 1
    assert set(looked_up) <= {"127.0.0.1", "::1"}


def test_offline_a_proxy_of_this_machine_is_used(project: Project) -> None:
    with serving() as proxy:
        proxy.files["/data.bin"] = DATA
        pipeline(project, "http://localhost:9/data.bin")
        env = {"http_proxy": proxy.url.replace("127.0.0.1", "localhost")}
        assert project.build("--offline", env=env).code == 0
        assert [target for target, _ in proxy.asked] == ["http://localhost:9/data.bin"]


def test_a_server_needs_consent_as_a_provider_does(project: Project, server: FileServer) -> None:
    untrusted = {"ORCH23_TRUST": "0"}
    pipeline(project, f"{server.url}/data.bin")
    outcome = project.build(env=untrusted)
    assert "E426" in outcome.err, outcome.err
    assert f"you have not allowed this project to download from {server.url}" in outcome.err
    assert server.asked == []
    reported = project.run("trust", env=untrusted)
    assert f"download from {server.url}" in reported.out, reported
    assert project.build(env=untrusted).code == 0
    project.delete("vendor/data.bin")
    pipeline(project, "https://files.invalid/data.bin")
    assert project.build(env=untrusted).code == 0, "nothing is asked for what the store has"


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "2852039166", "[fe80::1]", "[2002:a9fe:a9fe::1]", "[fd00:ec2::254]", "metadata.test"]
)
def test_no_link_local_address_is_reached(project: Project, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in ("192.0.2.1", "169.254.169.254")]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_args, **_more: found)
    pipeline(project, f"http://{host}/latest/meta-data")
    outcome = project.build()
    assert (outcome.code, "E454" in outcome.err) == (1, True), outcome.err
    assert "which no step may connect to" in outcome.err


@pytest.mark.parametrize("host", ["169.254.169.254.", "0xA9FEA9FE", "[64:ff9b::a9fe:a9fe]"])
def test_no_link_local_address_is_reached_through_a_proxy(project: Project, host: str) -> None:
    with serving() as proxy:
        pipeline(project, f"http://{host}/latest/meta-data")
        outcome = project.build(env={"http_proxy": proxy.url})
        assert "has the address 169.254.169.254, which no step may connect to" in outcome.err.replace("\n", " ")
        assert proxy.asked == []


@pytest.mark.slow
def test_a_redirect_leads_only_where_the_pipeline_says(project: Project, server: FileServer) -> None:
    with serving() as other:
        other.files["/there"] = DATA
        server.redirects = {"/here": "/data.bin", "/away": f"{other.url}/there", "/cloud": "http://169.254.169.254/"}
        server.redirects["/round"] = "/round"
        pipeline(project, f"{server.url}/away")
        outcome = project.build()
        assert (outcome.code, "E454" in outcome.err) == (1, True), outcome.err
        assert f"redirects: [{other.url}]" in outcome.err.replace("\n", " ")
        assert other.asked == []
        pipeline(project, f"{server.url}/cloud", more=", redirects: ['http://169.254.169.254']")
        assert "which no step may connect to" in project.build().err
        pipeline(project, f"{server.url}/round")
        assert "more than 5 redirects" in project.build().err
        pipeline(project, f"{server.url}/away", more=f", redirects: ['{other.url}']")
        assert project.build().code == 0
        pipeline(project, f"{server.url}/here")
        assert project.plan() == {"get": "fresh"}


def test_the_proxy_of_the_environment_is_used(project: Project, server: FileServer) -> None:
    with serving() as proxy:
        proxy.files["/data.bin"] = DATA
        pipeline(project, "http://files.invalid/data.bin")
        env = {"http_proxy": proxy.url.replace("//", "//me:secret@"), "no_proxy": "127.0.0.1"}
        assert project.build(env=env).code == 0
        ((target, headers),) = proxy.asked
        assert target == "http://files.invalid/data.bin"
        assert headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"
        project.run("reset")
        project.delete("vendor/data.bin")
        pipeline(project, f"{server.url}/data.bin")
        assert project.build(env=env).code == 0
        assert (len(proxy.asked), len(server.asked)) == (1, 1), "no_proxy is kept to"


HELLO = hashlib.sha256(b"hello").hexdigest()
MAKE = "  make: {outputs: [made.bin], shell: 'printf hello > made.bin'}\n"


@pytest.mark.slow
def test_the_stage_that_makes_a_file_of_the_project_runs_first(project: Project) -> None:
    pipeline(project, "file:made.bin", HELLO, stage=MAKE)
    assert project.build().code == 0
    assert project.files("vendor") == {"vendor/data.bin": b"hello"}
    project.replace("pipeline.yaml", "printf hello", "exit 1; printf hello")
    project.replace("pipeline.yaml", HELLO, OTHER)
    assert project.plan() == {"make": "run", "get": "run"}
    outcome = project.build()
    assert (outcome.code, "1 blocked by `make`" in outcome.err, "E452" in outcome.err) == (1, True, False), outcome.err


@pytest.mark.slow
def test_a_stage_is_fresh_as_long_as_its_digest_is_the_same(project: Project, server: FileServer) -> None:
    project.write({"a.txt": b"hello", "b.txt": b"hello"})
    pipeline(project, "file:a.txt", HELLO, stage=MAKE)
    assert project.build().code == 0
    for url in ("file:b.txt", "file:made.bin", f"{server.url}/nothing", "./a.txt"):
        pipeline(project, url, HELLO, stage=MAKE)
        assert project.plan() == {"get": "fresh", "make": "fresh"}, url
    project.write({"a.txt": b"other"})
    assert project.plan() == {"get": "fresh", "make": "fresh"}, "the digest says what the file is"
    pipeline(project, "file:made.bin", HELLO, stage=MAKE.replace("hello", "other"))
    assert project.plan() == {"make": "run", "get": "fresh"}
    assert project.build().code == 0
    assert project.files("vendor") == {"vendor/data.bin": b"hello"}


def test_a_file_of_the_project_with_another_digest_is_not_used(project: Project) -> None:
    project.write({"a.txt": b"hello"})
    pipeline(project, "file:a.txt", OTHER)
    outcome = project.build()
    assert (outcome.code, f"a.txt has the SHA-256 {HELLO}, not {OTHER}" in outcome.err.replace("\n", "")) == (1, True)
    assert project.files("vendor") == {}


def test_only_the_step_is_given_a_file_that_its_key_does_not_cover(project: Project) -> None:
    project.write({"a.txt": b"hello"})
    pipeline(project, "file:a.txt", HELLO, stage="    verify: [{shell: 'test ! -e a.txt'}]\n")
    outcome = project.build()
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize("url", ["file:a.txt", "http://files.invalid/hello"])
def test_a_digest_that_the_store_has_is_not_fetched(project: Project, url: str) -> None:
    project.write({"a.txt": b"other", "pipeline.yaml": f"version: 1\nstages:\n{MAKE}"})
    assert project.build().code == 0
    pipeline(project, url, HELLO, stage=MAKE)
    outcome = project.build("--offline", env={"ORCH23_TRUST": "0"})
    assert outcome.code == 0, outcome.err
    assert project.files("vendor") == {"vendor/data.bin": b"hello"}


def test_a_plan_says_which_downloads_use_the_network(project: Project, server: FileServer) -> None:
    files = {url: f"{{url: '{url}', sha256: {HELLO}}}" for url in ("file:a.txt", f"{server.url}/data.bin")}
    each = "foreach: {from: list.json, as: f}, outputs: ['OUT/${{ f }}']"
    near, far = (f"{{outputs: [OUT], fetch: {fetch}}}" for fetch in files.values())
    stages = {
        "near": near.replace("OUT", "near"),
        "far": far.replace("OUT", "far"),
        "near_each": near.replace("outputs: [OUT]", each.replace("OUT", "n")),
        "far_each": far.replace("outputs: [OUT]", each.replace("OUT", "f")),
        "list": "{outputs: [list.json], shell: 'echo [] > list.json'}",
    }
    text = "".join(f"  {name}: {body}\n" for name, body in stages.items())
    project.write({"pipeline.yaml": f"version: 1\nstages:\n{text}", "a.txt": "hello"})
    outcome = project.run("plan", "--json")
    assert outcome.code == 0, outcome.err
    assert {one["stage"] for one in outcome.json()["stages"] if one["network"]} == {"far", "far_each"}
    assert "would run with the network: far far_each" in project.run("plan").out
    assert "it uses the network" in project.run("explain", "far").out


@pytest.mark.slow
def test_a_download_that_brings_nothing_leaves_no_file(project: Project, server: FileServer) -> None:
    for url in (f"{server.url}/nothing", f"{server.url}/data.bin"):
        server.cuts = [0, 0, 0]
        pipeline(project, url)
        assert project.build().code == 1
        assert list((project.root / ".orch23/partial").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("file:../secret", "E850"),
        ("file:///etc/passwd", "E850"),
        ("/etc/passwd", "E850"),
        ("nobody.bin", "E822"),
        ("ftp://host/x", "E812"),
        ("https://me:secret@host/x", "E812"),
        ("https:///x", "E812"),
        ("https://host/x#part", "E812"),
        ("https://host/a b", "E812"),
        ("http://169.254.169%2E254/x", "E812"),
        ("http://[fe80::1%25eth0]/x", "E812"),
        ("https://[::1/x", "E812"),
    ],
)
def test_what_cannot_be_fetched_is_an_error_at_its_place(project: Project, url: str, code: str) -> None:
    pipeline(project, url)
    outcome = project.run("plan")
    assert outcome.code == 65, outcome.err
    assert f"error[{code}]" in outcome.err
    assert " --> pipeline.yaml:4:" in outcome.err or code == "E822"


def test_all_mistakes_of_a_fetch_are_reported_at_once(project: Project) -> None:
    text = "version: 1\nstages:\n  a:\n    fetch: {url: 'https://h/x', sha256: abc, size: 3}\n    outputs: [x]\n"
    project.write({"pipeline.yaml": text})
    outcome = project.run("plan")
    assert [line.split("]")[0] for line in outcome.err.splitlines() if line.startswith("error[")] == [
        "error[E812",
        "error[E802",
    ], outcome.err
    assert "64 hex digits" in outcome.err


def test_each_item_of_a_typed_list_is_fetched(project: Project, server: FileServer) -> None:
    server.files |= {"/a": b"a", "/b": b"b"}
    each = [{"n": name, "s": hashlib.sha256(name.encode()).hexdigest()} for name in ("a", "b")]
    fetch = "{url: '" + server.url + "/${{ f.n }}', sha256: '${{ f.s }}'}"
    text = f"version: 1\nstages:\n  get:\n    foreach: {{in: {each}, key: n, as: f}}\n    fetch: {fetch}\n"
    project.write({"pipeline.yaml": text + "    outputs: ['v/${{ f.n }}']\n"})
    outcome = project.build()
    assert outcome.code == 0, outcome.err
    assert project.files("v") == {"v/a": b"a", "v/b": b"b"}


def test_a_list_in_a_file_may_not_decide_what_is_fetched(project: Project) -> None:
    fetch = f"{{url: 'https://host/${{{{ f }}}}', sha256: {SHA}}}"
    text = f"version: 1\nstages:\n  get:\n    foreach: {{from: list.json, as: f}}\n    fetch: {fetch}\n"
    project.write({"pipeline.yaml": text + "    outputs: ['v/x']\n", "list.json": '["x"]'})
    outcome = project.run("plan")
    assert (outcome.code, "E857" in outcome.err) == (65, True), outcome.err
