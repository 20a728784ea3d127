# ruff: noqa: E501 - texts of files, as they stand there
"""What is taken from the code for each promise of docs/seeds.md: then one of the tests that its row names must fail."""

from tests.mutants import Mutant

M = Mutant

ASKING = "orch23/runners/llm.py"
ATTEMPT = "orch23/attempt/attempt.py"
COMMANDS = "orch23_checks/acceptance_commands.py"
CONTENTS = "orch23/proposal/proposal_files.py"
CHAIN = "orch23_checks/order_chain.py"
ENVELOPE = "orch23/proposal/response_parser.py"
EXCERPT = "orch23/text/excerpt.py"
FAILURE = "orch23/attempt/failures.py"
FRESHNESS = "orch23/decide/freshness.py"
GROUPS = "orch23/engine/group_checks.py"
GUARDING = "orch23/attempt/sent_data.py"
JOURNAL = "orch23/store/run_logs.py"
LEDGER = "orch23/attempt/ledger.py"
LAYERED = "pipelines/layered_app.yaml"
LOCAL = "orch23/execute/local_executor.py"
LOG = "prompts/planner_coder_tester/communication_log.jsonl.j2"
ORDER = "orch23_checks/order_chain.py"
ORDERS = "orch23_checks/work_orders.py"
PATHS = "orch23/proposal/proposal_files.py"
PCT = "pipelines/planner_coder_tester.yaml"
PROCESS = "orch23/execute/process.py"
PROMOTE = "orch23/store/promotion.py"
PROPOSAL = "orch23/proposal/proposal.py"
READINESS = "orch23/engine/call_preflight.py"
RECORDED = "orch23/providers/recordings.py"
RESPONSES = "orch23/features/vendors/openai_responses.py"
UNMET = "unmet := self.resolved.broken or [unmet_error(one, self.tree) for one in unmet_conditions(self.resolved)]:"
RENDERING = "orch23/runners/render.py"
RUNNING = "orch23/attempt/process_runner.py"
READERS = "orch23/language/key_readers.py"
STAGES = "orch23/language/stages.py"
STATE = "orch23/store/run_state.py"
TASKS = "orch23_checks/planner_tasks.py"
TDD = "pipelines/tdd_loop.yaml"
TELLING = "orch23/runners/llm.py"
TRANSPORT = "orch23/providers/retries.py"
VERIFICATION = "orch23/attempt/verification.py"
WORK = "pipelines/work_orders.yaml"

NO_RETRY = M(ATTEMPT, "for attempt in range(history.attempt + 1, retry.max + 2):", "for attempt in range(1, 2):")
ONE_MORE = M(
    ATTEMPT,
    "for attempt in range(history.attempt + 1, retry.max + 2):",
    "for attempt in range(history.attempt + 1, retry.max + 3):",
)
BACK_OFF = M(
    ATTEMPT,
    "            self.safeguards.begin_attempt(stage.name)\n",
    "            self.safeguards.begin_attempt(stage.name)\n            __import__('threading').Event().wait(0.3 * (attempt - 1))\n",
)
CODE_PROMPT, PLAN_PROMPT = "prompts/tdd_loop/generate_project.md.j2", "prompts/work_orders/planner.md.j2"
ENGINEER_PROMPT, FEEDBACK_TEXT = "prompts/work_orders/engineer.md.j2", "orch23/resolve/dialogue.py"
NO_FEEDBACK = M(CODE_PROMPT, "{{ inputs | blocks }}", "{{ inputs | blocks }}{% set _ = brief %}")
NO_EXCERPT = M(FEEDBACK_TEXT, '        yield DataBlock("what failed", feedback.excerpt)', "        yield from ()")
NO_TEST_REPORT = M(
    "orch23/verdict/verdict.py",
    "    return replace(verdict, headline=_headline(results, verdict.counts), error=error, parts=parts)\n",
    "    return replace(verdict, parts=())\n",
)
FOLLOW_UP = "orch23/resolve/dialogue.py"
IMPORTS_ITSELF = M("orch23/model/digest.py", "import json\n", "import json\nimport orch23.model.record\n")
NO_WRITE_FENCE = M(
    PATHS,
    '    return [_error(codes.OUTSIDE_WRITE_SCOPE, "is outside the write scope", full, _way_in(path, scope))]',
    "    return []",
)
ASKED_AGAIN = M(
    RECORDED, "        return None if found is None or self._is_excluded(found) else found\n", "        return None\n"
)
NO_TIMEOUT = M(PROCESS, "if not has_exited and (now >= until or cancel.is_set()):", "if cancel.is_set():")
TIMEOUT_UNTOLD = M(
    RUNNING, 'failed = command_failed("timeout", command,', 'failed = command_failed("verify_failed", command,'
)
STDERR_LOST = M(PROCESS, "                stderr=streams[1],", "                stderr=subprocess.DEVNULL,")
KEPT_AS_GREEN = M(
    FRESHNESS,
    "        if not mismatched_paths(candidate.target, known.disk, known.foreign):\n            return _claim",
    "        if True:\n            return _claim",
)
NO_FAILURE_TEXT = M(ATTEMPT, 'attempt, "failure.txt", ', 'attempt, "failed.txt", ')
NO_RESPONSE_TEXT = M(TELLING, 'self._keep("response.txt", response.text)', "pass")
NO_PROMPT_TEXT = M(TELLING, 'self._keep("prompt.txt", ', 'str("prompt.txt" + ')
FOLLOWED = M(
    "orch23/store/safe_files.py",
    "os.open(name, FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=descriptor)",
    "os.open(name, FOLDER_FLAGS, dir_fd=descriptor)",
)
NO_SEQUENCE = M(
    STAGES,
    "        link = ChainLink(chain=stage.name, index=index) if stage.foreach.sequential else None",
    "        link = None if stage.foreach.sequential else ChainLink(chain=stage.name, index=index)",
)

