"""Shared caches with a wrong address, and with results that cannot be used or must not be stored."""

from collections.abc import Mapping
from typing import Any

from tests.catalogue.provoking import Triggers, raised, shown
from tests.project import Outcome, Project, scripted

TRIGGERS = Triggers()
_UNSANDBOXED = {"ORCH23_ALLOW_UNSANDBOXED": "1"}
_ANY_PLATFORM = {"platform": "any"}


def built(
    project: Project,
    name: str,
    env: Mapping[str, str] = _UNSANDBOXED,
    *,
    verify: str = "",
    lock: str = "",
    shell: str = "cp in.txt out.txt",
    **more: Any,
) -> Outcome:
    """Build one stage in a checkout of its own, with a cache that all checkouts share."""
    verified = {"verify": [{"shell": verify}]} if verify else {}
    stage = {"inputs": ["in.txt"], "outputs": ["out.txt"], "shell": shell, "sandbox": "off", **verified}
    rules = {**_ANY_PLATFORM, **({"verify": "always"} if verify else {}), **more}
    files = {"in.txt": "all-of-it\n", **({"pipeline.lock": lock} if lock else {})}
    checkout = Project(project.root / name).write({**scripted({"a": stage}, {}, cache=rules), **files})
    return checkout.build("--cache", str(project.root / "cache"), env=env)


@TRIGGERS.of("E721", needs="cache")
def password_that_others_can_read(_project: Project) -> set[str]:
    """Name a cache with a password, on another machine and without encryption."""
    from orch23.features.cache.registry import open_shared_cache  # noqa: PLC0415 - of a feature

    return raised(lambda: open_shared_cache("http://user:password@cache.example.org/"))


@TRIGGERS.of("E722", needs="cache")
def certificate_that_is_not_there(_project: Project) -> set[str]:
    """Name a certificate of this client whose file is missing."""
    from orch23.features.cache.client_certificate import ClientCertificate  # noqa: PLC0415 - of a feature

    return raised(ClientCertificate("/nowhere/client.pem", "/nowhere/client.key").read)


@TRIGGERS.of("W684", needs="cache")
def result_of_a_machine_without_a_sandbox(project: Project) -> set[str]:
    """Require results of the highest tier."""
    return shown(built(project, "one"), built(project, "two", tier="A"))


@TRIGGERS.of("W685", needs="cache")
def lock_file_that_names_another_result(project: Project) -> set[str]:
    """Build twice, with a program that prints something else; clone the second lock file, and keep the first cache."""
    cache = project.root / "cache"
    for name in ("one", "other"):
        project.write({"said": name})
        built(project, name, shell=f"cat {project.root}/said > out.txt")
        cache.rename(project.root / f"cache-of-{name}")
    (project.root / "cache-of-one").rename(cache)
    lock = (project.root / "other/pipeline.lock").read_text()
    return shown(built(project, "two", lock=lock, shell=f"cat {project.root}/said > out.txt"))


@TRIGGERS.of("W732", needs="cache")
def result_that_cannot_be_signed(project: Project) -> set[str]:
    """Build with the public key of someone else."""
    env = {"XDG_CONFIG_HOME": str(project.root / "of someone else")}
    line = Project(project.root / "theirs").run("cache", "key", "new", "ci", env=env).out.strip()
    return shown(built(project, "one", signed_by=[line], mode="read-write"))


@TRIGGERS.of("W697", needs="cache")
def result_that_passes_only_once(project: Project) -> set[str]:
    """Share a result, and verify it where the verification finds a file beside the checkout, once."""
    mark = project.root / "mark"
    verify = f"if test -e {mark}; then rm {mark}; exit 1; fi"
    made = built(project, "one", verify=verify)
    mark.touch()
    return shown(made, built(project, "two", verify=verify))


@TRIGGERS.of("W698", needs="cache")
def entry_that_is_none(project: Project) -> set[str]:
    """Write other bytes in place of an entry."""
    made = built(project, "one")
    for entry in (path for path in (project.root / "cache/ac").rglob("*") if path.is_file()):
        entry.unlink()
        entry.write_bytes(b"\xff")
    return shown(made, built(project, "two"))


@TRIGGERS.of("W699", needs="cache")
def result_with_a_secret(project: Project) -> set[str]:
    """Write the value of a secret variable."""
    return shown(built(project, "one", {**_UNSANDBOXED, "TEAM_TOKEN": "all-of-it"}))
