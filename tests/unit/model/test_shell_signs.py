"""Which characters of a command a shell interprets; both checks of commands use them."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch23.model.text import ShellCharacter, shell_signs
from orch23.resolve.commands import command_step
from orch23_checks.acceptance_commands import shell_operators


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("a|b", "a|b"),
        ("a 'b|c' d", "a  d"),
        ('a "b|c"', "a b|c"),
        ("a\\|b\\\\|", "ab|"),
        ("'a'\\''b'|", "|"),
        ('"a\\"b\'c"|\'', "ab'c|"),
        ("'it", ""),
        ("a\\", "a"),
    ],
)
def test_what_is_quoted_or_escaped_is_left_out(command: str, left: str) -> None:
    assert "".join(sign.char for sign in shell_signs(command)) == left


def test_a_sign_says_where_it_is_and_which_quote_it_is_in() -> None:
    assert list(shell_signs('|"`"')) == [ShellCharacter(0, "|", ""), ShellCharacter(2, "`", '"')]


COMMANDS = st.text(st.sampled_from("ab '\"\\|&;<>()`$\n"), max_size=20)


@given(COMMANDS)
def test_signs_are_a_part_of_the_command_and_quotes_end_where_shlex_says(command: str) -> None:
    signs = list(shell_signs(command))
    assert all(command[sign.at] == sign.char for sign in signs)
    assert [sign.at for sign in signs] == sorted({sign.at for sign in signs})
    try:
        words = shlex.split(command)
    except ValueError:
        return
    bare = "".join(sign.char for sign in signs if not sign.quote)
    assert len(bare.replace(" ", "").replace("\n", "")) <= len("".join(words))


@given(COMMANDS)
def test_a_command_that_orch23_runs_has_no_shell_operators_for_the_planner(command: str) -> None:
    """Both judge alike where both look: outside of quotes, an operator is refused by each."""
    if not isinstance(command_step(f"python {command}", ("python",)), str):
        assert not set("|&;<>()`") & set("".join(shell_operators(f"python {command}")))
