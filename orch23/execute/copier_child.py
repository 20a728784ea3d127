"""The child process that renders templates with copier.

Run as a file, with nothing of orch23 on its path: `python -P copier_child.py CALLS RESULTS`, two JSON files. Only the
questions on a terminal reach the screen.
"""

import json
import sys
from pathlib import Path
from typing import Any

import copier  # of no other module: it is heavy, and this one is never imported
from copier import errors
from plumbum import ProcessExecutionError

_SIGINT = 130


def main(argv: list[str]) -> int:
    """Make each call, in order, up to the first that fails."""
    # Its parent wrote the calls. The strict reader is of orch23, which is not on the path here.
    calls = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    results = []
    for call in calls:
        results.append(render_call(call))
        if "error" in results[-1]:
            break
    # A default may be a date, which JSON has not.
    Path(argv[1]).write_text(json.dumps(results, default=str), encoding="utf-8")
    return 0


def render_call(call: dict[str, Any]) -> dict[str, Any]:
    """Render one template into a folder and return what was answered, or what is wrong."""
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
    except KeyboardInterrupt:  # first, since copier's own is an Exception too
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
        ours = isinstance(error, errors.CopierError)
        required = str(error).endswith("is required")
        return error_result("broken" if ours else "unanswered" if required else "answer", error)
    except Exception as error:  # noqa: BLE001 - whatever a template makes copier raise, the parent is told
        return error_result("broken", f"{error}" or type(error).__name__)
    return rendering_result(worker, call)


def rendering_result(worker: Any, call: dict[str, Any]) -> dict[str, Any]:
    """Return what a finished rendering knows."""
    questions = {
        name: {key: str(value) for key, value in asked.items() if key in {"help", "default", "choices"}}
        for name, asked in worker.template.questions_data.items()
    }
    open_names = [name for name in questions if name not in worker.template.secret_questions]
    known = {*call["data"], *worker.answers.last, *worker.answers.hidden}
    opening = (worker.template.envops.get("variable_start_string", "{{"), "{%", "[%")
    message = worker.template.message_after_copy
    return {
        "version": worker.template.commit,
        "questions": questions,
        "answers": {name: worker.answers.combined[name] for name in open_names if name in worker.answers.combined},
        "unanswered": [name for name in questions if name not in known],
        "message": message if not any(mark in message for mark in opening) else "",
    }


def error_result(kind: str, error: object) -> dict[str, Any]:
    """Return a failure for the parent: its kind, and copier's words on one line."""
    return {"error": kind, "message": " ".join(str(error).split())}


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(_SIGINT)
