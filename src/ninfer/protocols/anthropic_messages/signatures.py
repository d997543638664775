"""Signatures of thinking blocks: where the reasoning travels that a client asked not to be shown (ANTH-022 to -024).

Neither encrypted nor authenticated: the server trusts its callers, and the text is what they could have seen.
"""

import base64
import binascii

from ninfer.conversation import InvalidRequest
from ninfer.protocols.values import shown

HIDDEN = "ninfer-reasoning.v1:"
"""What a signature begins with that carries the reasoning itself; standard Base64 of its UTF-8 follows."""
VISIBLE = "ninfer-visible.v1"
"""The signature of a block whose text is shown. Nobody reads it; SDKs only want one."""


def hidden_signature(reasoning: str) -> str:
    """The signature that carries `reasoning`."""
    return HIDDEN + base64.b64encode(reasoning.encode()).decode("ascii")


def hidden_reasoning(signature: str, path: str) -> str:
    """The reasoning that a signature carries; "" where it is another's and means nothing here.

    Raises:
        InvalidRequest: code invalid_thinking_signature; it is ours and damaged.
    """
    if not signature.startswith(HIDDEN):
        return ""
    try:
        return base64.b64decode(signature.removeprefix(HIDDEN), validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidRequest(
            f"{path}: {shown(signature)} is damaged: after {HIDDEN} comes the Base64 of UTF-8 text",
            code="invalid_thinking_signature",
            param=path,
        ) from None
