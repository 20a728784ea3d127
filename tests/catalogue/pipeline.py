"""Pipelines, prompts and data with one mistake each."""

import json
from collections.abc import Mapping

from tests.catalogue.provoking import Trigger, Triggers, complained, shown
from tests.file_server import serving
from tests.installed import CODE, ENTRIES, distribution, searched
from tests.project import Project, scripted

TRIGGERS = Triggers()

V = "version: 1\n"
S = "version: 1\nstages:\n  s:\n"
OK = "    shell: [a]\n"
LLM = "    llm: {provider: command, command: [cat], model: m, prompt: p.j2}\n    outputs: [a]\n"
EACH = "    foreach: {from: l.json, key: id, as: t}\n"
PROMPT = {"p.j2": "say a\n"}

# code -> a pipeline with that mistake, and the files beside it
WRONG: Mapping[str, tuple[str, Mapping[str, str | bytes]]] = {
    "E801": (V + "name: 'a\n", {}),
    "E802": (S + OK + "    need: [x]\n", {}),
    "E803": (S + OK + "    shell: [b]\n", {}),
    "E804": (V + "name: &x a\nstages: {s: {shell: a}}\n", {}),
    "E805": (V + "name: \x07\n", {}),
    "E806": (V + "stages:\n  1: {shell: a}\n", {}),
    "E807": (V + "jobs: " + "9" * 50 + "\nstages: {s: {shell: a}}\n", {}),
    "E810": ("stages: {s: {shell: a}}\n", {}),
    "E811": (V + "stages: [a]\n", {}),
    "E812": (S + OK + "    on_failure: kep\n", {}),
    "E813": (S + OK + "    matrix: {}\n", {}),
    "E814": (S + "    inputs: [a]\n", {}),
    "E815": (S + OK + "    timeout: 5 minutes\n", {}),
    "E816": (S + OK + "    pools: [gpu]\n", {}),
    "E817": (
        V + "pools: {a: {executor: dask}, b: {executor: reapi}}\nstages: {s: {shell: a, pools: [a, b]}}\n",
        {},
    ),
    "E820": (V + "stages:\n  a: {needs: [b], shell: x}\n  b: {needs: [a], shell: x}\n", {}),
    "E821": (V + "stages:\n  a: {outputs: [x], shell: x}\n  b: {outputs: [x], shell: x}\n", {}),
    "E822": (S + OK + "    inputs: [nobody.txt]\n", {}),
    "E823": (S + OK + "    needs: [nobody]\n", {}),
    "E824": (S + EACH + OK, {"l.json": "3"}),
    "E825": (S + EACH + OK, {"l.json": '[{"id": "a b"}]'}),
    "E826": (S + EACH + OK, {"l.json": '[{"id": "a"}, {"id": "a"}]'}),
    "E827": (
        S + "    foreach: {from: l.json, key: id, needs: after}\n" + OK,
        {"l.json": '[{"id": "a", "after": ["z"]}]'},
    ),
    "E828": (S + OK + "    outputs: [a]\n    verify: [{check: json_shema}]\n", {}),
    "E829": (
        V
        + "stages:\n  a: {promote: g, outputs: [a], shell: x}\n  b: {inputs: [a], outputs: [b], shell: x}\n"
        + "  c: {promote: g, inputs: [b], shell: x}\n",
        {},
    ),
    "E831": (S + LLM, {}),
    "E840": (S + "    shell: ['${{ vars.x }}']\n", {}),
    "E841": (S + "    shell: ['${{ 1 + }}']\n", {}),
    "E842": (V + "vars: {a: '${{ vars.b }}', b: '${{ vars.a }}'}\nstages: {s: {shell: a}}\n", {}),
    "E844": (V + "plugins: [no-such-distribution]\nstages: {s: {shell: a}}\n", {}),
    "E850": (S + OK + "    outputs: [/etc/passwd]\n", {}),
    "E851": (S + LLM + "    allowed_paths: {write: [b/]}\n", PROMPT),
    "E852": (S + LLM + "    allowed_paths: {protect: [a]}\n", PROMPT),
    "E853": (S + OK + "    outputs: [a, ./a]\n", {}),
    "E854": (S + OK + "    inputs: [a]\n    outputs: [a]\n", {}),
    "E855": (S + "    render: {template: t}\n", {}),
    "E856": (S + OK + "    retry: {max: 1, escalate: [m]}\n", {}),
    "E857": (S + EACH + OK + "    needs: ['${{ t.x }}']\n", {"l.json": "[]"}),
    "E835": (S + OK + "    verify: [{commands: {from: ['rm -r x'], allow: [python]}}]\n", {}),
    "E858": (
        S + EACH + "    shell: [a]\n    outputs: ['${{ t.path }}']\n",
        {"l.json": '[{"id": "a", "path": "pyproject.toml"}]'},
    ),
    "E859": (S + OK + "    env: {LD_PRELOAD: x}\n", {}),
    "E863": (S + OK + "    outputs: [a.json]\n    metrics: [b.json]\n", {}),
    "W801": (S + OK + "    retry: 99\n", {}),
    "W805": (S + OK + "    outputs: ['{{ vars.a }}']\n", {}),
    "W822": (S + OK + "    inputs: [nothing/*.md]\n", {}),
    "W827": (S + "    pytest: {paths: [t], pythonpath: [lib]}\n", {"t/test_a.py": ""}),
    "W861": (S + OK + "    inputs: [{path: v.json, schema: s.json}]\n", {"v.json": "1", "s.json": '{"x-order": 1}'}),
    "W804": (S + OK + "    promote: app\n", {}),
    "W803": ("exit_codes: {E299: 4}\n" + S + OK, {}),
}