MUTANTS: dict[str, tuple[M, ...]] = {
    # ---- S0
    "S0-01": (M(TDD, "      max: ${{ vars.max_retries }}\n", "      max: 0\n"), NO_RETRY),
    "S0-02": (
        M(
            "orch23/load/overrides.py",
            "    given |= changed\n",
            "    given = {**changed, **given}\n",
        ),
        M("orch23/load/overrides.py", "    if file_text is not None:", "    if file_text is None:"),
    ),
    "S0-03": (
        M(
            "orch23/model/pipeline.py",
            "class Pipeline(Struct, frozen=True, omit_defaults=True, kw_only=True, dict=True):",
            "class Pipeline(Struct, omit_defaults=True, kw_only=True, dict=True):",
        ),
    ),
    "S0-04": (
        M(
            "orch23/features/vendors/openai_adapter.py",
            "        if not self.key(environ) and not is_loopback(url):",
            "        if False:",
        ),
        M(
            "orch23/features/vendors/vendor_adapters.py",
            '        return environ.get(self.variable_of_key(environ), "").strip()',
            '        return environ.get(self.variable_of_key(environ), "none").strip()',
        ),
    ),
    "S0-05": (
        M(
            JOURNAL,
            "compact_json(line)",
            'compact_json({k: v for k, v in line.items() if k != "level"})',
        ),
        M(
            JOURNAL,
            '    return moment.astimezone(UTC).isoformat(timespec="milliseconds")[: -len("+00:00")] + "Z"',
            '    return moment.isoformat(timespec="milliseconds")',
        ),
        M(JOURNAL, "self.run_id, number = run_id, 1\n", "self.run_id, number = run_id[:4], 1\n"),
    ),
    "S0-06": (NO_PROMPT_TEXT, NO_RESPONSE_TEXT, NO_FAILURE_TEXT),
    "S0-07": (
        M(STATE, "CheckResult, AttemptFinished, StageWithheld, StageFinished)", "StageWithheld, StageFinished)"),
        M(STATE, "AttemptStarted, FilesProposed, CheckResult, Att", "AttemptStarted, CheckResult, Att"),
    ),
    "S0-08": (
        M(
            PROMOTE,
            "        data = read_regular(self._redo)\n        if data is None:",
            "        data = read_regular(self._redo)\n        if data:",
        ),
        ASKED_AGAIN,
    ),
    "S0-09": (
        M(STATE, '            "last_test_exit_code": self.focus.exit_code,\n', ""),
        M(STATE, '            "retry_count": retries,\n', ""),
        M(STATE, "error=None, test_passed=True, exit_code=0)", "error=None)"),
    ),
    "S0-10": (
        M(JOURNAL, "%Y%m%dT%H%M%SZ}-{key8}", "%Y%m%dT%H%M%SZ}"),
        M(JOURNAL, '        while os.path.lexists(logs / f"{self.run_id}.jsonl"):', "        while False:"),
    ),
    "S0-11": (M(STATE, '"spec_hash": self.began.spec_hash,', '"spec_hash": "",'),),
    "S0-12": (M(STATE, 'phase: SeedPhase = "init"', 'phase: SeedPhase = "generated"'),),
    "S0-13": (
        NO_FEEDBACK,
        M(CODE_PROMPT, "{{ inputs | blocks }}", ""),
        M(TDD, "      from: current\n", "      from: baseline\n"),
    ),
    "S0-14": (NO_EXCERPT, M(CODE_PROMPT, "{{ inputs | blocks }}", "")),
    "S0-15": (
        ONE_MORE,
        M(TDD, "    on_truncated: {retries: 0}", "    on_truncated: {retries: 1}"),
        M(TDD, "      no_progress: 99 ", "      no_progress: 2 "),
    ),
    "S0-16": (BACK_OFF, NO_SEQUENCE),
    "S0-17": (
        M(
            STATE,
            '    "PATCHING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED"}),',
            '    "PATCHING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED", "SUCCESS"}),',
        ),
        M(STATE, "    if move not in LEGAL_TRANSITIONS[stage.state]:", "    if False:"),
    ),
    "S0-18": (M("orch23/model/errors.py", "    FAILED = 1\n", "    FAILED = 9\n"), ONE_MORE),
    "S0-19": (
        M(CONTENTS, "    if is_diff(full, entry.content, base):", "    if False:"),
        M(
            ENVELOPE,
            "    entries = tuple(ProposedFile(path, content) for path, content in value.items() if isinstance(content, str))",
            "    entries = ()",
        ),
    ),
    "S0-20": (
        M(STATE, 'phase="generated", files=files)', 'phase="generated")'),
        M(STATE, '            "attempt_files": list(self.focus.files),\n', ""),
        M(STATE, "self._focus = after if self._is_loop(event.role) else self._focus", "self._focus = after"),
    ),
    "S0-21": (STDERR_LOST, NO_TIMEOUT, NO_TEST_REPORT),
    "S0-22": (
        M(VERIFICATION, "                if not stage.verify.run_all:\n", "                if stage.verify.run_all:\n"),
        M(
            VERIFICATION,
            "        steps: list[VerifyStep] = sorted(stage.verify.steps, key=lambda step: not isinstance(step, CheckStep))",
            "        steps: list[VerifyStep] = list(stage.verify.steps)",
        ),
    ),
    "S0-23": (IMPORTS_ITSELF, M("orch23/model/digest.py", "import json\n", "import abc\nimport json\n")),
    "S0-24": (M("orch23/store/access.py", "import os\n", "import os\n\nimport yaml\n"),),
    "S0-25": (M(STATE, "isinstance(event.data, RunStarted | RunFinished)", "isinstance(event.data, RunStarted)"),),
    "S0-26": (
        NO_FEEDBACK,
        M(
            TDD,
            "llm: {prompt: prompts/tdd_loop/generate_project.md.j2, returns: files}",
            "llm: {prompt: prompts/tdd_loop/generate_tests.md.j2, returns: files}",
        ),
    ),
    "S0-27": (
        M(STATE, "            self._folding.add(event)\n", ""),
        M(STATE, "    if move not in LEGAL_TRANSITIONS[stage.state]:", "    if False:"),
    ),
    # ---- S1
    "S1-01": (
        M(
            STATE,
            '    "GENERATING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED"}),',
            '    "GENERATING": frozenset({"INIT", "PATCHING", "FAILED"}),',
        ),
    ),
    "S1-02": (M(STATE, "    if move not in LEGAL_TRANSITIONS[stage.state]:", "    if False:"),),
    "S1-03": (
        M(STATE, '            "last_test_stderr": self.focus.output,\n', ""),
        M(STATE, '            "spec_hash": self.began.spec_hash,\n', ""),
    ),
    "S1-04": (
        M(
            STATE,
            'write_atomic(self._path, data + b"\\n", mode=PRIVATE_FILE_MODE, scratch=scratch, durable=False)',
            'self._path.parent.mkdir(parents=True, exist_ok=True), self._path.write_bytes(data + b"\\n")',
        ),
    ),
    "S1-05": (ASKED_AGAIN,),
    "S1-06": (
        M(
            READERS,
            "    bounded = min(value, MAX_RETRIES)",
            "    bounded = min(value, MAX_RETRIES + 1)",
        ),
        M(TDD, "  max_retries: 5 ", "  max_retries: 4 "),
    ),
    "S1-07": (ASKED_AGAIN,),
    "S1-08": (ASKED_AGAIN,),
    "S1-09": (BACK_OFF,),
    "S1-10": (
        M(
            PATHS,
            "        if reasons[path] is not None\n    ]",
            "        if False\n    ]",
        ),
        FOLLOWED,
        M(RUNNING, "        if result.violations:\n", "        if False:\n"),
    ),
    "S1-11": (FOLLOWED,),
    "S1-12": (
        M(VERIFICATION, '            why = "it is outside the fence"\n', "            continue\n"),
        M(
            "orch23/model/file_policy.py",
            "    return protected_reason(path) is not None or match_any(also, path)",
            "    return False",
        ),
    ),
    "S1-13": (
        STDERR_LOST,
        M(
            LOCAL,
            '            cwd=sandbox_dir.work if action.working_directory == "." else sandbox_dir.work / action.working_directory,\n',
            "            cwd=sandbox_dir.work,\n",
        ),
        M("orch23/resolve/commands.py", "    return ShellStep(tuple(argv))\n", "    return ShellStep(command)\n"),
    ),
    "S1-14": (
        M(TDD, "  timeout: ${{ [vars.timeout_s, 600] | min }}\n", "  timeout: ${{ vars.timeout_s }}\n"),
        NO_TIMEOUT,
        M("orch23/language/document.py", 'Key("10m", default="300s"', 'Key("10m", default="301s"'),
    ),
    "S1-15": (
        M(PROCESS, "env=dict(process.env),\n", "env={**os.environ, **process.env},\n"),
        M(LOCAL, "    if names:\n", "    if False:\n"),
    ),
    "S1-16": (
        M("orch23/store/access.py", "import os\n", "import os\nimport urllib.request\n"),
        M("orch23/store/access.py", "import os\n", "import os\n\nimport requests\n"),
    ),
    "S1-17": (
        M(
            TDD,
            '      - {path: "${{ vars.spec }}", schema: specs/tdd_loop/spec.schema.json}\n',
            "      - ${{ vars.spec }}\n",
        ),
        M(
            "orch23/cli/author_data.py",
            "            problems += parsed.diagnostics or validate_by_schema(sources, one.schema, parsed.tree, parsed=parsed)\n",
            "            problems += parsed.diagnostics\n",
        ),
    ),
    "S1-18": (
        M(
            JOURNAL,
            "            if broken is not None:\n",
            "            if broken is not None:\n                break\n",
        ),
        M(JOURNAL, "    if not has_checksum(line):", "    if False:"),
    ),
    "S1-19": (
        M("orch23/model/errors.py", "    LIMIT = 4\n", "    LIMIT = 7\n"),
        M(TDD, "exit_codes: {E205: 2, PROVIDER: 1}", "exit_codes: {PROVIDER: 1}"),
        M(TDD, "exit_codes: {E205: 2, PROVIDER: 1}", "exit_codes: {E205: 2}"),
        M(TDD, "exit_codes: {E205: 2, PROVIDER: 1}", "exit_codes: {E205: 2, E4: 1}"),
        TIMEOUT_UNTOLD,
    ),
    "S1-20": (M(PROCESS, "                stdin=process.stdin,\n", "                stdin=0,\n"), ONE_MORE),
    "S1-21": (
        M(
            "orch23/engine/build.py",
            "ExitCode(_SIGNAL_EXIT_BASE + message.signum), self._interrupted_text()",
            "ExitCode.FAILED, self._interrupted_text()",
        ),
    ),
    "S1-22": (M("orch23/features/upkeep/outputs.py", "            lines += forget_results(root)\n", ""),),
    "S1-23": (
        M("orch23/features/upkeep/outputs.py", "    if lines and not outputs:\n", "    if False:\n"),
        M(
            "orch23/features/upkeep/outputs.py",
            "        lines += rename_damaged_journals(root)\n",
            "        lines += rename_damaged_journals(root)\n        __import__('shutil').rmtree(root / 'logs')\n",
        ),
        M(
            "orch23/features/upkeep/outputs.py",
            "    elif not opened.state.ownership.is_known(path, current):\n",
            "    elif False:\n",
        ),
    ),
    "S1-24": (
        M(
            JOURNAL,
            "open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)",
            "open_own(self.path, flags)",
        ),
    ),
    "S1-25": (M(RENDERING, 'attempts.resolved.rendered or b""', 'b""'),),
    "S1-26": (M("orch23/store/access.py", "import os\n", "import os\n\nimport yaml\n"),),
    "S1-27": (
        M(
            TDD,
            '    requires: {file_absent: "${{ vars.workspace }}/src/"}    # no files but those that this stage made\n',
            "",
        ),
    ),
    "S1-28": (
        M(ATTEMPT, "        if failure.kind not in retry.when and not", "        if False and not"),
        M(TDD, "  patch_after: [verify_failed, truncated]  ", "  patch_after: [verify_failed, llm_output_invalid]  "),
    ),
    # ---- S2
    "S2-01": (
        M(
            LAYERED,
            'inputs: ["${{ vars.spec }}/request.md", {path: "${{ vars.spec }}/feedback/*.md", optional: true}]',
            'inputs: ["${{ vars.spec }}/request.md"]',
        ),
    ),
    "S2-02": (M(LAYERED, 'outputs: ["${{ vars.app }}/spec/changes.log"]', 'outputs: ["workspace/changes.log"]'),),
    "S2-03": (KEPT_AS_GREEN,),
    "S2-04": (
        M(
            "orch23/model/pipeline.py",
            "class Pipeline(Struct, frozen=True, omit_defaults=True, kw_only=True, dict=True):",
            "class Pipeline(Struct, omit_defaults=True, kw_only=True, dict=True):",
        ),
    ),
    "S2-05": (
        M(STATE, "            self._stages[event.role] = after\n", "            self._stages = {event.role: after}\n"),
        M(
            STATE,
            '_RESUMABLE = frozenset({INTERRUPTED, "cancelled", "limit", "edited", "decision", "waiting", "awaiting", "approval"})',
            "_RESUMABLE = frozenset({INTERRUPTED})",
        ),
    ),
    "S2-06": (
        M(
            "orch23/resolve/slices.py",
            "        part = text_part(text, path, selector)\n",
            "        return Slice(selector, text)\n",
        ),
        M(STATE, "            self._folding.add(event)\n", ""),
    ),
    "S2-07": (M(LAYERED, "    needs: [scaffold]\n", ""),),
    "S2-08": (
        M(LAYERED, "      schema: specs/layered_app/intent.v1.json\n", ""),
        M("orch23/checks/one_per_input.py", "    if found == wanted:", "    if True:"),
        M("specs/layered_app/changes.log.j2", "{{ change.source }}: {{ change.summary }}", "{{ change.summary }}"),
    ),
    "S2-09": (
        M(LAYERED, "      schema: specs/layered_app/architecture.v1.json\n", ""),
        M(
            LAYERED,
            "      - check: architecture_stability\n        with: {released_in:",
            "      - check: one_per_input\n        with: {x:",
        ),
        M("prompts/layered_app/architecture.md.j2", "{% if released %}", "{% if false %}"),
    ),
    "S2-10": (M("specs/layered_app/code_map.json.j2", "{{ layer.name | tojson }}: [", "{{ layer.kind | tojson }}: ["),),
    "S2-11": (M(LAYERED, "      needs: depends_on\n", ""),),
    "S2-12": (
        NO_RETRY,
        M(LAYERED, '        - commands: {from: "${{ layer.constraints }}", allow: [python]}\n', ""),
        M(GROUPS, "        if not self.refused and not again:\n", "        if True:\n"),
    ),
    "S2-13": (
        M(LAYERED, "  retry: {max: 2, from: baseline", "  retry: {max: 3, from: baseline"),
        ONE_MORE,
        M(GROUPS, "used < stage.retry.max + bool(used)", "used <= stage.retry.max + bool(used)"),
        M(GROUPS, "        if all(names for _, names in named):\n", "        if True:\n"),
    ),
    "S2-14": (
        M(
            LAYERED,
            "      - ${{ layer.intent | under(vars.app ~ '/spec/intent.json#') }}\n",
            "      - ${{ vars.app }}/spec/intent.json\n",
        ),
    ),
    "S2-15": (
        M(LAYERED, "| list else 'entities' }}", "| list else 'app' }}"),
        M(LAYERED, " and 'frontend/' not in layer.files | join\n", "\n"),
        M(LAYERED, "        and not layer.intent | reject('in', vars.of_app) | list else", "        else"),
    ),
    "S2-16": (M(FRESHNESS, "return _by_records(known) or Run", "return Run"),),
    "S2-17": (
        M(
            "orch23/engine/build.py",
            "limit is not None and self._results.failed >= limit",
            "limit is not None and self._results.failed > limit",
        ),
        M(
            LAYERED,
            "      - check: architecture_stability\n        with: {released_in:",
            "      - check: one_per_input\n        with: {x:",
        ),
    ),
    "S2-18": (
        M(
            "orch23/plan/nodes.py",
            "isinstance(stage, ForeachStage) and stage.foreach.together and stage.name in expansions:\n",
            "False:\n",
        ),
        M(
            PROMOTE,
            "            write_atomic(self._redo, self._store_key.encode(redo), mode=PRIVATE_FILE_MODE)\n",
            '            write_atomic(self._redo, b"", mode=PRIVATE_FILE_MODE)\n',
        ),
        M(
            LAYERED,
            '    promote: app\n    inputs: ["${{ vars.app }}/src/**", "${{ vars.spec }}/tests/*.py"]\n',
            '    inputs: ["${{ vars.app }}/src/**", "${{ vars.spec }}/tests/*.py"]\n',
        ),
    ),
    "S2-19": (
        NO_PROMPT_TEXT,
        M("orch23/features/inspecting/show.py", '    "prompt": ("prompt.txt",),', '    "prompt": ("response.txt",),'),
    ),
    "S2-20": (
        M(
            "orch23/plan/compile.py",
            "tuple(nx.lexicographical_topological_sort(graph, position.__getitem__))",
            "tuple(nx.topological_sort(graph))",
        ),
    ),
    "S2-21": (
        M(
            RENDERING,
            "        del step, turn\n",
            "        del step, turn\n        attempts.models.conversations.open(attempts.resolved, 1, set())\n",
        ),
    ),
    "S2-22": (
        M(
            "orch23/plan/compile.py",
            "yield _firmness(node, nodes[producer], pattern), Edge(",
            "yield _CHAIN_PATTERN, Edge(",
        ),
    ),
    "S2-23": (
        M(
            "orch23/runners/llm.py",
            "    return (*given, *own)\n",
            "    return own\n",
        ),
    ),
    # ---- S3
    "S3-01": (M(PCT, "  runs: workspace/planner_coder_tester/runs ", "  runs: workspace/elsewhere/runs "),),
    "S3-02": (
        M(
            "orch23/model/parsing.py",
            '            self.fail("there is text after the value", end, "trailing")',
            "            pass",
        ),
    ),
    "S3-03": (M("specs/schemas/plan.v1.json", '"plan_id": {', '"planId": {'),),
    "S3-04": (
        M(
            ASKING,
            '    validate = (lambda value: _models(attempts).validate(step.schema or "", value)) if step.schema else None\n',
            "    validate = None\n",
        ),
        NO_WRITE_FENCE,
        M(ENVELOPE, "    for key in sorted(value.keys() - ENVELOPE_KEYS):\n", "    for key in list[str]():\n"),
    ),
    "S3-05": (
        M(
            "orch23/language/expand.py",
            "    rendered = render_foreach(foreach, keyed,",
            "    keyed = sorted(keyed, key=lambda pair: pair[0])\n    rendered = render_foreach(foreach, keyed,",
        ),
    ),
    "S3-06": (
        M(
            CONTENTS,
            "find_placeholders(full, entry.content, base)[:_SHOWN_PLACEHOLDERS]",
            "()",
        ),
        M("orch23/text/source_syntax.py", "_SHRINK = 0.5", "_SHRINK = 0.0"),
    ),
    "S3-07": (
        M(
            ENVELOPE,
            '    return str(value.get("reason") or "no reason given") if value.get("status") == "error" else None',
            "    return None",
        ),
        M(
            "prompts/planner_coder_tester/system.md.j2",
            '- If you cannot do your work, respond with `{"status": "error", "reason": "<short reason>"}`. Never guess.\n',
            "",
        ),
    ),
    "S3-08": (
        M(
            JOURNAL,
            "compact_json(line)",
            'compact_json({k: v for k, v in line.items() if k != "role"})',
        ),
        M(PCT, "run_log: prompts/planner_coder_tester/communication_log.jsonl.j2\n", ""),
    ),
    "S3-09": (
        M(
            "orch23/store/listing.py",
            "    return tuple(sorted(Listing(tree, wanted, outputs, exclude).matches(prefix, real)))\n",
            "    return tuple(sorted(Listing(tree, wanted, outputs, exclude).matches(prefix, real), reverse=True))\n",
        ),
        M(
            "prompts/planner_coder_tester/repo_summary.txt.j2",
            '{{ ": " ~ note | truncate(80, true, "...", 0) if note }}',
            "",
        ),
    ),
    "S3-10": (
        M(PCT, "      schema: specs/schemas/plan.v1.json\n", ""),
        M(
            TASKS,
            '                "required": ["id", "title", "rationale", "acceptance", "artifacts"],',
            '                "required": ["id", "title", "rationale", "artifacts"],',
        ),
        M("prompts/planner_coder_tester/planner.md.j2", ' "plan_id": {{ vars.plan_id | tojson }}}', "}"),
        M("prompts/planner_coder_tester/planner.md.j2", "{{ schema }}", ""),
    ),
    "S3-11": (
        M(TASKS, '"plan_id", "plan_0001")', '"plan_id", "plan_1")'),
        M(TASKS, '        expected = f"T{number + 1}"', '        expected = str(task["id"])'),
    ),
    "S3-12": (
        M(TASKS, '                return f"differs from `{other}` only by case"', "                return None"),
        M(TASKS, "        if reason is not None:\n            return reason\n", ""),
    ),
    "S3-13": (
        M(
            PROPOSAL,
            "tuple(sorted(writes, key=lambda write: write.path))",
            "tuple(writes)",
        ),
        M(
            "prompts/planner_coder_tester/coder.md.j2",
            '{"path": {{ file.path | tojson }}, "content": {{ file.text | tojson }}}',
            '{"path": {{ file.path | tojson }}}',
        ),
    ),
    "S3-14": (M(TASKS, "    elif match_any(tests, path):\n", "    elif False:\n"), NO_WRITE_FENCE),
    "S3-15": (
        M(LOG, '"passed": {{ data.passed | tojson }}', '"passed": true'),
        M("prompts/planner_coder_tester/report.json.j2", "found.value.passed", "none"),
    ),
    "S3-16": (
        M(LOG, "text[-1000:]", "text[-1001:]"),
        M(
            EXCERPT,
            "    if len(text) <= limits.limit:\n        return text\n    return f",
            "    if len(text) < limits.limit:\n        return text\n    return f",
        ),
    ),
    "S3-17": (
        M(
            LOG,
            '{"task_id": {{ task | tojson }}, "passed": {{ data.passed | tojson }},',
            '{"passed": {{ data.passed | tojson }}, "task_id": {{ task | tojson }},',
        ),
    ),
    "S3-18": (M(TASKS, '"minLength": 1, "maxLength": 4000}', '"minLength": 1, "maxLength": 4001}'),),
    "S3-19": (FOLLOWED, M(PROMOTE, "                make_directories(self._root, names)\n", "                raise\n")),
    "S3-20": (
        M("orch23/resolve/commands.py", "    if argv[0] not in allow:\n", "    if False:\n"),
        TIMEOUT_UNTOLD,
    ),
    "S3-21": (
        M("orch23/providers/middleware.py", "            text=self.redact(response.text),\n", ""),
        M(PROCESS, "env=dict(process.env),\n", "env={**os.environ, **process.env},\n"),
    ),
    "S3-22": (M(PCT, "    on_failure: keep ", "    on_failure: rollback "), M(PCT, "  retry: 0 ", "  retry: 1 ")),
    "S3-23": (
        M(
            READINESS,
            "        return self.conversations.offline and is_remote(step)",
            "        return False",
        ),
        ASKED_AGAIN,
    ),
    "S3-24": (
        NO_RESPONSE_TEXT,
        M(LOG, '"plan" if stage == "plan" else "report"', '"report"'),
    ),
    "S3-25": (
        NO_SEQUENCE,
        M("orch23/attempt/verification.py", 'if outcome == "skipped"]', 'if outcome == "none"]'),
    ),
    "S3-26": (
        M(
            ENVELOPE,
            '    return str(value.get("reason") or "no reason given") if value.get("status") == "error" else None',
            "    return None",
        ),
    ),
    # ---- S4
    "S4-01": (M(WORK, "  project: ${{ vars.place }}/project\n", "  project: workspace/work_orders/project\n"),),
    "S4-02": (
        M(WORK, "exit_codes: {E201: 4, E0: 2,", "exit_codes: {E0: 2,"),
        M(WORK, ", FAILED/E8: 2, PROVIDER: 3}", ", E8: 2, E4: 3}"),
        M(WORK, "exit_codes: {E201: 4, E0: 2,", "exit_codes: {E201: 4,"),
    ),
    "S4-03": (
        ONE_MORE,
        M(
            WORK,
            "    retry: {max: 2, from: baseline, style: conversation}\n",
            "    retry: {max: 3, from: baseline}\n",
        ),
    ),
    "S4-04": (
        M(FOLLOW_UP, 'Message("assistant", dialogue.response)', 'Message("assistant", "")'),
        M(FOLLOW_UP, 'Message("user", turn, sent.media)', 'Message("user", "again", sent.media)'),
    ),
    "S4-05": (
        M(VERIFICATION, "        found = errors(diagnostics)\n", "        found = diagnostics\n"),
        M(VERIFICATION, "if one.severity is Severity.WARNING and said not in self.warned:", "if False:"),
    ),
    "S4-06": (NO_RESPONSE_TEXT, NO_FAILURE_TEXT),
    "S4-07": (
        M(
            "orch23/model/llm.py",
            '            "model": self.model,\n            "system"',
            '            "system"',
        ),
    ),
    "S4-08": (M(ORDERS, "    invalid = tuple(_manifest_errors(options.file, manifest))\n", "    invalid = ()\n"),),
    "S4-09": (M(ORDERS, '        expected = f"WO-{number + 1:02d}"', '        expected = f"WO-{number + 1}"'),),
    "S4-10": (M("orch23_checks/work_orders.py", '"E003",', '"E002",'),),
    "S4-11": (M(COMMANDS, "    operators = shell_operators(command)\n", "    operators: tuple[str, ...] = ()\n"),),
    "S4-12": (M(ORDERS, '_GLOB = frozenset("*?[]")', '_GLOB = frozenset("*?")'),),
    "S4-13": (M(ORDERS, "        invalid = tuple(_schema_errors(label, order))\n", "        invalid = ()\n"),),
    "S4-14": (M(COMMANDS, "        found += _code_errors(called.value, subject)\n", "        pass\n"),),
    "S4-15": (
        M(
            CHAIN,
            '        elif kind != "file_exists" and path in files:\n',
            "        elif False:\n",
        ),
        M(CHAIN, "        state.add(order.postconditions)\n", ""),
    ),
    "S4-16": (
        M(CHAIN, "if len(found) > 1}\n", "if len(found) > 2}\n"),
        M(CHAIN, "                reported.add(path)\n", ""),
    ),
    "S4-17": (M(CHAIN, "        if path not in allowed:\n", "        if False:\n"),),
    "S4-18": (M(CHAIN, "        if path not in promised:\n", "        if False:\n"),),
    "S4-19": (
        M(COMMANDS, "    if runs_script(argv, verify):\n", "    if False:\n"),
        M(
            ORDERS,
            '    verify = reader.text("verify", "scripts/verify.sh")',
            '    verify = "scripts/verify.sh"',
        ),
    ),
    "S4-20": (M(CHAIN, "        if path not in state.files:\n", "        if False:\n"),),
    "S4-21": (
        M(CHAIN, "severity=Severity.WARNING, subject=subject)", "severity=Severity.ERROR, subject=subject)"),
        M(
            CHAIN,
            "            yield from _dependency_warnings(subject, needed, state, installed)\n",
            "            pass\n",
        ),
    ),
    "S4-22": (M(CHAIN, "    state.add(present)\n", ""), M(CHAIN, "        state.add(order.postconditions)\n", "")),
    "S4-23": (
        M(CHAIN, "        yield bool(missing)\n", "        yield bool(order.verify_exempt)\n"),
        M(CHAIN, "    missing = set(required) - set(present)\n", "    missing = set(required)\n"),
    ),
    "S4-24": (
        M(
            "orch23_checks/acceptance_commands.py",
            "        return CommandDependencies(scripts=(plain_path(called.value),))\n",
            "        return CommandDependencies()\n",
        ),
        M("orch23_checks/acceptance_commands.py", ' if name.partition(".")[0] not in STDLIB_NAMES))', "))"),
    ),
    "S4-25": (
        M(
            "orch23/model/diagnostic.py",
            '        subject = f"{self.subject}: " if self.subject else ""\n',
            '        subject = ""\n',
        ),
    ),
    "S4-26": (
        M(WORK, "      schema: specs/schemas/work_orders.v1.json\n", ""),
        M(PLAN_PROMPT, "{{ inputs | blocks }}", ""),
        M("orch23/resolve/templates.py", "StrictUndefined", "Undefined"),
    ),
    "S4-27": (
        M(
            "orch23/attempt/conversation.py",
            "    text, _ = sources.text(step.schema) if step.schema else (None, None)\n",
            "    text = None\n",
        ),
        M(RESPONSES, '{"background": True, "store"', '{"background": False, "store"'),
        M(RESPONSES, '_WAITING = frozenset({"queued", "in_progress"})', '_WAITING = frozenset({"queued"})'),
    ),
    "S4-28": (
        M(TRANSPORT, "delays_s: tuple[float, ...] = (1.0, 4.0)", "delays_s: tuple[float, ...] = (1.0,)"),
        M(
            "orch23/providers/faults.py",
            "    if status in _BUSY or status >= _SERVER_ERRORS:\n",
            "    if status in _BUSY:\n",
        ),
        M(
            TRANSPORT,
            "if tries > len(self.delays_s) or not fault.transient:\n",
            "if tries > len(self.delays_s):\n",
        ),
    ),
    "S4-29": (
        M("orch23/features/vendors/openai_adapter.py", "    on_truncated = OnTruncated(1, 2)\n", ""),
        M(
            "orch23/features/vendors/openai_adapter.py",
            "    on_truncated = OnTruncated(1, 2)\n",
            "    on_truncated = OnTruncated(1, 3)\n",
        ),
    ),
    "S4-30": (
        M(
            "orch23/features/vendors/openai_adapter.py",
            'sends = ("max_tokens", "effort", "seed", "temperature")',
            'sends = ("max_tokens", "seed", "temperature")',
        ),
    ),
    "S4-31": (
        M(PROMOTE, "            if temps:\n                sync_filesystem(self._root)\n", ""),
        M(
            PROMOTE,
            "        sync_filesystem(self._root)\n        self._redo.unlink()\n",
            "        self._redo.unlink()\n",
        ),
    ),
    "S4-32": (M(FRESHNESS, "    if not known.edited:\n        return", "    return"),),
    "S4-33": (
        M(
            "orch23/cli/declaration.py",
            '    option("--model", metavar="NAME", envvar="ORCH23_MODEL"',
            '    option("--llm", "model", metavar="NAME", envvar="ORCH23_MODEL"',
        ),
    ),
    "S4-34": (
        M(WORK, "    needs: [orders]\n", ""),
        M(
            "orch23/model/file_policy.py",
            "    return protected_reason(path) is not None or match_any(also, path)",
            "    return False",
        ),
    ),
    "S4-35": (
        M(
            "orch23/resolve/slices.py",
            "        part = text_part(text, path, selector)\n",
            "        return Slice(selector, text)\n",
        ),
    ),
    "S4-36": (
        M(
            "orch23/cli/error_report.py",
            '        replace_file(root, path, text.encode("utf-8", "replace"), PRIVATE_FILE_MODE)\n',
            "        (root / path).unlink()\n",
        ),
    ),
    "S4-37": (
        M(
            PROPOSAL,
            "    found += of_paths + [",
            "    found += [",
        ),
    ),
    "S4-38": (
        M(
            ATTEMPT,
            'earlier = AttemptResult(base) if retry.start_from == "baseline" else last',
            "earlier = last",
        ),
        M(
            ASKING,
            "            feedback=turn.failure.feedback if turn.failure else None,\n",
            "            feedback=None,\n",
        ),
    ),
    "S4-39": (
        M(
            "orch23/engine/preflight.py",
            "    if isinstance(decision, Run) and isinstance(node, Stage) and node.requires:\n",
            "    if False:\n",
        ),
        M(ATTEMPT, UNMET, "unmet := self.resolved.broken:"),
    ),
    "S4-40": (
        M(
            "orch23/resolve/prompt_files.py",
            "    if len(given) > step.max_files:\n",
            "    if len(given) > step.max_files + 1:\n",
        ),
        M("orch23/resolve/prompt_files.py", "    if size > step.max_bytes:\n", "    if False:\n"),
    ),
    "S4-41": (
        M(ENGINEER_PROMPT, '{{ item | tojson(2) | block("work order") }}', ""),
        M(FOLLOW_UP, 'Message("user", turn, sent.media)', 'Message("user", "again", sent.media)'),
        M(
            "orch23/resolve/prompt_blocks.py",
            "        heads = [head if one.path else _label(one) for head, one",
            "        heads = [_label(one) for head, one",
        ),
    ),
    "S4-42": (
        M(CONTENTS, "    if entry.base.lower() != there:\n", "    if False:\n"),
        M(
            PROPOSAL,
            "    if not any((envelope.files, envelope.deletes, envelope.errors)):\n",
            "    if False:\n",
        ),
    ),
    "S4-43": (
        M(CONTENTS, "MAX_FILE_BYTES = 200_000", "MAX_FILE_BYTES = 200_001"),
        M(CONTENTS, "MAX_TOTAL_BYTES = 500_000", "MAX_TOTAL_BYTES = 500_001"),
    ),
    "S4-44": (
        M(
            PROPOSAL,
            "    of_files += [error for file in safe for error in base_errors(file, scope)]\n",
            "",
        ),
        M(PATHS, "    found += _duplicates((*written, *deletes))\n", ""),
    ),
    "S4-45": (
        M(
            PROPOSAL,
            "    if not blocking:\n        return proposal\n",
            "    if len(blocking) < 2:\n        return proposal\n",
        ),
    ),
    "S4-46": (
        M(
            PROMOTE,
            "            write_atomic(self._redo, self._store_key.encode(redo), mode=PRIVATE_FILE_MODE)\n",
            '            write_atomic(self._redo, b"", mode=PRIVATE_FILE_MODE)\n',
        ),
    ),
    "S4-47": (
        M(
            "specs/work_orders/tools/verify.sh",
            'if [ "$exempt" = True ]; then\n  python -m compileall -q .\n',
            'if [ "$exempt" = True ]; then\n  true\n',
        ),
        M("specs/work_orders/tools/verify.sh", "  python -m pip --version\n", ""),
        M("specs/work_orders/tools/verify.sh", "  bash scripts/verify.sh\n", "  true\n"),
        M("specs/work_orders/tools/verify.sh", "  python -m pytest -q\n", ""),
    ),
    "S4-48": (
        M(
            VERIFICATION,
            "                broken = [d for c in step.conditions if (d := _broken(c, files)) is not None]\n",
            "                broken: list[Diagnostic] = []\n",
        ),
    ),
    "S4-49": (
        M("orch23/resolve/commands.py", "    return ShellStep(tuple(argv))\n", "    return ShellStep(command)\n"),
    ),
    "S4-50": (NO_RESPONSE_TEXT, M(GUARDING, "dict.fromkeys((*before, *shown,", "dict.fromkeys((*before,")),
    "S4-51": (M(VERIFICATION, "            return _joined(failures)\n", "            return None\n"),),
    "S4-52": (
        M("specs/work_orders/tools/summary.py", '"40000"', '"040000"'),
        M(
            "specs/work_orders/tools/summary.py",
            'return object_hash("tree", b"".join(lines))',
            'return object_hash("blob", b"".join(lines))',
        ),
    ),
    "S4-53": (
        M(WORK, "      brief: {limit: 2000, head: 1200, tail: 700}\n", ""),
        M(
            FAILURE,
            "    feedback = replace(failure.feedback, excerpt=excerpt, constraints=_constraints(stage))",
            "    feedback = replace(failure.feedback, excerpt=excerpt)",
        ),
    ),
    "S4-54": (
        M(
            RUNNING,
            'failed = command_failed("exception", command,',
            'failed = command_failed("verify_failed", command,',
        ),
        M(RUNNING, 'failed = command_failed("timeout", command,', 'failed = command_failed("verify_failed", command,'),
        M(
            PROPOSAL,
            '    return _refuse(codes.MODEL_ERROR, f"the model says: {_excerpt(reason)}", hint, kind="agent_error")',
            '    return _refuse(codes.MODEL_ERROR, f"the model says: {_excerpt(reason)}", hint)',
        ),
    ),
    "S4-55": (
        M(
            ORDER,
            '        "postconditions": _conditions("file_exists"),\n',
            '        "postconditions": _conditions("file_exists", "file_absent"),\n',
        ),
    ),
    "S4-56": (
        M(
            LOCAL,
            "        log = self.contents.put(_with_shown_path(sandbox_dir, end.log.read_bytes()))\n",
            "        log = self.contents.put(end.head)\n",
        ),
        M(
            LOCAL,
            '    errno.ENOENT: (NOT_FOUND, "not found"),\n',
            "",
        ),
    ),
    "S4-57": (
        M("orch23/model/paths.py", '        (".." in names, "climbs out with `..`"),\n', ""),
        M("orch23/model/paths.py", '        (path.startswith("/"), "is absolute"),\n', ""),
    ),
    "S4-58": (
        M(
            RENDERING,
            "        del step, turn\n",
            "        del step, turn\n        attempts.models.conversations.open(attempts.resolved, 1, set())\n",
        ),
    ),
    "S4-59": (NO_SEQUENCE, M(WORK, "key: id, as: order, order: sequential}", "key: id, as: order}")),
    "S4-60": (
        M(ORDER, '        "notes": {"type": ["string", "null"]},\n', ""),
        M(
            ORDER,
            '        "notes": {"type": ["string", "null"]},\n',
            '        "notes": {"type": ["string", "null"], "maxLength": 10},\n',
        ),
    ),
    "S4-61": (NO_PROMPT_TEXT, NO_FAILURE_TEXT),
    "S4-62": (
        M(
            ORDER,
            '"forbidden", "acceptance_commands", "context_files"),\n',
            '"acceptance_commands", "context_files"),\n',
        ),
    ),
    "S4-63": (
        NO_FAILURE_TEXT,
        M(VERIFICATION, "            return _joined(failures)\n", "            return None\n"),
    ),
    "S4-64": (
        NO_RESPONSE_TEXT,
        M(
            ASKING,
            "        attempts.report.emit(FilesProposed(files=files), ",
            "        attempts.report.emit(FilesProposed(), ",
        ),
    ),
    "S4-65": (
        M(TRANSPORT, "wait.again(fault, sent + 1)", "raise ProviderError(fault.diagnostic) from None"),
        NO_RETRY,
    ),
    "S4-66": (
        M("orch23/model/digest.py", "    sort_keys=True,", "    sort_keys=False,"),
        M("orch23/model/digest.py", 'separators=(",", ":"),', 'separators=(",", ": "),'),
    ),
    "S4-67": (
        M(
            "orch23/engine/worker_threads.py",
            "return math.inf if self.jobs is None else self.jobs",
            "return 1",
        ),
    ),
    # ---- contradictions
    "C1": (
        ASKED_AGAIN,
        M(
            READINESS,
            "        return self.conversations.offline and is_remote(step)",
            "        return False",
        ),
    ),
    "C2": (M("orch23/model/errors.py", "    USAGE = 64\n", "    USAGE = 2\n"),),
    "C3": (ONE_MORE,),
    "C4": (
        BACK_OFF,
        M(TRANSPORT, "delays_s: tuple[float, ...] = (1.0, 4.0)", "delays_s: tuple[float, ...] = (1.0, 2.0)"),
        M(
            TRANSPORT,
            "            left = until - self.clock()\n            if left <= 0:",
            "            left = deadline_s\n            if left <= 0:",
        ),
    ),
    "C5": (
        M(
            ATTEMPT,
            'earlier = AttemptResult(base) if retry.start_from == "baseline" else last',
            "earlier = AttemptResult(base)",
        ),
    ),
    "C6": (
        M(
            "orch23/features/upkeep/outputs.py",
            "        taken = remove_outputs(project, stages, edited",
            "        taken = remove_outputs(project, (*stages, 'no_such_stage'), edited",
        ),
    ),
    "C7": (ASKED_AGAIN, M(LEDGER, "after a crash it counts in full.\n        self.sync()\n", "\n")),
    "C8": (
        M(
            STATE,
            '    "PATCHING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED"}),',
            '    "PATCHING": frozenset({"INIT", "TESTING", "PATCHING", "FAILED", "SUCCESS"}),',
        ),
    ),
    "C9": (STDERR_LOST, NO_TEST_REPORT),
    "C10": (ASKED_AGAIN,),
    "C11": (M(JOURNAL, "%Y%m%dT%H%M%SZ}-{key8}", "%Y%m%dT%H%M%SZ}"),),
    "C12": (
        M(
            "orch23/cli/author_data.py",
            "            problems += parsed.diagnostics or validate_by_schema(sources, one.schema, parsed.tree, parsed=parsed)\n",
            "            problems += parsed.diagnostics\n",
        ),
    ),
    "C13": (M("orch23/features/upkeep/outputs.py", "            lines += forget_results(root)\n", ""), ASKED_AGAIN),
    "C14": (M("orch23/execute/git_revision.py", "    if prefix is None:\n", "    if False:\n"),),
    "C15": (M(FRESHNESS, "    if not known.edited:\n        return", "    return"),),
    "C16": (
        M(CONTENTS, "    if is_diff(full, entry.content, base):", "    if False:"),
        M(
            ENVELOPE,
            "    lists = [key for key in LISTS if key in value]",
            '    lists = [key for key in ("writes", "files") if key in value]',
        ),
    ),
    "C17": (
        M(CONTENTS, "    if entry.base.lower() != there:\n", "    if False:\n"),
        M("orch23/engine/result_writer.py", "if may_replace(path, old[path], targets)", "if True"),
    ),
    "C18": (
        M(
            PATHS,
            "    full = scope.project_path(path)\n    if match_any(scope.write_scope.protect, full):\n        return [_protected_here(full)]\n    if allows_write(scope.write_scope.write",
            "    full = scope.project_path(path)\n    if allows_write(scope.write_scope.write",
        ),
    ),
    "C19": (
        TIMEOUT_UNTOLD,
        M(ATTEMPT, "        if failure.kind not in retry.when and not", "        if False and not"),
    ),
    "C20": (
        M(LOG, '"passed": {{ data.passed | tojson }}', '"passed": true'),
        M(PCT, '          values: {task_id: "${{ task.id }}", passed: true}\n', ""),
    ),
    "C21": (
        M(CONTENTS, "MAX_FILE_BYTES = 200_000", "MAX_FILE_BYTES = 200_001"),
        M(TASKS, '"minLength": 1, "maxLength": 4000}', '"minLength": 1, "maxLength": 4001}'),
    ),
    "C22": (M(FRESHNESS, "return _by_records(known) or Run", "return Run"),),
    "C23": (M(ATTEMPT, UNMET, "unmet := self.resolved.broken:"),),
    "C24": (
        M(
            "orch23/model/digest.py",
            "    return sha256_hex(canonical_json(value))\n",
            "    return sha256_hex(canonical_json(value)[:16])\n",
        ),
    ),
    "C25": (
        M(
            "orch23/plan/compile.py",
            "yield _firmness(node, nodes[producer], pattern), Edge(",
            "yield _CHAIN_PATTERN, Edge(",
        ),
    ),
    "C26": (
        M(FRESHNESS, "    if not known.edited:\n        return", "    return"),
        M(PROCESS, "                stdin=process.stdin,\n", "                stdin=0,\n"),
    ),
    "C27": (
        M(
            "orch23/features/inspecting/runs.py",
            '.decode("utf-8", "replace"))\n',
            '.decode("utf-8", "replace").strip())\n',
        ),
    ),
    "C28": (
        M(
            "orch23/providers/registry.py",
            "        *unsupported,\n        *_limit_errors(step),",
            "        *_limit_errors(step),",
        ),
    ),
    "C29": (M("orch23_checks/work_orders.py", '"E003",', '"E002",'),),
    "C30": (
        M("orch23/resolve/commands.py", "    return ShellStep(tuple(argv))\n", "    return ShellStep(command)\n"),
        M(
            "orch23/language/item_rules.py",
            '    ("shell/*", _ARGUMENT),\n',
            '    ("shell/*", _TEXT),\n',
        ),
    ),
    "C31": (
        M(
            "orch23/features/upkeep/outputs.py",
            "    elif not opened.state.ownership.is_known(path, current):\n",
            "    elif False:\n",
        ),
    ),
}
