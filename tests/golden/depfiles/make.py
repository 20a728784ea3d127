"""Make the depfiles of this folder again, with the programs that this machine has: `python make.py [NAME ...]`.

Debian: `apt-get install gcc clang nasm gfortran ninja-build rustc`. Python, on PATH: `pip install cython grpcio-tools`.
npm: `npm install esbuild`, with its folder `node_modules/.bin` on PATH.
"""

# ruff: noqa: E501 - programs in other languages

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TREE = "/room/work"

_ODD = ("a b.h", "c$d.h", "e#f.h", "g:h.h", "i\\j.h", "k\\ l.h", "sub dir/m.h")
_ODD_C = {"x y.c": "".join(f'#include "{one}"\n' for one in _ODD) + "int x;\n", **dict.fromkeys(_ODD, "\n")}
_TWO = {"a.c": '#include "a.h"\nint a;\n', "b.c": '#include "b.h"\nint b(void) { return 0; }\n', "a.h": "\n", "b.h": "\n"}
_SYSTEM = {"a.c": '#include <stdio.h>\n#include <s.h>\n#include "p.h"\nint a;\n', "sys/s.h": "\n", "p.h": "\n"}
_NASM = {"a b.asm": '%include "m.inc"\n nop\n', "m.inc": "\n"}
_FORTRAN = {"b.f90": "module bm\n use am\n include 'c.inc'\nend module\n", "a.f90": "module am\nend module\n", "c.inc": "integer :: c\n"}
_RUST = {
    "src/main.rs": 'mod m;\nconst T: &str = include_str!("a b.txt");\nfn main() { m::f(); let _ = (T, option_env!("ORCH")); }\n',
    "src/m.rs": "pub fn f() {}\n",
    "src/a b.txt": "\n",
}
_PROTO = {
    "a b.proto": 'syntax = "proto3";\nimport "d/c.proto";\nmessage A { C c = 1; }\n',
    "d/c.proto": 'syntax = "proto3";\nmessage C {}\n',
}
_CYTHON = {"my dir/mod.pyx": 'include "in c.pxi"\nx = 1\n', "my dir/in c.pxi": "y = 2\n"}
_NINJA = {
    "build.ninja": "rule cc\n command = gcc -MMD -MF $out.d -c $in -o $out\n depfile = $out.d\n deps = gcc\nbuild a$ b.o: cc src/a.c\n",
    "src/a.c": '#include "h.h"\nint a;\n',
    "src/h.h": "\n",
}
_ESBUILD = {"src/a.js": 'import {b} from "./b c.js"; console.log(b);\n', "src/b c.js": "export const b = 1;\n"}

# name -> files, command, depfile, syntax, and what gives the version
CASES: Mapping[str, tuple[Mapping[str, str], str, str, str, str]] = {
    **{
        f"{cc}-{name}": (files, f"{cc} -MMD -MF deps.d {more}", "deps.d", "make", f"{cc} --version")
        for cc in ("gcc", "clang")
        for name, files, more in (
            ("odd-names", _ODD_C, "-c 'x y.c' -o 'x y.o'"),
            ("absolute", _ODD_C, '-c "$PWD/x y.c" -I"$PWD" -o x.o'),
            ("phony", _TWO, "-MP -c a.c -o a.o"),
            ("two-sources", _TWO, "-shared -fPIC a.c b.c -o ab.so"),
            ("system", _SYSTEM, "-isystem sys -c a.c -o a.o"),
        )
    },
    "gcc-all": (_SYSTEM, "gcc -MD -MF deps.d -isystem sys -c a.c -o a.o", "deps.d", "make", "gcc --version"),
    "nasm": (_NASM, "nasm -f elf64 -MD deps.d 'a b.asm' -o a.o", "deps.d", "make", "nasm --version"),
    "gfortran": (_FORTRAN, "gfortran -c a.f90 && gfortran -cpp -MD -MF deps.d -c b.f90", "deps.d", "make", "gfortran --version"),
    "rustc": (_RUST, "ORCH=1 rustc --emit=dep-info=deps.d,metadata=x.rmeta src/main.rs", "deps.d", "make", "rustc --version"),
    "protoc": (_PROTO, "python -m grpc_tools.protoc -I. --descriptor_set_out=o.pb --dependency_out=deps.d 'a b.proto'", "deps.d", "make", "python -m grpc_tools.protoc --version"),
    "cython": (_CYTHON, "cython -M 'my dir/mod.pyx'", "my dir/mod.c.dep", "make", "cython --version"),
    "ninja": (_NINJA, "ninja >/dev/null && ninja -t deps > deps.d", "deps.d", "ninja", "ninja --version"),
    "esbuild": (_ESBUILD, "esbuild --bundle --outfile=o.js --metafile=deps.d src/a.js", "deps.d", "json", "esbuild --version"),
}  # fmt: skip


def made(name: str) -> dict[str, Any] | None:
    """Return a depfile with its inputs and how it was made; None if its program is not installed."""
    files, command, place, syntax, version = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text)
        env = {**os.environ, "LC_ALL": "C.UTF-8"}
        says = subprocess.run(["bash", "-c", version], capture_output=True, text=True, env=env, cwd=folder, check=False)
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env, cwd=folder, check=False)
        if says.returncode or ran.returncode:
            sys.stderr.write(f"{name}: {(says.stderr or ran.stderr)[-300:]}\n")
            return None
        text = (Path(folder) / place).read_text().replace(folder, TREE)
    text = re.sub(r"deps mtime \d+", "deps mtime 1", text)
    found = (says.stdout or says.stderr).splitlines()[0]
    return {"made_by": found, "command": command, "syntax": syntax, "inputs": sorted(files), "text": text}


if __name__ == "__main__":
    for one in sys.argv[1:] or CASES:
        if (found := made(one)) is not None:
            (HERE / f"{one}.json").write_text(json.dumps(found, indent=1) + "\n")