def _of_the_table(code: str) -> Trigger:
    text, files = WRONG[code]
    return lambda project: complained(project, text, files)


for _code in WRONG:
    TRIGGERS.of(_code)(_of_the_table(_code))


@TRIGGERS.of("E832")
def prompt_of_an_undefined_name(project: Project) -> set[str]:
    """Let a prompt speak of something that no prompt sees."""
    stages = {"code": {"outputs": ["a.py"], "llm": {"returns": "code", "prompt": "p.j2"}}}
    project.write({**scripted(stages, {"code": ["x = 1\n"]}), "p.j2": "{{ nobody }}\n"})
    return shown(project.build())


@TRIGGERS.of("E833")
def heading_that_is_not_there(project: Project) -> set[str]:
    """Read a section that the file does not have."""
    stages = {"s": {"inputs": ["a.md#Other"], "outputs": ["b"], "shell": ["true"]}}
    project.write({**scripted(stages, {}), "a.md": "# Title\n"})
    return shown(project.build())


@TRIGGERS.of("E834")
def too_much_context(project: Project) -> set[str]:
    """Give a model more files than it may get."""
    stages = {"code": {"inputs": ["in/"], "outputs": ["a.py"], "llm": {"returns": "code", "context": {"max_files": 1}}}}
    project.write({**scripted(stages, {"code": ["x = 1\n"]}), "in/a": "a", "in/b": "b"})
    return shown(project.build())


