"""Virtual environments of tests, without any program that runs: packages with records, as pip writes them."""

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def record_line(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}"


class Environment:
    """A virtual environment below a folder, with a base interpreter beside it."""

    def __init__(self, folder: Path, version: str = "3.11.7", program: bytes = b"\x7fELF a python") -> None:
        self.root = folder / "venv"
        self.base = folder / "base"
        short = ".".join(version.split(".")[:2])
        self.site = self.root / "lib" / f"python{short}" / "site-packages"
        self.site.mkdir(parents=True)
        (self.base / "bin").mkdir(parents=True)
        (self.root / "bin").mkdir()
        self.program = self.base / "bin" / f"python{short}"
        executable(self.program, program)
        self.python = self.root / "bin" / "python"
        self.python.symlink_to(self.program)
        (self.root / "bin" / "python3").symlink_to("python")
        (self.root / "pyvenv.cfg").write_text(f"home = {self.base}/bin\nversion = {version}\n")

    def install(
        self,
        name: str = "app",
        version: str = "1.0",
        files: Mapping[str, bytes] | None = None,
        *,
        scripts: Mapping[str, bytes] | None = None,
        origin: Any = None,
        installer: str = "pip",
    ) -> Path:
        """Install a package, and return its folder of records."""
        info = self.site / f"{name}-{version}.dist-info"
        entry_points = "".join(f"{script} = {name}:main\n" for script in (f"{name}-run",))
        written = {
            f"{name}/__init__.py": b"x = 1\n",
            **(files or {}),
            f"{info.name}/METADATA": f"Name: {name}\nVersion: {version}\n".encode(),
            f"{info.name}/INSTALLER": installer.encode(),
            f"{info.name}/entry_points.txt": f"[console_scripts]\n{entry_points}".encode(),
        }
        if installer == "pip":
            written |= {f"{info.name}/REQUESTED": b""}
        if origin is not None:
            written |= {f"{info.name}/direct_url.json": json.dumps(origin).encode()}
        lines = [record_line(path, data) for path, data in written.items()]
        for path, data in written.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_bytes(data)
        made = {f"{name}-run": f"#!{self.python}\n# {installer}\n".encode(), **(scripts or {})}
        for script, data in made.items():
            executable(self.root / "bin" / script, data)
            lines.append(record_line(f"../../../bin/{script}", data))
        if installer == "pip":
            lines.append(f"{name}/__pycache__/__init__.cpython-311.pyc,,")
            lines.reverse()
        lines.append(f"{info.name}/RECORD,,")
        (info / "RECORD").write_text("\n".join(lines) + "\n")
        return info


def executable(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o755)
    return path
