"""The diagnostic codes of work orders, which several modules share; a code of one check is in `CODES` of its module."""

from orch23.checks.check import Codes

CODES: Codes = {
    "E003": (
        "an acceptance command needs a shell",
        "Acceptance commands run without a shell: a pipe, a redirection, `&&`, `;`, `$NAME`, a backtick, a line "
        "break or an assignment in front would reach the program as plain text. Write one program with its "
        "arguments, quote a character that is meant as text, or make several commands of it.",
    ),
    "E006": (
        "the code of `python -c` does not parse",
        "An acceptance command gives Python code that is no Python, or none at all. Mend the code, and look at the "
        "quotes around it.",
    ),
    "E007": (
        "an acceptance command is no command",
        "The command cannot be split into words, since a quote is never closed or an escape has nothing after it, "
        "or it names no program. Write a program with its arguments.",
    ),
    "E101": (
        "a precondition of a work order cannot hold",
        "The files that are there before an order are those of the project, as the listing has them, and those "
        "that earlier orders have as postconditions. This condition does not hold of them. Let an earlier order "
        "make the file, move the order, or drop the condition.",
    ),
    "E102": (
        "preconditions contradict each other",
        "One order asks that a path exists and that it is absent. Keep one of the two conditions.",
    ),
    "E103": (
        "a work order promises a file it may not write",
        "A postcondition names a path that is not in `allowed_files` of the same order. Add it there, or drop the "
        "postcondition.",
    ),
    "E104": (
        "a work order may write a file it does not promise",
        "Each path of `allowed_files` needs a postcondition `file_exists` of the same order, or later orders "
        "could not rely on it. Add the postcondition, or take the path off the list.",
    ),
    "E105": (
        "an acceptance command runs the whole verification",
        "The script that the option `verify` names runs after every order by itself, unless the order is exempt; "
        "as an acceptance command it would run too early, or twice. Leave the command out.",
    ),
    "E106": (
        "the contract of the verification is never met",
        "After the last order a file is still missing that `verify_contract` requires, so the whole verification "
        "would never run. Let an order make the file, or take it off the contract.",
    ),
    "W101": (
        "an acceptance command needs what may not exist",
        "It imports a module, or runs a script, that is neither of the standard library, nor in the project by "
        "then, nor named in the option `installed` of the check. This blocks nothing. Let an order make it, or "
        "name what is installed.",
    ),
}
