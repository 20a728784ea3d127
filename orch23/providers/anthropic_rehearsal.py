"""Let Anthropic's SDK read an answer that nobody gave, so that the models it reads answers with are made.

The SDK makes them when a first answer comes, which takes as long as to read twenty; and where eight answers come at
once, eight times. No connection is made: the HTTP library has a transport for that.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_USAGE = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": _USAGE}
_EVENTS: Sequence[Mapping[str, Any]] = (
    {"type": "message_start", "message": {**_MESSAGE, "stop_reason": None, "stop_sequence": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": _USAGE},
    {"type": "message_stop"},
)


def rehearse() -> str:
    """Read the answer as a real one is read, and return its text."""
    import anthropic  # noqa: PLC0415 - heavy
    import httpx2  # noqa: PLC0415 - heavy

    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _EVENTS)
    headers = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=text.encode()))
    with (
        httpx2.Client(transport=transport, trust_env=False) as nobody,
        anthropic.Anthropic(api_key="none", base_url="http://127.0.0.1", max_retries=0, http_client=nobody) as client,
        client.messages.stream(model="m", max_tokens=1, messages=[{"role": "user", "content": "a"}]) as stream,
    ):
        return stream.get_final_text()
