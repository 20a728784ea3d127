"""Diagnostic codes of templates."""

from collections.abc import Mapping

FORBIDDEN_PATH = "E670"
NO_TEMPLATE = "E671"
NOT_FETCHED = "E672"
RUNS_CODE = "E673"
UNANSWERED = "E674"
BAD_ANSWER = "E675"
FILES_EXIST = "E676"
NOT_IN_PROJECT = "E677"
BROKEN = "E678"
MERGE_CONFLICT = "E679"

TEMPLATE_CODES: Mapping[str, tuple[str, str]] = {
    FORBIDDEN_PATH: (
        "a template would write where none may",
        "A template brings regular files with plain paths below the project, and nothing into `.git` or `.orch23`: a "
        "file there could run commands. Nothing was written. Tell the template's author.",
    ),
    NO_TEMPLATE: (
        "no such template",
        "`orch23 template list` names those that come with orch23. Any other is named by its git URL, or by the path "
        "of its repository, with a slash in it.",
    ),
    NOT_FETCHED: (
        "the template cannot be fetched",
        "git cannot read the repository, or the repository lacks the version that is asked for. Try `git ls-remote "
        "URL`: orch23 asks with your own access, but never for a password. Keep passwords out of the URL, which is "
        "written into the project.",
    ),
    RUNS_CODE: (
        "the template wants to run code of its own",
        "Tasks and extensions of a template are programs of strangers, and orch23 runs none. If you trust its author, "
        "`copier copy --trust URL .` runs them; or ask for a version without.",
    ),
    UNANSWERED: (
        "questions of the template have no answer",
        "They are asked on a terminal alone. `--data NAME=VALUE` answers one, `--defaults` takes the defaults of the "
        "rest.",
    ),
    BAD_ANSWER: (
        "an answer does not fit its question",
        "`orch23 template show NAME` lists the questions and their choices. Free answers are plain words: they go into "
        "YAML as they are.",
    ),
    FILES_EXIST: (
        "files are in the way of the template",
        "They are there and say something else, and nothing was written. `--keep` leaves them and writes the rest, "
        "`--overwrite` replaces them; what is no regular file must be moved away first.",
    ),
    NOT_IN_PROJECT: (
        "the project has no such template",
        "The answers of a template stand in `.orch23-NAME.answers.yml` at the root, with where it comes from and which "
        "version it is; without that file it cannot be updated. `orch23 init NAME` makes it.",
    ),
    BROKEN: (
        "the template cannot be rendered",
        "Its copier.yml or one of its files has a fault, or needs what orch23 does not give it, such as a submodule. "
        "The message is copier's. Tell the template's author.",
    ),
    MERGE_CONFLICT: (
        "an edit of yours and the template disagree",
        "Both changed the same lines. Both are in the file, between `<<<<<<< yours` and `>>>>>>> template`: keep what "
        "is right, and remove the marks. A file that is no text was left as it is, with the template's beside it.",
    ),
}
