"""`doctor` says which shared cache and which executor builds use, why, and with --online whether they reply."""

import importlib.util
import socket
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dask
import pytest

from orch23.features.cache import doctor
from orch23.features.remote import dask_engine
from orch23.features.remote.engine import UnreachableEngineError
from tests.authorities import Authority
from tests.cache_server import serving_cache
from tests.environments import executable
from tests.features.doctor.test_doctor import findings
from tests.project import Project

pytestmark = pytest.mark.needs("doctor")

STAGES = "stages: {a: {outputs: [a.txt], shell: echo a > a.txt}}\n"
SHARING = (
    *("shared cache", "cache keys", "credential helper", "client certificate", "cache access", "executor"),
    *("executor certificate", "worker", "worker credential helper", "worker certificate"),
)
SERVER = "http://127.0.0.1:9/base"
LOCAL = "tcp://127.0.0.1:8786"
ALLOWED = " of the pipeline, which you have allowed"
WRITES = "`--cache-write` stores results there"
NOT_TRUSTED = {"ORCH23_TRUST": ""}


def sharing(project: Project, *argv: str, head: str = "", **env: str) -> dict[str, tuple[bool, str, str]]:
    project.write({"pipeline.yaml": f"version: 1\n{head}{STAGES}"})
    return found_in(findings(project, *argv, env={**NOT_TRUSTED, **env}))


def found_in(found: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[bool, str, str]]:
    return {name: (one["ok"], one["value"], one["hint"]) for name, one in found.items() if name in SHARING}


def test_without_a_shared_cache_and_an_executor_nothing_is_said(project: Project) -> None:
    assert sharing(project) == {}
    assert sharing(project, head="cache: {platform: any}\n") == {}


@pytest.mark.parametrize(
    ("head", "env", "value"),
    [
        ("", {"ORCH23_CACHE_URL": "/srv/c"}, "/srv/c of ORCH23_CACHE_URL: read and written, since it is a directory"),
        (
            "cache: {mode: read}\n",
            {"ORCH23_CACHE_URL": "/srv/c"},
            f"/srv/c of ORCH23_CACHE_URL: only read, since the pipeline has `mode: read`; {WRITES}",
        ),
        (
            "",
            {"ORCH23_CACHE_URL": SERVER},
            f"{SERVER} of ORCH23_CACHE_URL: only read, since it is a server; {WRITES}",
        ),
        (
            "",
            {"ORCH23_BUILD_CACHE": SERVER, "ORCH23_CACHE_URL": "off", "ORCH23_BUILD_CACHE_WRITE": "1"},
            f"{SERVER} of ORCH23_BUILD_CACHE: read and written, since ORCH23_BUILD_CACHE_WRITE is set",
        ),
        (
            f"cache: {{url: '{SERVER}', mode: read-write}}\n",
            {"ORCH23_TRUST": "1"},
            f"{SERVER}{ALLOWED}: read and written, since the pipeline has `mode: read-write`",
        ),
        (
            "cache: {url: /srv/c}\n",
            {"ORCH23_TRUST": "1"},
            "/srv/c of the pipeline, which you have allowed: read and written, since it is a directory",
        ),
        ("cache: {url: /srv/c}\n", {"ORCH23_CACHE_URL": "off"}, "off"),
    ],
)
def test_address_and_mode_are_shown_with_their_reason(
    project: Project, head: str, env: dict[str, str], value: str
) -> None:
    found = sharing(project, head=head, **env)
    assert found.pop("shared cache") == (True, value, "")
    assert found == ({} if value == "off" else {"cache access": (True, "not tried; `--online` asks it", "")})


def test_a_cache_of_the_pipeline_that_is_not_allowed_is_named_with_the_command(project: Project) -> None:
    found = sharing(project, "--online", head=f"cache: {{url: '{SERVER}'}}\n")
    (ok, value, hint) = found.pop("shared cache")
    assert (ok, value) == (False, f"{SERVER} of the pipeline is not used: you have not allowed it")
    assert "trust pipeline.yaml` allows it" in hint
    assert found == {}, "an address of a clone is not asked"


