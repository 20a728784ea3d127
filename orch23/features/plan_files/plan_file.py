"""Plan files: what `orch23 plan --out FILE` decided, and whether `orch23 build --plan FILE` would still do it."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from orch23.cli.console import Console
from orch23.cli.discovery import find_project
from orch23.cli.named_files import write_named_file
from orch23.cli.parameters import GivenOptions, PipelineArguments
from orch23.cli.project_loading import Project
from orch23.decide.decisions import DecidedStage
from orch23.decide.dry_run import Preview
from orch23.decide.freshness import change_reasons
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, digest_json
from orch23.model.errors import ExitCode, InvalidInputError, NotFoundError, Orch23Error, UsageError
from orch23.model.parsing import as_mapping, from_struct, map_strings, parse_stored, to_struct
from orch23.model.pipeline import family_of
from orch23.model.plan import Decision, Expand, Fresh, Maybe, Restore, Run, VerifyOnly
from orch23.report.plan_view import reason_text, reason_texts, short_value
from orch23.report.values import json_document
from orch23.text.secrets import Secrets, secrets_from

FORMAT: Final = 1
"""The version of plan files. A field that changes its meaning, or is added or removed, raises it."""

_MAX_BYTES = 256 * 1024 * 1024
_MAX_SHOWN = 10


class OutdatedPlanError(Orch23Error):
    """A plan file no longer describes what a build would do: the user has to approve a new plan."""

    exit_code = ExitCode.DECISION


class PlanOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the command line that a plan depends on. `vars_file` is relative to the project root."""

    stages: tuple[str, ...] = ()
    select: Literal["", "only", "downstream"] = ""
    sets: tuple[str, ...] = ()
    vars_file: str | None = None
    provider: str | None = None
    model: str | None = None
    forced: tuple[str, ...] = ()
    overwrite_edited: bool = False
    budget: str | None = None


class PlannedStage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stage of a plan.

    `key` and `manifest` are those of the files at the time of the plan; a foreach that is not expanded has none, and
    for stages after stages that run they may still change. `result` is the digest of the recorded outputs that the
    stage keeps, restores or verifies. A fresh stage has no `manifest`, which would only make the file longer.
    """

    stage: str
    action: str
    why: tuple[str, ...] = ()
    waiting_on: tuple[str, ...] = ()
    key: str = ""
    result: str = ""
    manifest: Mapping[str, Json] = field(default_factory=dict)


class PlanFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a plan decided, without secrets and absolute paths.

    `pipeline` is the path of the pipeline from the root, `pipeline_sha256` the digest of its text, `variables` are the
    values of its vars. `removes` are the files that a successful build removes, `releases` those that stay as files of
    the user.
    """

    orch23_plan_file: int
    pipeline: str
    pipeline_sha256: str
    variables: Mapping[str, Json]
    options: PlanOptions
    stages: tuple[PlannedStage, ...]
    removes: tuple[str, ...] = ()
    releases: tuple[str, ...] = ()


def plan_options(console: Console, args: PipelineArguments, given: GivenOptions) -> PlanOptions:
    """Return the options of a command line that a plan depends on."""
    found = find_project(console.here, args.arguments)
    vars_file = None if args.vars_file is None else os.path.relpath(console.here / args.vars_file, found.root)
    return PlanOptions(
        stages=found.stages,
        select="only" if args.only else "downstream" if args.downstream else "",
        sets=args.sets,
        vars_file=vars_file,
        provider=args.provider,
        model=args.model,
        forced=given.forced,
        overwrite_edited=given.overwrite_edited,
        budget=given.budget,
    )


