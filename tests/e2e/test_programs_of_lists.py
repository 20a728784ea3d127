"""A list is one program and its arguments: a command line in place of the program is an error before the build."""

import json

import pytest

from tests.e2e.pipelines import green
from tests.project import Project

TOOL = {"bin/my tool": "#!/bin/sh\necho $1 > out\n"}


def stage(**body: object) -> str:
    return json.dumps(
        {"version": 1, "vars": {"two": ["touch out", "echo hi"]}, "stages": {"s": {"outputs": ["out"], **body}}}
    )


MODEL = {"provider": "command", "model": "m", "prompt": "p.md"}


@pytest.mark.parametrize(
    ("body", "ways"),
    [
        ({"shell": ["cp a out", "echo hi"]}, ("help: write commands as one text: `shell: cp a out && echo hi`",)),
        ({"shell": ["cp -r", "a", "out"]}, ("help: write each word as an item: `[cp, -r, a, out]`\n",)),
        ({"shell": ["cd b && cp a", "ls -l"]}, ('help: write commands as one text: `shell: "cd b && cp a && ls -l"`',)),
        ({"shell": ["echo a\necho b\n", "ls -l"]}, ('`shell: "echo a\\necho b && ls -l"`',)),
        ({"shell": ["echo 'a b'", "x"]}, ("help: write the whole command line as one text",)),
        ({"shell": ["echo a;", "echo b # c"]}, ("help: write the whole command line as one text",)),
        ({"shell": ["touch out"]}, ("`[touch, out]`", "`shell: touch out`")),
        ({"shell": ["bin/tool\tout"]}, ("`[bin/tool, out]`", "`shell: bin/tool\tout`")),
        ({"shell": ["${{ vars.two }}"]}, ("`shell: touch out && echo hi`",)),
        (
            {"shell": "true", "verify": [{"if": False, "shell": "true"}, {"shell": ["test -f out"]}]},
            ("`[test, -f, out]`",),
        ),
        ({"shell": "true", "verify": {"steps": [{"shell": ["test -f out"]}]}}, ("`[test, -f, out]`",)),
        ({"foreach": {"in": ["a"]}, "outputs": ["o/a"], "shell": ["touch ${{ item }}"]}, ("`[touch, a]`",)),
        # Only a pattern matches the text, and no file.
        ({"inputs": ["bin/**"], "shell": ["bin/x --all", "bin/y"]}, ("no program is named `bin/x --all`",)),
        ({"inputs": ["bin/"], "shell": "true", "verify": [{"shell": ["bin/x all"]}]}, ("`[bin/x, all]`",)),
        ({"llm": {**MODEL, "command": ["cat a", "b"]}}, ("`[cat, a, b]`",)),
        (
            {"llm": {**MODEL, "command": ["cat"]}, "verify": [{"shell": ["grep a bin/x", "b"]}]},
            ("`[grep, a, bin/x, b]`",),
        ),
        # A folder that the stage writes does not make a command line the name of a file in it.
        ({"outputs": ["d/"], "shell": ["cp a d/", "echo hi"]}, ("`shell: cp a d/ && echo hi`",)),
        ({"outputs": ["d/"], "shell": ["cp a d/x", "echo hi"]}, ("`shell: cp a d/x && echo hi`",)),
        ({"outputs": ["d/"], "shell": ["d/tool --all"]}, ("`[d/tool, --all]`",)),
        ({"outputs": ["d/"], "shell": ["d/tool a ./b"]}, ("`[d/tool, a, ./b]`",)),
        ({"outputs": ["d/"], "cwd": "d", "shell": ["cp ../a x"]}, ("`[cp, ../a, x]`",)),
        ({"outputs": ["d/"], "cwd": "d", "shell": ["cp ../a ./x", "ls"]}, ("`[cp, ../a, ./x, ls]`",)),
        (
            {"outputs": ["d/"], "shell": "mkdir d", "verify": {"steps": [{"shell": ["d/x -v"]}]}},
            ("`[d/x, -v]`",),
        ),
    ],
)
def test_a_command_line_is_no_program(project: Project, body: dict[str, object], ways: tuple[str, ...]) -> None:
    project.write({"pipeline.yaml": stage(**body), "a": "", "p.md": "", "bin/x": "", "bin/y": ""})
    outcome = project.run("validate")
    assert outcome.code == 65
    assert outcome.err.count("error[E812]") == 1
    assert all(way in outcome.err for way in ways), outcome.err


@pytest.mark.slow
def test_the_ways_that_the_help_names_work(project: Project) -> None:
    for shell in (["touch", "out"], "touch out && echo hi", "touch out\necho ok && echo more"):
        project.write({"pipeline.yaml": stage(shell=shell)})
        green(project.build())


@pytest.mark.parametrize(
    ("cwd", "program"),
    [(".", "d/my tool"), ("d", "./my tool"), (".", "d/my dir/tool"), (".", "d/My - tool"), (".", "./d/a b c.sh")],
)
def test_a_program_with_a_blank_may_be_made_in_a_folder_of_the_stage(project: Project, cwd: str, program: str) -> None:
    path = f"d/{program.removeprefix('./').removeprefix('d/')}"
    make = f'mkdir -p "$(dirname "{path}")"; printf "#!/bin/sh\nexit 0\n" > "{path}"; chmod +x "{path}"'
    verify = [{"shell": [program, "--all", "d/x"]}]
    project.write(
        {
            "pipeline.yaml": stage(
                outputs=["d/"], cwd=cwd, shell=f"cd {'..' if cwd == 'd' else '.'}; {make}", verify=verify
            )
        }
    )
    project.write({"d/.keep": ""})
    green(project.build())
    made = stage(
        outputs=["d/run -x"],
        shell="printf '#!/bin/sh\\n' > 'd/run -x'; chmod +x 'd/run -x'",
        verify=[{"shell": ["d/run -x"]}],
    )
    project.write({"pipeline.yaml": made})
    assert project.run("validate").code == 0


@pytest.mark.slow
def test_a_file_of_the_stage_may_have_a_blank_in_its_name(project: Project) -> None:
    project.write(TOOL)
    (project.root / "bin/my tool").chmod(0o755)
    for body in (
        {"shell": ["bin/my tool", "x"]},
        {"cwd": "bin", "shell": ["./my tool", "x"], "outputs": ["bin/out"]},
        {"cwd": "lib", "shell": ["../bin/my tool", "x"], "outputs": ["lib/out"]},
    ):
        project.write({"pipeline.yaml": stage(inputs=["bin/*tool"], **body)})
        green(project.build())
    project.write({"pipeline.yaml": stage(shell=["bin/my tool", "x"])})
    assert project.run("validate").code == 65
    project.write({"pipeline.yaml": stage(shell=["/opt/my tools/x", "-c"])})
    assert project.run("validate").code == 0
