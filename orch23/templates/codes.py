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
        "a template would write a forbidden path",
        "A template may contain only regular files with plain paths, and none in `.git` or `.orch23`, where a file "
        "could run commands. Nothing was written. Report it to the author of the template.",
    ),
    NO_TEMPLATE: (
        "no such template",
        "`orch23 template list` lists the built-in templates. Name any other template by its git URL, or by the path "
        "of its repository, with a slash in it.",
    ),
    NOT_FETCHED: (
        "the template cannot be fetched",
        "git cannot read the repository, or the requested version does not exist. Try `git ls-remote URL`: orch23 "
        "uses your git credentials, but does not ask for a password. Do not put a password into the URL, which is "
        "written into the project.",
    ),
    RUNS_CODE: (
        "the template would run its own code",
        "Tasks and extensions of a template are programs of its author, and orch23 does not run them. If you trust "
        "the author, run `copier copy --trust URL .`; otherwise ask for a version without them.",
    ),
    UNANSWERED: (
        "questions of the template have no answer",
        "orch23 asks questions only on a terminal. Answer with `--data NAME=VALUE`, or use the defaults with "
        "`--defaults`.",
    ),
    BAD_ANSWER: (
        "an answer is not valid for its question",
        "`orch23 template show NAME` lists the questions and their choices. Other answers must be plain words: they "
        "are written into YAML without quotes.",
    ),
    FILES_EXIST: (
        "files of the template exist already",
        "They have other content, so nothing was written. `--keep` keeps them and writes the other files, "
        "`--overwrite` replaces them. Move away a path that is not a regular file.",
    ),
    NOT_IN_PROJECT: (
        "the project has no such template",
        "The file `.orch23-NAME.answers.yml` with the answers, the address and the version of the template is not at "
        "the root. `orch23 init NAME` creates it.",
    ),
    BROKEN: (
        "the template cannot be rendered",
        "Its copier.yml or one of its files has an error, or needs an unsupported feature, such as a submodule. The "
        "message comes from copier. Report it to the author of the template.",
    ),
    MERGE_CONFLICT: (
        "your edit conflicts with the template",
        "Both changed the same lines. The file has both versions, between `<<<<<<< yours` and `>>>>>>> template`: "
        "keep the right lines, and remove the markers. A binary file was not changed; the version of the template is "
        "beside it.",
    ),
}
