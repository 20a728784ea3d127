"""Pages of PDFs, and requests with pictures: tokens, and marks for the prompt cache."""

import zlib

import pytest

from orch23.model.llm import CachePolicy, Message, Request
from orch23.model.media import Media
from orch23.providers.media import ANTHROPIC_MEDIA, OPENAI_MEDIA, MediaLimits, media_errors, media_tokens, pdf_pages

PLAIN = b"%PDF-1.4\n<< /Type /Pages /Count 2 >> << /Type /Page >> <</Type/Page/Parent 1 0 R>>"
_INSIDE = zlib.compress(b"<< /Type /Page /Parent 1 0 R >> << /Type /Page >> << /Type /Pages >>")
STREAMED = b"%PDF-1.5\n7 0 obj << /Type /ObjStm /N 3 /Filter /FlateDecode >>\nstream\n" + _INSIDE + b"\nendstream"
OPAQUE = b"%PDF-1.5\n7 0 obj << /Type /ObjStm /N 3 /Filter /LZWDecode >>\nstream\nxyz\nendstream"
SCHEMA = {"type": "object"}


def media(path: str, data: bytes, kind: str = "application/pdf") -> Media:
    return Media(path=path, type=kind, data=data, sha256=path, marker=f"<{path}>\n")


def request(*given: Media, model: str = "claude-opus-4-8", text: str = "", stable: int = 0) -> Request:
    content = text or "".join(one.marker for one in given)
    return Request(
        provider="anthropic",
        model=model,
        endpoint="there",
        system="",
        messages=(Message("user", content, given),),
        identity=(Message("user", content),),
        params={"max_tokens": 10},
        stable=stable,
        cache=CachePolicy("5m", share=True),
    )


@pytest.mark.parametrize(
    ("data", "pages"), [(PLAIN, 2), (STREAMED, 2), (PLAIN + STREAMED, 4), (OPAQUE, 0), (b"%PDF-", 0)]
)
def test_pages_are_counted_also_in_compressed_objects(data: bytes, pages: int) -> None:
    assert pdf_pages(data) == pages


def test_tokens_are_bounded_by_the_number_of_pictures_and_pages() -> None:
    picture = media("a.png", b"x", "image/png")
    page = 4784 + 3000
    assert media_tokens(request(picture, media("b.pdf", STREAMED)), ANTHROPIC_MEDIA) == 4784 + 2 * page
    assert media_tokens(request(media("b.pdf", OPAQUE)), ANTHROPIC_MEDIA) == 600 * page, "as many as the API accepts"
    assert media_tokens(request(picture, model="gpt-4o-mini"), OPENAI_MEDIA) == 48_169
    assert media_tokens(request(picture, model="gpt-4o"), OPENAI_MEDIA) == 12_000


@pytest.mark.parametrize(
    ("model", "measured"),
    [("gpt-6-astra", 14_364), ("gpt-6.2-sol", 14_364), ("gpt-5.6-sol", 14_364), ("gpt-5.5", 11_868)],
)
def test_a_photo_of_twelve_megapixels_is_within_the_bound(model: str, measured: int) -> None:
    """The tokens that a picture of 4032 x 3024 pixels took, with `detail: auto`."""
    picture = media("a.png", b"x", "image/png")
    assert media_tokens(request(picture, model=model), OPENAI_MEDIA) >= measured


def test_pages_are_pictures_that_the_vendor_makes_and_are_scaled() -> None:
    pages = media("b.pdf", STREAMED)
    assert media_tokens(request(pages, model="gpt-6-astra"), OPENAI_MEDIA) == 2 * 15_000
    assert media_tokens(request(pages, model="gpt-4o-mini"), OPENAI_MEDIA) == 2 * (48_169 + 3000)


def test_numbers_and_sizes_over_the_limits_are_errors() -> None:
    few = MediaLimits(image_bytes=4, pdf_bytes=400, request_bytes=8, images=1, pages=1, image_tokens=1, page_tokens=1)
    given = (media("a.png", b"12345", "image/png"), media("b.png", b"1", "image/png"), media("c.pdf", PLAIN))
    found = [f"{one.subject}: {one.message}" for one in media_errors(request(*given), few)]
    assert len(found) == 4
    assert found[0] == "a.png: has 5 bytes; anthropic accepts 4 of a file like this; no model was called"
    assert "shows 2 pictures" in found[1]
    assert "have 2 pages" in found[2]
    assert "take 124 bytes" in found[3]


@pytest.mark.needs("vendors")
def test_marks_of_the_cache_are_at_the_same_text_with_a_picture_before_them() -> None:
    from orch23.features.vendors.anthropic_messages import message_arguments  # noqa: PLC0415 - of the feature

    picture = media("a.png", b"x", "image/png")
    before, after = "rules\n" * 1000 + picture.marker + "more\n" * 10, "the rest\n"
    sent = message_arguments(request(picture, text=before + after, stable=len(before)))["messages"][0]["content"]
    assert [part["type"] for part in sent] == ["text", "image", "text", "text"]
    assert [index for index, part in enumerate(sent) if "cache_control" in part] == [2]
    assert "".join(part["text"] for part in sent[:3] if part["type"] == "text") == before
