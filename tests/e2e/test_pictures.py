"""Pictures and PDFs in prompts: sent as such where the model accepts them, and refused before the call elsewhere."""

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.batch_server import BatchServer
from tests.loopback import Loopback, error_reply, loopback, message_reply
from tests.openai_server import OpenAIServer, chat, response
from tests.project import Project

pytestmark = pytest.mark.slow  # whole builds: `make test` runs them, `make check` does not

KEY = {"ANTHROPIC_API_KEY": "sk-ant-story", "OPENAI_API_KEY": "sk-story"}
PIPELINE = """\
version: 1
name: story
stages:
  look:
    inputs: [note.md, art/a.png, b.pdf]
    outputs: [out.txt]
    llm: {PROVIDER, base_url: "URL", endpoint_alias: there, prompt: look.md.j2, returns: text}
"""
CLAUDE = "provider: anthropic, model: claude-opus-4-8"
PROMPT = "Describe these.\n{{ inputs | blocks }}\nThat is all.\n"
PDF = b"%PDF-1.7\n1 0 obj\n<< /Type /Pages /Count 1 >>\n2 0 obj\n<< /Type /Page >>\n%\xe2\xe3\n"


def png(width: int = 2, note: str = "") -> bytes:
    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0)
    notes = part(b"tEXt", b"Comment\0" + note.encode()) if note else b""
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + notes + part(b"IDAT", zlib.compress(b"\0" * (width + 1)))


PNG = png()


def story(
    root: Path, url: str, provider: str = CLAUDE, prompt: str = PROMPT, files: Mapping[str, bytes] | None = None
) -> Project:
    project = Project(root).write(
        {
            "pipeline.yaml": PIPELINE.replace("URL", url).replace("PROVIDER", provider),
            "look.md.j2": prompt,
            "note.md": "A note.\n",
            "art/a.png": "",
            "b.pdf": "",
        }
    )
    for path, data in {"art/a.png": PNG, "b.pdf": PDF, **(files or {})}.items():
        (root / path).write_bytes(data)
    return project


def content(server: Loopback) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = server.asked[-1].json()["messages"][0]["content"]
    return found


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_claude_gets_pictures_and_pdfs_at_their_places(tmp_path: Path) -> None:
    with loopback(message_reply("seen")) as server:
        project = story(tmp_path, server.url)
        outcome = project.build(env=KEY)
        assert outcome.code == 0, outcome.err
        texts, picture, _, document, _ = content(server)
        assert [part["type"] for part in content(server)] == ["text", "image", "text", "document", "text"]
        assert picture["source"] == {"type": "base64", "media_type": "image/png", "data": in_base64(PNG)}
        assert document["source"] == {"type": "base64", "media_type": "application/pdf", "data": in_base64(PDF)}
        digest = hashlib.sha256(PNG).hexdigest()
        assert texts["text"].startswith("Describe these.\n--- begin ")
        assert texts["text"].endswith(f': "image" path="art/a.png" sha256={digest} ---\n'), "it follows its line"
        assert content(server)[4]["text"].endswith("---\nThat is all.\n")


def test_what_is_kept_has_digests_and_not_the_bytes(tmp_path: Path) -> None:
    with loopback(message_reply("seen")) as server:
        project = story(tmp_path, server.url)
        assert project.build(env=KEY).code == 0
    kept = [path.read_bytes() for folder in (".orch23", "logs") for path in (tmp_path / folder).rglob("*.json*")]
    assert not any(in_base64(PNG).encode() in data or in_base64(PDF).encode() in data for data in kept)
    (exchange,) = [json.loads(data) for data in kept if b'"sent"' in data]
    for messages in (exchange["request"]["messages"], exchange["request"]["sent"]):
        assert f"sha256={hashlib.sha256(PDF).hexdigest()}" in messages[0]["content"]
        assert f"[image/png, {len(PNG):,} bytes]" in messages[0]["content"]
    (reported,) = project.events_of("llm_request")
    files = {one["path"]: (one["bytes"], one["sha256"]) for one in reported["data"]["files"]}
    assert files["art/a.png"] == (len(PNG), hashlib.sha256(PNG).hexdigest())
    assert files["b.pdf"] == (len(PDF), hashlib.sha256(PDF).hexdigest())
    assert reported["data"]["bytes"] > len(PNG) + len(PDF)