@TRIGGERS.of("E837")
def binary_file_in_a_prompt(project: Project) -> set[str]:
    """Show a model a picture."""
    stages = {"code": {"inputs": ["a.png"], "outputs": ["a.py"], "llm": {"returns": "code"}}}
    project.write({**scripted(stages, {"code": ["x = 1\n"]})})
    (project.root / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    return shown(project.build())


@TRIGGERS.of("E843")
def var_that_is_not_declared(project: Project) -> set[str]:
    """Set a var that the pipeline does not have."""
    project.write({"pipeline.yaml": S + OK})
    return shown(project.run("plan", "--set", "nobody=1"))


@TRIGGERS.of("E845")
def plugin_that_cannot_be_loaded(project: Project) -> set[str]:
    """Name a plugin whose check is in a module that is not there."""
    return _planned_with(project, "acme_broken", "", "[orch23.checks]\nmine = acme_nowhere:CHECK\n")


@TRIGGERS.of("E847")
def plugin_that_fails(project: Project) -> set[str]:
    """Name a plugin whose step kind cannot say what it depends on."""
    code, entries = (text.replace("acme_checks", "acme_failing") for text in (CODE, ENTRIES))
    code = code.replace("    def aspects(self, facts):", "    def aspects(self, facts):\n        raise ValueError")
    return _planned_with(project, "acme_failing", code, entries)


def _planned_with(project: Project, plugin: str, code: str, entries: str) -> set[str]:
    site = project.root.parent / "site"
    distribution(site, plugin, "1.0", code, entries)
    used = "    verify: [{check: mine}]\n" if not code else "  mine: {upper: {text: x}, outputs: [mine.txt]}\n"
    project.write({"pipeline.yaml": f"plugins: [{plugin}]\n{S}{OK}{used}"})
    with searched(site):
        return shown(project.run("plan"))


@TRIGGERS.of("E846")
def executor_that_no_one_has(project: Project) -> set[str]:
    """Name an executor that there is not."""
    return complained(project, "executor: elsewhere\n" + S + OK)


def _fetched(project: Project, url: str, more: str = "", *argv: str) -> set[str]:
    """Build a stage that fetches an address."""
    fetch = f"    fetch: {{url: '{url}', sha256: {'0' * 64}{more}}}\n    outputs: [a]\n"
    project.write({"pipeline.yaml": S + fetch})
    return shown(project.build(*argv))


@TRIGGERS.of("E451", needs="fetch")
def file_that_the_server_does_not_have(project: Project) -> set[str]:
    """Fetch what is not there."""
    with serving() as server:
        return _fetched(project, f"{server.url}/nothing")


@TRIGGERS.of("E452", needs="fetch")
def file_of_another_digest(project: Project) -> set[str]:
    """Fetch another file than the one that is named."""
    project.write({"b": "b"})
    return _fetched(project, "file:b")


@TRIGGERS.of("E453", needs="fetch")
def file_that_is_too_large(project: Project) -> set[str]:
    """Fetch more than may be."""
    with serving() as server:
        server.files["/b"] = b"b" * 100
        return _fetched(project, f"{server.url}/b", ", max_size: 10")


@TRIGGERS.of("E454", needs="fetch")
def address_of_a_cloud(project: Project) -> set[str]:
    """Fetch what clouds tell of a machine."""
    return _fetched(project, "http://169.254.169.254/")


@TRIGGERS.of("E455", needs="fetch")
def download_without_a_network(project: Project) -> set[str]:
    """Fetch offline."""
    return _fetched(project, "https://host.invalid/", "", "--offline")


@TRIGGERS.of("E860")
def input_that_breaks_its_schema(project: Project) -> set[str]:
    """Declare an input with a schema that it does not fit."""
    text = S + OK + "    inputs: [{path: a.json, schema: a.schema.json}]\n"
    project.write({"pipeline.yaml": text, "a.json": "3", "a.schema.json": '{"type": "string"}'})
    return shown(project.run("plan"))


@TRIGGERS.of("E861")
def schema_that_is_none(project: Project) -> set[str]:
    """Declare an input with a file that is JSON, and no schema."""
    text = S + OK + "    inputs: [{path: a.json, schema: a.schema.json}]\n"
    project.write({"pipeline.yaml": text, "a.json": "3", "a.schema.json": json.dumps({"type": "strnig"})})
    return shown(project.run("plan"))


@TRIGGERS.of("E862")
def pipeline_that_is_not_there(project: Project) -> set[str]:
    """Name a pipeline that does not exist."""
    return shown(project.run("plan", "nobody.yaml"))
