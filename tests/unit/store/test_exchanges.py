import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock, patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from orch23.model.digest import digest_bytes
from orch23.model.errors import CorruptStateError
from orch23.model.event_data import StopReason
from orch23.model.llm import Exchange, ExchangeOutcome, Message, Request, Usage
from orch23.model.paths import is_own_file
from orch23.store.exchanges import Exchanges, exchange_text, parse_exchange
from orch23.store.project_store import ProjectStore, open_store

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
EXCHANGES = st.builds(
    dict,
    fingerprint=st.binary(min_size=32, max_size=32).map(bytes.hex),
    stage=TEXT,
    request=st.dictionaries(TEXT, TEXT | st.integers() | st.lists(TEXT, max_size=2), max_size=4),
    response=TEXT,
    stop=st.sampled_from(get_args(StopReason)),
    usage=st.builds(Usage, *[st.integers(0, 10**9)] * 5),
    outcome=st.sampled_from(get_args(ExchangeOutcome)),
    diagnostics=st.lists(TEXT, max_size=2).map(tuple),
    duration_s=st.floats(0, 1e6),
    provenance=TEXT,
    files=st.dictionaries(TEXT, st.none() | TEXT, max_size=3),
).map(lambda given: Exchange(**given))  # st.builds would evaluate the annotations, of which Json is recursive


def request(prompt: str = "write it", **changes: Any) -> Request:
    message = Message("user", prompt)
    values: dict[str, Any] = {"provider": "local", "model": "small", "endpoint": "", "system": "be brief", **changes}
    return Request(messages=(message,), identity=(message,), **values)


def exchange(asked: Request | None = None, response: str = "an answer", stage: str = "code") -> Exchange:
    asked = asked or request()
    return Exchange(fingerprint=asked.fingerprint(), stage=stage, request=asked.parts(), response=response)


@pytest.fixture
def exchanges(tmp_path: Path) -> Exchanges:
    return Exchanges(tmp_path / ".orch23" / "exchanges", tmp_path)