def test_another_picture_is_another_request_and_the_first_one_is_replayed(tmp_path: Path) -> None:
    with loopback(message_reply("two"), message_reply("three")) as server:
        project = story(tmp_path, server.url)
        assert project.build(env=KEY).code == 0
        assert project.build(env=KEY).code == 0
        assert len(server.asked) == 1, "nothing changed"
        (tmp_path / "art/a.png").write_bytes(png(3))
        assert project.plan() == {"look": "run"}
        assert project.build(env=KEY).code == 0
        assert project.read("out.txt") == "three\n"
        (tmp_path / "art/a.png").write_bytes(PNG)
        assert project.build("--force", "look", "--replay").code == 0
        assert project.read("out.txt") == "two\n"
        assert len(server.asked) == 2


@pytest.mark.needs("vendors")
def test_gpt_gets_them_with_both_interfaces(tmp_path: Path) -> None:
    data_png, data_pdf = f"data:image/png;base64,{in_base64(PNG)}", f"data:application/pdf;base64,{in_base64(PDF)}"
    with OpenAIServer(response("seen"), chat("seen")) as server:
        for api in ("responses", "chat"):
            provider = f"provider: openai, model: gpt-5.5, api: {api}"
            outcome = story(tmp_path / api, server.url, provider).build(env=KEY)
            assert outcome.code == 0, outcome.err
        by_responses, by_chat = (asked.body for asked in server.asked)
    sent = by_responses["input"][0]["content"]
    assert [part["type"] for part in sent] == ["input_text", "input_image", "input_text", "input_file", "input_text"]
    assert sent[1] == {"type": "input_image", "image_url": data_png, "detail": "auto"}
    assert sent[3] == {"type": "input_file", "filename": "b.pdf", "file_data": data_pdf}
    sent = by_chat["messages"][0]["content"]
    assert [part["type"] for part in sent] == ["text", "image_url", "text", "file", "text"]
    assert sent[1]["image_url"] == {"url": data_png}
    assert sent[3]["file"] == {"filename": "b.pdf", "file_data": data_pdf}


@pytest.mark.parametrize(
    ("provider", "prompt", "refused"),
    [
        ("provider: openai, model: gpt-5.2", PROMPT, ["b.pdf"]),
        ("provider: openai, model: any", PROMPT, ["art/a.png", "b.pdf"]),
        ("provider: anthropic, model: claude-of-tomorrow", PROMPT, ["art/a.png", "b.pdf"]),
        (CLAUDE, PROMPT + "{{ inputs['b.pdf'].text }}", ["b.pdf"]),
        (CLAUDE, "{{ inputs['art/a.png'].text }}", ["art/a.png"]),
    ],
)
def test_others_are_refused_before_the_call(tmp_path: Path, provider: str, prompt: str, refused: list[str]) -> None:
    with loopback() as server:
        outcome = story(tmp_path, server.url, provider, prompt).build(env=KEY)
        assert outcome.code == 1
        reported = {path for path in ("art/a.png", "b.pdf") if f"[E837]: {path}: is binary" in outcome.err}
        assert reported == set(refused), outcome.err
        assert "or show it with `| block` to a model that is known to accept pictures" in outcome.err
        assert not server.asked


@pytest.mark.parametrize("data", [b"BM" + bytes(60), b"PK\x03\x04" + bytes(50), "text".encode("utf-16-le")])
def test_binary_files_that_happen_to_be_utf_8_are_refused(tmp_path: Path, data: bytes) -> None:
    with loopback() as server:
        outcome = story(tmp_path, server.url, CLAUDE, files={"art/a.png": data}).build(env=KEY)
        assert outcome.code == 1
        assert "[E837]: art/a.png: is binary and cannot be shown in a prompt; no model was called" in outcome.err
        assert not server.asked