def plan_file_of(project: Project, seen: Preview, options: PlanOptions, secrets: Secrets) -> PlanFile:
    """Return the plan file of a preview. Secrets are replaced by their redaction marks.

    Raises:
        UsageError: an option has a secret: a build of the file could not use the option without it.
    """
    for one in options.sets:
        if secrets.redact(one) != one:
            name = one.partition("=")[0]
            message = f"the value of `--set {name}` has a secret, which a plan file must not contain"
            raise UsageError(Diagnostic("E641", message, hint="pass secrets to steps by their environment variables"))
    pipeline = project.pipeline
    plan = PlanFile(
        orch23_plan_file=FORMAT,
        pipeline=pipeline.file,
        pipeline_sha256=project.loaded.digests[pipeline.file].sha256,
        variables=dict(pipeline.vars),
        options=options,
        stages=tuple(_planned_stages(seen)),
        removes=seen.obsolete,
        releases=tuple(sorted(seen.released)),
    )
    return to_struct(map_strings(from_struct(plan), secrets.redact, keys=True), PlanFile)


def _planned_stages(seen: Preview) -> Iterator[PlannedStage]:
    for name, decision in seen.decisions.items():
        decided = seen.decided_stages.get(name)
        record = decision.record if isinstance(decision, Fresh | Restore | VerifyOnly) else None
        outputs: dict[str, Json] = {path: str(entry) for path, entry in record.outputs.items()} if record else {}
        result = "" if record is None else digest_json({"outputs": outputs, "deleted": record.deleted})
        manifest = {} if decided is None or isinstance(decision, Fresh) else dict(decided.resolved.manifest)
        yield PlannedStage(
            stage=name,
            action=decision.label,
            why=reason_texts(decision),
            waiting_on=decision.waiting_on if isinstance(decision, Maybe | Expand) else (),
            key="" if decided is None else decided.resolved.key,
            result=result,
            manifest=manifest,
        )
    for name in seen.skipped:
        yield PlannedStage(stage=name, action="skipped")


def save_plan(
    console: Console, args: PipelineArguments, given: GivenOptions, project: Project, seen: Preview, out: str
) -> None:
    """Write a plan file: at any time the old one or the whole new one is there.

    Raises:
        UsageError: an option has a secret.
        OSError: the file cannot be written.
    """
    secrets = secrets_from(project.settings.environ)
    plan = plan_file_of(project, seen, plan_options(console, args, given), secrets)
    write_named_file(console, out, json_document(from_struct(plan)))
    console.write_err(f"plan written to {out}: build it with `orch23 build --plan {out}`\n")


