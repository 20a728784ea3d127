"""`work_orders`: for each code plans that are accepted and plans that are refused; no JSON makes it raise."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from orch23.checks.check import CheckInput
from orch23.model.diagnostic import Severity
from orch23_checks.order_chain import MANIFEST_SCHEMA, WORK_ORDER_SCHEMA, are_exempt, read_order
from orch23_checks.work_orders import WORK_ORDERS
from tests.unit.checks.orders import LISTED, absent, exists, found, judge, manifest, order, with_commands

SCHEMAS = Path(__file__).parents[3] / "specs" / "schemas"
CONTRACT = {"requires": exists("f1.py", "f2.py")}
A_COMMAND = "WO-01 acceptance_commands[0]"
NO_ORDERS: tuple[Any, ...] = (None, 3, "WO-01", [], {}, [order()])


def manifest_schema() -> dict[str, Any]:
    """Return the schema of a whole manifest, `work_orders.v1`."""
    order_schema = {key: value for key, value in WORK_ORDER_SCHEMA.items() if key not in ("$schema", "title")}
    whole: dict[str, Any] = json.loads(json.dumps(MANIFEST_SCHEMA))
    whole["properties"]["work_orders"]["items"] = order_schema
    return {"$schema": WORK_ORDER_SCHEMA["$schema"], "title": "work_orders.v1", **whole}


# What each code lets pass: nothing may be said of these, not even a warning.
ACCEPTED: dict[str, list[Any]] = {
    "E000": [
        manifest(order()),
        manifest(order(), system_overview="a tool"),
        manifest(order(), system_overview=["a", "tool"]),
        manifest(order(), verify_contract={"requires": [], "command": "bash scripts/verify.sh"}),
        manifest(*(order(n) for n in range(1, 100))),
    ],
    "E001": [manifest(order(1), order(2), order(3))],
    "E003": [
        with_commands("""python -c "a = 1; b = a | 2; print(a > b, '$HOME', '`')" """),
        with_commands("pytest -k 'a and (b or c)'"),
        with_commands("echo 'a\nb' \"c && d\" e\\;f \\$HOME"),
        with_commands("grep -c x$ f1.py"),
        with_commands("pytest f1.py::test_a[1-2]  -q "),
        with_commands("pytest --co=1 A=1"),
        with_commands("env A=1 python f1.py"),
    ],
    "E004": [
        manifest(
            order(
                allowed_files=["a.b/c-d_e.py"],
                postconditions=exists("a.b/c-d_e.py"),
                acceptance_commands=["true"],
            )
        )
    ],
    "E005": [
        manifest(order(notes=None)),
        manifest(order(notes="free text; with * and `anything`", forbidden=["no new packages"])),
        manifest(order(context_files=[f"c{n}.py" for n in range(10)])),
        manifest(order(verify_exempt=False)),
        manifest(order(1, verify_exempt=True), order(2, verify_exempt=False), verify_contract=CONTRACT),
    ],
    "E006": [
        with_commands("python -c 'x = 1'"),
        with_commands("python3.12 -I -W error -Xdev -c 'x = 1'"),
        with_commands("python -Ic'x = 1'"),
        with_commands("python -m json.tool -c def"),
        with_commands("python f1.py -c 'def'"),
        with_commands(r"""python -c "x = '\d'" """),
        with_commands("python -c ''"),
        with_commands("grep -c def f1.py"),
    ],
    "E007": [with_commands("true"), with_commands("  a   'b  c'  ")],
    "E101": [
        manifest(order(1, preconditions=exists("README.md")), order(2, preconditions=exists("f1.py"))),
        manifest(order(1, preconditions=absent("f1.py", "f2.py")), order(2, preconditions=absent("f2.py"))),
    ],
    "E102": [manifest(order(preconditions=[*exists("README.md", "README.md"), *absent("x.py")]))],
    "E103": [manifest(order(allowed_files=["f1.py", "g.py"], postconditions=exists("g.py", "f1.py")))],
    "E104": [manifest(order(allowed_files=["f1.py", "README.md"], postconditions=exists("f1.py", "README.md")))],
    "E105": [
        with_commands("bash -n scripts/verify.sh", "bash -c 'echo scripts/verify.sh'"),
        with_commands("test -x scripts/verify.sh", "python scripts/verify.sh"),
    ],
    "E106": [
        manifest(order(1), order(2), verify_contract=CONTRACT),
        manifest(order(1), verify_contract={"requires": exists("README.md")}),
        manifest(order(1), verify_contract={"requires": []}),
    ],
    "W101": [
        with_commands("python -c 'import f1, json, os.path, __main__; from src.base import x; import src'"),
        with_commands("python -c 'from . import x'"),
        with_commands("python -m strange"),
        with_commands("bash -c strange.sh", "cat strange.py", "python -"),
    ],
}

# What each code refuses: the plan, and the subject of the error.
REFUSED: dict[str, list[tuple[Any, str]]] = {
    "E000": [
        ([], "plan.json"),
        (None, "plan.json"),
        ("text", "plan.json"),
        ({}, "plan.json"),
        (manifest(), "work_orders"),
        ({"work_orders": {"WO-01": {}}}, "work_orders"),
        ({"work_orders": "WO-01"}, "work_orders"),
        (manifest(*(order(n) for n in range(1, 101))), "work_orders"),
        (manifest(order(), verify_contarct=CONTRACT), "plan.json"),
        (manifest(order(), verify_contract=[]), "verify_contract"),
        (manifest(order(), verify_contract={}), "verify_contract"),
        (manifest(order(), verify_contract={"requires": absent("a")}), "verify_contract.requires[0].kind"),
        (b'{"work_orders": [], "work_orders": []}', "plan.json"),
        (b'{"work_orders": [{"id": "WO-01", "id": "WO-02"}]}', "plan.json"),
        (b'```json\n{"work_orders": []}\n```', "plan.json"),
        (b'{"work_orders": NaN}', "plan.json"),
        (b"\xff", "plan.json"),
        (b"", "plan.json"),
    ],
    "E001": [
        (manifest(order(2)), "work_orders[0]"),
        (manifest(order(1), order(3)), "work_orders[1]"),
        (manifest(order(1), order(1)), "work_orders[1]"),
        (manifest(order(2), order(1)), "work_orders[0]"),
        (manifest(order(id="WO-1")), "work_orders[0]"),
        (manifest(order(id="wo-01")), "work_orders[0]"),
        (manifest(order(id="WO-01\n")), "work_orders[0]"),
        (manifest(order(id="")), "work_orders[0]"),
    ],
    "E003": [
        (with_commands(command), A_COMMAND)
        for command in (
            *("a && b", "a||b", "a | b", "a;b", "a > b", "a 2>&1", "a < b", "a &", "a << EOF", "(a)", "a `b`"),
            *("a $(b)", "echo $HOME", "echo ${HOME}", "a\nb", "pip install x>=1", "A=1 a", "a 'b' && 'c'", "a \\\\; b"),
        )
    ],
    "E004": [
        (manifest(order(preconditions=exists("src/*.py"))), "WO-01 preconditions[0].path"),
        (manifest(order(postconditions=exists("f?.py"))), "WO-01 postconditions[0].path"),
        (manifest(order(allowed_files=["f1.py", "f[12].py"])), "WO-01 allowed_files[1]"),
        (manifest(order(context_files=["**"])), "WO-01 context_files[0]"),
        (manifest(order(), verify_contract={"requires": exists("*.sh")}), "verify_contract requires[0].path"),
    ],
    "E005": [
        *((manifest(one), "work_orders[0]") for one in NO_ORDERS),
        (manifest(order(1), None), "work_orders[1]"),
        (manifest(order(id=1)), "work_orders[0] id"),
        (manifest({k: v for k, v in order().items() if k != "intent"}), "WO-01"),
        (manifest(order(strange=1)), "WO-01"),
        (manifest(order(title="")), "WO-01 title"),
        (manifest(order(postconditions=absent("f1.py"))), "WO-01 postconditions[0].kind"),
        (manifest(order(preconditions=[{"kind": "file_exists"}])), "WO-01 preconditions[0]"),
        (manifest(order(preconditions=["f1.py"])), "WO-01 preconditions[0]"),
        (manifest(order(preconditions={"kind": "file_exists", "path": "a"})), "WO-01 preconditions"),
        (manifest(order(preconditions=[{"kind": "file_exists", "path": "a", "why": "b"}])), "WO-01 preconditions[0]"),
        (manifest(order(context_files=[f"c{n}.py" for n in range(11)])), "WO-01 context_files"),
        (manifest(order(allowed_files=[])), "WO-01 allowed_files"),
        (manifest(order(allowed_files=["f1.py", "f1.py"])), "WO-01 allowed_files"),
        (manifest(order(acceptance_commands=[])), "WO-01 acceptance_commands"),
        (manifest(order(acceptance_commands=[["true"]])), "WO-01 acceptance_commands[0]"),
        (manifest(order(acceptance_commands="true")), "WO-01 acceptance_commands"),
        (manifest(order(notes=1)), "WO-01 notes"),
        (manifest(order(verify_exempt="yes")), "WO-01 verify_exempt"),
        *(
            (manifest(order(allowed_files=["f1.py", path])), "WO-01 allowed_files[1]")
            for path in ("/a", "../a", "a/../b", "./a", "a//b", "a/", "C:/a", "a\\b", "~/a", "-a", "a\0", "e\u0301")
        ),
        (manifest(order(context_files=["./README.md"])), "WO-01 context_files[0]"),
        (manifest(order(preconditions=exists("a/./b"))), "WO-01 preconditions[0].path"),
        (manifest(order(), verify_contract={"requires": exists("./a")}), "verify_contract requires[0].path"),
        (manifest(order(verify_exempt=True)), "WO-01 verify_exempt"),
        (manifest(order(verify_exempt=False), order(2), verify_contract=CONTRACT), "WO-01 verify_exempt"),
        (manifest(order(), order(2, verify_exempt=True), verify_contract=CONTRACT), "WO-02 verify_exempt"),
    ],
    "E006": [
        (with_commands(command), A_COMMAND)
        for command in (
            *("python -c 'def'", "python -c", "python3 -Ic 'x ='", "/usr/bin/python3.11 -W error -c 'import'"),
            *("env A=1 python -c '('", f"python -c '{'(' * 5000}'", "python -c 'if 1:\nx'", "python -I -B -c 'x y'"),
        )
    ],
    "E007": [
        (with_commands(command), A_COMMAND) for command in ("python -c 'x", 'a "b', "a \\", " ", "''", "a\0b", "'' a")
    ],
    "E101": [
        (manifest(order(preconditions=exists("gone.py"))), "WO-01 preconditions[0]"),
        (manifest(order(preconditions=exists("f1.py"))), "WO-01 preconditions[0]"),
        (manifest(order(1, preconditions=exists("f2.py")), order(2)), "WO-01 preconditions[0]"),
        (manifest(order(preconditions=absent("README.md"))), "WO-01 preconditions[0]"),
        (manifest(order(1), order(2, preconditions=[*absent("x"), *absent("f1.py")])), "WO-02 preconditions[1]"),
        (manifest(order(preconditions=exists("readme.md"))), "WO-01 preconditions[0]"),
    ],
    "E102": [
        (manifest(order(preconditions=[*exists("README.md"), *absent("README.md")])), "WO-01 preconditions[0]"),
        (manifest(order(preconditions=[*absent("y", "x"), *exists("README.md", "x")])), "WO-01 preconditions[1]"),
    ],
    "E103": [(manifest(order(postconditions=exists("f1.py", "g.py"))), "WO-01 postconditions[1]")],
    "E104": [
        (manifest(order(allowed_files=["g.py", "f1.py"])), "WO-01 allowed_files[0]"),
        (manifest(order(1), order(2, allowed_files=["f1.py", "f2.py"])), "WO-02 allowed_files[0]"),
    ],
    "E105": [
        (with_commands(command), A_COMMAND)
        for command in (
            *("bash scripts/verify.sh", "bash  scripts/verify.sh", "bash ./scripts/verify.sh", "sh scripts//verify.sh"),
            *("scripts/verify.sh", "./scripts/verify.sh", "/bin/bash -eux -o pipefail scripts/verify.sh --quick"),
            *("bash 'scripts/verify.sh'", "bash -- scripts/verify.sh", "env A=1 bash scripts/x/../verify.sh"),
            *(
                "bash -c 'bash scripts/verify.sh'",
                "bash -ec 'cd . && scripts/verify.sh'",
                "bash -c 'a\nif scripts/verify.sh; then b; fi'",
                "bash --rcfile x scripts/verify.sh",
            ),
        )
    ],
    "E106": [
        (manifest(order(1), verify_contract=CONTRACT), "verify_contract requires[1]"),
        (manifest(order(1), verify_contract={"requires": exists("x.sh")}), "verify_contract requires[0]"),
    ],
    "W101": [
        (with_commands(command), A_COMMAND)
        for command in (
            *("python -c 'import requests'", "python -c 'from src.other import x'", "python -c 'import f2'"),
            *("python -c 'def f():\n  import later'", "python gone.py", "bash scripts/x.sh", "./run", "python src"),
        )
    ],
}


def cases(table: dict[str, list[Any]]) -> list[Any]:
    """Return each row of a table as parameters."""
    return [pytest.param(code, row, id=f"{code}-{n}") for code, rows in table.items() for n, row in enumerate(rows)]


def test_every_code_of_work_orders_has_both_tables_and_the_gap_stays() -> None:
    assert set(WORK_ORDERS.codes) == set(ACCEPTED) == set(REFUSED)
    assert "E002" not in WORK_ORDERS.codes


@pytest.mark.parametrize(("code", "plan"), cases(ACCEPTED))
def test_a_valid_plan_has_no_error(code: str, plan: Any) -> None:
    listed = (*LISTED, "scripts/verify.sh") if code == "E105" else LISTED
    assert [str(one) for one in judge(plan, listed) if code != "E003" or one.code != "W101"] == []


@pytest.mark.parametrize(("code", "row"), cases(REFUSED))
def test_a_plan_that_is_wrong_is_refused_with_its_code_and_place(code: str, row: tuple[Any, str]) -> None:
    plan, subject = row
    problems = judge(plan)
    assert (code, subject) in [(one.code, one.subject) for one in problems]
    assert all(one.hint for one in problems)
    assert {one.severity for one in problems if one.code == code} == {
        Severity.WARNING if code == "W101" else Severity.ERROR
    }


@pytest.mark.parametrize("code", [code for code in REFUSED if code not in ("E104", "E103", "E004", "E006", "E007")])
def test_the_first_refused_plan_is_refused_for_nothing_else(code: str) -> None:
    assert {one for one, _ in found(REFUSED[code][0][0])} == ({code, "W101"} if code == "E105" else {code})


# ---- the chain ------------------------------------------------------------------------------------


def test_an_order_sees_the_listing_and_the_promises_of_earlier_orders_alone() -> None:
    plan = manifest(order(1), order(2, preconditions=exists("f1.py", "README.md", "f3.py")), order(3))
    assert found(plan) == [("E101", "WO-02 preconditions[2]")]
    assert found(plan, ()) == [("E101", "WO-02 preconditions[1]"), ("E101", "WO-02 preconditions[2]")]
    assert found(plan, ("README.md", "f3.py")) == []


def test_the_chain_is_not_followed_while_an_order_cannot_be_read() -> None:
    plan = manifest(order(1, preconditions=exists("gone.py")), order(2, title=3))
    assert found(plan) == [("E005", "WO-02 title")]
    assert found(manifest(order(1, preconditions=exists("gone.py")), order(7))) == [
        ("E001", "work_orders[1]"),
        ("E101", "WO-01 preconditions[0]"),
    ]


def test_a_contradiction_is_reported_once_and_not_as_unsatisfied() -> None:
    plan = manifest(order(preconditions=[*exists("x"), *absent("x"), *exists("x")]))
    assert found(plan) == [("E102", "WO-01 preconditions[0]")]


def test_paths_of_options_are_read_like_those_of_a_pipeline():
    listed = ("src/old.py",)
    plan = manifest(order(preconditions=exists("old.py")))
    for under in ("src", "./src/", "src//"):
        assert found(plan, listed, under=under, file="./plan.json", listing="./**") == []
    for root in (".", "./", ""):
        assert found(plan, ("old.py",), under=root) == []


def test_verify_exempt_is_computed_whatever_the_orders_say() -> None:
    orders = [read_order("", one) for one in (order(1, verify_exempt=False), order(2, verify_exempt=True), order(3))]
    assert [*are_exempt(orders, ("f2.py", "README.md"), LISTED)] == [True, False, False]
    assert [*are_exempt(orders, (), ())] == [False] * 3
    assert [*are_exempt(orders, ("never",), ())] == [True] * 3


# ---- options --------------------------------------------------------------------------------------


def test_verify_exempt_can_be_required() -> None:
    assert found(manifest(order()), verify_exempt="required") == [("E005", "WO-01 verify_exempt")]
    assert found(manifest(order(verify_exempt=False)), verify_exempt="required") == []


def test_the_banned_script_is_an_option() -> None:
    assert ("E105", A_COMMAND) in found(with_commands("sh ci/all.sh"), verify="ci/all.sh")
    assert ("E105", A_COMMAND) not in found(with_commands("bash scripts/verify.sh"), verify="ci/all.sh")


def test_installed_modules_and_folders_of_modules_are_options() -> None:
    plan = with_commands("python -c 'import requests.sessions, base'")
    assert len(found(plan)) == 2
    assert found(plan, installed=["requests"], pythonpath=[".", "./src"]) == []


def test_paths_of_the_listing_are_taken_relative_to_a_folder() -> None:
    plan = manifest(order(preconditions=[*exists("a.py"), *absent("README.md")]))
    listed = ("README.md", "workspace/a.py", "workspace2/b.py")
    assert found(plan, listed, under="workspace") == []
    assert found(plan, listed, under="workspace/") == []
    assert len(found(plan, listed)) == 2


def test_a_listing_is_chosen_by_its_pattern() -> None:
    data = json.dumps(manifest(order(preconditions=exists("a.py")))).encode()
    listings = {"*.py": ("a.py",), "*.md": ("b.md",)}

    def codes(**options: Any) -> list[str]:
        return [
            one.code
            for one in WORK_ORDERS.run(CheckInput(outputs={"p.json": data}, listings=listings, options=options))
        ]

    assert codes() == codes(listing="*.py") == codes(listing=["*.py", "*.md"]) == []
    assert codes(listing="*.md") == ["E101"]
    assert codes(listing="*.txt") == ["E315"]


@pytest.mark.parametrize(
    "options",
    [
        {"file": 1},
        {"listing": 1},
        {"listing": [1]},
        {"under": None},
        {"verify": ""},
        {"verify": []},
        {"verify_exempt": "never"},
        {"verify_exempt": True},
        {"installed": "requests"},
        {"pythonpath": [1]},
        {"verfy": "x"},
    ],
)
def test_an_invalid_option_is_reported(options: dict[str, Any]) -> None:
    assert [code for code, _ in found(manifest(order()), **options)] == ["E315"]


def test_the_manifest_is_the_one_json_output_or_the_one_that_is_named() -> None:
    good, bad = json.dumps(manifest(order())).encode(), b"{}"

    def codes(outputs: dict[str, bytes], **options: Any) -> list[str]:
        return [one.code for one in WORK_ORDERS.run(CheckInput(outputs=outputs, options=options))]

    assert codes({"a.json": good, "b.txt": bad}) == []
    assert codes({"a.json": good, "b.json": bad}) == ["E315"]
    assert codes({"a.json": good, "b.json": bad}, file="a.json") == []
    assert codes({"a.json": good, "b.json": bad}, file="b.json") == ["E000"]
    assert codes({"a.json": good}, file="c.json") == codes({"a.txt": good}) == ["E310"]


# ---- nothing makes it raise -----------------------------------------------------------------------

KEYS = st.sampled_from(
    [*order(), "verify_exempt", "notes", "work_orders", "verify_contract", "requires", "kind", "path"]
)
WORDS = st.sampled_from(
    ["WO-01", "file_exists", "f1.py", "python -c 'x", "python -c", "bash -c", "a|b", "", "./a", "*"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_no_json_makes_it_raise(value: Any) -> None:
    for plan in (value, {"work_orders": value}, manifest(value, value), manifest(order(), verify_contract=value)):
        judge(plan)


@given(st.sampled_from(sorted(order())), JSON)
def test_no_value_in_an_order_makes_it_raise(key: str, value: Any) -> None:
    judge(manifest(order(1, **{key: value}), order(2, **{key: [value]}), verify_contract={"requires": exists("f2.py")}))


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_make_it_raise(data: bytes) -> None:
    assert [code for code, _ in found(data)] == ["E000"]


@given(
    st.text()
    | st.text("ab'\"\\ \n$()|;&`-c=/.", max_size=30).map(lambda rest: f"python -c {rest}")
    | st.text("bash -c'\"./")
)
def test_no_command_makes_it_raise(command: str) -> None:
    judge(with_commands(command))


@given(st.dictionaries(st.sampled_from(["file", "listing", "under", "verify", "installed", "pythonpath"]), JSON))
def test_no_options_make_it_raise(options: dict[str, Any]) -> None:
    judge(manifest(order()), **options)


@given(
    st.lists(st.sampled_from(["a", "b", "c"]), max_size=3),
    st.lists(st.lists(st.sampled_from(["a", "b", "c"]), max_size=3), max_size=4),
)
def test_an_order_is_exempt_until_the_contract_is_met_and_never_after(
    required: list[str], made: list[list[str]]
) -> None:
    orders = [read_order("", order(n, postconditions=exists(*paths))) for n, paths in enumerate(made, 1)]
    exempt = [*are_exempt(orders, required, ())]
    assert exempt == [not set(required) <= {p for paths in made[: n + 1] for p in paths} for n in range(len(made))]


# ---- the schemas ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "schema"), [("work_order.v1", dict(WORK_ORDER_SCHEMA)), ("work_orders.v1", manifest_schema())]
)
def test_the_schema_of_the_specs_is_the_one_of_the_check(name: str, schema: Any) -> None:
    assert json.loads((SCHEMAS / f"{name}.json").read_text()) == schema
    Draft7Validator.check_schema(schema)


def test_the_schema_of_a_manifest_finds_what_the_check_finds_of_shapes() -> None:
    validator = Draft7Validator(manifest_schema())
    assert all(validator.is_valid(plan) for plans in ACCEPTED.values() for plan in plans)
    assert not validator.is_valid(manifest(order(title="")))
