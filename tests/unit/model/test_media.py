"""Pictures and PDFs: recognized by their bytes, and placed in a text."""

import pytest

from orch23.model.media import Media, may_be_media, media_type, read_media, split_text

BYTES = {
    "image/png": b"\x89PNG\r\n\x1a\n\0\0",
    "image/jpeg": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "image/gif": b"GIF89a\x01\0\xff",
    "image/webp": b"RIFF\x24\0\0\0WEBPVP8 ",
    "application/pdf": b"%PDF-1.7\n%\xe2\xe3",
}


@pytest.mark.parametrize(("name", "data"), BYTES.items(), ids=BYTES)
def test_a_file_is_recognized_by_its_bytes_also_if_read_as_text(name: str, data: bytes) -> None:
    assert media_type(data) == name
    assert may_be_media(data.decode("utf-8", "replace"))


@pytest.mark.parametrize("data", [b"", b"text", b"\x89PN", b"RIFF\0\0\0\0WAVE", b"\x7fELF", b"II*\0", b" %PDF-1"])
def test_other_files_are_none(data: bytes) -> None:
    assert media_type(data) is None
    assert read_media("a", data) is None


def placed(name: str) -> Media:
    return Media(path=name, type="image/png", data=b"x", sha256="0", marker=f"<{name}>\n")


def test_a_text_is_split_at_its_media_and_at_the_ends_of_cached_parts() -> None:
    text = "one\ntwo <a>\nthree\n<b>\nfour"
    a, b = placed("a"), placed("b")
    whole = list(split_text(text, (b, a), (4, 18)))
    parts = [("one\n", True), ("two <a>\n", False), (a, False), ("three\n", True), ("<b>\n", False), (b, False)]
    assert whole == [*parts, ("four", False)]
    assert list(split_text("a<a>\n", (a,), (5,))) == [("a<a>\n", True), (a, False)], "it belongs to what follows"
    assert list(split_text("abc", ())) == [("abc", False)]
    assert "data" not in repr(a)