def test_a_later_change_is_seen_at_once_and_written_with_the_next_results(exchanges: Exchanges, tmp_path: Path) -> None:
    one = exchange()
    judged = replace(one, outcome="accepted")
    exchanges.put(one, "heard")
    exchanges.put_later(judged, "heard")

    def another() -> Exchanges:
        return Exchanges(tmp_path / ".orch23" / "exchanges", tmp_path)

    assert exchanges.get(one.fingerprint, "heard") == judged
    assert (another().get(one.fingerprint, None), another().get(one.fingerprint, "heard")) == (one, one)
    exchanges.write_later()
    assert (another().get(one.fingerprint, None), another().get(one.fingerprint, "heard")) == (judged, judged)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_write_that_fails_leaves_no_temporary_file_and_is_repeated(
    exchanges: Exchanges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = exchange()
    judged = replace(one, outcome="accepted")
    exchanges.put(one, "heard")
    exchanges.put_later(judged, "heard")
    with monkeypatch.context() as patch:
        patch.setattr("orch23.store.safe_files.sync_filesystem", Mock(side_effect=OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            exchanges.write_later()
    assert not list(tmp_path.rglob("*.tmp"))
    exchanges.write_later()
    assert Exchanges(tmp_path / ".orch23" / "exchanges", tmp_path).get(one.fingerprint, "heard") == judged


def test_what_is_put_after_a_later_change_stays(exchanges: Exchanges) -> None:
    one = exchange()
    exchanges.put(one, None)
    exchanges.put_later(replace(one, outcome="accepted"), None)
    superseded = replace(one, outcome="accepted", superseded=True)
    exchanges.put(superseded, None)
    exchanges.write_later()
    assert exchanges.get(one.fingerprint, None) == superseded


@given(EXCHANGES)
def test_an_exchange_survives_its_file(one: Exchange) -> None:
    assert parse_exchange(exchange_text(one).encode()) == one


def test_an_exchange_is_found_by_another_process(exchanges: Exchanges, tmp_path: Path) -> None:
    one = exchange()
    exchanges.put(one, None)
    assert Exchanges(tmp_path / ".orch23" / "exchanges", tmp_path).get(one.fingerprint, None) == one
    assert exchanges.get("0" * 64, "transcripts") is None


def test_a_file_of_an_earlier_version_has_no_count_of_an_hour() -> None:
    text = exchange_text(exchange())
    assert "cache_write_1h_tokens" not in text
    assert parse_exchange(text.encode()) == exchange()
    counted = replace(exchange(), usage=Usage(9, 1, 2, 3, 3))
    assert '"cache_write_1h_tokens": 3' in exchange_text(counted)


def test_asking_writes_nothing(exchanges: Exchanges, tmp_path: Path) -> None:
    assert exchanges.get("0" * 64, "t") is None
    assert exchanges.nearest("code", request().parts(), "t") is None
    assert exchanges.get_original(digest_bytes(b"x"), "t") is None
    assert list(tmp_path.iterdir()) == []


def test_the_local_copy_is_for_its_owner_alone(exchanges: Exchanges, tmp_path: Path) -> None:
    one = exchange()
    exchanges.put(one, "pipelines/t")
    local = tmp_path / ".orch23" / "exchanges" / one.fingerprint[:2] / f"{one.fingerprint}.json"
    committed = tmp_path / "pipelines" / "t" / f"{one.fingerprint}.json"
    assert local.stat().st_mode & 0o777 == 0o600
    assert committed.stat().st_mode & 0o777 == 0o644
    assert parse_exchange(local.read_bytes()) == one


LONG = "Write it.\n\ta line\r\nanother \u202e one\n" * 9


def conversation(exchanges: Exchanges, folder: str = "t") -> list[Exchange]:
    """Record three attempts, of which each one sends the texts of the one before it again."""
    messages = [{"role": "user", "content": LONG}]
    found = []
    for number in range(3):
        parts = {**request().parts(), "system": f"Rules.{LONG}", "messages": [*messages], "sent": [*messages]}
        more = {"request": parts, "response": f"{number} {LONG}", "outcome": "accepted"}
        one = replace(exchange(), fingerprint=f"{number}" * 64, **more)
        exchanges.put(one, folder)
        messages += [{"role": "assistant", "content": one.response}, {"role": "user", "content": f"{number} failed"}]
        found.append(one)
    return found


def test_transcripts_have_each_long_text_once_and_give_it_back(exchanges: Exchanges, tmp_path: Path) -> None:
    made = conversation(exchanges)
    written = sorted((tmp_path / "t").rglob("*.json"))
    texts = [path for path in written if path.parent.name == "texts"]
    assert len(texts) == 5, "the system prompt, the prompt and three responses"
    escaped = json.dumps("\ta line\r").strip('"')
    assert sum(path.read_text().count(f'"{escaped}"') for path in written) == len(texts) * 9
    assert "\u202e" not in "".join(path.read_text() for path in written)
    other = Exchanges(tmp_path / "elsewhere", tmp_path)
    assert [other.get(one.fingerprint, "t") for one in made] == made
    assert all(is_own_file(path.relative_to(tmp_path).as_posix(), path.read_bytes) for path in written)


def test_transcripts_with_other_line_breaks_are_read(exchanges: Exchanges, tmp_path: Path) -> None:
    made = conversation(exchanges)
    for path in (tmp_path / "t").rglob("*.json"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    other = Exchanges(tmp_path / "elsewhere", tmp_path)
    assert [other.get(one.fingerprint, "t") for one in made] == made


def test_transcripts_of_the_version_before_are_read_and_written_again_only_with_a_change(
    exchanges: Exchanges, tmp_path: Path
) -> None:
    one = replace(exchange(), response=LONG)
    path = tmp_path / "t" / f"{one.fingerprint}.json"
    path.parent.mkdir()
    path.write_text(exchange_text(one))
    assert exchanges.get(one.fingerprint, "t") == one
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    changed = replace(one, outcome="accepted")
    exchanges.put_later(changed, "t")
    exchanges.write_later()
    assert Exchanges(tmp_path / "elsewhere", tmp_path).get(one.fingerprint, "t") == changed
    assert LONG.partition("\n")[0] not in path.read_text()


@pytest.mark.parametrize("length", [63, 64, 65, 71])
def test_a_text_that_looks_like_a_digest_is_a_text(exchanges: Exchanges, tmp_path: Path, length: int) -> None:
    text = f"sha256:{'0' * 64}"[-length:]
    one = replace(exchange(), response=text, files={"a": text, "b": None, "c": ""})
    exchanges.put(one, "t")
    assert Exchanges(tmp_path / "elsewhere", tmp_path).get(one.fingerprint, "t") == one


@pytest.mark.parametrize(
    "content", [None, "{", "[]", '{"lines": [1]}', '{"lines": ["another"]}', '{"lines": ["\\ud800"]}', "[" * 100_000]
)
def test_a_text_that_is_missing_or_damaged_is_reported(
    exchanges: Exchanges, tmp_path: Path, content: str | None
) -> None:
    one = replace(exchange(), response=LONG)
    exchanges.put(one, "t")
    (text,) = (tmp_path / "t/texts").iterdir()
    text.unlink()
    if content is not None:
        text.write_text(content)
    with pytest.raises(CorruptStateError, match=f"the transcript t/{one.fingerprint}.json is damaged"):
        exchanges.get(one.fingerprint, "t")


def test_the_texts_of_a_hostile_transcript_are_read_once_each_and_limited(exchanges: Exchanges, tmp_path: Path) -> None:
    one = replace(exchange(), response=LONG, files={str(number): LONG for number in range(50)})
    exchanges.put(one, "t")
    with patch.object(Exchanges, "_bytes", autospec=True, side_effect=Exchanges._bytes) as read:
        assert exchanges.get(one.fingerprint, "t") == one
    assert read.call_count == 2
    with (
        patch("orch23.store.exchanges._MOST_CHARACTERS", 40 * len(LONG)),
        pytest.raises(CorruptStateError, match="have more than"),
    ):
        exchanges.get(one.fingerprint, "t")


def test_only_files_of_texts_are_unneeded(exchanges: Exchanges, tmp_path: Path) -> None:
    made = conversation(exchanges)
    (tmp_path / "t/texts/mine.json").write_text("{}")
    assert exchanges.unneeded("t", {one.fingerprint for one in made}, ()) == ()
    assert exchanges.unneeded("t", (), {made[0].stage}) == ()
    unneeded = exchanges.unneeded("t", {made[0].fingerprint}, ())
    names = sorted(file.path.relative_to(tmp_path / "t").as_posix() for file in unneeded)
    assert names[:2] == [f"{one.fingerprint}.json" for one in made[1:]]
    assert [name.startswith("texts/") for name in names[2:]] == [True, True]
    for file in unneeded:
        exchanges.remove_transcript(file)
    assert exchanges.get(made[0].fingerprint, "t") == made[0]
    assert exchanges.unneeded("t", {made[0].fingerprint}, ()) == ()


def test_a_local_exchange_has_all_its_texts(exchanges: Exchanges, tmp_path: Path) -> None:
    """The store of a user needs no transcripts, which may change with each branch."""
    (one, *_) = conversation(exchanges)
    shutil.rmtree(tmp_path / "t")
    assert exchanges.get(one.fingerprint, None) == one
    shared = tmp_path / "t" / f"{one.fingerprint}.json"
    conversation(exchanges)
    with pytest.raises(ValueError, match="has version 3"):
        parse_exchange(shared.read_bytes())


def test_the_transcripts_are_read_first_and_either_place_is_enough(exchanges: Exchanges) -> None:
    one = exchange()
    exchanges.put(msgspec.structs.replace(one, response="committed"), "t")
    exchanges.put(msgspec.structs.replace(one, response="local"), None)
    assert getattr(exchanges.get(one.fingerprint, "t"), "response", "") == "committed"
    assert getattr(exchanges.get(one.fingerprint, None), "response", "") == "local"
    for file in exchanges.exchange_files():
        file.path.unlink()
    assert getattr(exchanges.get(one.fingerprint, "t"), "response", "") == "committed"


def test_the_outcome_replaces_the_pending_exchange(exchanges: Exchanges) -> None:
    one = exchange()
    exchanges.put(one, "t")
    exchanges.put(msgspec.structs.replace(one, outcome="accepted"), "t")
    assert getattr(exchanges.get(one.fingerprint, "t"), "outcome", "") == "accepted"


def test_the_same_exchange_is_not_written_twice(exchanges: Exchanges, tmp_path: Path) -> None:
    exchanges.put(exchange(), "t")
    inodes = {p: p.stat().st_ino for p in tmp_path.rglob("*.json")}
    exchanges.put(exchange(), "t")
    assert {p: p.stat().st_ino for p in tmp_path.rglob("*.json")} == inodes


def test_a_damaged_local_file_counts_as_not_there(
    exchanges: Exchanges, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    one = exchange()
    exchanges.put(one, None)
    damage(next((tmp_path / ".orch23").rglob("*.json")))
    assert exchanges.get(one.fingerprint, None) in (None, one)
    exchanges.put(one, None)
    assert exchanges.get(one.fingerprint, None) == one


def test_a_damaged_transcript_is_named(exchanges: Exchanges, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    one = exchange()
    exchanges.put(one, "t")
    damage(tmp_path / "t" / f"{one.fingerprint}.json")
    try:
        assert exchanges.get(one.fingerprint, "t") == one
    except CorruptStateError as error:
        [found] = error.diagnostics
        assert found.code == "E707"
        assert f"t/{one.fingerprint}.json" in found.message
        assert found.hint


def test_a_transcript_with_the_marks_of_a_merge_says_so_and_how_to_go_on(exchanges: Exchanges, tmp_path: Path) -> None:
    one = exchange()
    exchanges.put(one, "t")
    path = tmp_path / "t" / f"{one.fingerprint}.json"
    ours, theirs = ' "response": "an answer",\n', ' "response": "another",\n'
    assert ours in path.read_text()
    path.write_text(path.read_text().replace(ours, f"<<<<<<< HEAD\n{ours}=======\n{theirs}>>>>>>> theirs\n"))
    for find in (
        lambda: exchanges.get(one.fingerprint, "t"),
        lambda: exchanges.nearest("code", request("else").parts(), "t"),
    ):
        with pytest.raises(CorruptStateError) as caught:
            find()
        [found] = caught.value.diagnostics
        assert (found.code, found.subject) == ("E707", f"t/{one.fingerprint}.json")
        assert "conflict markers of a merge" in found.message
        assert f"git checkout --ours t/{one.fingerprint}.json" in (found.hint or "")


def test_a_changed_response_is_not_a_recorded_response(exchanges: Exchanges, tmp_path: Path) -> None:
    one = exchange()
    exchanges.put(one, "t")
    path = tmp_path / "t" / f"{one.fingerprint}.json"
    path.write_text(path.read_text().replace("an answer", "my answer"))
    with pytest.raises(CorruptStateError):
        exchanges.get(one.fingerprint, "t")


def test_an_exchange_under_another_name_is_not_used(exchanges: Exchanges, tmp_path: Path) -> None:
    one, other = exchange(), exchange(request("something else"))
    exchanges.put(one, None)
    folder = tmp_path / ".orch23" / "exchanges" / other.fingerprint[:2]
    folder.mkdir(exist_ok=True)
    (folder / f"{other.fingerprint}.json").write_text(exchange_text(one))
    assert exchanges.get(other.fingerprint, None) is None
    assert len(exchanges.damaged) == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "", ".hidden", "a/b"])
def test_a_name_cannot_leave_the_folder(exchanges: Exchanges, name: str) -> None:
    with pytest.raises(ValueError, match="BUG"):
        exchanges.get(name, None)


def test_the_nearest_exchange_differs_in_least_and_says_in_what(exchanges: Exchanges) -> None:
    far = exchange(request("write it", model="big", system="other"))
    near = exchange(request("write it, please"))
    stranger = exchange(request("write it!"), stage="other")
    for one in (far, near, stranger):
        exchanges.put(one, None)
    assert exchanges.nearest("code", request().parts(), None) == near
    assert exchanges.nearest("code", request(model="big").parts(), None) == far
    assert exchanges.nearest("other", request().parts(), None) == stranger
    assert exchanges.nearest("nobody", request().parts(), None) is None


def test_a_new_item_is_compared_with_its_family_and_an_old_one_with_itself(exchanges: Exchanges) -> None:
    own = exchange(request("a quite different thing", model="big"), stage="code@T1")
    other = exchange(request("write it, please"), stage="code@T2")
    for one in (own, other):
        exchanges.put(one, None)
    assert exchanges.nearest("code@T1", request().parts(), None) == own
    assert exchanges.nearest("code@T3", request().parts(), None) == other
    assert exchanges.nearest("code", request().parts(), None) == other


def test_the_nearest_is_never_the_same_request(exchanges: Exchanges) -> None:
    exchanges.put(exchange(), None)
    assert exchanges.nearest("code", request().parts(), None) is None


def test_the_nearest_of_many_prompts_begins_alike(exchanges: Exchanges) -> None:
    for prompt in ("zzz", "write it all", "wrong"):
        exchanges.put(exchange(request(prompt)), "t")
    found = exchanges.nearest("code", request("write it").parts(), "t")
    assert found == exchange(request("write it all"))


def test_the_nearest_of_many_differs_in_the_fewest_lines(exchanges: Exchanges) -> None:
    lines = ["one", "two", "three", "four", "five"]
    for count in range(1, 6):
        exchanges.put(exchange(request("\n".join(lines[:count]))), "t")
    for count, last in ((3, "SIX"), (4, "SEVEN")):
        found = exchanges.nearest("code", request("\n".join([*lines[:count], last, *lines[count:]])).parts(), "t")
        assert found == exchange(request("\n".join(lines)))
    assert exchanges.nearest("code", request("one\ntwo\nsix").parts(), "t") == exchange(request("one\ntwo"))


def test_of_a_large_foreach_a_hundred_items_are_compared(exchanges: Exchanges, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(120):
        exchanges.put(exchange(request(f"item {number}"), stage=f"code@T{number}"), None)
    read: list[bytes] = []

    def parse(data: bytes, read_text: Callable[[str], bytes | None] | None = None) -> Exchange:
        read.append(data)
        return parse_exchange(data, read_text)

    monkeypatch.setattr("orch23.store.exchanges.parse_exchange", parse)
    for number in range(3):
        found = exchanges.nearest("code@NEW", request(f"new {number}").parts(), None)
        assert found is not None
    assert len(read) == 3 * 100
    assert exchanges.nearest("code@T7", request("new").parts(), None) == exchange(request("item 7"), stage="code@T7")
    assert len(read) == 3 * 100 + 1, "one of its own is nearer than all others"


def test_an_original_is_found_if_git_converted_its_line_ends(exchanges: Exchanges, tmp_path: Path) -> None:
    digest = exchanges.put_original(b"a\nb\n", "t")
    (tmp_path / "t" / "originals" / digest.sha256).write_bytes(b"a\r\nb\r\n")
    assert exchanges.get_original(digest, "t") == b"a\nb\n"


@pytest.mark.parametrize("place", [None, "t"])
def test_originals_are_kept_beside_the_transcripts(exchanges: Exchanges, tmp_path: Path, place: str | None) -> None:
    digest = exchanges.put_original(b"a person's", place)
    assert exchanges.get_original(digest, place) == b"a person's"
    if place:
        assert (tmp_path / "t" / "originals" / digest.sha256).read_bytes() == b"a person's"
        (tmp_path / "t" / "originals" / digest.sha256).write_bytes(b"tampered")
        with pytest.raises(CorruptStateError):
            exchanges.get_original(digest, place)
    else:
        assert exchanges.get_original(digest, "t") == b"a person's"
        (tmp_path / ".orch23" / "exchanges" / "originals" / digest.sha256).write_bytes(b"tampered")
        assert exchanges.get_original(digest, place) is None


@pytest.mark.slow
def test_after_a_fault_at_any_call_a_response_is_whole_and_a_stored_one_is_never_lost(
    tmp_path: Path, disk: Any, fault: int | None
) -> None:
    one = exchange()
    judged = msgspec.structs.replace(one, outcome="accepted")
    done: list[str] = []

    def make(at: int) -> Callable[[], object]:
        done.clear()
        exchanges = Exchanges(tmp_path / str(at), tmp_path)
        make.at = at  # type: ignore[attr-defined]

        def run() -> None:
            exchanges.put(one, f"t{at}")
            done.append("paid")
            exchanges.put(judged, f"t{at}")

        return run

    def check() -> None:
        at = make.at  # type: ignore[attr-defined]
        reader = Exchanges(tmp_path / str(at), tmp_path)
        found = reader.get(one.fingerprint, f"t{at}")
        assert found in (one, judged) or (found is None and not done)
        assert reader.damaged == []

    assert disk.every_point(make, fault, check) >= 10


@pytest.mark.slow  # without coverage, whose tracing of starting threads fails now and then in CPython 3.11
def test_many_threads_may_put_one_exchange(exchanges: Exchanges) -> None:
    many = [msgspec.structs.replace(exchange(), response=str(n)) for n in range(50)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: exchanges.put(one, "t"), many))
    assert exchanges.get(exchange().fingerprint, "t") in many
    assert exchanges.damaged == []


@pytest.mark.parametrize("write", [ProjectStore.sync, ProjectStore.write_exchanges])
def test_views_of_a_store_share_exchanges(write: Callable[[ProjectStore], None], tmp_path: Path) -> None:
    store, one = open_store(tmp_path), exchange()
    with store.build_lock():  # it makes the store that of this user
        store.for_one_moment().exchanges.put_later(one, None)
        write(store)
    assert open_store(tmp_path).exchanges.get(one.fingerprint, None) == one