def test_an_address_that_cannot_be_used_is_not_shown(project: Project) -> None:
    secret = "hunter2-hunter2"
    (ok, value, _) = sharing(project, ORCH23_CACHE_URL=f"grpcs://user:{secret}@cache.example/x")["shared cache"]
    assert not ok
    assert "contains a user name or a password" in value
    assert secret not in str(findings(project, env={"ORCH23_CACHE_URL": f"s3://{secret}@x"}))


def test_the_environment_counts_without_a_pipeline(project: Project) -> None:
    assert "shared cache" in found_in(findings(project, env={"ORCH23_CACHE_URL": "/srv/c"}))


@pytest.mark.parametrize(("fault", "ok", "value"), [
    ("", True, "it replies"),
    ("403", False, "it cannot be used: "),
    ("hang", False, "it cannot be used: no reply within 0.05 s"),
])  # fmt: skip
def test_online_one_request_shows_whether_a_server_replies(
    project: Project, monkeypatch: pytest.MonkeyPatch, fault: Any, ok: bool, value: str
) -> None:
    if fault == "hang":
        monkeypatch.setattr(doctor, "_REPLY_S", 0.05)
    with serving_cache() as server:
        server.fault = lambda _method, _path: fault
        offline = sharing(project, ORCH23_CACHE_URL=server.url)
        assert (offline["cache access"][0], server.asked) == (True, [])
        found = sharing(project, "--online", ORCH23_CACHE_URL=server.url)["cache access"]
        assert fault == "hang" or server.methods() == ["GET ac"]
    assert (found[0], found[1].startswith(value)) == (ok, True)


def test_online_a_directory_may_be_new(project: Project, tmp_path: Path) -> None:
    there = tmp_path / "cache"
    found = sharing(project, "--online", ORCH23_CACHE_URL=str(there))
    assert "does not exist" in found["cache access"][1]
    there.mkdir()
    assert sharing(project, "--online", ORCH23_CACHE_URL=str(there))["cache access"] == (True, "it replies", "")
    there.rmdir()
    there.write_text("a file")
    (ok, value, _) = sharing(project, "--online", ORCH23_CACHE_URL=str(there))["cache access"]
    assert (ok, "directory" in value) == (True, True)


@pytest.mark.parametrize(("url", "library"), [("s3://bucket/x", "obstore"), ("grpcs://cache.example", "grpcio")])
def test_a_missing_library_is_named_with_its_command(
    project: Project, monkeypatch: pytest.MonkeyPatch, url: str, library: str
) -> None:
    loaded = [name for name in sys.modules if name.startswith("orch23.features.cache.object_store") or "grpc" in name]
    for name in (*loaded, *(name for name in sys.modules if name.startswith("obstore"))):
        monkeypatch.delitem(sys.modules, name)
    for name in ("obstore", "grpc"):
        monkeypatch.setitem(sys.modules, name, None)
    (ok, value, hint) = sharing(project, ORCH23_CACHE_URL=url)["cache access"]
    assert (ok, value) == (False, f"the shared cache needs the library `{library}`, which is not installed")
    assert f"install '{library}" in hint


def test_the_keys_that_count_and_the_own_one(project: Project) -> None:
    ours, other = (project.run("cache", "key", "new", name).out.strip() for name in ("ours", "other"))
    with_key = sharing(project, head=f"cache: {{signed_by: ['{ours}', '{other}']}}\n", ORCH23_CACHE_URL="/srv/c")
    listed = "results count if one of 2 keys in `cache.signed_by` signed them"
    assert with_key["cache keys"] == (True, f"{listed}; you have `ours`", "")
    env = {"ORCH23_CACHE_URL": "/srv/c", "XDG_CONFIG_HOME": "/nowhere"}
    (ok, value, hint) = sharing(project, head=f"cache: {{signed_by: ['{ours}', '{other}']}}\n", **env)["cache keys"]
    assert (ok, value) == (False, f"{listed}; you have none, so nothing is stored")
    assert "cache key new" in hint
    reader = sharing(project, head=f"cache: {{signed_by: ['{ours}', '{other}']}}\n", ORCH23_CACHE_URL=SERVER)
    assert reader["cache keys"] == (True, listed, "")