def read_plan_file(path: Path, named: str) -> PlanFile:
    """Return a plan file. `named` is the path as the user wrote it.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: it is not a plan file, damaged, or of a newer version.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        hint = f"create it with `orch23 plan --out {named}`"
        raise NotFoundError(Diagnostic("E681", f"there is no plan file `{named}`", hint=hint)) from None
    try:
        value = parse_stored(data) if len(data) <= _MAX_BYTES else None
    except (ValueError, RecursionError) as error:
        raise _unusable(named, f"is damaged: {error}") from None
    version = as_mapping(value).get("orch23_plan_file")
    if not isinstance(version, int) or isinstance(version, bool):
        is_shown = "orch23_plan" in as_mapping(value)
        raise _unusable(named, "is the output of `plan --json`" if is_shown else "is not a plan file of orch23")
    if version > FORMAT:
        raise _unusable(named, f"has version {version}, and this orch23 reads version {FORMAT}: it is older")
    try:
        return to_struct(value, PlanFile)
    except ValueError as error:
        raise _unusable(named, f"is damaged: it {error}") from None


def _unusable(named: str, why: str) -> InvalidInputError:
    return InvalidInputError(Diagnostic("E681", f"`{named}` {why}", hint=f"write it with `orch23 plan --out {named}`"))


# ---- the options of a build with a plan file ------------------------------------------------------


def approved_build(
    console: Console, args: PipelineArguments, named: str, given: GivenOptions
) -> tuple[Callable[[Project, Preview], Callable[[DecidedStage], DecidedStage]], PipelineArguments, PlanOptions]:
    """Return the check of a build with a plan file, and its arguments and options, which are those of the plan.

    The check raises an `OutdatedPlanError` if the plan no longer holds, and returns what limits decisions to the plan.

    Raises:
        NotFoundError: there is no such file.
        InvalidInputError: it is not a plan file, damaged, or of a newer version.
        UsageError: an option contradicts the plan.
    """
    plan = read_plan_file(console.here / named, named)
    check_options(plan_options(console, args, given), plan, given.resample)

    def approve(project: Project, seen: Preview) -> Callable[[DecidedStage], DecidedStage]:
        secrets = secrets_from(project.settings.environ)
        check_plan(plan, plan_file_of(project, seen, plan.options, secrets))
        return approval_of(seen).limit

    return approve, arguments_of(console, plan, args), plan.options


def arguments_of(console: Console, plan: PlanFile, args: PipelineArguments) -> PipelineArguments:
    """Return the arguments of a build of a plan file: those of the file.

    Raises:
        UsageError: the command line names another pipeline.
    """
    options = plan.options
    named = find_project(console.here, args.arguments)
    root = named.root
    pipeline = root / plan.pipeline
    if named.searched is None and named.pipeline is not None and named.pipeline.resolve() != pipeline.resolve():
        other = f"pipeline `{os.path.relpath(named.pipeline, root)}`"
        raise _contradiction(other, f"`{plan.pipeline}`")
    vars_file = None if options.vars_file is None else os.path.relpath(root / options.vars_file, console.here)
    return replace(
        args,
        arguments=(os.path.relpath(pipeline, console.here), *options.stages),
        only=options.select == "only",
        until=False,
        downstream=options.select == "downstream",
        sets=options.sets,
        vars_file=vars_file,
        provider=options.provider,
        model=options.model,
    )


def check_options(given: PlanOptions, plan: PlanFile, resample: Sequence[str]) -> None:
    """Check that no option of a build contradicts the plan. An option that is not given is taken from the plan.

    Raises:
        UsageError: one does.
    """
    if resample:
        given_option = f"`--resample {resample[0]}`"
        raise _contradiction(given_option, "no such option")
    flags = {"sets": "set", "vars_file": "vars", "forced": "force"}
    default = PlanOptions()
    for name in PlanOptions.__struct_fields__:
        own, planned = getattr(given, name), getattr(plan.options, name)
        if own == getattr(default, name) or own == planned:
            continue
        option = f"--{flags.get(name, name).replace('_', '-')}"
        match name:
            case "stages":
                what, then = f"stage {_shown(own)}", f"stage {_shown(planned)}" if planned else "all stages"
            case "select":
                what, then = f"`--{own}`", f"`--{planned}`" if planned else ""
            case "overwrite_edited":
                what, then = f"`{option}`", ""
            case _:
                what, then = f"`{option} {_shown(own)}`", f"`{option} {_shown(planned)}`" if planned else ""
        raise _contradiction(what, then or "no such option")


def _contradiction(given: str, planned: str) -> UsageError:
    hint = "leave it out: the plan file has the options, or plan again with it: `orch23 plan --out FILE`"
    return UsageError(
        Diagnostic("E641", f"{given} contradicts the plan file, which was made with {planned}", hint=hint)
    )


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


# ---- whether a plan still holds -------------------------------------------------------------------


def check_plan(then: PlanFile, now: PlanFile) -> None:
    """Check that the plan of this moment is the one in a file.

    Equal are the pipeline, its vars, and of each stage the action, what it waits for, its key and the result that it
    keeps. The reasons may differ: they do not change what is done.

    Raises:
        OutdatedPlanError: something differs; with each difference, then and now.
    """
    found = list(dict.fromkeys(_differences(then, now)))
    if not found:
        return
    texts = found[:_MAX_SHOWN]
    if len(found) > len(texts):
        texts.append(f"{len(found) - len(texts)} more differences")
    # The way out is the same for all: it is shown once.
    hints = [None] * (len(texts) - 1) + [PLAN_AGAIN]
    errors = zip(texts, hints, strict=True)
    raise OutdatedPlanError(
        *(Diagnostic("E682", f"the plan no longer holds: {text}", hint=hint) for text, hint in errors)
    )


def _differences(then: PlanFile, now: PlanFile) -> Iterator[str]:
    if then.pipeline_sha256 != now.pipeline_sha256:
        old, new = short_value(then.pipeline_sha256), short_value(now.pipeline_sha256)
        yield f"the pipeline `{now.pipeline}` changed: {old} -> {new}"
    for name in sorted({*then.variables, *now.variables}):
        was, value = then.variables.get(name), now.variables.get(name)
        if was != value:
            yield f"the var `{name}` changed: {short_value(was)} -> {short_value(value)}"
    before, after = ({one.stage: one for one in plan.stages} for plan in (then, now))
    for name in (*after, *(gone for gone in before if gone not in after)):
        yield from _stage_differences(name, before.get(name), after.get(name))
    for what, before_it, after_it in (
        ("removed", then.removes, now.removes),
        ("released", then.releases, now.releases),
    ):
        if before_it != after_it:
            yield f"files to be {what}: {_shown(before_it) or 'none'} -> {_shown(after_it) or 'none'}"


def _stage_differences(name: str, then: PlannedStage | None, now: PlannedStage | None) -> Iterator[str]:
    if then is None or now is None:
        yield f"stage `{name}`: {_action(then)} -> {_action(now)}"
        return
    if (then.action, then.waiting_on) != (now.action, now.waiting_on):
        yield f"stage `{name}`: {_action(then)} -> {_action(now)}"
    if then.key != now.key:
        changes = change_reasons(then.manifest, now.manifest) if then.manifest and now.manifest else ()
        for one in changes:
            text = reason_text(one)
            values = "" if " -> " in text else f": {short_value(one.old)} -> {short_value(one.new)}"
            yield f"stage `{name}`: {text}{values}"
        # Another action is named above, with its reason.
        if not changes and then.action == now.action:
            yield f"stage `{name}`: its key changed: {short_value(then.key)} -> {short_value(now.key)}"
    elif then.result != now.result and then.action == now.action:
        old, new = short_value(then.result or None), short_value(now.result or None)
        yield f"stage `{name}`: its recorded result changed: {old} -> {new}"


def _action(one: PlannedStage | None) -> str:
    if one is None:
        return "not in the plan"
    return f"{one.action} ({one.why[0]})" if one.why else one.action


PLAN_AGAIN = "plan again: `orch23 plan --out FILE`, read the plan, then `orch23 build --plan FILE`"


class Approval(Struct, frozen=True):
    """What the stages of a plan may do. `keys` are the keys of those that depend on no stage that changes.

    The files can change while the build runs: then a stage could run that no one has approved.
    """

    decisions: Mapping[str, Decision]
    keys: Mapping[str, str] = field(default_factory=dict)

    def limit(self, decided: DecidedStage) -> DecidedStage:
        """Return a decision; one that goes beyond the plan becomes an error of the stage."""
        if not (text := self._difference(decided)):
            return decided
        refused = Diagnostic("E682", text, hint=PLAN_AGAIN)
        resolved = replace(decided.resolved, broken=(*decided.resolved.broken, refused))
        # As for a stage with invalid inputs: it fails before its step, and stages that do not need it go on.
        return DecidedStage(resolved, Run(getattr(decided.decision, "reasons", ())))

    def _difference(self, decided: DecidedStage) -> str:
        """Return how a decision goes beyond the plan; an empty text if it does not."""
        name, now = decided.resolved.stage.name, decided.decision
        if not isinstance(now, Run | Restore | VerifyOnly):
            return ""
        # The items of a foreach are not known before it is expanded.
        planned = self.decisions.get(name) or self.decisions.get(family_of(name))
        is_approved = isinstance(planned, Run | Maybe | Expand) or (
            isinstance(planned, VerifyOnly | Restore) and not isinstance(now, Run)
        )
        if not is_approved:
            then = "not in the plan" if planned is None else planned.label
            return f"the plan no longer holds: {then} -> {now.label}"
        if self.keys.get(name, decided.resolved.key) != decided.resolved.key:
            return "the plan no longer holds: what the stage depends on changed after the build started"
        return ""


def approval_of(seen: Preview) -> Approval:
    """Return what a preview approves."""
    settled = {name for name, one in seen.decisions.items() if isinstance(one, Fresh | Restore)}
    keys = {
        name: decided.resolved.key
        for name, decided in seen.decided_stages.items()
        if settled.issuperset(seen.plan.upstream[name])
    }
    return Approval(dict(seen.decisions), keys)
