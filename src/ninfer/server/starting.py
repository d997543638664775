"""Answers while the model is being loaded: /health tells the state, and every other request is told to try again."""

from quart import Response, request
from quart_trio import QuartTrio

from ninfer.conversation import EngineUnavailable
from ninfer.server.answers import response_of
from ninfer.server.connection import request_id
from ninfer.server.envelopes import Envelopes
from ninfer.service.host import ServiceHost

START_RETRY_S = 5
"""Time after which an early client may try again; the SDKs wait that long, twice."""


def add_start_check(app: QuartTrio, host: ServiceHost, envelopes: Envelopes, open_paths: frozenset[str]) -> None:
    """Refuse everything but `open_paths` until the model is there. Added last: the other checks refuse for good."""

    @app.before_request
    async def check_started() -> Response | None:
        if not host.starting or request.path in open_paths:
            return None
        error = EngineUnavailable(f"the model is being loaded; try again in {START_RETRY_S} s")
        headers = {"retry-after": str(START_RETRY_S)}
        return response_of(envelopes.answer(request.path, error, request_id(request), headers=headers))
