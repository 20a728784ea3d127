"""Store requests to models and their responses: in the store, and in transcripts to commit."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Digest, Json, digest_bytes, digest_json
from orch23.model.errors import CorruptStateError
from orch23.model.parsing import JsonObject, from_struct, map_strings, parse_stored, refuse, to_struct
from orch23.model.paths import ORIGINALS_FOLDER, SHA256
from orch23.model.patterns import lazy_pattern
from orch23.model.pipeline import family_of
from orch23.model.text import escape_hidden
from orch23.snapshot.signatures import sha256_hex
from orch23.store.json_text import indented_json, with_sum, without_sum
from orch23.store.safe_files import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    StagedFiles,
    list_folder,
    make_folder,
    open_directory,
    read_file,
    read_regular,
    replace_file,
    split_path,
    try_unlink,
    write_atomic,
)

if TYPE_CHECKING:
    from orch23.model.llm import Exchange, Usage

TRANSCRIPT_VERSION = 3
TEXTS_FOLDER = "texts"
# Version 2 added `api` to the fingerprint (ADR 7).
EXCHANGE_VERSION = 2
_CONFLICT = lazy_pattern(rb"^(?:<<<<<<<|>>>>>>>)(?: |\r?$)", re.MULTILINE)
# A foreach may have thousands of items, and the request of each is compared with those of others.
_MOST_OF_FAMILY = 100
_PASSED = frozenset({"accepted", "approved"})
_FAILED = frozenset({"failed", "invalid", "refused", "truncated", "empty", "rejected"})
_MERGED = "it has the conflict markers of a merge"
_ONE_SIDE = "take one side of the file: `git checkout --ours {name}` or `--theirs`; two responses cannot be merged"
_RESTORE = "restore the file from version control, or delete it"
_TEXT = lazy_pattern(rb'"sha256:([0-9a-f]{64})"')
_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)


class ExchangeFile(Struct, frozen=True):
    """A file of the local store: its path, the time in nanoseconds when it was written, and its size."""

    path: Path
    put_ns: int
    size_bytes: int


class _Head(Struct, frozen=True):
    stage: str
    outcome: str = "pending"


class Exchanges:
    """All recorded exchanges. Safe for calls from several threads, since a file is always replaced as a whole.

    `transcripts` is a directory, relative to the root, of files to commit; it is read first. A damaged file of the
    local store is ignored and reported in `damaged`; a damaged transcript is an error, since a user can restore it.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        """Create nothing: the first put creates the local folder. Transcripts are relative to the root."""
        self._folder = folder
        self._root = root
        self._later: dict[str, tuple[Exchange, str | None]] = {}
        self._writing = threading.Lock()
        self.damaged: list[str] = []
        self._find: Callable[[str], Exchange | None] = lambda _fingerprint: None
        self._share: Callable[[Exchange], None] = lambda _exchange: None
        self._found: set[str] = set()
        self._heads: dict[str, _Head] = {}  # by fingerprint
        self._has_heads = False

    def use_cache(self, find: Callable[[str], Exchange | None], share: Callable[[Exchange], None]) -> None:
        """Use a shared cache, too: `find` gets the fingerprints that are not here, `share` each exchange that is put.

        What is found is stored here once its outcome is put.
        """
        self._find, self._share = find, share

    def get(self, fingerprint: str, transcripts: str | None) -> Exchange | None:
        """Return the exchange of a request, or None.

        Raises:
            CorruptStateError: a committed transcript is damaged.
        """
        later = self._later.get(fingerprint)
        if later is not None:
            return later[0]
        committed = self._committed(fingerprint, transcripts)
        found = self._read(committed, fingerprint, committed=True) if committed else None
        found = found or self._read(self._local(fingerprint), fingerprint, committed=False)
        if found is None and (found := self._find(fingerprint)) is not None:
            self._found.add(fingerprint)
        return found

    def put(self, exchange: Exchange, transcripts: str | None) -> None:
        """Write an exchange durably to the local store and to the transcripts, unless they have it already."""
        data = exchange_text(exchange).encode("utf-8")
        self._heads[exchange.fingerprint] = _Head(exchange.stage, exchange.outcome)
        # Otherwise an earlier change of the same exchange, which is being written, would replace this one.
        with self._writing if exchange.fingerprint in self._later else contextlib.nullcontext():
            self._later.pop(exchange.fingerprint, None)
            self._write(self._local(exchange.fingerprint), data, PRIVATE_FILE_MODE)
            committed = self._committed(exchange.fingerprint, transcripts)
            if committed:
                self._write(committed, self._transcript(exchange, committed.parent), 0o644)
        self._share(exchange)

    def put_later(self, exchange: Exchange, transcripts: str | None) -> None:
        """Show a change of a stored exchange from now on; `write_later` writes it."""
        if exchange.fingerprint in self._found:
            self._found.discard(exchange.fingerprint)
            self.put(exchange, transcripts)
            return
        self._heads[exchange.fingerprint] = _Head(exchange.stage, exchange.outcome)
        self._later[exchange.fingerprint] = exchange, transcripts
        self._share(exchange)

    def write_later(self) -> None:
        """Write the changes of `put_later`. A power cut leaves each file as it was or as it is now."""
        if self._later:
            make_folder(self._folder, PRIVATE_FOLDER_MODE)
        with self._writing, StagedFiles(self._folder, self._folder) as local, StagedFiles(self._root) as committed:
            # Other threads may add changes meanwhile: those are written the next time.
            later = list(self._later.values())
            for exchange, transcripts in later:
                data = exchange_text(exchange).encode("utf-8")
                path = self._local(exchange.fingerprint).relative_to(self._folder)
                local.add(path.as_posix(), data, PRIVATE_FILE_MODE)
                if (place := self._committed(exchange.fingerprint, transcripts)) is not None:
                    text = self._transcript(exchange, place.parent)
                    committed.add(place.relative_to(self._root).as_posix(), text, 0o644)
            local.commit()
            committed.commit()
            for exchange, transcripts in later:
                if self._later.get(exchange.fingerprint) == (exchange, transcripts):
                    self._later.pop(exchange.fingerprint, None)

    def nearest(self, stage: str, parts: Mapping[str, Json], transcripts: str | None) -> Exchange | None:
        """Return the exchange of the stage whose request differs least from these parts, but does differ.

        If the stage has none, as a new item of a foreach, an exchange of another item is returned.

        Raises:
            CorruptStateError: a committed transcript is damaged.
        """
        from orch23.text.request_difference import distance  # noqa: PLC0415 - only for such a request

        named = [(path, committed, self._stage_of(path, committed)) for path, committed in self._paths(transcripts)]
        own = [(path, committed) for path, committed, name in named if name in (stage, None)]
        family = [(path, committed) for path, committed, name in named if name and family_of(name) == family_of(stage)]
        for paths in (own, family[:_MOST_OF_FAMILY]):
            ranked = ((distance(one.request, parts), one.fingerprint, one) for one in self._all(paths) if one.request)
            if (found := min((one for one in ranked if one[0][0]), default=None)) is not None:
                return found[2]
        return None

    def families(self, transcripts: str | None) -> frozenset[str]:
        """Return the declared names of the stages that have exchanges. Files that cannot be read are ignored."""
        names = (self._stage_of(path, committed) for path, committed in self._paths(transcripts))
        return frozenset(family_of(name) for name in names if name is not None)

    def judged(self, family: str, transcripts: str | None) -> tuple[int, int]:
        """Return how many attempts of a declared stage are recorded with an outcome, and how many of them failed."""
        for path, committed in self._paths(transcripts) if not self._has_heads else ():
            self._stage_of(path, committed)
        self._has_heads = True
        outcomes = [one.outcome for one in list(self._heads.values()) if family_of(one.stage) == family]
        failed = sum(one in _FAILED for one in outcomes)
        return failed + sum(one in _PASSED for one in outcomes), failed

    def _stage_of(self, path: Path, committed: bool) -> str | None:  # noqa: FBT001 - as `_paths` returns it
        """Return the stage of an exchange, which never changes; None if the file cannot be read."""
        if path.stem not in self._heads:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                data = self._bytes(path, committed=committed)
                self._heads[path.stem] = msgspec.json.decode(data or b"", type=_Head)
        found = self._heads.get(path.stem)
        return found.stage if found else None

    def usages(self, transcripts: str | None) -> dict[str, list[Usage]]:
        """Return the token counts of all recorded responses, by stage.

        Raises:
            CorruptStateError: a committed transcript is damaged.
        """
        found: dict[str, list[Usage]] = {}
        for exchange in self._all(self._paths(transcripts)):
            if exchange.usage.total:
                found.setdefault(exchange.stage, []).append(exchange.usage)
        return found

    def put_original(self, data: bytes, transcripts: str | None) -> Digest:
        """Store, durably, the bytes of a user's file before a stage edits it; return their digest."""
        digest = digest_bytes(data)
        self._write(self._original(digest, transcripts), data, 0o644 if transcripts else PRIVATE_FILE_MODE)
        return digest

    def get_original(self, digest: Digest, transcripts: str | None) -> bytes | None:
        """Return bytes that `put_original` stored, or None.

        Raises:
            CorruptStateError: the committed file is damaged.
        """
        for place in (transcripts, None) if transcripts else (None,):
            path = self._original(digest, place)
            data = self._bytes(path, committed=place is not None)
            # Git may have converted its line ends; its name shows which bytes are meant.
            for one in () if data is None else (data, data.replace(b"\r\n", b"\n")):
                if digest_bytes(one) == digest:
                    return one
            if data is not None:
                self._report(path, "does not match its name", committed=place is not None)
        return None

    def exchange_files(self) -> tuple[ExchangeFile, ...]:
        """Return the files of the exchanges in the local store, without reading them."""
        return tuple(_seen(path for group in _folders(self._folder) for path in _files(group)))

    def original_files(self) -> tuple[ExchangeFile, ...]:
        """Return the files of original bytes in the local store, without reading them."""
        paths = list_folder(self._folder / "originals")
        return tuple(_seen(path for path in paths if SHA256.fullmatch(path.name)))

    def set_damaged_aside(self) -> None:
        """Read the whole local store, and rename damaged files to `*.damaged`; they are reported in `damaged`.

        They are not deleted: a response was paid for, originals are a user's, and a part may be readable. The caller
        holds the build lock.
        """
        for file in (*self.exchange_files(), *self.original_files()):
            before = len(self.damaged)
            if file.path.parent.name == "originals":
                self.get_original(Digest(file.path.name, file.size_bytes), None)
            else:
                self.get(file.path.stem, None)
            if len(self.damaged) > before:
                file.path.rename(file.path.with_name(f"{file.path.name}.damaged"))

    def unneeded(self, transcripts: str, needed: Collection[str], stale: Collection[str]) -> tuple[ExchangeFile, ...]:
        """Return the files of transcripts that no needed exchange has, and none of a stage in `stale`.

        Needed are also the other samples of a request, accepted edits, and responses that were not judged.

        Raises:
            CorruptStateError: a transcript is damaged.
        """
        folder = self._root / transcripts
        # Not the exchanges: together they may be large.
        found = {
            path: (_question(one), _is_kept(one, stale))
            for path in _files(folder)
            if (one := self._read(path, path.stem, committed=True)) is not None
        }
        asked = {question for path, (question, _) in found.items() if path.stem in needed}
        left = [path for path, (question, is_kept) in found.items() if not is_kept and question not in asked]
        kept = (self._bytes(path, committed=True) or b"" for path in found.keys() - {*left})
        named = {name.decode() for data in kept for name in _TEXT.findall(data)}
        texts = (path for path in _files(folder / TEXTS_FOLDER) if SHA256.fullmatch(path.stem))
        return tuple(_seen((*left, *(path for path in texts if path.stem not in named))))

    def remove_transcript(self, file: ExchangeFile) -> None:
        """Delete a file of the transcripts. The local store keeps the exchange, which was paid for."""
        path = file.path
        if path.parent.name != TEXTS_FOLDER and self.get(path.stem, None) is None:
            one = self._read(path, path.stem, committed=True)
            if one is not None:
                self.put(one, None)
        names, name = split_path(path.relative_to(self._root).as_posix())
        with open_directory(self._root, names) as parent:
            try_unlink(name, parent)

    def _local(self, fingerprint: str) -> Path:
        return self._folder / f"{_checked(fingerprint)[:2]}/{fingerprint}.json"

    def _committed(self, fingerprint: str, transcripts: str | None) -> Path | None:
        return self._root / transcripts / f"{_checked(fingerprint)}.json" if transcripts else None

    def _original(self, digest: Digest, transcripts: str | None) -> Path:
        return (self._root / transcripts if transcripts else self._folder) / ORIGINALS_FOLDER / _checked(digest.sha256)

    def _transcript(self, exchange: Exchange, folder: Path) -> bytes:
        """Return the file of an exchange in transcripts, after its long texts were written."""

        def write(sha256: str, data: bytes) -> None:
            self._write(folder / TEXTS_FOLDER / f"{sha256}.json", data, 0o644)

        return exchange_text(_shorten(exchange, write), TRANSCRIPT_VERSION).encode()

    def _all(self, paths: Iterable[tuple[Path, bool]]) -> Iterator[Exchange]:
        seen: set[str] = set()
        for path, committed in paths:
            if path.stem not in seen:
                found = self._read(path, path.stem, committed=committed)
                if found is not None:
                    seen.add(path.stem)
                    yield found

    def _paths(self, transcripts: str | None) -> list[tuple[Path, bool]]:
        """Return the files of all exchanges, and whether each is a committed one."""
        committed = [(path, True) for path in _files(self._root / transcripts)] if transcripts else []
        return committed + [(path, False) for group in _folders(self._folder) for path in _files(group)]

    def _read(self, path: Path, fingerprint: str, *, committed: bool) -> Exchange | None:
        data = self._bytes(path, committed=committed)
        if data is None:
            if committed and path.is_dir():
                self._report(path, "it is a folder", committed=True)
            return None

        def read_text(sha256: str) -> bytes | None:
            return self._bytes(path.parent / TEXTS_FOLDER / f"{sha256}.json", committed=True)

        try:
            exchange = parse_exchange(data, read_text if committed else None)
        except ValueError as error:
            merged = _CONFLICT.search(data) is not None
            self._report(path, _MERGED if merged else str(error), committed=committed, merged=merged)
            return None
        if exchange.fingerprint != fingerprint:
            self._report(path, "is an exchange of another fingerprint", committed=committed)
            return None
        return exchange

    def _report(self, path: Path, problem: str, *, committed: bool, merged: bool = False) -> None:
        if not committed:
            self.damaged.append(f"exchanges/{path.name}: {problem}")
            return
        name = path.relative_to(self._root).as_posix()
        message, hint = f"the transcript {name} is damaged: {problem}", _ONE_SIDE.format(name=name)
        raise CorruptStateError(Diagnostic("E707", message, hint=hint if merged else _RESTORE, subject=name))

    def _write(self, path: Path, data: bytes, mode: int) -> None:
        is_local = path.is_relative_to(self._folder)
        if self._bytes(path, committed=not is_local) == data:
            return
        if is_local:
            make_folder(self._folder, PRIVATE_FOLDER_MODE)
            write_atomic(path, data, mode=mode, scratch=self._folder)
        else:
            replace_file(self._root, path.relative_to(self._root).as_posix(), data, mode)

    def _bytes(self, path: Path, *, committed: bool) -> bytes | None:
        """Return the bytes of a file if it exists. In the project no link is followed: a clone could bring one."""
        return read_file(self._root, path.relative_to(self._root).as_posix()) if committed else read_regular(path)


