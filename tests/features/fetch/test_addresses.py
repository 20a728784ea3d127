"""A forbidden address is recognized in every form in which a program may read it."""

import pytest

from orch23.features.fetch.step.addresses import forbidden_address, is_address

METADATA = "169.254.169.254"


@pytest.mark.parametrize(
    "host",
    [
        METADATA,
        f"{METADATA}.",
        "2852039166",
        "0xA9FEA9FE",
        "0xa9.0xfe.0xa9fe",
        "0251.0376.0251.0376",
        "169.254.43518",
        "0000000000000000000000025177524776",
        f"::{METADATA}",
        "::a9fe:a9fe",
        f"::ffff:{METADATA}",
        f"::ffff:0:{METADATA}",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
    ],
)
def test_a_link_local_address_is_known_in_all_its_forms(host):
    assert str(forbidden_address(host)) == METADATA


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("169.0254.1.1", "169.254.1.1"),  # to a program that sees no octal numbers
        ("0169.254.1.1", "169.254.1.1"),
        ("fe80::1", "fe80::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("fd00:ec2::254", "fd00:ec2::254"),
        ("64:ff9b::100.100.100.200", "100.100.100.200"),
        ("224.0.0.1", "224.0.0.1"),
        ("0", "0.0.0.0"),
        ("0x", "0.0.0.0"),
        ("::", "::"),
    ],
)
def test_other_addresses_are_forbidden_as_well(host, address):
    assert str(forbidden_address(host)) == address


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("files.example.org", False),
        ("", False),
        ("4294967296", False),
        ("1.2.3.4.5", False),
        ("256.1.1.1", False),
        ("0x.example", False),
        ("169.254.example", False),
        ("127.0.0.1", True),
        ("127.1", True),
        ("::1", True),
        ("8.8.8.8.", True),
        ("2002:808:808::1", True),
        ("64:ff9b::808:808", True),
    ],
)
def test_other_hosts_are_not(host, written):
    assert forbidden_address(host) is None
    assert is_address(host) is written
