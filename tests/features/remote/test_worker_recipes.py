"""The units and the manifest of docs/workers.md: systemd accepts them, and what they name exists."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import distributed
import pytest
import yaml

from tests.walkthrough import blocks

PAGE = Path(__file__).parents[3] / "docs" / "workers.md"
FILES = {block.path: block.body for block in blocks(PAGE) if block.path}
UNITS = [name for name in FILES if name.endswith(".service")]
MANIFESTS: list[Any] = [*yaml.safe_load_all(FILES["orch23.yaml"])]
DEPLOYMENTS = {one["metadata"]["name"]: one["spec"] for one in MANIFESTS if one["kind"] == "Deployment"}
SYSTEMD = shutil.which("systemd-analyze")
BIN = Path(sys.executable).parent
_FLAG = re.compile(r"(?<= )--[a-z-]+")


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_the_units(name: str, tmp_path: Path) -> None:
    if SYSTEMD is None:
        pytest.skip("needs systemd-analyze (apt-get install systemd)")
    text = FILES[name]
    assert text.count("/opt/orch23/bin/") == 1
    # It looks for the program.
    (tmp_path / name).write_text(text.replace("/opt/orch23/bin", str(BIN)))
    command = [SYSTEMD, "verify", "--man=no", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def commands() -> list[str]:
    """Return all commands of the page that run until they are ended, each as one line."""
    of_units = [line.partition("=")[2] for name in UNITS for line in FILES[name].splitlines() if "ExecStart=" in line]
    of_pods = [" ".join(pod(name)["containers"][0]["command"]) for name in DEPLOYMENTS]
    of_jobs = [line for line in FILES["workers.sh"].splitlines() if line.startswith("exec ")]
    return [*of_units, *of_pods, *of_jobs]


def pod(name: str) -> Any:
    return DEPLOYMENTS[name]["template"]["spec"]


@pytest.mark.slow
@pytest.mark.parametrize(("program", "count"), [("orch23 worker", 3), ("dask scheduler", 2)])
def test_the_options_of_commands_exist(program: str, count: int) -> None:
    shown = subprocess.run([*f"{BIN}/{program}".split(), "--help"], capture_output=True, text=True, check=True).stdout
    known, named = set(_FLAG.findall(shown)), [line for line in commands() if program in line]
    assert len(named) == count
    assert {flag for line in named for flag in _FLAG.findall(line)} - known == set()
    variables = {f"ORCH23_WORKER_{flag.removeprefix('--').upper()}" for flag in known}
    of_files = re.findall(r"^ORCH23_\w+", FILES["worker.env"], re.MULTILINE)
    assert of_files
    assert program != "orch23 worker" or set(of_files) <= variables


def test_the_settings_of_dask_exist() -> None:
    (shipped,) = [Path(distributed.__file__).parent / "distributed.yaml"]
    known = yaml.safe_load(shipped.read_text())
    names = set(re.findall(r"DASK_\w+", PAGE.read_text()))
    assert len(names) == 7
    for name in names:
        at: Any = known
        for key in name.removeprefix("DASK_").lower().split("__"):
            at = at[dask.config.canonical_name(key, at)]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_finds_its_pods_volumes_and_certificates(name: str) -> None:
    made, role = DEPLOYMENTS[name], name.removeprefix("orch23-")
    assert made["selector"]["matchLabels"] == made["template"]["metadata"]["labels"] == {"app": name}
    (container,), volumes = pod(name)["containers"], {one["name"]: one for one in pod(name)["volumes"]}
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounted.keys() == volumes.keys()
    # 0440 is octal: the group of `fsGroup` may read it.
    assert volumes["tls"]["secret"] == {"secretName": f"orch23-{role}-tls", "defaultMode": 0o440}
    (secret,) = re.findall(r"kubectl create secret generic orch23-\$role-tls (.*)\n", PAGE.read_text())
    keys = {one.partition("=")[0] for one in re.findall(r"--from-file=(\S+)", secret)}
    values = {one["name"]: one["value"] for one in container["env"]}
    files = {value for name, value in values.items() if "__TLS__" in name}
    assert files == {f"/tls/{key}" for key in keys}
    assert {name for name in values if "__TLS__" in name} == {
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
        *(f"DASK_DISTRIBUTED__COMM__TLS__{role.upper()}__{part}" for part in ("CERT", "KEY")),
    }


def test_workers_find_the_service_of_the_scheduler_and_their_folders() -> None:
    (service,) = [one for one in MANIFESTS if one["kind"] == "Service"]
    assert service["spec"]["selector"] == DEPLOYMENTS["orch23-scheduler"]["selector"]["matchLabels"]
    (port,) = [one["port"] for one in service["spec"]["ports"]]
    words = pod("orch23-worker")["containers"][0]["command"]
    assert f"--scheduler=tls://{service['metadata']['name']}:{port}" in words
    mounted = {one["mountPath"] for one in pod("orch23-worker")["containers"][0]["volumeMounts"]}
    assert {word.partition("=")[2] for word in words if word.startswith(("--cache", "--folder"))} < mounted
