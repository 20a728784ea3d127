"""Over a hundred attacks from inside each tier of the sandbox, judged from outside, as root and as an ordinary user."""

import json
import os
import secrets

import pytest

from tests.sandbox.probe import table
from tests.sandbox.users import TIERS, need, run_as

pytestmark = pytest.mark.slow  # a hundred processes each: `make test` runs them, `make check` does not

USERS = ("self", "nobody")
KNOWN = {
    "bubblewrap": set(),
    "namespaces": set(),
    # docs/safety.md says so of Landlock: metadata of files whose path is known, and what /proc shows to everybody.
    "landlock": {"change_the_mode", "change_the_times", "look_at_a_file", "read_command_line_of_neighbour"},
}

INTERNET = {
    *("connect_tcp", "connect_by_fast_open", "connect_without_waiting", "connect_by_ipv6", "send_udp"),
    *("connect_to_the_address_of_the_machine", "connect_with_a_shell"),
}


def probed(tier: str, user: str, *flags: str) -> dict[str, list[str]]:
    done = run_as(user, "-m", "tests.sandbox.probe", tier, *flags, PROBE_SECRET=secrets.token_hex(16))
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def test_there_are_enough_attacks() -> None:
    assert len(table()) >= 100


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("tier", TIERS)
def test_no_attack_gets_out(tier: str, user: str) -> None:
    need(tier)
    found = probed(tier, user)
    assert set(found["tried"]) == set(table())
    assert set(found["escaped"]) <= KNOWN[tier]


@pytest.mark.stride(4)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("tier", TIERS)
def test_a_network_opens_the_internet_alone(tier: str, user: str) -> None:
    need(tier)
    found = probed(tier, user, "network")
    assert set(found["escaped"]) <= KNOWN[tier] | INTERNET


@pytest.mark.parametrize("user", USERS)
def test_the_probe_sees_every_attack_that_gets_out(user: str) -> None:
    """Without a sandbox every attack that needs nothing but this user's rights succeeds, and is seen."""
    found = probed("none", user)
    assert len(found["escaped"]) >= 50
    unreachable = {"connect_to_the_address_of_the_machine"} if not os.path.exists("/proc/net/route") else set()
    assert set(found["tried"]) - set(found["escaped"]) <= unreachable | _refused_by_the_machine(user)


def _refused_by_the_machine(user: str) -> set[str]:
    """Return what a machine may refuse by itself: a container has fewer privileges and namespaces than a host."""
    namespaces = {"new_user_namespace", "clone_a_user_namespace", "clone3_a_user_namespace"}
    # Not every file system has these.
    attributes = {name for name in table() if name.startswith(("set_a_flag", "set_an_", "read_an_", "reserve_"))}
    tracing = {"trace_neighbour", "read_memory_of_neighbour", "read_memory_by_proc", "take_descriptor_of_neighbour"}
    ours = {name for name, one in table().items() if one.plain == "root"} if user == "self" else set()
    groups = {"change_the_group"} if set(os.getgroups()) <= {os.getgid()} else set()  # there is none to give it to
    slowest = {"slow_neighbour_down"} if os.getpriority(os.PRIO_PROCESS, 0) == 19 else set()  # as slow as can be
    return namespaces | attributes | tracing | ours | groups | slowest
