"""A hint for a client that asked for a wrong path: most have a base URL that is cut short, or none.

It knows paths and the base URLs that SDKs want (HTTP-003), no protocol.
"""

from collections.abc import Callable

from quart.wrappers import Request

SHOWN_CHARS = 200


def asked(request: Request) -> str:
    """Method and path of a request, as messages name them."""
    return f"{request.method[:SHOWN_CHARS]} {request.path[:SHOWN_CHARS]}".encode("ascii", "backslashreplace").decode()


def hint(path: str, host: str, is_served: Callable[[str], bool]) -> str:
    """What to add to the refusal of a path that is not served, for a client that reached us as `host`; may be empty."""
    url = f"http://{host}"
    if path.strip("/") in ("", "v1"):
        return (
            f"; the base URL is {url}/v1 for OpenAI clients and {url} for Anthropic ones; GET /openapi.json lists all"
        )
    if is_served(f"/v1{path}"):
        return f"; this server answers at /v1{path}, so the base URL is {url}/v1"
    return ""
