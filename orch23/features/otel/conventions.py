"""Names of attributes and values: those of the OpenTelemetry semantic conventions in one version, and those of orch23.

The GenAI conventions are in development, and their package of constants changes with each release. Dashboards depend
on the names, so they change only with `SCHEMA_URL`. It is the last release of the core conventions that has them: later
ones deprecate them in favor of a repository that has no release yet (ADR 54).
"""

from typing import Final

from orch23.model.server_url import host_and_port

CONVENTIONS: Final = "1.41.1"
"""The version of the semantic conventions."""
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{CONVENTIONS}"

ERROR_TYPE: Final = "error.type"
OTHER_ERROR: Final = "_OTHER"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

CHAT: Final = "chat"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"

_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "vertex": "gcp.vertex_ai",
}
_FINISH_REASONS: Final = {"end": "stop", "stop_sequence": "stop", "max_tokens": "length", "refusal": "content_filter"}


def provider_name(provider: str) -> str:
    """Return the name of the conventions for a provider of orch23, else its own name."""
    return _PROVIDERS.get(provider, provider)


def finish_reason(stop: str) -> str:
    """Return the finish reason of the conventions for a stop reason of orch23."""
    return _FINISH_REASONS.get(stop, stop)


def server_attributes(endpoint: str) -> dict[str, str | int]:
    """Return host and port of an endpoint; nothing if it is not an http(s) URL, such as a command."""
    server = host_and_port(endpoint)
    return {} if server is None else {SERVER_ADDRESS: server[0], SERVER_PORT: server[1]}