def test_the_credential_helper_is_found_and_only_run_online(project: Project, tmp_path: Path) -> None:
    program, mark = tmp_path / "helper", tmp_path / "ran"
    program.write_text(f'#!/bin/sh\ntouch {mark}\necho \'{{"headers": {{"Authorization": ["token-of-helper"]}}}}\'\n')
    program.chmod(0o755)
    with serving_cache() as server:
        env = {"ORCH23_CACHE_URL": server.url, "ORCH23_CACHE_CREDENTIAL_HELPER": str(program)}
        offline = sharing(project, **env)
        assert offline["credential helper"] == (True, f"{program}, named in ORCH23_CACHE_CREDENTIAL_HELPER", "")
        assert not mark.exists()
        assert sharing(project, "--online", **env)["cache access"][0]
        assert server.headers[-1]["authorization"] == "token-of-helper"
        gone = sharing(project, "--online", **{**env, "ORCH23_CACHE_CREDENTIAL_HELPER": "/nowhere/helper"})
    assert gone["credential helper"][0] is False
    assert "cache access" not in gone


def test_an_executor_elsewhere_needs_its_library_a_scheduler_and_a_cache(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*argv: str, **env: str) -> tuple[bool, str, str]:
        return sharing(project, *argv, head="executor: dask\n", **env)["executor"]

    assert check()[:2] == (False, "no dask scheduler is named")
    assert "no TLS" in check(ORCH23_BUILD_SCHEDULER="tcp://example.org:8786")[1]
    named = {"ORCH23_BUILD_SCHEDULER": LOCAL, "ORCH23_CACHE_URL": "/srv/c"}
    assert check(**named) == (True, f"`dask`, with the scheduler {LOCAL}, which was not asked (`--online`)", "")
    monkeypatch.setattr(dask_engine.DaskEngine, "slots", lambda _engine: 4)
    assert check("--online", **named)[1] == f"`dask`, with the scheduler {LOCAL}, whose workers have 4 slots"
    monkeypatch.setattr(dask_engine.DaskEngine, "slots", lambda _engine: 0)
    assert check("--online", **named)[0::2] == (False, "start `orch23 worker` on a machine of the cluster")

    def unreachable(_engine: object) -> int:
        message = "the scheduler cannot be reached"
        raise UnreachableEngineError(message)

    monkeypatch.setattr(dask_engine.DaskEngine, "slots", unreachable)
    assert check("--online", **named)[:2] == (False, "the scheduler cannot be reached")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "distributed" else find(name))
    (ok, value, hint) = check(**named)
    assert (ok, "`distributed`, which is not installed" in value, "install" in hint) == (False, True, True)


