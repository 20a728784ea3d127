"""An item of a file may give an argument, and never a program or its code: it depends on the program which that is."""

import pytest

from orch23.language.item_rules import argument_value_error, pytest_argument_error, template_argument_error

VALUE = "${{ t }}"


@pytest.mark.parametrize(
    "command",
    [
        "gcc -c",
        "gcc -O2 -c",
        "ccache g++ -Wall -c",
        "wc -c",
        "grep -c",
        "tail -c",
        "tar -c",
        "nasm -e",
        "timeout 5 gcc -c",
        "env LC_ALL=C nice -n 5 wc -c",
        "xargs -a",
        "python build.py --name",
        "python -m compiler",
        "bash run.sh -v",
        "bash -c true x",
        "python",
        "node tool.js -p",
    ],
)
def test_an_argument_of_a_program_that_runs_no_text_is_the_items(command: str) -> None:
    assert argument_value_error(command.split(), VALUE, "src/a.c") is None


@pytest.mark.parametrize(
    "command",
    [
        "sh -c",
        "bash -c",
        "/bin/bash -c",
        "bash -euo pipefail -c",
        "bash -euo pipefail -xc",
        "bash -xc",
        "bash -c -x",
        "bash -c --",
        "dash -ec",
        "zsh -lc",
        "fish -c",
        "python -c",
        "python3.12 -Ic",
        "python -W ignore -Ic",
        "pypy3 -c",
        "perl -e",
        "perl -ne",
        "perl -E",
        "ruby -e",
        "node -e",
        "node --eval",
        "node -p",
        "node --print",
        "deno eval",
        "bun -e",
        "php -r",
        "lua5.4 -e",
        "Rscript -e",
        "pwsh -Command",
        "env bash -c",
        "env -i X=1 bash -c",
        "timeout 5 sh -c",
        "timeout -k 1 5 sh -c",
        "nice -n 5 python -c",
        "xargs -n 1 sh -c",
        "sudo -u nobody sh -c",
        "busybox sh -c",
        "nohup setsid stdbuf -o L bash -c",
        "su root -c",
        "git -c",
        "sh.exe -c",
        "python script.py -c",
    ],
)
def test_code_of_an_interpreter_is_not_the_items_whatever_the_item_says(command: str) -> None:
    found = template_argument_error(command.split(), VALUE)
    assert found is not None
    assert found[0].startswith("an item may not decide what `-") or command == "deno eval"
    assert argument_value_error(command.split(), VALUE, "a.c") == found


@pytest.mark.parametrize(("program", "source"), [("python", "-c"), ("perl", "-e"), ("node", "--eval="), ("php", "-r")])
def test_code_that_is_joined_to_its_option_is_code_too(program: str, source: str) -> None:
    assert template_argument_error([program], source + VALUE) is not None
    assert template_argument_error(["gcc"], source + VALUE) is None


@pytest.mark.parametrize(
    "value",
    [
        "rm -rf x",
        "a;b",
        "a|b",
        "$(x)",
        "`x`",
        "a&b",
        "a\nb",
        "a>b",
        "x()",
        "import os",
        "../x",
        "/etc/x",
        "*.c",
        "x=1",
        "",
    ],
)
def test_of_an_unknown_program_the_value_after_such_an_option_is_a_plain_path(value: str) -> None:
    assert argument_value_error(["unknown", "-c"], VALUE, value) is not None
    assert argument_value_error(["unknown", "-x"], VALUE, value) is None


@pytest.mark.parametrize(
    "command",
    ["env", "env -i", "env X=1", "timeout 5", "timeout -k 1 5s", "nice", "nice -n 5", "nohup", "xargs -n 1", "env -S"],
)
def test_the_program_behind_a_wrapper_is_not_the_items(command: str) -> None:
    found = argument_value_error(command.split(), VALUE, "rm")
    assert found is not None
    assert "may not decide the program that" in found[0]


def test_what_a_wrapper_takes_beside_a_program_is_the_items() -> None:
    assert argument_value_error(["timeout"], VALUE, "30s") is None
    assert argument_value_error(["nice", "-n"], VALUE, "5") is None
    assert argument_value_error(["env"], "NAME=${{ t }}", "NAME=anything") is None
    assert argument_value_error(["env", "X=1", "make"], VALUE, "target") is None


def test_what_find_executes_is_not_the_items() -> None:
    assert template_argument_error(["find", ".", "-exec"], VALUE) is not None
    assert template_argument_error(["find", ".", "-name"], VALUE) is None


def test_settings_and_plugins_of_pytest_are_not_the_items() -> None:
    assert all(pytest_argument_error(["-q", option]) is not None for option in ("-c", "-p", "-o"))
    assert pytest_argument_error(["-q", "-k"]) is None
    assert pytest_argument_error([]) is None