def exchange_text(exchange: Exchange, version: int = EXCHANGE_VERSION) -> str:
    """Return the text of an exchange: indented JSON with sorted keys and a checksum, for reviews and diffs."""
    return escape_hidden(indented_json(with_sum(_body_of(exchange, version)), sort_keys=True)) + "\n"


def _body_of(exchange: Exchange, version: int) -> JsonObject:
    body = {"orch23_exchange": version, **from_struct(exchange)}
    usage = from_struct(exchange.usage)
    # Left out if nothing is counted: files of earlier versions do not have it.
    if not exchange.usage.cache_write_1h_tokens:
        del usage["cache_write_1h_tokens"]
    return {**body, "duration_s": float(exchange.duration_s), "usage": usage}


def parse_exchange(data: bytes, read_text: Callable[[str], bytes | None] | None = None) -> Exchange:
    """Return the exchange of a file's bytes; `read_text` reads the file of a text of transcripts.

    Raises:
        ValueError: the bytes are not those that `exchange_text` returned.
    """
    from orch23.model.llm import Exchange  # noqa: PLC0415 - an edit without a model call does not need it

    body = without_sum(parse_stored(data))
    version = body.get("orch23_exchange")
    if version != EXCHANGE_VERSION and (read_text is None or version != TRANSCRIPT_VERSION):
        refuse(f"has version {version!r}")
    exchange = to_struct(body, Exchange)
    # msgspec ignores unknown fields, and takes defaults for those that are missing.
    if digest_json(_body_of(exchange, version)) != digest_json(body):
        refuse("is not valid: it lacks a field, or has an unknown one")
    if read_text is None or version == EXCHANGE_VERSION:
        return exchange
    return _complete(exchange, read_text)


