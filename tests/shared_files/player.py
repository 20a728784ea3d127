"""The commands of orch23 in a history, and the invariants that hold after each of them."""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatch

from tests.repository import DELETED, Repository, addition
from tests.shared_files.merges import past_locks
from tests.shared_files.rules import Rules
from tests.shared_files.setup import EXISTED, PATHS, SPECS, formatted
from tests.shared_files.steps import Seen, Steps, differing, internal, require
from tests.shared_files.values import Forecast, Lock, Stage, Store, UnsureError, computed, stages_of


class Player(Steps):
    """Plays the steps of one history and checks, after each of them, what always has to hold."""

    # ---- commands of orch23 ----

    def _commit(self, what: str) -> bool:
        if not self.setup.git:
            return False
        disk = self.disk()
        outputs = [path for paths in PATHS.values() for path in paths if path in disk or path in self.head]
        sources = [p for p in disk.keys() | self.head.keys() if p not in outputs and not p.endswith(".lock")]
        before = self._plans() if self.counts["commit"] % 2 == 0 else {}
        paths = {"all": (), "outputs": outputs, "sources": sources}[what]
        if what != "all" and not paths:
            return False
        self._make_commit(*paths)
        self._same_plans(before, "commit")
        return True

    def orch23(self, *argv: str) -> Seen:
        """Run orch23 and check what holds of every command."""
        journals = len(self.repository.journals())
        calls = len(self.model.calls)
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            outcome = self.repository.run(*argv)
        self.say(f"    $ orch23 {' '.join(argv)}  -> {outcome.code}")
        for line in (outcome.out + outcome.err).splitlines():
            self.say(f"      | {line}")
        require(outcome.code in (0, 1, 6, 64, 65, 66), "code", f"{argv} exited with {outcome.code}:\n{outcome.err}")
        ends: dict[str, str] = {}
        decisions: dict[str, str] = {}
        if len(self.repository.journals()) > journals:
            for event in self.repository.events():
                if event["type"] == "stage_finished":
                    ends[event["role"]] = event["data"]["status"]
                elif event["type"] == "stage_decided":
                    decisions[event["role"]] = event["data"]["decision"]
        restored = {name for name, end in ends.items() if end in ("restored", "held")}
        bases = [dict(asked.base) for asked in self.model.calls[calls:]]
        self._no_leftovers(argv)
        return Seen(outcome, ends, decisions, restored, bases)

    def _no_leftovers(self, argv: Sequence[str]) -> None:
        for folder, folders, names in os.walk(self.repository.root):
            if folder == str(self.repository.root) and ".git" in folders:
                folders.remove(".git")
            temps = [name for name in names if name.startswith(".orch23-") and name.endswith(".tmp")]
            require(not temps, "I5", f"{argv} left temporary files {temps} in {folder}")
            require("promote.json" not in names, "I5", f"{argv} left a promotion unfinished")
            if folder.endswith("/.orch23/rooms"):
                require(not folders, "I5", f"{argv} left sandbox directories {folders}")

    def _build(self, pipeline: str, *flags: str) -> bool:
        if not self.repository.exists(f"{pipeline}.yaml"):
            return False
        before = self.disk()
        forecast = self._foresee(pipeline, before, lambda rules: rules.build(), overwrite=bool(flags))
        planned = self._plan(pipeline, *flags) if self.counts["build"] % 2 == 0 else None
        seen = self.orch23("build", f"{pipeline}.yaml", "-k", *flags)
        after = self.disk()
        self._nothing_is_lost(pipeline, before, after, seen, forced=bool(flags))
        self._ended_stages_revert_nothing(pipeline, before, after)
        if planned is not None:
            self._as_planned(planned, seen, pipeline)
        if forecast is not None:
            self._as_foreseen(forecast, pipeline, before, after, seen)
        self._learn(after, forecast, pipeline)
        self.counts[f"exit {seen.outcome.code}"] += 1
        is_idle = before == after and not seen.ends  # it did what a second build would do
        if seen.outcome.code in (0, 1, 6) and not flags and not is_idle:
            self._again(pipeline, seen, after)
        if seen.outcome.code == 0:
            ends = seen.ends or (planned or self._plan(pipeline))[1]  # a build with nothing to do has no journal
            self._not_stale(pipeline, after, {name for name, end in ends.items() if end == "done"})
        if seen.outcome.code == 0 and forecast is not None and self.counts["exit 0"] % 4 == 0:
            self._clean_build(pipeline, after)
        return True

    def _during(self, pipeline: str, path: str) -> bool:
        """Build, and save a file while the model answers."""
        if not self.repository.exists(f"{pipeline}.yaml"):
            return False
        before = self.disk()
        self.model.meanwhile = lambda: self._edit(path)
        seen = self.orch23("build", f"{pipeline}.yaml", "-k")
        saved, self.model.meanwhile = self.model.meanwhile is None, None
        after = self.disk()
        if saved and path in self.written:
            before[path] = self.written[path]
        self._nothing_is_lost(pipeline, before, after, seen, forced=False)
        self._ended_stages_revert_nothing(pipeline, before, after)
        self.lose("a file that was saved during a build")
        self.counts["saved during a build"] += saved
        return True

    def _forced(self, slot: str, flag: str) -> bool:
        """Build with a stage forced: a user's bytes stay, as in any other build."""
        found = self._home(slot)
        if found is None:
            return False
        pipeline, name = found
        if "if" in self.declared(pipeline)[name]:
            return False
        before, resamples = self.disk(), flag == "--resample"
        forecast = self._foresee(pipeline, before, lambda rules: rules.build(), forced=name, resamples=resamples)
        seen = self.orch23("build", f"{pipeline}.yaml", "-k", flag, name)
        after = self.disk()
        self._nothing_is_lost(pipeline, before, after, seen, forced=False, repeats=name)
        self._ended_stages_revert_nothing(pipeline, before, after)
        if forecast is not None:
            self._as_foreseen(forecast, pipeline, before, after, seen)
        self._learn(after, forecast, pipeline)
        if seen.outcome.code == 0:
            self._again(pipeline, seen, after)
        return True

    def _plan(self, pipeline: str, *flags: str) -> tuple[int, dict[str, str]]:
        outcome = self.repository.run("plan", "--json", f"{pipeline}.yaml", *flags)
        if outcome.code:
            return outcome.code, {}
        return 0, {one["stage"]: one["action"] for one in outcome.json()["stages"]}

    def _plans(self) -> dict[str, tuple[int, dict[str, str]]]:
        return {name: self._plan(name) for name in "ab" if self.repository.exists(f"{name}.yaml")}

    def _same_plans(self, before: Mapping[str, tuple[int, dict[str, str]]], step: str) -> None:
        """I4: a commit or an accept alone makes nothing stale."""
        for name, (code, planned) in before.items():
            if code or not planned or set(planned.values()) - {"fresh", "skipped", "done"}:
                continue
            now = self._plan(name)
            if self.counts["rename"] and any("once" in body for body in self.declared(name).values()):
                continue  # the result may be committed under the former name: then the stage is a new one
            settled = {stage: "fresh" if action == "done" else action for stage, action in now[1].items()}
            was = {stage: "fresh" if action == "done" else action for stage, action in planned.items()}
            require(settled == was, "I4", f"after a {step} the plan of {name}.yaml changed from {planned} to {now}")

    def _has_format(self, name: str, pipeline: str) -> bool:
        return "format" in self.declared(pipeline).get(name.partition("@")[0], {})

    def _as_planned(self, planned: tuple[int, dict[str, str]], seen: Seen, pipeline: str) -> None:
        """I4: a build does what the plan said."""
        code, actions = planned
        require(
            bool(code) == (seen.outcome.code in (65, 66)),
            "I4",
            f"plan exited with {code}, build with {seen.outcome.code}",
        )
        stopped = {"failed", "edited", "held", "blocked"} & set(seen.ends.values())
        for name, action in actions.items():
            did = seen.decisions.get(name) or seen.ends.get(name, "")
            if seen.ends.get(name) == "blocked" and stopped:
                continue
            if not seen.ends and action in ("fresh", "skipped", "done"):
                continue  # the build had nothing to do and has no journal
            if action == "maybe":
                agrees = did in {"fresh", "done", "restore", "verify", "run", "blocked"} or bool(stopped)
            elif self._has_format(name, pipeline) and action in ("edited", "verify", "run", "restore", "blocked"):
                agrees = did != "done"  # `plan` runs no formatter
            else:
                found = action == "run" and did == "restore" and not self.store.complete  # bytes of another stage
                agrees = found or did == action or (did in ("blocked", "failed") and bool(stopped)) or not did
                # An item before the edited one runs again if its bytes are lost: the plan does not know that.
                agrees |= action == "edited" and did == "run" and name.startswith("chain") and "edited" in stopped
                # What was accepted before a reset is verified again if the stages before it make the same as then.
                after_reset = self.counts["reset"] > 0 and "built" in seen.ends.values()
                agrees |= after_reset and (action, did) == ("run", "verify")
            require(agrees, "I4", f"{name}: plan said {action}, build did {did or 'nothing'} ({seen.ends})")

    def _again(self, pipeline: str, seen: Seen, after: Mapping[str, str]) -> None:
        """I4: a second build does nothing, or reports the same again."""
        calls = len(self.model.calls)
        again = self.orch23("build", f"{pipeline}.yaml", "-k")
        require(
            len(self.model.calls) == calls, "I4", f"a second build asked the model again: {self.model.calls[calls:]}"
        )
        now = self.disk()
        # A stage that made its committed result again is done: that is the original of the stages after it.
        done = {name for name, action in self._plan(pipeline)[1].items() if action == "done"} if now != after else set()
        again_done = any(seen.ends.get(name) == "built" for name in done)
        changed = [path for path in differing(after, now) if not (again_done and internal(path))]
        require(not changed, "I4", f"a second build changed {changed}")
        # A new chain starts from an edit. If a later item fails, the chain is not new, and the edit awaits a decision.
        codes = (seen.outcome.code, again.outcome.code)
        if codes == (1, 6) and any(n.startswith("chain") and end == "edited" for n, end in again.ends.items()):
            return
        require(
            again.outcome.code == seen.outcome.code or seen.restored,
            "I4",
            f"exit {seen.outcome.code}, then {again.outcome.code}",
        )
        stuck = {name: end for name, end in seen.ends.items() if end in ("failed", "edited", "held", "blocked")}
        still = {name: end for name, end in again.ends.items() if end in ("failed", "edited", "held", "blocked")}
        # A committed edit is on disk: once it is verified, its group withholds nothing of it.
        on_disk = {name for name, end in stuck.items() if end == "held" and again.ends.get(name) == "fresh"}
        stuck = {name: end for name, end in stuck.items() if name not in on_disk}
        require(stuck == still, "I4", f"stuck {stuck}, then {still}")
        moving = {name: end for name, end in again.ends.items() if end in ("built", "restored", "verified")}
        require(not moving, "I4", f"a second build did {moving}")
        self.counts["again"] += 1
        if self.counts["again"] % 4 == 0:
            code = self.repository.run("status", "--exit-code", f"{pipeline}.yaml").code
            require((code == 0) == (again.outcome.code == 0), "I4", f"status {code}, build {again.outcome.code}")
        if again.outcome.code == 0:
            text = again.outcome.out + again.outcome.err
            require("up to date" in text, "I4", f"a second build had something to do:\n{text}")

    def _accept(self, slot: str) -> bool:
        found = self._home(slot)
        if found is None:
            return False
        pipeline, name = found
        before = self.disk()
        forecast = self._foresee(pipeline, before, lambda rules: rules.accept(name))
        planned = self._plan(pipeline)[1]
        seen = self.orch23("accept", f"{pipeline}.yaml", name)
        after = self.disk()
        require(not seen.bases, "I4", f"accept asked the model: {seen.bases}")
        changed = [path for path in differing(before, after) if path in before and not internal(path)]
        # Of the other files of the result, those that are missing or of another run come back.
        lost = [p for p in changed if self.written.get(p) == before[p] or "# u" in before[p] or "# bad u" in before[p]]
        require(not lost, "I1", f"accept changed {lost}")
        if forecast is not None:
            require(
                seen.outcome.code == forecast.code,
                "model: accept",
                f"accept: foreseen {forecast.code}, got {seen.outcome.code}\n{seen.outcome.err}",
            )
        self._learn(after, forecast, pipeline)
        if seen.outcome.code == 0:
            now = self._plan(pipeline)[1]
            rerun = "on_edit" in self.declared(pipeline)[name]
            if slot == "chain" or rerun or self.counts["forced"] or (slot == "work" and "polish" in self.setup.slots):
                return True  # another item or stage has to run, or a new response is still due
            stale = {
                n: a
                for n, a in now.items()
                if n.partition("@")[0] == name and a not in ("fresh", "maybe", "done", planned.get(n))
            }
            require(not stale, "I4", f"after accept {stale}, before it {planned}")
        return seen.outcome.code != 64

    def _reset(self, flag: str) -> bool:
        return self._each("reset", flag, lambda rules: rules.reset(outputs=bool(flag)))

    def _clean(self, flag: str) -> bool:
        return self._each("clean", flag, lambda rules: rules.clean(force=bool(flag)))

    def _each(self, command: str, flag: str, ask: Callable[[Rules], Forecast]) -> bool:
        """Run a command on every pipeline. I1: it takes back what stages made, and nothing that a user wrote."""
        for name in "ab":
            if not self.repository.exists(f"{name}.yaml"):
                continue
            before = self.disk()
            forecast = self._foresee(name, before, ask)
            seen = self.orch23(command, *([flag] if flag else []), f"{name}.yaml")
            after = self.disk()
            for path in differing(before, after):
                if internal(path) or path not in before:
                    continue
                mine = self.written.get(path) == before.get(path)
                require(not mine or flag == "--force", "I1", f"{command} discarded the user's {path}: {before[path]!r}")
                self.written.pop(path, None)
            self._compare(command, forecast, after, seen)
            self._learn(after, forecast, name)
        return True

    def _compare(self, command: str, forecast: Forecast | None, after: Mapping[str, str], seen: Seen) -> None:
        if forecast is None:
            return
        wrong = [path for path in differing(forecast.files, after) if not internal(path)]
        reported = [(path, "foreseen", forecast.files.get(path), "got", after.get(path)) for path in wrong]
        text = f"foreseen {forecast.code}, got {seen.outcome.code}\n{seen.outcome.err}"
        require(forecast.code == seen.outcome.code, f"model: {command}", text)
        require(not wrong, f"model: {command}", f"{command}: {reported}")

    def _release(self, slot: str) -> bool:
        found = self._home(slot)
        if found is None:
            return False
        before = self.disk()
        if f"{found[0]}.lock" not in before:
            return False  # it needs the lock file, which a build writes
        forecast = self._foresee(found[0], before, lambda rules: rules.release(found[1]))
        seen = self.orch23("release", f"{found[0]}.yaml", found[1])
        after = self.disk()
        changed = differing(before, after)
        require(not [path for path in changed if not internal(path)], "I1", f"release changed {changed}")
        self._compare("release", forecast, after, seen)
        self._learn(after, forecast, found[0])
        return seen.outcome.code == 0

    # ---- the invariants of a build ----

    def _nothing_is_lost(
        self,
        pipeline: str,
        before: Mapping[str, str],
        after: Mapping[str, str],
        seen: Seen,
        *,
        forced: bool,
        repeats: str = "",
    ) -> None:
        """I1: bytes that a user wrote or committed change only by a run that started from them, or by the rules."""
        for path in differing(before, after):
            old, new = before.get(path), after.get(path)
            if internal(path) or old is None:
                continue
            self.counts["changed"] += 1
            if forced:
                self.written.pop(path, None)
                continue
            theirs = self.written.get(path) == old
            at_head = self.head.get(path) == old
            marks = {line for line in old.splitlines() if line.startswith(("# u", "# bad u"))}
            kept = set((new or "").splitlines())
            from_it = new is not None and formatted(new).startswith(formatted(old))
            if from_it:
                self.written.pop(path, None)
                continue
            covering = [s for s in stages_of(before[f"{pipeline}.yaml"])[0] if s.covers(path)]
            # A stage with `edits` may delete what it started from: a model or a program, if its specification says so.
            deletes = [s for s in covering if s.edits and new is None and seen.ends.get(s.name) == "built"]
            if any("# drop" in old if s.kind == "shell" else path in self._deleted_by_spec() for s in deletes):
                self.written.pop(path, None)
                continue
            again = {"restored"} | ({"built"} if self.lost == "bytes are lost" else set())  # made again from its record
            restored = any(seen.ends.get(s.name) in again for s in covering)
            newer = any(seen.ends.get(s.name) in ("built", "restored", "verified") for s in covering)
            if restored:
                self.counts["restored over"] += theirs or at_head
                undecided = theirs and not at_head and not self._was_accepted(path, old)
                require(
                    not undecided,
                    "I1",
                    f"a restore discarded an edit of {path} that no one decided on: {old!r} -> {new!r}",
                )
                self.written.pop(path, None)
                continue
            if new is None and newer and not theirs and not marks:
                continue  # the newer result of a folder has no such file
            reported = f"{path}: {old!r} -> {new!r} ({seen.ends})"
            require(not theirs, "I1", f"the user's bytes are gone, {reported}")
            by_program = newer and any(stage.kind != "llm" for stage in covering)
            # A forced run repeats the request of its record, as a restore repeats its result.
            is_repeated = by_program or self._created_again(path, old) or any(s.family == repeats for s in covering)
            require(not at_head or is_repeated, "I1", f"committed bytes are gone, {reported}")
            in_place = not path.startswith("build/")
            require(
                not in_place or marks <= kept,
                "lineage",
                f"the user's lines {sorted(marks - kept)} are gone, {reported}",
            )

    def _deleted_by_spec(self) -> set[str]:
        lines = self.repository.read(SPECS["work"]).splitlines()
        return {line.partition(": ")[0] for line in lines if line.endswith(f": {DELETED}")}

    def _was_accepted(self, path: str, text: str) -> bool:
        return any(path in made.accepted and made.outputs[path] == text for made in self.store.records) or bool(
            self.lost
        )

    def _created_again(self, path: str, old: str) -> bool:
        """Return whether the file is one that only a stage has written: it is generated again, by rule 4."""
        return path not in EXISTED and not any(line.startswith(("# u", "# bad u")) for line in old.splitlines())

    def _ended_stages_revert_nothing(self, pipeline: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """I2: a file that is committed and that no stage declares stays as it is."""
        declared = [s for name in "ab" if f"{name}.yaml" in before for s in stages_of(before[f"{name}.yaml"])[0]]
        for path, text in before.items():
            if internal(path) or any(stage.covers(path) for stage in declared):
                continue
            if path in self.head:
                require(
                    after.get(path) == text,
                    "I2",
                    f"{path} is committed and no stage makes it; {pipeline} made {after.get(path)!r} of {text!r}",
                )

    # ---- the model ----

    def _foresee(
        self,
        pipeline: str,
        disk: Mapping[str, str],
        ask: Callable[[Rules], Forecast],
        *,
        overwrite: bool = False,
        forced: str = "",
        resamples: bool = False,
    ) -> Forecast | None:
        locks = self.known_locks(disk)
        if any(stage.once or stage.formats for stage in stages_of(disk[f"{pipeline}.yaml"])[0]):
            self.lose("a stage with `once` or `format`")
        if self.lost:
            return None
        rules = Rules(
            pipeline,
            disk=disk,
            head=self.head,
            locks=locks,
            store=self.store,
            in_git=self.committed_texts,
            overwrite=overwrite,
            forced=forced,
            resamples=resamples,
            past=lambda: past_locks(self, f"{pipeline}.lock"),
        )
        try:
            return ask(rules)
        except UnsureError as why:
            self.lose(str(why))
            return None

    def _as_foreseen(
        self, forecast: Forecast, pipeline: str, before: Mapping[str, str], after: Mapping[str, str], seen: Seen
    ) -> None:
        self.counts["foreseen"] += 1
        text = f"foreseen {forecast.ends} ({forecast.code}), got {seen.ends} ({seen.outcome.code})"
        require(forecast.code == seen.outcome.code, "model: code", f"{pipeline}: {text}")
        for name, end in forecast.ends.items():
            got = seen.ends.get(name)
            if got is None and end in ("fresh", "skipped"):
                continue
            either = name.startswith("chain") and {got, end} == {"edited", "blocked"}  # behind an item that is edited
            # An accepted result that another user's lock file claims is verified where the store lacks it.
            either |= {got, end} == {"fresh", "verified"} and not self.store.complete
            require(got == end or either, "model: end", f"{name}: {text}")
        require(
            forecast.calls == len(seen.bases),
            "model: calls",
            f"foreseen {forecast.calls} with {forecast.bases}, got {seen.bases}; {text}",
        )
        for base in seen.bases:
            require(base in list(forecast.bases.values()), "model: base", f"shown {base}, foreseen {forecast.bases}")
        wanted = {path: t for path, t in forecast.files.items() if not internal(path)}
        there = {path: t for path, t in after.items() if not internal(path)}
        bad = differing(wanted, there)
        require(
            not bad,
            "model: files",
            f"{[(p, before.get(p), 'foreseen', wanted.get(p), 'got', there.get(p)) for p in bad]}; {text}",
        )

    def _learn(self, disk: Mapping[str, str], forecast: Forecast | None, pipeline: str) -> None:
        """Remember what the lock file that is on disk now knows."""
        text, place = disk.get(f"{pipeline}.lock"), (self.repository.root, pipeline)
        if forecast is None:
            return
        if text is None:
            if place in self.taken:
                self._take_lock(place, forecast.lock)
            return
        if text in self.locks and self.locks[text] != forecast.lock:
            self.counts["lock files that stand for two states"] += 1
        self.locks[text] = self.store.wrote[pipeline] = forecast.lock

    # ---- what a green build made ----

    def _not_stale(self, pipeline: str, disk: Mapping[str, str], done: Collection[str]) -> None:
        """After a green build, each file has what its stage makes of today's inputs, unless a user wrote in it."""
        records = json.loads(disk.get(f"{pipeline}.lock", "{}")).get("records", {})
        # The user decided what the accepted result of a stage with `edits` is, also which files it has.
        decided = {name for name, one in records.items() if one is not None and "accepted" in one}
        done = {*done, *(name for name in decided if "edits" in records[name]["manifest"])}
        for stage in stages_of(disk[f"{pipeline}.yaml"])[0]:
            if stage.name in done or stage.family.startswith("zero"):
                continue
            for path, wanted in self._made(stage, disk).items():
                text = disk.get(path)
                if any(mark in (text or "") for mark in ("# u", "# bad u", "# drop")) and stage.kind == "llm":
                    continue
                if text in self.by_hand or (stage.kind == "llm" and (path, text) in self.store.released):
                    continue
                # A later program may delete it. An edit that was accepted for a new specification is the whole result.
                may_lack = ("polish" in self.setup.slots, self.counts["accept"] > 0)
                is_accepted = may_lack[1] and (wanted == DELETED or "s( '" in (text or ""))  # formatted by a hook
                if stage.edits and ((any(may_lack) and text is None) or is_accepted):
                    continue
                if stage.chain and self.head.get(path) == text:
                    continue  # its last items may have ended: then it is an edit that the user committed
                holds = text == wanted if stage.kind != "llm" else wanted in formatted(text or "").splitlines()
                if stage.edits and stage.kind != "llm":
                    holds = text is not None and wanted in text.splitlines()
                if wanted == DELETED:
                    holds = text is None
                require(holds, "stale", f"{stage.name}: {path} has {text!r}, not {wanted!r}")
                self.counts["not stale"] += 1

    def _made(self, stage: Stage, disk: Mapping[str, str]) -> dict[str, str]:
        """Return what is at each path after a run: the whole text of a program, else a line of it, or `DELETED`."""
        if stage.edits and stage.kind != "llm":
            revision = stage.command.partition("# tidy ")[2].partition("$")[0]
            return {p: f"# tidy {revision}" for p in disk if stage.covers(p) and p.endswith(".py")}
        if stage.kind != "llm":
            found = {p: t for one in stage.inputs for p, t in sorted(disk.items()) if fnmatch(p, one)}
            return {path: computed(stage, found) for path in stage.literal_outputs}
        lines = [line for path in stage.inputs if path.endswith(".md") for line in disk[path].splitlines()]
        if stage.item:
            asked = json.loads(stage.item)
            lines = [f"{path}: {asked['text']}" for path in asked["files"]]
        wanted = (line.partition(": ")[::2] for line in lines)
        return {p: DELETED if text == DELETED else formatted(addition(text)).strip() for p, text in wanted}

    # ---- the clean build ----

    def _clean_build(self, pipeline: str, after: Mapping[str, str]) -> None:
        """I3: sources, released files and recorded responses alone give the same outputs where no edit is involved."""
        lock = self.locks[after[f"{pipeline}.lock"]] if f"{pipeline}.lock" in after else Lock()
        if any(lock_text in after for lock_text in [f"{name}.lock" for name in "ab" if name != pipeline]):
            return
        owned = {path: made for made in lock.results.values() for path in made.outputs}
        made_now = {(path, text) for made in lock.results.values() for path, text in made.outputs.items()}
        moved = {
            path
            for made in lock.results.values()
            for path, start in dict(made.start).items()
            if path in made.accepted
            or (start not in (None, made.originals.get(path)) and (path, start) not in made_now)
        }
        moved |= {path for path, made in owned.items() if path in made.accepted}
        adopted = {path for made in self.store.records for path in made.accepted}
        adopted |= {path for path, _ in self.store.released}
        if moved or adopted & owned.keys():
            return
        clean = Repository(self.folder / "clean")
        files = {path: text for path, text in after.items() if path not in owned and not path.endswith(".lock")}
        for path, made in owned.items():
            original = made.originals.get(path)
            if original is not None and (made.core[0] == "llm" or made.start):
                files[path] = original
        deleted = {path: made for made in lock.results.values() for path in made.deleted}
        files |= {p: text for p, made in deleted.items() if (text := made.originals.get(p)) is not None}
        clean.write(files)
        store = self.repository.root / ".orch23"
        if (store / "exchanges").exists():
            shutil.copytree(store / "exchanges", clean.root / ".orch23/exchanges")
            shutil.copy(store / "id", clean.root / ".orch23/id")
        here, calls = self.repository, len(self.model.calls)
        self.repository = clean
        try:
            seen = self.orch23("build", f"{pipeline}.yaml", "-k")
            found = self.disk()
        finally:
            self.repository = here
            shutil.rmtree(clean.root)
        self.counts["clean builds"] += 1
        require(seen.outcome.code == 0, "I3", f"a clean build exited with {seen.outcome.code}: {seen.outcome.err}")
        wrong = [path for path in (*owned, *deleted) if found.get(path) != after.get(path)]
        require(not wrong, "I3", f"a clean build gives {[(p, after[p], found.get(p)) for p in wrong]}")
        complete = self.stores.get(here.root, Store()).complete
        require(
            len(self.model.calls) == calls or not complete,
            "I3",
            f"a clean build called the model: {self.model.calls[calls:]}",
        )
