"""Keep what each attempt saw and said, as files for people: `logs/<run>/<stage>/attempt-N/`."""

import contextlib
import re
from pathlib import Path

from msgspec import Struct

from orch23.store.durable import PRIVATE_FILE, PRIVATE_FOLDER, make_folder

_UNFIT = re.compile(r"[^A-Za-z0-9._@-]")


class Artifacts(Struct, frozen=True):
    """The artifacts of one run. Private to the user: prompts and answers may hold what the project keeps to itself."""

    folder: Path

    def place(self, stage: str, attempt: int) -> Path:
        """Return the folder of one attempt of a stage."""
        return self.folder / _UNFIT.sub("_", stage) / f"attempt-{attempt}"

    def keep(self, stage: str, attempt: int, name: str, text: str) -> None:
        """Write one artifact, in place of an earlier one of that name."""
        path = self.place(stage, attempt) / name
        if not self.folder.is_dir():
            make_folder(self.folder, PRIVATE_FOLDER)
        for folder in (path.parent.parent, path.parent):  # for people: not worth a wait for the disk
            with contextlib.suppress(FileExistsError):
                folder.mkdir(PRIVATE_FOLDER)
        path.touch(PRIVATE_FILE)
        path.write_text(text, encoding="utf-8", errors="replace")
