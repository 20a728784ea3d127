"""Write the orders of a plan, each with its `verify_exempt`: split.py PLAN LISTING PROJECT FOLDER."""

import json
import os
import sys
from pathlib import Path


def main(plan_file: str, listing: str, project: str, folder: str) -> None:
    """Write the orders and, after them, the manifest."""
    plan = json.loads(Path(plan_file).read_text())
    present = {os.path.relpath(path, project) for path in Path(listing).read_text().splitlines()}
    required = {condition["path"] for condition in plan.get("verify_contract", {}).get("requires", [])}
    orders = []
    for order in plan["work_orders"]:
        present |= {condition["path"] for condition in order["postconditions"]}
        orders.append({**order, "verify_exempt": not required <= present})
    for order in orders:
        write(Path(folder, f"{order['id']}.json"), order)
    write(Path(folder, "WORK_ORDERS_MANIFEST.json"), {**plan, "work_orders": orders})


def write(path: Path, value: object) -> None:
    """Write a value as JSON whose bytes follow from the value alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
