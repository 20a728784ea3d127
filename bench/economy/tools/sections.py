"""Write down which sections the spec has: the id and the heading of each."""

import json
import re
from pathlib import Path

headings = re.findall(r"^## (.+?) *$", Path("spec.md").read_text(encoding="utf-8"), re.MULTILINE)
found = [{"id": heading.lower().replace(" ", "_"), "heading": heading} for heading in headings]
Path("build").mkdir(exist_ok=True)
Path("build/sections.json").write_text(json.dumps({"sections": found}, indent=1) + "\n", encoding="utf-8")