def test_a_system_prompt_has_no_pictures(tmp_path: Path) -> None:
    with loopback() as server:
        project = story(tmp_path, server.url, CLAUDE + ", system: s.j2", "say\n")
        outcome = project.write({"s.j2": "{{ inputs['art/a.png'] | block }}"}).build(env=KEY)
        assert outcome.code == 1
        assert "[E837]: art/a.png" in outcome.err
        assert not server.asked


def test_a_picture_with_a_secret_in_its_notes_is_not_sent(tmp_path: Path) -> None:
    secret = {**KEY, "MY_TOKEN": "hunter2-and-more-of-it"}
    for how in ("", ", secrets: redact"):
        with loopback() as server:
            noted = png(note=f"token {secret['MY_TOKEN']}")
            outcome = story(tmp_path / f"p{len(how)}", server.url, CLAUDE + how, files={"art/a.png": noted}).build(
                env=secret
            )
            assert outcome.code != 0
            assert "E601" in outcome.err
            assert "art/a.png" in outcome.err
            assert not server.asked


def test_limits_of_the_vendor_are_known_before_the_call(tmp_path: Path) -> None:
    with loopback() as server:
        context = ", context: {max_bytes: 50000k}"
        large = {"art/a.png": PNG + b"\0" * (10 << 20), "b.pdf": PDF + b"/Encrypt 5 0 R"}
        outcome = story(tmp_path, server.url, CLAUDE + context, files=large).build(env=KEY)
        assert outcome.code == 1
        assert f"[E837]: art/a.png: has {len(PNG) + (10 << 20):,} bytes; anthropic accepts 10,485,760" in outcome.err
        assert "[E837]: b.pdf: is an encrypted PDF" in outcome.err
        assert not server.asked


def test_a_budget_reserves_the_most_that_pictures_and_pages_take(tmp_path: Path) -> None:
    with loopback(message_reply("seen")) as server:
        project = story(tmp_path, server.url)
        assert project.build(env=KEY).code == 0
    (reserved,) = project.events_of("call_reserved")
    (reported,) = project.events_of("llm_request")
    texts = reported["data"]["bytes"] - len(PNG) - len(PDF)
    assert reserved["data"]["tokens"] == texts + 1024 + 16 + 32_000 + 4784 + 4784 + 3000


def test_a_changed_block_is_reported(tmp_path: Path) -> None:
    with loopback() as server:
        outcome = story(
            tmp_path, server.url, prompt="{{ inputs['art/a.png'] | block | replace('begin', 'start') }}"
        ).build(env=KEY)
        assert outcome.code != 0
        assert "the block of `art/a.png` is changed" in outcome.err
        assert not server.asked


@pytest.mark.needs("batches")
def test_a_batch_has_the_pictures_too(tmp_path: Path) -> None:
    with BatchServer(lambda _params: "a dot", now=datetime.now(UTC).isoformat()) as server:
        project = story(tmp_path / "p", server.url, f"{CLAUDE}, pace: batch")
        assert project.build(env=KEY).code == 7
        (kept,) = server.batches
        (params,) = kept.requests.values()
        kinds = [part["type"] for part in params["messages"][0]["content"]]
        assert kinds == ["text", "image", "text", "document", "text"]
        server.end()
        assert project.build(env=KEY).code == 0
    assert project.read("out.txt") == "a dot\n"
    assert len(server.submitted) == 1


@pytest.mark.needs("vendors")
@pytest.mark.parametrize("is_down", [False, True])
def test_a_fallback_that_accepts_no_pictures_is_not_called(tmp_path: Path, is_down: bool) -> None:
    down = error_reply(500, "api_error", headers={"retry-after-ms": "5"})
    with (
        loopback(rule=lambda _asked: down if is_down else message_reply("a dot")) as claude,
        OpenAIServer(rule=lambda _asked: chat("I see nothing")) as other,
    ):
        fallback = f'fallback: [{{provider: openai, model: deaf-1, base_url: "{other.url}"}}]'
        outcome = story(tmp_path / "p", claude.url, f"{CLAUDE}, {fallback}").build(env=KEY)
        assert outcome.code == (5 if is_down else 0), outcome.err
        assert claude.asked
        assert not other.asked
