"""The child process that renders templates with copier.

It runs as a file, without orch23 on its path: `python -P copier_child.py CALLS RESULTS`, with two JSON files. Only
copier's questions are shown on the terminal.
"""

import json
import sys
from pathlib import Path
from typing import Any

# No other module imports copier: it loads slowly, and this module is never imported.
import copier
from copier import errors
from plumbum import ProcessExecutionError

_SIGINT = 130


def main(argv: list[str]) -> int:
    """Render each call, in order, up to the first that fails."""
    # Not read strictly: the parent wrote it, and the strict reader of orch23 is not on the path here.
    calls = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    results = []
    for call in calls:
        results.append(render_call(call))
        if "error" in results[-1]:
            break
    # A default may be a date, which JSON does not have.
    Path(argv[1]).write_text(json.dumps(results, default=str), encoding="utf-8")
    return 0


def render_call(call: dict[str, Any]) -> dict[str, Any]:
    """Render one template into a folder, and return its answers or an error."""
    try:
        worker = copier.run_copy(
            call["source"],
            call["destination"],
            call["data"],
            answers_file=call["answers_file"],
            vcs_ref=call["ref"],
            settings=copier.Settings(),
            defaults=not call["ask"],
            user_defaults=call["suggested"],
            quiet=True,
        )
        message = worker._render_string(worker.template.message_after_copy)  # noqa: SLF001 - copier would print it
    except KeyboardInterrupt:
        # First, since copier raises one that is an Exception too.
        raise
    except errors.UnsafeTemplateError as error:
        return error_result("unsafe", str(error).split("\n", 1)[0])
    except errors.InteractiveSessionError as error:
        return error_result("unanswered", error)
    except ProcessExecutionError as error:
        if "submodule" in error.argv:
            return error_result("broken", "it has submodules, and they are not fetched")
        return error_result("git", error.stderr.strip() or error)
    except ValueError as error:
        kind = "unanswered" if str(error).endswith("is required") else "answer"
        return error_result("broken" if isinstance(error, errors.CopierError) else kind, error)
    except Exception as error:  # noqa: BLE001 - a template can make copier raise anything; the parent reports it
        return error_result("broken", f"{error}" or type(error).__name__)
    return rendering_result(worker, call, message)


def rendering_result(worker: Any, call: dict[str, Any], message: str) -> dict[str, Any]:
    """Return the version, questions, answers and message of a finished rendering."""
    questions = {
        name: {key: str(value) for key, value in question.items() if key in {"help", "default", "choices"}}
        for name, question in worker.template.questions_data.items()
    }
    open_names = [name for name in questions if name not in worker.template.secret_questions]
    known = {*call["data"], *worker.answers.last, *worker.answers.hidden}
    return {
        "version": worker.template.commit,
        "questions": questions,
        "answers": {name: worker.answers.combined[name] for name in open_names if name in worker.answers.combined},
        "unanswered": [name for name in questions if name not in known],
        "message": message,
    }


def error_result(kind: str, error: object) -> dict[str, Any]:
    """Return a failure for the parent: its kind, and copier's message on one line."""
    return {"error": kind, "message": " ".join(str(error).split())}


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(_SIGINT)
