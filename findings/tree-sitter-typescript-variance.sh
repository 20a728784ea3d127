#!/usr/bin/env bash
# tree-sitter-typescript 0.23.2: valid TypeScript of 2022 and 2023 has syntax errors.
#
# `interface Box<in out T>` (variance annotations, TypeScript 4.7) and `abstract accessor x` (TypeScript 4.9) have an ERROR node. The
# newest release of the grammar is of November 2024. The declarations after them are found. So `has_error` does not mean that a
# file is wrong, and a tool must not refuse a file for it.
#
# Seen 2026-11-30 with Python 3.11, tree-sitter 0.26.1, tree-sitter-typescript 0.23.2. The script fails if that changes.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check tree-sitter==0.26.1 tree-sitter-typescript==0.23.2

"$folder/venv/bin/python" - >"$folder/seen" <<'PYTHON'
import tree_sitter_typescript
from tree_sitter import Language, Parser

parser = Parser(Language(tree_sitter_typescript.language_typescript()))
for line in (
    "interface Box<T> { get(): T }",
    "interface Box<in out T> { get(): T }",
    "abstract class A { accessor x = 1 }",
    "abstract class A { abstract accessor x: number }",
):
    root = parser.parse(f"{line}\nfunction after() {{}}\n".encode()).root_node
    print(f"{line}: has_error {root.has_error}, then {root.children[-1].type}")
PYTHON

cat "$folder/seen"
diff "$folder/seen" - <<'EXPECTED'
interface Box<T> { get(): T }: has_error False, then function_declaration
interface Box<in out T> { get(): T }: has_error True, then function_declaration
abstract class A { accessor x = 1 }: has_error False, then function_declaration
abstract class A { abstract accessor x: number }: has_error True, then function_declaration
EXPECTED