def user_fingerprint(kind: str, stage: str, value: Json) -> str:
    """Return the fingerprint of what a user decided about a stage: there is no request to compute one from.

    With the kind `accepted` the value is the texts of the edited files, with `approval` the digest of a change.
    """
    return sha256_hex(digest_json({kind: value, "stage": stage}).encode())


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        refuse(f"BUG: {name!r} is not the name of an exchange")
    return name


def _folders(folder: Path) -> list[Path]:
    return [path for path in list_folder(folder) if path.is_dir() and path.name != "originals"]


def _files(folder: Path) -> list[Path]:
    return [path for path in list_folder(folder) if path.suffix == ".json" and _NAME.fullmatch(path.stem)]


def _seen(paths: Iterable[Path]) -> Iterator[ExchangeFile]:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            found = path.stat(follow_symlinks=False)
            yield ExchangeFile(path, found.st_mtime_ns, found.st_size)


def _is_kept(exchange: Exchange, stale: Collection[str]) -> bool:
    is_of_user = bool(exchange.files) or exchange.outcome in ("accepted_by_hand", "approved", "rejected")
    return is_of_user or exchange.outcome == "pending" or family_of(exchange.stage) in stale


def _question(exchange: Exchange) -> str:
    """Return what the samples of a request have in common: a build looks for the newest one by way of the others."""
    request = exchange.request
    return digest_json({name: request[name] for name in request if name != "sample" and not name.startswith("sent")})


