"""The diagnostic codes of the checks: for each a title and a paragraph that ends in a way out."""

from collections.abc import Mapping

CODES: Mapping[str, tuple[str, str]] = {
    "E310": (
        "a check found nothing to look at",
        "The stage's outputs hold no file of the kind that this check judges, so its verdict would be empty. "
        "Where the stage may rightly write other files alone this is a warning; where the check was told which "
        "files to expect it is an error. Give the stage such an output, correct the check's `files`, or remove "
        "the check.",
    ),
    "E311": (
        "a Python file does not parse",
        "A `.py` file among the outputs is not valid Python. The place is that of the first error which Python's "
        "own parser reports, under the version of Python that runs orch23. A model is told the place and the "
        "message in its next attempt; in a file of your own, mend the line that is named.",
    ),
    "E312": (
        "a Python file lacks a promised name",
        "The option `defines` of the check `python_syntax` lists names that a file must bind at its top level: "
        "functions, classes, variables or imports. One of them is not there. Add it to the file, or take it off "
        "the list.",
    ),
    "E313": (
        "an output is not strict JSON",
        "The file is not one JSON document in UTF-8: it may have a duplicate key, a NaN, text around the "
        "document, a code fence or a syntax error. The message names the first such place. Write plain JSON and "
        "nothing else.",
    ),
    "E314": (
        "an output does not fit its schema",
        "The file is JSON, but a value in it is not what the schema asks for. The complaint names the value by "
        "its JSON pointer, as in `plan.json#/tasks/0/id`; all such values are listed at once. Change the value, "
        "or the schema.",
    ),
    "E315": (
        "a check was given a wrong option",
        "Under `with:` stands an option that the check does not have, one of the wrong kind, or one that it "
        "needs is missing. Correct the option that is named; the hint says what the check takes.",
    ),
    "E316": (
        "a schema cannot be used",
        "The file that the option `schema` names is no declared input, is no strict JSON, is no valid draft-07 "
        "schema, or refers to a schema outside itself, which is never fetched. List it under the stage's "
        "`inputs` or under `verify.inputs`, and keep its references within the file.",
    ),
}
