"""Diagnostic codes of pipelines and data files: title, meaning and solution of each."""

from collections.abc import Mapping

LOAD_CODES: Mapping[str, tuple[str, str]] = {
    "E801": (
        "the text is not YAML",
        "The YAML reader stopped here. Most often a value needs quotes (it contains `: `, starts with `*`, `{`, `[`, "
        "`@` or `%`, or is a `${{ }}` inside `[]` or `{}`), or the indentation of a line does not match the lines "
        "around it.",
    ),
    "E802": (
        "unknown key",
        "The key would have no effect here. Correct its spelling, or move it to the right mapping; `orch23 help "
        "pipeline-reference` lists the keys of each mapping. No key takes a secret, such as that of a "
        "provider: secrets come only from the environment.",
    ),
    "E803": (
        "a key appears twice",
        "YAML readers differ in which value they use. Remove one of the two keys.",
    ),
    "E804": (
        "a feature of YAML that is not allowed",
        "Anchors, aliases, merge keys, tags and several documents in one file are not allowed: they make a file mean "
        "something other than it shows. Write the values out, use vars, or put what stages share under `defaults`.",
    ),
    "E805": (
        "text that cannot be read",
        "The file is not UTF-8, contains a control character, or is too large or nested too deep. Save it as UTF-8, "
        "remove the character, or move data into other files.",
    ),
    "E806": (
        "a key that is not a string",
        "Keys are strings. A number, `true`, `null`, a list or a mapping as a key needs quotes, as in `'1': value`.",
    ),
    "E807": (
        "a number out of range",
        "The number does not fit in 64 bits, so some readers would change it. Put it in quotes to keep it as text.",
    ),
    "E810": ("a required key is missing", "Add the key in the message; `orch23 help pipeline-reference` describes it."),
    "E811": (
        "a value of the wrong type",
        "For example, a string where a list is needed. `[x]` makes a list; quotes make a string; only `true` and "
        "`false` are booleans (`yes`, `on` and `True` are strings).",
    ),
    "E812": (
        "a value that is not allowed",
        "The value has the right type, but is misspelt, out of range, empty, or has a character that is not allowed. "
        "The message shows the allowed values.",
    ),
    "E813": (
        "a key of a later version",
        "The key is part of the pipeline language, but this version of orch23 does not support it. Remove it, or use "
        "a newer version.",
    ),
    "E814": (
        "exactly one of several keys is needed",
        "A stage has exactly one of `llm`, `shell`, `pytest`, `render` and `fetch`; a `verify` step exactly one of "
        "`check`, `shell`, `pytest`, `ensures` and `commands`; a foreach `from` or `in`. Keep one, or make two "
        "stages.",
    ),
    "E815": (
        "a duration, count or amount that cannot be read",
        "A duration is a number of seconds, or has units: `300s`, `45m`, `2h`, `1h30m`. A count is a whole number "
        "and may end in `k` (thousands) or `M` (millions): `600k`. An amount of US dollars is a number or a decimal "
        "in quotes: `2.50`, `'0.000125'`.",
    ),
    "E816": (
        "a pool that is not defined",
        "A stage uses a pool by its name, but `pools` at the top of the file does not define it. Correct the name, or "
        "add it: `pools: {NAME: 1}`.",
    ),
    "E817": (
        "two pools with different executors",
        "The steps of a stage run with one executor. Two pools that the stage names state different ones. Remove one "
        "of them from the stage, or `executor` from one of the pools. The pool of its step kind does not count if "
        "another pool of the stage states an executor.",
    ),
    "E840": (
        "an undefined name in an expression",
        "Expressions can use `vars`, and in a foreach the item by the name in `as`. Declare the var, or correct the "
        "spelling.",
    ),
    "E841": (
        "an expression that fails",
        "The text between `${{` and `}}` is not a Jinja expression, its evaluation failed, or its result is not a "
        "plain value. Inside a longer text the result must be a string, number or boolean. `$${{` writes a literal "
        "`${{`.",
    ),
    "E842": (
        "vars that use each other",
        "These vars are defined by each other in a cycle. Write one of the values out.",
    ),
    "E843": (
        "an unknown var is set",
        "`vars` of the pipeline does not declare this var. Correct the name in `--set` or the `--vars` file, or "
        "declare it with a default.",
    ),
    "E844": (
        "a plugin is not installed",
        "`plugins` names a distribution that is not installed in the Python environment of orch23. Install it there, "
        "or remove it from the list.",
    ),
    "E845": (
        "an object of a plugin cannot be used",
        "An entry point of a distribution in `plugins` cannot be imported or has the wrong type (`orch23.checks`: "
        "values of `Check`, `orch23.steps`: classes of `Step`), or a step kind has the name of an existing key. The "
        "message names the plugin and the reason. Report it to the author, or remove it from `plugins`.",
    ),
    "E847": (
        "the code of a plugin failed",
        "A check, step, provider, executor or output format of a plugin raised an exception, and the stage that used "
        "it failed. The message has the plugin with its version, the exception, and the line. Report it to the "
        "author, install another version, or remove it from `plugins`.",
    ),
    "E850": (
        "a path that is not allowed",
        "Paths in a pipeline are relative to the root of the project, with `/` between names: not absolute, no `..`, "
        "no backslash, not empty. The path of one file has no wildcard either. `!PATTERN` excludes files in `inputs` "
        "and `verify.inputs`, after a pattern or listing that can match them. `./!name` is a file of that name.",
    ),
    "E851": (
        "an output outside the write scope",
        "`allowed_paths.write` does not allow an output of the stage. Add the path there, or remove that key: then "
        "the outputs are the write scope.",
    ),
    "E852": (
        "a protected output",
        "`allowed_paths.protect` of the stage forbids one of its outputs; `protect` wins over `write`. Remove one of "
        "the two. Or the output is a file that no stage may write: of version control, `.orch23` or `logs/`. Choose "
        "another path.",
    ),
    "E853": (
        "an output is named twice",
        "The stage lists the output twice, perhaps once with `./`. Remove one.",
    ),
    "E854": (
        "a stage reads its own output",
        "An input of the stage is also its output, so each run would make it stale again. Rename the output, or "
        "remove the input; only `llm` stages may start from their earlier output.",
    ),
    "E855": (
        "outputs that do not fit the step",
        "`render`, and `llm` with `returns: json`, `text` or `code`, need exactly one output, a literal file. `llm` "
        "with `returns: files` needs `outputs` or `allowed_paths.write`, or it could not write a file.",
    ),
    "E856": (
        "keys that do not go together",
        "Two keys contradict each other, such as `schema` without `returns: json`, or `retry.escalate` on a stage "
        "that calls no model. The message names both; remove or change one.",
    ),
    "E857": (
        "an item sets a forbidden value",
        "A model may have written the items of a foreach over a file, so they may set only plain relative paths and "
        "arguments: not a program, a shell text, the environment, a provider, a URL, a prompt or a limit. Write that "
        "part out in the pipeline.",
    ),
    "E858": (
        "an item names a protected file",
        "A file that configures tools, tests or orch23 is written only if `allowed_paths.write` in the pipeline "
        "names it literally. Name it there, or let the item name another file.",
    ),
    "E859": (
        "a variable that a stage may not set",
        "`env` may not hold secrets (they would be stored with the results), nor variables that orch23 sets itself "
        "or that change how programs are loaded. Remove the variable. Credentials stay in the environment of orch23.",
    ),
    "E860": (
        "data that does not fit its schema",
        "The message has the location and the reason. Correct the data, or the schema if the data is right.",
    ),
    "E861": (
        "a schema that cannot be used",
        "The file is not a JSON schema of the draft that its `$schema` names (draft 7 without one), has words of "
        "another draft, or refers to another file. Write the line of the message, or correct the schema; `$ref` may "
        "only refer to the same file, as in `#/definitions/name`.",
    ),
    "E862": (
        "no such pipeline file",
        "The pipeline, or the file of vars, does not exist or cannot be read. The path is relative to the current "
        "directory, and the file must be in the project. Correct the path.",
    ),
    "E863": (
        "a file that cannot be used as metrics",
        "A file in `metrics` is an output of the stage, or is in a directory that is one, and ends in `.json`, `.yaml` "
        "or `.yml`. Add it to `outputs`, correct the path, or write the values to such a file.",
    ),
    "W861": (
        "a word of a schema that has no effect",
        "No draft of JSON schema knows the word, so nothing is checked by it. Correct a misspelled word. Annotations "
        "of other tools, such as `discriminator`, `nullable` or `x-order`, may stay.",
    ),
    "W801": (
        "a retry limit was clamped",
        "`retry.max` is the number of attempts after the first, from 0 to 50. The nearest valid number is used. "
        "Write that number, or split the stage so that it needs fewer attempts.",
    ),
    "W802": (
        "fields of another provider were dropped",
        "`--provider` and `--model` replace the provider and the model of llm stages. Fields of the former provider, "
        "its address, and the lists `retry.escalate` and `llm.fallback` are dropped. To keep them, change the pipeline "
        "instead.",
    ),
    "W803": (
        "exit_codes names no diagnostic",
        "A key of `exit_codes` is a diagnostic code or its beginning, as in `{E201: 4, E2: 2}`. No code starts with "
        "this key. `orch23 help diagnostics` lists the codes.",
    ),
    "W804": (
        "a promotion group with one stage",
        "`promote` names a promotion group that no other stage names. Correct the name, give other stages the same "
        "`promote`, or remove it.",
    ),
    "W805": (
        "text in braces that is not an expression",
        "Expressions of a pipeline are written `${{ ... }}`; only prompts and templates, which are files of their own, "
        "have `{{ ... }}`. Write the `$`. If the text is meant, such as a template that a command writes, nothing is "
        "wrong.",
    ),
}
