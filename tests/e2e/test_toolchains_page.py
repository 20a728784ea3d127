"""The pipelines of docs/cookbook/toolchains.md, with the real programs, on the smallest project of each language."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec import Struct

from orch23.execute.launch import TierChoice
from orch23.execute.sandbox.bubblewrap import NamespacesLauncher
from orch23.execute.sandbox.landlock import LandlockLauncher
from tests.project import Project
from tests.sandbox.users import need
from tests.walkthrough import blocks

PAGE = Path(__file__).parents[2] / "docs/cookbook/toolchains.md"
MODEL = "provider: anthropic, model: claude-sonnet-5"


class Language(Struct, frozen=True):
    """A project: what it needs, its files, the file that is edited, and the test that a wrong edit fails."""

    programs: tuple[str, ...]
    files: Mapping[str, str]
    edited: str
    test: str


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion> <groupId>org.example</groupId> <artifactId>sub</artifactId> <version>1</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source> <maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies><dependency>
    <groupId>org.junit.jupiter</groupId> <artifactId>junit-jupiter</artifactId> <version>5.11.4</version>
  </dependency></dependencies>
  <build><plugins>
    <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.1</version></plugin>
    <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.13.0</version></plugin>
    <plugin><artifactId>maven-surefire-plugin</artifactId><version>3.2.5</version></plugin>
  </plugins></build>
</project>
"""
CMAKE = """cmake_minimum_required(VERSION 3.10)
project(sub C)
enable_testing()
add_executable(small_numbers test.c sub.c)
add_test(NAME small_numbers COMMAND small_numbers)
"""
LANGUAGES = {
    "rust": Language(
        ("cargo", "cc"),
        {
            "Cargo.toml": '[package]\nname = "sub"\nversion = "1.0.0"\nedition = "2021"\n',
            "Cargo.lock": 'version = 3\n\n[[package]]\nname = "sub"\nversion = "1.0.0"\n',
            "src/lib.rs": "pub fn sub(a: i32, b: i32) -> i32 {\n    a - b\n}\n",
            "tests/sub.rs": "#[test]\nfn small_numbers() {\n    assert_eq!(sub::sub(3, 2), 1);\n}\n",
        },
        "src/lib.rs",
        "test small_numbers ... FAILED",
    ),
    "node": Language(
        ("node", "npm"),
        {
            "package.json": '{"name": "sub", "scripts": {"test": "node --test --test-reporter=tap test/"}}\n',
            "index.js": "module.exports = (a, b) => a - b;\n",
            "test/sub.test.js": "const sub = require('../');\n"
            "require('node:test')('small numbers', () => require('node:assert').strictEqual(sub(3, 2), 1));\n",
        },
        "index.js",
        "small numbers: ",
    ),
    "go": Language(
        ("go",),
        {
            "go.mod": "module example.org/sub\n\ngo 1.19\n",
            "sub.go": "package sub\n\nfunc Sub(a, b int) int { return a - b }\n",
            "sub_test.go": 'package sub\n\nimport "testing"\n\n'
            "func TestSmallNumbers(t *testing.T) {\n\tif got := Sub(3, 2); got != 1 {\n\t\tt.Fatal(got)\n\t}\n}\n",
        },
        "sub.go",
        "example.org/sub > TestSmallNumbers",
    ),
    "c": Language(
        ("cmake", "ctest", "cc", "make"),
        {
            "CMakeLists.txt": CMAKE,
            "sub.h": "int sub(int a, int b);\n",
            "sub.c": '#include "sub.h"\nint sub(int a, int b) { return a - b; }\n',
            "test.c": '#include "sub.h"\nint main(void) { return sub(3, 2) != 1; }\n',
        },
        "sub.c",
        "failed: small_numbers",
    ),
    "java": Language(
        ("mvn", "java"),
        {
            "pom.xml": POM,
            "src/main/java/Sub.java": "class Sub {\n    static int sub(int a, int b) { return a - b; }\n}\n",
            "src/test/java/SubTest.java": "import static org.junit.jupiter.api.Assertions.assertEquals;\n"
            "class SubTest {\n    @org.junit.jupiter.api.Test\n"
            "    void smallNumbers() { assertEquals(1, Sub.sub(3, 2)); }\n}\n",
        },
        "src/main/java/Sub.java",
        "SubTest > smallNumbers: ",
    ),
}
# A program of rustup is in a home directory.
USER = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}


def fill_maven_repository(project: Project) -> None:
    """Copy what the tests need from the repository of the user to `m2`, as Maven downloads it."""
    own = Path(USER["HOME"], ".m2/repository")
    mirror = f"<mirror><id>own</id><mirrorOf>*</mirrorOf><url>file://{own}</url></mirror>"
    project.write({"settings.xml": f"<settings><mirrors>{mirror}</mirrors></settings>"})
    argv = ["mvn", "-q", "-s", "settings.xml", "-Dmaven.repo.local=m2", "test"]
    done = subprocess.run(argv, cwd=project.root, env=USER, capture_output=True, text=True, check=False)
    shutil.rmtree(project.root / "target", ignore_errors=True)
    if done.returncode:
        pytest.skip(f"the repository of this machine lacks something: {done.stdout[:300]}")
    for path in (project.root / "m2").rglob("_remote.repositories"):
        path.unlink()


def edit(path: str, search: str, replace: str) -> str:
    return f"{path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def fail_then_pass(project: Project, name: str, tier: str) -> None:
    language, files = LANGUAGES[name], {block.path: block.body for block in blocks(PAGE) if block.path}
    missing = [program for program in language.programs if shutil.which(program, path=USER.get("PATH")) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not installed")
    text = files[f"{name}.yaml"]
    assert text.count(MODEL) == 1
    (line,) = [one for one in language.files[language.edited].splitlines() if "a - b" in one]
    wrong, right = line.replace("a - b", "a + b"), line.replace("a - b", "-b + a")
    answers = {"change": [edit(language.edited, line, wrong), edit(language.edited, wrong, right)]}
    project.write({**language.files, "ask.md.j2": files["ask.md.j2"], "task.md": "another order\n"})
    project.write({"answers.yaml": json.dumps(answers)})
    project.write({"pipeline.yaml": text.replace(MODEL, "provider: scripted, model: scripted, answers: answers.yaml")})
    if name == "java":
        fill_maven_repository(project)
    need(tier)
    launcher = LandlockLauncher() if tier == "landlock" else NamespacesLauncher()
    with patch("orch23.cli.build_run._best_tier", return_value=TierChoice(launcher)):
        built = project.build(env=USER)
    assert built.code == 0, built
    assert "2 calls" in built.err
    assert project.read(language.edited) == language.files[language.edited].replace("a - b", "-b + a")
    shown = project.run("show", "change", "--prompt", "--attempt", "2", env=USER)
    _, _, feedback = shown.out.partition("what failed")
    assert language.test in feedback, shown


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c"])
def test_a_pipeline_of_the_page_names_the_failed_test(project: Project, name: str) -> None:
    fail_then_pass(project, name, "namespaces")


@pytest.mark.thorough
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
@pytest.mark.parametrize("name", LANGUAGES)
def test_every_pipeline_of_the_page_names_the_failed_test_in_each_tier(project: Project, name: str, tier: str) -> None:
    fail_then_pass(project, name, tier)
