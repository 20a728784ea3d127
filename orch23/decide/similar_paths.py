"""Find the files of a project that may be meant by a path that does not exist."""

from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic, nearest_names
from orch23.store.workspace import Workspace

_MOST_FOLDERS = 100


def similar_paths(workspace: Workspace, path: str) -> list[str]:
    """Return paths that may be meant by one that does not exist: of files, or of directories if it ends in `/`.

    They are those in its directory, or, if that does not exist, in the one with the most similar name; and those of the
    same name at the root, or in a directory there.
    """
    *above, name = path.rstrip("/").split("/")
    folder = ""
    for part in above:
        others = [] if workspace.is_folder(f"{folder}{part}") else workspace.subfolders(folder.rstrip("/"))
        folder += f"{next(iter(nearest_names(part, others)), part)}/"
    folders = [one for one in workspace.subfolders("") if not one.startswith(".")]
    tops = ["", *(f"{one}/" for one in folders[:_MOST_FOLDERS])]
    if path.endswith("/"):
        beside = [f"{folder}{one}/" for one in workspace.subfolders(folder.rstrip("/"))]
        return [*beside, *(f"{top}{name}/" for top in tops if workspace.is_folder(f"{top}{name}"))]
    elsewhere = (f"{top}{name}" for top in tops)
    return [*workspace.neighbours(f"{folder}{name}"), *filter(workspace.is_file, elsewhere)]


def with_similar(problem: Diagnostic, path: str, workspace: Workspace) -> Diagnostic:
    """Return the error about a file that cannot be read; if there is none at its path, with one of a similar name."""
    others = similar_paths(workspace, path)
    near = nearest_names(path, others)
    if not near or path in others or workspace.is_folder(path):
        return problem
    return replace(problem, hint=f"did you mean `{near[0]}`?", fix=(path, near[0]))