def test_a_server_of_the_remote_execution_api_is_asked_only_online(project: Project) -> None:
    def check(*argv: str, **env: str) -> tuple[bool, str, str]:
        return sharing(project, *argv, head="executor: reapi\n", **env)["executor"]

    assert check()[:2] == (False, "no server is named")
    assert "no TLS" in check(ORCH23_BUILD_SCHEDULER="grpc://example.org:8980")[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"grpc://127.0.0.1:{taken.getsockname()[1]}/main"
        named = {"ORCH23_BUILD_SCHEDULER": f"{address}?OSFamily=linux"}
        assert check(**named) == (True, f"`reapi`, with the server {address}, which was not asked (`--online`)", "")
        ok, value, hint = check("--online", **named)
    assert (ok, value.startswith("the server cannot be reached: "), "that it runs" in hint) == (False, True, True)


def test_the_certificate_for_a_server_is_checked_offline(project: Project, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    good, old = authority.issue("good"), authority.issue("old", ends=datetime(2021, 1, 1, tzinfo=UTC))
    address = "grpcs://build.example.org/main"

    def check(certificate: str, key: str, *argv: str) -> dict[str, tuple[bool, str, str]]:
        env = {"ORCH23_TLS_CLIENT_CERTIFICATE": certificate, "ORCH23_TLS_CLIENT_KEY": key}
        named = {"ORCH23_CACHE_URL": address, "ORCH23_BUILD_SCHEDULER": address, "ORCH23_BUILD_EXECUTOR": "reapi"}
        return sharing(project, *argv, **env, **named)

    valid = (True, f"{good[0]}, valid until 2120-01-01", "")
    found = check(*good)
    assert (found["client certificate"], found["executor certificate"]) == (valid, valid)
    expired = (False, f"the certificate {old[0]} expired on 2021-01-01", "renew it")
    found = check(*old, "--online")
    assert (found["client certificate"], found["executor certificate"]) == (expired, expired)
    assert not {"cache access", "executor"} & found.keys(), "no server is asked"
    ok, value, hint = check("/absent.pem", good[1])["client certificate"]
    assert (ok, value, bool(hint)) == (
        False,
        "the certificate /absent.pem cannot be read: No such file or directory",
        True,
    )
    ok, value, _ = check(good[0], str(tmp_path))["executor certificate"]
    assert (ok, value) == (False, f"the key {tmp_path} cannot be read: Is a directory")
    ok, value, _ = check(good[0], "")["client certificate"]
    assert (ok, value) == (False, "ORCH23_TLS_CLIENT_CERTIFICATE is set, and ORCH23_TLS_CLIENT_KEY is not")


@pytest.mark.slow
def test_the_certificates_of_dask_are_checked_for_builds_and_workers(project: Project, tmp_path: Path) -> None:
    importlib.import_module("distributed")  # it adds its defaults to the settings once
    authority = Authority(tmp_path, "authority")
    good, old = authority.issue("good"), authority.issue("old", ends=datetime(2021, 1, 1, tzinfo=UTC))
    address, ca = "tls://scheduler.example.org:8786", str(authority.certificate)

    def check(files: tuple[str, str], ca: str = ca) -> list[tuple[bool, str, str]]:
        names = ("ca-file", *(f"{role}.{part}" for role in ("client", "worker") for part in ("cert", "key")))
        settings = {f"distributed.comm.tls.{n}": v for n, v in zip(names, (ca, *files, *files), strict=True)}
        env = {"ORCH23_BUILD_SCHEDULER": address, "ORCH23_CACHE_URL": "/srv/c", "ORCH23_WORKER_SCHEDULER": address}
        with dask.config.set(settings):
            found = sharing(project, head="executor: dask\n", **env)
        return [found["executor"], found["worker"]]

    usable = "which was not asked"
    assert [(ok, usable in value) for ok, value, _ in check(good)] == [(True, True)] * 2
    for files, authority_file, why in (
        (old, ca, f"the certificate {old[0]} expired on 2021-01-01"),
        ((good[0], "/absent.key"), ca, "the key /absent.key cannot be read: No such file or directory"),
        (("/absent.pem", good[1]), ca, "the certificate /absent.pem cannot be read: No such file or directory"),
        ((good[0], old[1]), ca, f"the key {old[1]} is not that of the certificate {good[0]}"),
        (good, "/absent", "the certificate of the authority /absent cannot be read: No such file or directory"),
    ):
        assert [(ok, value) for ok, value, hint in check(files, authority_file) if hint] == [(False, why)] * 2


def test_a_worker_of_the_environment_is_shown_with_its_credentials(project: Project, tmp_path: Path) -> None:
    env = {"ORCH23_WORKER_SCHEDULER": LOCAL, "ORCH23_WORKER_CACHE": "grpcs://cache.example.org"}
    helper = executable(tmp_path / "helper", b"#!/bin/sh\nexit 1\n")
    found = sharing(project, ORCH23_CACHE_CREDENTIAL_HELPER=str(helper), **env)
    assert found == {
        "worker": (True, f"with the scheduler {LOCAL}, which was not asked", ""),
        "worker credential helper": (True, f"{helper}, named in ORCH23_CACHE_CREDENTIAL_HELPER", ""),
    }
    broken = {"ORCH23_CACHE_CREDENTIAL_HELPER": "/absent", "ORCH23_TLS_CLIENT_KEY": "/absent.key"}
    found = sharing(project, **env, **broken)
    assert [one[0] for one in found.values()] == [True, False, False]


@pytest.mark.needs("doctor")
def test_an_executor_of_the_environment_without_a_cache(project: Project) -> None:
    env = {"ORCH23_BUILD_EXECUTOR": "dask", "ORCH23_BUILD_SCHEDULER": LOCAL}
    outcome = project.write({"pipeline.yaml": f"version: 1\n{STAGES}"}).run("doctor", env=env)
    assert f"`dask`, with the scheduler {LOCAL}, which was not asked" in outcome.out
    assert (
        "`dask` needs a shared cache, through which workers get files, and none is used  (add `--cache" in outcome.out
    )
