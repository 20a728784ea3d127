"""The features of orch23 by what they supply: parts in folders of `orch23/features` that a build can do without.

They are in the same distribution as the core, which loads their objects by name and never imports them. A feature
whose folder is removed is missing, and everything else works.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orch23.model.diagnostic import Diagnostic

# The features that a feature uses, without which it is missing, too.
USES: Final[Mapping[str, tuple[str, ...]]] = {"remote": ("cache",), "pages": ("metrics",)}
# Objects by name, as `FEATURE.MODULE:ATTRIBUTE`.
COMMANDS: Final[Mapping[str, str]] = {
    "init": "templates.command:init_command",
    "doctor": "doctor.command:doctor_command",
    "model": "local.command:model_command",
    "template": "templates.command:template_command",
    "watch": "watch.command:watch_command",
    "cancel": "batches.command:cancel_command",
    "worker": "remote.command:worker_command",
    "affected": "metrics.command:affected_command",
    "graph": "authoring.command:graph_command",
    "vars": "authoring.command:vars_command",
    "schema": "authoring.command:schema_command",
    "help": "authoring.command:help_command",
    "explain": "inspecting.command:explain_command",
    "runs": "inspecting.command:runs_command",
    "log": "inspecting.command:log_command",
    "show": "inspecting.command:show_command",
    "diff": "metrics.command:diff_command",
    "shell": "shell.command:shell_command",
    "approve": "approval.command:approve_command",
    "reject": "approval.command:reject_command",
    "release": "upkeep.command:release_command",
    "clean": "upkeep.command:clean_command",
    "reset": "upkeep.command:reset_command",
    "gc": "upkeep.command:gc_command",
    "cache": "upkeep.command:cache_command",
    "report": "pages.command:report_command",
    "view": "pages.command:view_command",
}
FORMATS: Final[Mapping[str, str]] = {
    "junit": "exports.junit:JUNIT",
    "github": "exports.github:GITHUB",
}
DOCUMENTS: Final[Mapping[str, str]] = {
    "junit": "exports.junit:junit_document",
    "trace": "exports.chrome_trace:trace_document",
    "summary": "exports.markdown_summary:summary_document",
}
# What a build with an approved plan checks, and what writes a plan to approve.
PLAN_FILES: Final[Mapping[str, str]] = {
    "build": "plan_files.plan_file:approved_build",
    "save": "plan_files.plan_file:save_plan",
}
# What holds changes until a user approves them, what asks for that in a terminal, and which changes wait.
APPROVAL: Final[Mapping[str, str]] = {
    "gate": "approval.gate:check_approval",
    "ask": "approval.actions:ask",
    "waiting": "approval.changes:approval_clauses",
    "show": "approval.actions:show_changes",
}
# Send the spans of a build while it runs, or of one that has ended.
SPANS: Final[Mapping[str, str]] = {
    "build": "otel.sending:open_spans",
    "log": "otel.sending:send_run",
}
PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "vendors.anthropic_messages:AnthropicAdapter",
    "openai": "vendors.openai_adapter:OpenAIAdapter",
    "bedrock": "vendors.claude_clouds:BedrockAdapter",
    "vertex": "vendors.claude_clouds:VertexAdapter",
    "azure": "vendors.openai_adapter:AzureAdapter",
    "local": "local.provider:LocalAdapter",
}
# The requests of a run in batches, those that wait, and the batches of a vendor.
BATCHES: Final[Mapping[str, str]] = {
    "run": "batches.run:RunBatches",
    "waiting": "batches.pending:waiting_batches",
    "anthropic": "batches.anthropic_batches:AnthropicBatches",
    "openai": "batches.openai_batches:OpenAIBatches",
}
# What a model with `explore` is shown: its map and its parts, in a build and in a plan.
EXPLORE: Final[Mapping[str, str]] = {"begin": "explore.session:explorer_of"}
# What reads the files, or the JSON, of a response in another form than the usual ones.
OTHER_FORMS: Final[Mapping[str, str]] = {
    "files": "other_forms.reading:read_other_forms",
    "json": "other_forms.reading:read_other_json",
}
# What reads the depfile of a step.
DEPFILES: Final[Mapping[str, str]] = {"read": "depfiles.reading:tracked_inputs"}
# Which caches of tools a step uses, how it gets them, and what keeps the views of promoted stages; errors of a plan.
TOOL_CACHES: Final[Mapping[str, str]] = {
    "used": "tool_caches.use:used_caches",
    "errors": "tool_caches.use:unfilled_errors",
    "open": "tool_caches.views:open_caches",
    "keep": "tool_caches.views:keep_views",
}
# Waits for the build lock, by `--wait-lock`.
LOCK_WAIT: Final = "watch.lock_wait:wait_for_lock"
# Says what `gc` would free of a store that is over its limit.
FULL_STORE: Final = "upkeep.retention:warn_of_full_store"
PENDING: Final = "the batches that a build has submitted need"
# The results in a shared cache of a build and of a plan, the walk of both, and the servers that executors use.
SHARED_CACHE: Final[Mapping[str, str]] = {
    "build": "cache.opening:open_for_build",
    "plan": "cache.opening:open_for_plan",
    "walk": "cache.walk:SharedWalk",
    "servers": "cache.server_login:engine_opener",
}
# Executors on other machines, and what reads the address of `--scheduler` of each, or raises as a build does.
EXECUTORS: Final[Mapping[str, str]] = {
    "dask": "remote.dask_engine:make_executor",
    "reapi": "remote.reapi_engine:make_executor",
}
# What keeps where their actions run.
RUNNING_ACTIONS: Final = "remote.running_actions:ActionFiles"
ADDRESSES: Final[Mapping[str, str]] = {
    "dask": "remote.dask_scheduler:check_scheduler",
    "reapi": "remote.reapi_address:reapi_address",
}
# What `doctor` checks, and what `init` finds: functions of the environment, those of `SHARING` of a `SharedSetup`.
CHECKS: Final[Mapping[str, str]] = {"local": "local.installing:local_findings"}
SHARING: Final[Mapping[str, str]] = {
    "cache": "cache.doctor:cache_findings",
    "executor": "remote.doctor:executor_findings",
}
# Finds a program that a version manager has installed.
TOOLCHAINS: Final = "toolchains.finding:find_tool"
READY_MODELS: Final[Mapping[str, str]] = {"local": "local.local_model:ready_models"}


def load_feature(place: str, needed: str = "") -> Any:
    """Return an object of a feature, by its place `FEATURE.MODULE:ATTRIBUTE`. `needed` says what needs it.

    Raises:
        ConfigurationError: the folder of the feature is not a part of this installation.
    """
    module, _, name = place.partition(":")
    if not is_installed(place):
        from orch23.model.errors import ConfigurationError  # noqa: PLC0415 - `--help` needs no errors

        raise ConfigurationError(missing_feature(place, needed))
    return getattr(import_module(f"orch23.features.{module}"), name)


def has_feature(places: Mapping[str, str], name: str) -> bool:
    """Return whether a name is of the core, or of a feature of this installation."""
    return name not in places or is_installed(places[name])


def missing_feature(place: str, needed: str = "") -> "Diagnostic":
    """Return the error that a feature, or one that it uses, is not a part of this installation.

    `needed` says what needs it.
    """
    from orch23.model.diagnostic import Diagnostic  # noqa: PLC0415 - as above

    feature = place.partition(".")[0]
    name = next((one for one in USES.get(feature, ()) if not _is_there(one)), feature)
    message = f"this installation of orch23 does not have the feature `{name}`"
    return Diagnostic("E668", f"{message}, which {needed}" if needed else message, hint="install orch23 again")


def is_installed(place: str) -> bool:
    """Return whether the feature of a place is a part of this installation. Nothing of it is imported."""
    feature = place.partition(".")[0]
    return all(map(_is_there, (feature, *USES.get(feature, ()))))


@cache
def _is_there(feature: str) -> bool:
    found = find_spec(f"orch23.features.{feature}")
    return found is not None and found.origin is not None  # a folder without modules can remain of a removed one
