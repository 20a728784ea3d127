"""Limits of the vendors for pictures and PDFs, and the most tokens that these take.

The numbers of pictures, the size of a request and the patches of a picture are of `build-with-claude/vision` of
platform.claude.com. The patches of OpenAI are of its guide `images-vision`, as others quote it, and agree with
measurements of 2026-10 (docs/adr/0045). Tokens of pages, and sizes of files, are taken generously and not verified
against a page: if a limit is too high, the vendor refuses the request. Not checked are the dimensions of a picture, and
the lower numbers for models with 200,000 tokens of context.
"""

import base64
import re
import zlib
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from orch23.model.diagnostic import Diagnostic
from orch23.model.llm import Request
from orch23.model.media import Media

NOT_SHOWN: Final = "E837"
_MIB: Final = 1 << 20


class MediaLimits(Struct, frozen=True, kw_only=True):
    """The limits of a provider, and the most tokens of a picture and of a page.

    `image_bytes` and `pdf_bytes` are of one file, `request_bytes` of all files of a request as they are sent, in
    base64. `images` and `pages` are the most of a request. `model_tokens` are the tokens of a picture, and of a page as
    a picture, for models that take more; `unscaled_tokens` are for models that do not scale a picture down.
    """

    image_bytes: int
    pdf_bytes: int
    request_bytes: int
    images: int
    pages: int
    image_tokens: int
    page_tokens: int
    model_tokens: dict[str, int] = {}
    unscaled_tokens: dict[str, int] = {}


def _of_model(tokens: dict[str, int], model: str) -> int:
    return next((most for name, most in tokens.items() if model.startswith(name)), 0)


NO_MEDIA: Final = MediaLimits(
    image_bytes=0, pdf_bytes=0, request_bytes=0, images=0, pages=0, image_tokens=0, page_tokens=0
)
# A page is read as text (up to 3,000 tokens) and as a picture. A picture takes a token for each 28 x 28 pixels, and is
# scaled down to 2,576 pixels and 3.75 megapixels by models of high resolution, others to less: 92 x 52 patches.
ANTHROPIC_MEDIA: Final = MediaLimits(
    image_bytes=10 * _MIB,
    pdf_bytes=32 * _MIB,
    request_bytes=32 * _MIB,
    images=600,
    pages=600,
    image_tokens=4784,
    page_tokens=4784 + 3000,
)
# By tiles: at most 8 of 170 tokens and 85 more; gpt-4o-mini: 8 of 5,667 and 2,833. By patches of 32 x 32 pixels: at
# most 10,000, times 1.2; from gpt-5.6 on, a picture with `detail: auto` keeps its size, and over 30,000 is refused.
OPENAI_MEDIA: Final = MediaLimits(
    image_bytes=50 * _MIB,
    pdf_bytes=50 * _MIB,
    request_bytes=50 * _MIB,
    images=1500,
    pages=1000,
    image_tokens=12_000,
    page_tokens=12_000 + 3000,
    model_tokens={"gpt-4o-mini": 48_169},
    unscaled_tokens={"gpt-5.6": 36_000, "gpt-6": 36_000},
)


def media_errors(request: Request, limits: MediaLimits) -> Iterator[Diagnostic]:
    """Yield an error for each picture and PDF of a request that the provider would refuse."""
    sizes = {"image": limits.image_bytes, "pdf": limits.pdf_bytes}
    for one in request.media:
        most = sizes[one.kind]
        if len(one.data) > most:
            message = f"has {len(one.data):,} bytes; {request.provider} accepts {most:,} of a file like this"
            yield _refusal(message, "make it smaller", one.path)
        if one.kind == "pdf" and b"/Encrypt" in one.data:
            yield _refusal("is an encrypted PDF, which no model can read", "remove its password", one.path)
    images = sum(one.kind == "image" for one in request.media)
    if images > limits.images:
        message = f"the prompt shows {images} pictures; {request.provider} accepts {limits.images}"
        yield _refusal(message, "show fewer")
    if (pages := sum(pdf_pages(one.data) or 1 for one in request.media if one.kind == "pdf")) > limits.pages:
        message = f"the PDFs of the prompt have {pages} pages; {request.provider} accepts {limits.pages}"
        yield _refusal(message, "show fewer")
    if (total := sum(4 * -(-len(one.data) // 3) for one in request.media)) > limits.request_bytes:
        message = f"pictures and PDFs take {total:,} bytes; {request.provider} accepts {limits.request_bytes:,}"
        yield _refusal(message, "show fewer, or make them smaller")


def _refusal(message: str, hint: str, path: str | None = None) -> Diagnostic:
    return Diagnostic(NOT_SHOWN, f"{message}; no model was called", hint=hint, subject=path)


def media_tokens(request: Request, limits: MediaLimits) -> int:
    """Return the most tokens of the pictures and PDFs of a request."""
    # A picture that the vendor makes, such as of a page, is scaled.
    scaled = _of_model(limits.model_tokens, request.model) or limits.image_tokens
    image = _of_model(limits.unscaled_tokens, request.model) or scaled
    page = limits.page_tokens - limits.image_tokens + scaled
    return sum(image if one.kind == "image" else page * (pdf_pages(one.data) or limits.pages) for one in request.media)


_PAGE: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_OBJECTS: Final = re.compile(rb"/ObjStm\b[^>]*>>\s*stream\r?\n")
_MOST_INFLATED: Final = 64 * _MIB


def pdf_pages(data: bytes) -> int:
    """Count the pages of a PDF: not fewer than it has; 0 if they cannot be counted."""
    found = len(_PAGE.findall(data))
    for match in _OBJECTS.finditer(data):
        try:
            objects = zlib.decompressobj().decompress(data[match.end() :], _MOST_INFLATED)
        except zlib.error:
            return 0
        found += len(_PAGE.findall(objects))
    return found


def base64_text(one: Media) -> str:
    """Return the bytes of a picture or a PDF in base64."""
    return base64.b64encode(one.data).decode("ascii")


def data_url(one: Media) -> str:
    """Return a picture or a PDF as an address that has its bytes."""
    return f"data:{one.type};base64,{base64_text(one)}"
