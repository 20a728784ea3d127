#!/usr/bin/env bash
# pytest 9.0.2: the JUnit file names no subtest.
#
# On the terminal, each failing subtest of the fixture `subtests` has its message and its arguments: `[m] (case='x')`. In the
# file of `--junitxml`, a test with two failing subtests of three is one <testcase> with three <failure> elements: one for each
# subtest and one for the test ("contains 2 failed subtests"). None of them says which subtest it is. The suite counts 4 tests and
# 3 failures, where there is 1 <testcase>. A reader that takes one <failure> of a <testcase>, as most schemas of the format
# allow, loses the others.
#
# Seen 2026-11-29 with Python 3.11, pytest 9.0.2. The script fails if that changes.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check pytest==9.0.2
cd "$folder"

cat >test_cases.py <<'PYTHON'
def test_cases(subtests):
    for case in ("x", "y", "z"):
        with subtests.test("m", case=case):
            assert case == "z"
PYTHON

{
  venv/bin/python -m pytest --version
  venv/bin/python -m pytest -q -p no:cacheprovider --junitxml junit.xml test_cases.py | grep -o '^SUBFAILED.* test_cases' || true
  venv/bin/python - <<'PYTHON'
from xml.etree import ElementTree

suite = ElementTree.parse("junit.xml").getroot()[0]
print("junit: tests", suite.get("tests"), "failures", suite.get("failures"))
for case in suite.iter("testcase"):
    print("junit:", case.get("classname"), case.get("name"), [child.tag for child in case])
print("labels in the attributes:", any("[m]" in str(one.attrib) or "case=" in str(one.attrib) for one in suite.iter()))
PYTHON
} >seen

cat seen
diff seen - <<'EXPECTED'
pytest 9.0.2
SUBFAILED[m] (case='x') test_cases
SUBFAILED[m] (case='y') test_cases
junit: tests 4 failures 3
junit: test_cases test_cases ['failure', 'failure', 'failure']
labels in the attributes: False
EXPECTED
