"""The diagnostic codes that several checks share; a code of one check is in `CODES` of its module."""

from orch23.checks.check import Codes

CODES: Codes = {
    "E310": (
        "a check found nothing to look at",
        "The stage's outputs hold no file of the kind that this check judges, so its verdict would be empty. "
        "Where the stage may rightly write other files alone this is a warning; where the check was told which "
        "files to expect it is an error. Give the stage such an output, correct the check's `files`, or remove "
        "the check.",
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
}
