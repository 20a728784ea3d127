"""Which paths a pattern matches, and which paths no model may name, case by case."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.paths import (
    MAX_PATH_DEPTH,
    MAX_SEGMENT_BYTES,
    covers,
    is_glob,
    match,
    match_any,
    may_overlap,
    normalize_pattern,
    static_prefix,
    unsafe_reason,
)
from tests.ignored_paths import is_ignored


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("a.py", "a.py", True),
        ("a.py", "aXpy", False),
        ("a.py", "b/a.py", False),
        ("./a.py", "a.py", True),
        ("*.py", "a.py", True),
        ("*.py", ".py", True),
        ("*.py", "b/a.py", False),
        ("*", ".hidden", True),
        ("?.py", "a.py", True),
        ("?.py", ".py", False),
        ("a?b", "a/b", False),
        ("a*b", "a/b", False),
        ("**", "a", True),
        ("**", "a/b/c", True),
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/y/a.py", True),
        ("a/**", "a/b", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a/**", "ab/c", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/xb", False),
        ("a**b", "aXXb", True),
        ("a**b", "a/b", False),
        ("d/", "d/a", True),
        ("d/", "d/a/b", True),
        ("d/", "d", False),
        ("d/", "dd/a", False),
        ("", "a/b", True),
        ("[ab].py", "a.py", True),
        ("[ab].py", "c.py", False),
        ("[a-c].py", "b.py", True),
        ("[z-a].py", "b.py", False),
        ("[!z-a].py", "b.py", True),
        ("[!ab].py", "c.py", True),
        ("[^ab].py", "a.py", False),
        ("[!ab]b", "/b", False),
        ("[]a]", "]", True),
        ("[!]", "[!]", True),
        ("[!]a]", "b", True),
        ("[!]a]", "]", False),
        ("[a", "[a", True),
        ("[a-]", "-", True),
        ("[[x]", "[", True),
        (r"[\d]", "d", True),
        (r"[\d]", "5", False),
        ("a+(b)", "a+(b)", True),
        ("a\nb*", "a\nbc", True),
    ],
)
def test_a_pattern_means_these_paths_and_not_those(pattern: str, path: str, expected: bool) -> None:
    assert match(pattern, path) is expected
    assert match_any(("nothing", pattern), path) is expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a.py", False), ("a/", True), ("*.py", True), ("a?", True), ("[ab]", True), ("a-b_c.d", False)],
)
def test_a_glob_is_what_may_mean_more_than_one_file(pattern: str, expected: bool) -> None:
    assert is_glob(pattern) is expected


@pytest.mark.parametrize(
    ("pattern", "expected"), [("./a", "a"), ("././a", "a"), ("d/", "d/**"), ("", "**"), ("./", "**"), (".a", ".a")]
)
def test_a_pattern_has_one_normal_form(pattern: str, expected: str) -> None:
    assert normalize_pattern(pattern) == expected
    assert normalize_pattern(normalize_pattern(pattern)) == normalize_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("a/b.py", "a/"), ("a/b*/c", "a/"), ("a.py", ""), ("**", ""), ("d/", "d/"), ("d/e/", "d/e/"), ("x[ab]/y", "")],
)
def test_the_static_prefix_is_the_folder_before_the_first_wildcard(pattern: str, expected: str) -> None:
    assert static_prefix(pattern) == expected


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        (".git/config", "**", True),
        (".git/config", ".git/**", False),
        (".git/config", ".git/", False),
        ("a/.git/config", "a/**", True),
        (".gitignore", "**", False),
        ("logs/x.jsonl", "**", False),
        ("logs/20261121T143022Z-1a2b3c4d.jsonl", "logs/*", True),
        ("sub/logs/20261121T143022Z-1a2b3c4d-2.jsonl", "sub/**", True),
        ("logs/20261121T143022Z-1a2b3c4d/code/attempt-1/prompt.md", "logs/**", True),
        ("logs/crash-20261121T143022000000Z.txt", "logs/*", True),
        ("data/20261121T143022Z-1a2b3c4d.jsonl", "**", False),
        (".orch23/VERSION", ".orch23/*", True),
        ("sub/.orch23-aside/1/id", "sub/.orch23-aside/**", True),
        ("src/logs/x", "**", False),
        ("logs", "*", False),
        ("src/__pycache__/a.pyc", "src/", True),
    ],
)
def test_a_wildcard_enters_no_ignored_name_that_the_pattern_does_not_name(
    path: str, pattern: str, expected: bool
) -> None:
    assert is_ignored(path, pattern) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("src/", "src/a.py", True),
        ("src/", "srcs/a.py", False),
        ("src/*.py", "src/*_test.py", True),
        ("src/*.py", "src/*.txt", False),
        ("src/**", "**/a.py", True),
        ("**/a", "**/b", False),
        ("a/**/z", "a/b/*", True),
        ("a/*", "a/*/*", False),
        ("a/**", "a", False),
        ("[ab]*", "c*", False),
        ("[ab]*", "b*", True),
        ("[!a]x", "ax", False),
        ("a*", "[ab]", True),
        ("[ab]", "[cd]", True),
        ("./x/*", "x/y", True),
    ],
)
def test_two_patterns_meet_where_one_path_is_meant_by_both(one: str, other: str, expected: bool) -> None:
    assert may_overlap(one, other) is expected
    assert may_overlap(other, one) is expected


COVERED = ("**", "src/**", "src/x/**", "src/*.py", "src/a.py", "src/x/*", "src/[ax]*", "*/x/**", "src/x/a.py", "x/")
PATHS = ("src/a.py", "src/b.py", "src/x/a.py", "src/x/y/a.py", "src/xy.py", "x/a", "a.py", "lib/x/a.py")


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ("src/**", "src/x/", True),
        ("src/x/", "src/x/**", True),
        ("src/x/**", "src/x/y/*.py", True),
        ("src/x/**", "src/**", False),
        ("src/x/**", "src/xy/**", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/*.py", True),
        ("**", "a/b*", True),
    ],
)
def test_a_pattern_covers_another(wide: str, narrow: str, expected: bool) -> None:
    assert covers(wide, narrow) is expected


def test_what_a_pattern_covers_is_all_that_the_other_means() -> None:
    for wide in COVERED:
        for narrow in COVERED:
            if covers(wide, narrow):
                assert all(match(wide, path) for path in PATHS if match(narrow, path)), (wide, narrow)


def test_long_patterns_meet_without_running_out_of_stack_or_time() -> None:
    long = "a" * 5000
    assert may_overlap(f"{long}*", f"*{long}")
    deep = "/".join(["**", "a"] * 40)
    assert not may_overlap(f"{deep}/b", f"{deep}/c")


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is empty"),
        ("/etc/passwd", "is absolute"),
        ("e\u0301.py", "NFC"),
        ("a\x00b", "control"),
        ("a\nb", "control"),
        ("a\x85b", "control"),
        ("a\ud800", "control"),
        ("a\u202eb", "invisible"),
        ("a\u200bb", "invisible"),
        ("a\u200eb", "invisible"),
        ("a\u2028b", "invisible"),
        ("a\u00adb", "invisible"),
        ("a\u2062b", "invisible"),
        ("a\U000e0041b", "invisible"),
        ("\ufeffa", "invisible"),
        ("a\\b", "holds one of"),
        ("c:x", "holds one of"),
        ("a*", "holds one of"),
        ("a?", "holds one of"),
        ('a"b', "holds one of"),
        ("a<b", "holds one of"),
        ("a>b", "holds one of"),
        ("a|b", "holds one of"),
        ("../a", "climbs out"),
        ("a/../b", "climbs out"),
        ("..", "climbs out"),
        ("a//b", "empty"),
        ("a/", "empty"),
        ("./a", "empty"),
        ("a/./b", "empty"),
        ("-rf", "starts with"),
        ("a/-b", "starts with"),
        ("~/a", "starts with"),
        ("a.", "ends in"),
        ("a /b", "ends in"),
        ("...", "ends in"),
        ("nul", "Windows"),
        ("a/CON.txt", "Windows"),
        ("con .txt", "Windows"),
        ("com1.tar.gz", "Windows"),
        ("lpt\u00b2", "Windows"),
        ("x" * (MAX_SEGMENT_BYTES + 1), "bytes"),
        ("\u00e9" * (MAX_SEGMENT_BYTES // 2 + 1), "bytes"),
        ("/".join(["x" * 150] * 8), "bytes"),
        ("/".join(["x"] * (MAX_PATH_DEPTH + 1)), "levels"),
    ],
)
def test_a_path_that_no_model_may_name_has_a_reason(path: str, why: str) -> None:
    assert why in (unsafe_reason(path) or "nothing")


@pytest.mark.parametrize(
    "path",
    [
        "a.py",
        ".env",
        "a/b/c.txt",
        "a b.txt",
        "caf\u00e9.md",
        "\u65e5\u672c.txt",
        "a-b",
        "a~",
        "console.py",
        "com10",
        "auxiliary",
        "x" * MAX_SEGMENT_BYTES,
        "/".join(["x"] * MAX_PATH_DEPTH),
        "[id].tsx",
    ],
)
def test_an_ordinary_path_is_safe(path: str) -> None:
    assert unsafe_reason(path) is None


@given(st.text(max_size=40))
def test_a_safe_path_stays_below_the_root_and_is_its_own_normal_form(path: str) -> None:
    if unsafe_reason(path) is None:
        names = path.split("/")
        assert not {"", ".", ".."} & set(names)
        assert unicodedata.normalize("NFC", path) == path
        assert not {"Cc", "Cf", "Cs", "Zl", "Zp"} & {unicodedata.category(character) for character in path}
        assert "\\" not in path
