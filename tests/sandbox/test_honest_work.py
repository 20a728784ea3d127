"""A sandbox does not break honest work: thirty things that programs do, in each tier and as two users."""

import json

import pytest

from tests.sandbox.users import need, run_as

pytestmark = pytest.mark.slow  # a compiler, a version control, servers, pools

# docs/safety.md says so: Landlock cannot tell one socket on a path from another, so none can be connected to; only who
# may make a network of its own has a loopback that is nobody else's; and /dev/shm is shared by all programs of the
# machine and outlives the step, so it is closed, and locks between processes are files there.
_PATHS = {"processes_by_forkserver", "a_manager", "a_server_on_a_path"}
_SHARED_MEMORY = {"processes_by_fork", "processes_by_spawn", "a_pool_of_processes", "shared_memory"}
_NETWORK = {"a_loopback_server", "datagrams_on_the_loopback"}


def failing(tier: str, user: str, package: str) -> dict[str, str]:
    done = run_as(user, "-m", "tests.sandbox.working", tier, HONEST_PACKAGE=package)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.stride(5)
@pytest.mark.parametrize(("user", "package"), [("self", "pytest"), ("nobody", "")])
@pytest.mark.parametrize("tier", ["bubblewrap", "namespaces"])
def test_no_normal_program_breaks_in_namespaces(tier: str, user: str, package: str) -> None:
    need(tier)
    assert failing(tier, user, package) == {}


@pytest.mark.stride(2)
@pytest.mark.parametrize(("user", "package"), [("self", "pytest"), ("nobody", "")])
def test_landlock_breaks_sockets_and_shared_memory_alone(user: str, package: str) -> None:
    need("landlock")
    failed = failing("landlock", user, package)
    assert failed.keys() <= _PATHS | _NETWORK | _SHARED_MEMORY, failed


@pytest.mark.thorough  # that of namespaces stays
def test_all_of_it_works_without_a_sandbox() -> None:
    assert failing("none", "self", "pytest") == {}
