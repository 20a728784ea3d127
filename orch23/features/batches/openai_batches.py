"""OpenAI's Batch API for the Responses API: upload a file of requests, create, list, poll, read results, cancel."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from orch23.features.batches.submission import read_result
from orch23.features.vendors.openai_client import ServerConnection, invalid_reply_error, parse_reply, server_message
from orch23.features.vendors.openai_responses import read_response, responses_request_body
from orch23.features.vendors.server_replies import list_at, text_at
from orch23.model.batches import BatchResult, VendorBatch
from orch23.model.diagnostic import Diagnostic
from orch23.model.digest import Json, json_builtin
from orch23.model.llm import Request
from orch23.model.parsing import json_at, parse_json
from orch23.providers.faults import CLIENT_ERRORS, TransportError, printable_line, status_error

CALL_S = 300.0
_LABEL = "orch23"
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_STOPPED = _ENDED | {"cancelling"}
_PAGE = 100
_MOST_PAGES = 20
_PLACE = "/v1/responses"
# The codes of requests that were not processed, in the file of errors.
_EXPIRED, _CANCELLED = "batch_expired", "batch_cancelled"
_TOO_MANY_TOKENS = "token_limit_exceeded"


class OpenAIBatches(Struct, frozen=True, kw_only=True):
    """The batches of one server. `is_vendor`: another server may refuse fields that it does not know."""

    connection: ServerConnection
    is_vendor: bool = False
    _files: dict[str, str] = field(default_factory=dict)

    def submit(self, label: str, requests: Mapping[str, Request]) -> str:
        """Upload a file of requests, and create a batch of them with a label. The file of a label is uploaded once."""
        file = self._files.get(label) or self._upload(label, requests)
        self._files[label] = file
        with self.connection.open(self._until()) as client:
            create: Any = client.batches.with_raw_response.create
            reply = create(input_file_id=file, endpoint=_PLACE, completion_window="24h", metadata={_LABEL: label})
        return self._id(parse_reply(reply.content, self._url))

    def _upload(self, label: str, requests: Mapping[str, Request]) -> str:
        lines = [
            {"custom_id": name, "method": "POST", "url": _PLACE, "body": self._body(one)}
            for name, one in requests.items()
        ]
        data = "".join(f"{json.dumps(line, ensure_ascii=False, default=json_builtin)}\n" for line in lines)
        try:
            with self.connection.open(self._until()) as client:
                return client.files.create(file=(f"{_LABEL}-{label}.jsonl", data.encode()), purpose="batch").id
        except TransportError as fault:
            fault.charged = False  # a file alone costs nothing
            raise

    def created_since(self, created_s: float) -> Sequence[VendorBatch]:
        """Return the batches that were created since a Unix time, newest first."""
        found: list[VendorBatch] = []
        after: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            with self.connection.open(self._until()) as client:
                page = parse_reply(client.batches.with_raw_response.list(limit=_PAGE, **after).content, self._url)
            data = list_at(page, "data")
            found += map(self._batch, data)
            if not data or found[-1].created_s < created_s or json_at(page, "has_more") is not True:
                break
            after = {"after": found[-1].id}
        return [one for one in found if one.created_s >= created_s]

    def batch(self, batch_id: str) -> VendorBatch:
        """Return the state of a batch."""
        return self._batch(self._retrieve(batch_id))

    def results(self, batch_id: str, requests: Mapping[str, Request]) -> Iterator[BatchResult]:
        """Yield the results of a batch that has ended, for these requests; those without a line were not processed."""
        reply = self._retrieve(batch_id)
        found: set[str] = set()
        for place in ("output_file_id", "error_file_id"):
            file = text_at(reply, place)
            for line in self._lines(file) if file else ():
                name = text_at(line, "custom_id")
                if name in requests and name not in found:
                    found.add(name)
                    yield self._result(name, line, requests[name])
        for name in requests:
            if name not in found:
                yield _unprocessed(name, reply)

    def cancel(self, batch_id: str) -> None:
        """Ask the vendor to stop a batch; one that has ended, or is being stopped, stays as it is."""
        try:
            with self.connection.open(self._until()) as client:
                client.batches.with_raw_response.cancel(batch_id)
        except TransportError as fault:
            if text_at(self._retrieve(batch_id), "status") not in _STOPPED:
                raise fault from None

    # ---- helpers --------------------------------------------------------------------------

    @property
    def _url(self) -> str:
        return self.connection.server.url

    def _until(self) -> float:
        return self.connection.clock() + CALL_S

    def _body(self, request: Request) -> dict[str, Json]:
        body = responses_request_body(request, background=False, is_vendor=self.is_vendor)
        body.pop("stream", None)
        return body

    def _retrieve(self, batch_id: str) -> Json:
        with self.connection.open(self._until()) as client:
            return parse_reply(client.batches.with_raw_response.retrieve(batch_id).content, self._url)

    def _batch(self, reply: Json) -> VendorBatch:
        created, total = json_at(reply, "created_at"), json_at(reply, "request_counts", "total")
        return VendorBatch(
            id=self._id(reply),
            has_ended=text_at(reply, "status") in _ENDED,
            created_s=float(created) if isinstance(created, int | float) else 0.0,
            requests=total if isinstance(total, int) else 0,
            # One without a label is not one of orch23: it must match none.
            label=text_at(reply, "metadata", _LABEL) or "-",
        )

    def _id(self, reply: Json) -> str:
        found = text_at(reply, "id")
        if not found:
            raise invalid_reply_error(self._url, "a batch without an id")
        return found

    def _lines(self, file: str) -> Iterator[Json]:
        with self.connection.open(self._until()) as client:
            data = client.files.content(file).content
        for line in data.splitlines():
            if line.strip():
                try:
                    yield parse_json(line)
                except ValueError as error:  # also not UTF-8
                    raise invalid_reply_error(self._url, f"a result of a batch: {error}") from None

    def _result(self, name: str, line: Json, request: Request) -> BatchResult:
        code, status = text_at(line, "error", "code"), json_at(line, "response", "status_code")
        body = json_at(line, "response", "body")
        if code == _EXPIRED:
            return BatchResult(fingerprint=name, outcome="expired")
        if code == _CANCELLED:
            return BatchResult(fingerprint=name, outcome="canceled")
        if code or not isinstance(status, int):
            return BatchResult(
                fingerprint=name, outcome="errored", error=_failed(server_message(json_at(line, "error")))
            )
        if status >= CLIENT_ERRORS:
            fault = status_error(f"{self._url} (in a batch)", status, server_message(body))
            return BatchResult(fingerprint=name, outcome="errored", error=fault.diagnostic)
        return read_result(name, lambda: read_response(body, request, self._url, 0.0))


def _unprocessed(name: str, reply: Json) -> BatchResult:
    """Return the result of a request that has no line in the files of a batch."""
    status = text_at(reply, "status")
    if status == "expired":
        return BatchResult(fingerprint=name, outcome="expired")
    if status == "cancelled":
        return BatchResult(fingerprint=name, outcome="canceled")
    errors = list_at(reply, "errors", "data")
    said = "; ".join(text_at(one, "message") for one in errors) or f"the batch is {status}"
    # The vendor accepts a batch first, and then compares it with the limit of tokens in batches.
    is_too_much = any(text_at(one, "code") == _TOO_MANY_TOKENS for one in errors)
    return BatchResult(fingerprint=name, outcome="errored", error=_refused(said) if is_too_much else _failed(said))


def _refused(said: str) -> Diagnostic:
    hint = "build again when other batches of the account have ended: nothing was charged"
    return Diagnostic("E416", f"the vendor refused the batch: {printable_line(said)}", hint=hint)


def _failed(said: str) -> Diagnostic:
    hint = "nothing was charged; read what it says, and build again"
    return Diagnostic("E401", f"the request failed in its batch: {printable_line(said)}", hint=hint)
