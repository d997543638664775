"""GET /health, /v1/models and /v1/models/{id}: what the server says about itself and the one model it has."""

from quart import Response
from quart_trio import QuartTrio

from ninfer.conversation import ModelCard, NotFound
from ninfer.protocols.openai_errors import openai_error
from ninfer.server.answers import Answer, response_of
from ninfer.service.host import ServiceHost

RESERVED = (("GET", "/health"), ("GET", "/v1/models"), ("GET", "/v1/models/{id}"))
"""Methods and paths that no protocol may claim."""


def model_object(card: ModelCard) -> dict[str, object]:
    """The entry of the model list: OpenAI's members, our ceiling, and llama.cpp's `meta`."""
    return {
        "id": card.id,
        "object": "model",
        "created": card.created_unix_s,
        "owned_by": "ninfer",
        "max_model_len": card.max_context_tokens,
        "meta": {
            "n_vocab": card.vocabulary_tokens,
            "n_ctx": card.max_context_tokens,
            "n_ctx_train": card.native_context_tokens,
            "n_embd": card.embedding_width,
            "n_params": card.parameters,
            "size": card.weight_bytes,
            "ftype": card.dominant_format,
        },
    }


def add_routes(app: QuartTrio, host: ServiceHost) -> None:
    """Mount the three routes; the two below /v1 also answer under the doubled prefix."""

    async def health() -> Response:
        if host.starting:
            return _json({"status": "starting"}, 503)
        return _json({"status": "ok"}) if host.accepts_work else _json({"status": "unavailable"}, 503)

    async def list_models() -> Response:
        return _json({"object": "list", "data": [model_object(host.model)]})

    async def get_model(model: str) -> Response:
        try:
            host.check_model(model)
        except NotFound as error:
            wire = openai_error(error)
            return response_of(Answer.of(wire.body, status=wire.status))
        return _json(model_object(host.model))

    app.add_url_rule("/health", "health", health, methods=["GET"])
    for prefix in ("/v1", "/v1/v1"):
        app.add_url_rule(f"{prefix}/models", f"{prefix} models", list_models, methods=["GET"])
        app.add_url_rule(f"{prefix}/models/<path:model>", f"{prefix} model", get_model, methods=["GET"])


def _json(body: dict[str, object], status: int = 200) -> Response:
    return response_of(Answer.of(body, status=status))