# A longer text is a file of its own, with `sha256:DIGEST` in its place. So no text in its place looks like that.
_LONGEST = 64
_REFERENCE = lazy_pattern(r"sha256:([0-9a-f]{64})", re.ASCII)
_WITH_TEXTS = ("messages", "system", "sent", "sent_system")
# The characters of all texts of an exchange, with those that are there twice.
_MOST_CHARACTERS = 1 << 26


class _Lines(Struct, frozen=True):
    lines: tuple[str, ...] = ()


def _shorten(exchange: Exchange, write: Callable[[str, bytes], None]) -> Exchange:
    """Return an exchange without its long texts, which transcripts have once each (ADR 61).

    `write` gets the SHA-256 of each one, and the bytes of its file.
    """

    def shortened(text: str) -> str:
        if len(text) <= _LONGEST:
            return text
        sha256 = digest_bytes(text.encode()).sha256
        body: Json = {"lines": text.split("\n"), "orch23_exchange": TRANSCRIPT_VERSION}
        write(sha256, f"{escape_hidden(indented_json(body))}\n".encode())
        return f"sha256:{sha256}"

    return _with_texts(exchange, shortened)


def _complete(exchange: Exchange, read: Callable[[str], bytes | None]) -> Exchange:
    """Return an exchange with its long texts; `read` returns the bytes of a file by the SHA-256 of its text.

    Raises:
        ValueError: a text is missing or damaged, or they are too long.
    """
    left = _MOST_CHARACTERS

    @cache
    def text_of(sha256: str) -> str:
        text = "\n".join(to_struct(parse_stored(read(sha256) or b"{}"), _Lines).lines)
        if digest_bytes(text.encode("utf-8", "replace")).sha256 != sha256:
            refuse(f"its texts/{sha256}.json is missing or damaged")
        return text

    def whole(text: str) -> str:
        nonlocal left
        if (found := _REFERENCE.fullmatch(text)) is None:
            return text
        text = text_of(found[1])
        left -= len(text)
        if left < 0:
            refuse(f"its texts have more than {_MOST_CHARACTERS:,} characters")
        return text

    return _with_texts(exchange, whole)


def _with_texts(exchange: Exchange, change: Callable[[str], str]) -> Exchange:
    """Return an exchange with other texts: of the messages, the system prompts, the response and the files."""
    request = {name: map_strings(one, change) if name in _WITH_TEXTS else one for name, one in exchange.request.items()}
    files = {path: None if text is None else change(text) for path, text in exchange.files.items()}
    return replace(exchange, request=request, response=change(exchange.response), files=files)
