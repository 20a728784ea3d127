#!/usr/bin/env bash
# jsonschema 4.26.0: the URI of draft 7 with `https` in place of `http` selects draft 2020-12.
#
# The metaschema of draft 7 has the id `http://json-schema.org/draft-07/schema#`. Many schemas write it with `https`, which is
# also the address that a browser ends up at. `validate` does not know that URI. It warns (DeprecationWarning, which Python
# shows only for code of `__main__` and tests) and applies the newest draft. There, `dependencies` and `additionalItems` are not
# words any more: an invalid value passes. With `http`, the same value is refused.
#
# Seen 2026-11-29 with Python 3.11, jsonschema 4.26.0. The script fails if that changes.
set -euo pipefail

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check jsonschema==4.26.0

"$folder/venv/bin/python" - >"$folder/seen" <<'PYTHON'
from importlib.metadata import version

import jsonschema
from jsonschema.validators import validator_for

print("jsonschema", version("jsonschema"))
rules = {"type": "object", "dependencies": {"card": ["address"]}}
for scheme in ("http", "https"):
    schema = {"$schema": f"{scheme}://json-schema.org/draft-07/schema#", **rules}
    try:
        jsonschema.validate({"card": 1}, schema)
        verdict = "passes"
    except jsonschema.ValidationError as error:
        verdict = f"refused: {error.message}"
    print(f"{scheme}: {validator_for(schema).__name__}, {verdict}")
PYTHON

cat "$folder/seen"
diff "$folder/seen" - <<'EXPECTED'
jsonschema 4.26.0
http: Draft7Validator, refused: 'address' is a dependency of 'card'
https: Draft202012Validator, passes
EXPECTED
