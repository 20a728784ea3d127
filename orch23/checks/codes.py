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
    "E317": (
        "a list is not one entry for each input",
        "The check `one_per_input` holds a list in a JSON file to the stage's input files: one entry a file, in the "
        "order of the inputs, that says its path in the field that the option `field` names. The complaint says what "
        "is there and what belongs there. Write the list again, with exactly these paths.",
    ),
    "E330": (
        "a plan has the wrong id",
        "The `plan_id` is neither `plan_0001` nor the one that the option `plan_id` of the check `planner_tasks` "
        "asks for. Ids are stable: write exactly the one that is named, or change the option.",
    ),
    "E331": (
        "the tasks of a plan are not counted T1 to Tn",
        "Tasks have the ids T1, T2 and so on, in the order in which they are done, without a gap and none twice. "
        "Renumber them.",
    ),
    "E332": (
        "an artifact is neither a file nor clearly a new one",
        "A task names the files that it edits or makes. This path is not a plain relative one, is a folder, lies "
        "below a file, or differs from a path of the project by its case alone, so it is not sure what is meant. "
        "Name an existing file as it is written, or a path that nothing else has.",
    ),
    "E333": (
        "a task would change tests",
        "An artifact is a file of tests: `test_*.py`, `*_test.py`, `conftest.py`, or what the option `tests` of the "
        "check names. Tests judge the work, and are never part of it. Take the path off the artifacts.",
    ),
    "E334": (
        "a value is not the one that is known",
        "The option `values` of the check `json_values` says what some keys of a JSON object have to be, since it is "
        "known beforehand: an id that is echoed, or whether a program ended with 0. The file says something else, or "
        "nothing. Write the value that is named, or correct the option.",
    ),
    "E335": (
        "the keys of an object are in another order",
        "The option `order` of the check `json_values` lists the keys of a JSON object: these and no others, in this "
        "order. Write them so, or correct the option.",
    ),
    "E340": (
        "the layers of an architecture are not in order",
        "A layer depends on itself, on a layer that is listed after it, or on one that is not there. The list is the "
        "order in which the layers are made. Move the layer, or correct its `depends_on`.",
    ),
    "E341": (
        "two layers of an architecture share a name or a file",
        "Each layer has a name of its own, and each file is made by one layer, which is asked for it alone. Rename "
        "the layer, or take the file off one of the two.",
    ),
    "E342": (
        "a layer uses a file of no layer below it",
        "What a layer imports must be there before it: the files under `uses` are made by layers that it stands on, "
        "directly or through others. Add that layer to `depends_on`, or take the file off.",
    ),
    "E343": (
        "an accepted layer is gone",
        "The architecture that was accepted last has this layer, and the new one has not; its code would vanish. Keep "
        "the layer under its name. If it shall go, name it in the option `released` of the check.",
    ),
    "E344": (
        "an accepted layer is of another kind",
        "The kind says by which rules the code of a layer is written, so another kind makes another layer of it. "
        "Keep the kind, and add a new layer for what is new.",
    ),
    "E345": (
        "an accepted layer lost a file",
        "A file that this layer made in the architecture accepted last is now made by another layer or by none, so "
        "that whatever imports it would break. Leave it where it was. If it shall go or move, name its path in the "
        "option `released` of the check.",
    ),
    "E346": (
        "an accepted layer is reworded and not changed",
        "Only the `purpose` of the layer differs from the architecture accepted last, so its code would be written "
        "again without a reason. Keep the purpose word for word; if the layer shall do something new, its slices of "
        "the intent, its files or its constraints say so.",
    ),
    "E000": (
        "a plan of work orders has the wrong frame",
        "The manifest is not one strict JSON object with a list `work_orders` of 1 to 99 orders, or has a key that "
        "is not known, or the same key twice. Beside the orders it may hold `verify_contract` and "
        "`system_overview`. Write the whole manifest again in this form.",
    ),
    "E001": (
        "work orders are not counted WO-01 to WO-NN",
        "Work orders have the ids WO-01, WO-02 and so on, in the order in which they are done, without a gap and "
        "none twice. Renumber them.",
    ),
    "E003": (
        "an acceptance command needs a shell",
        "Acceptance commands run without a shell: a pipe, a redirection, `&&`, `;`, `$NAME`, a backtick, a line "
        "break or an assignment in front would reach the program as plain text. Write one program with its "
        "arguments, quote a character that is meant as text, or make several commands of it.",
    ),
    "E004": (
        "a path of a work order is a glob",
        "Paths in conditions, `allowed_files` and `context_files` name single files; `*`, `?` and brackets would "
        "leave open which. Name each file by itself.",
    ),
    "E005": (
        "a work order does not fit its schema",
        "A value is missing, is unknown, or is not what the schema `work_order.v1` asks for; a path is not plain "
        "and relative; or `verify_exempt` is not what follows from the contract. The complaint names the value. "
        "Change that value.",
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
